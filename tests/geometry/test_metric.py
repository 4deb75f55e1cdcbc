"""Metrics against dense products."""

import pytest
import torch

from ugw.geometry.metric import DenseMetric


def random_symmetric_matrix(*shape, dtype=torch.float64):
    """A random symmetric tensor that requires gradients."""
    matrix = torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=dtype)
    return (matrix + matrix.mT).requires_grad_()


# n = 5 points, B = 3 items, S = 2 starts, k = 4 columns: no two sizes are equal, so that a wrong transposition fails.
SHAPES = [
    ((5, 5), (5, 4)),
    ((5, 5), (3, 5, 4)),
    ((5, 5), (3, 5, 1)),
    ((5, 5), (2, 3, 5, 4)),
    ((3, 5, 5), (3, 5, 4)),
    ((3, 5, 5), (2, 3, 5, 4)),
    ((3, 5, 5), (5, 4)),
    ((3, 5, 5), (6, 2, 3, 5, 4)),
]


# The last two matrices are squared in several blocks.
@pytest.mark.parametrize(
    ("matrix_shape", "shape"), [*SHAPES, ((2100, 2100), (3, 2100, 1)), ((2, 1500, 1500), (2, 1500, 2))]
)
def test_apply_equals_the_broadcast_product(matrix_shape, shape):
    matrix, v = random_symmetric_matrix(*matrix_shape), torch.randn(shape, dtype=torch.float64)
    torch.testing.assert_close(DenseMetric(matrix).apply(v), matrix @ v)
    torch.testing.assert_close(DenseMetric(matrix).apply_squared(v), matrix**2 @ v)


@pytest.mark.parametrize(("matrix_shape", "shape"), SHAPES)
def test_apply_keeps_the_graph(matrix_shape, shape):
    matrix, v = random_symmetric_matrix(*matrix_shape), torch.randn(shape, dtype=torch.float64)
    for power, product in ((1, DenseMetric(matrix).apply(v)), (2, DenseMetric(matrix).apply_squared(v))):
        weight = torch.randn_like(product)
        (ours,) = torch.autograd.grad((product * weight).sum(), matrix)
        (plain,) = torch.autograd.grad((matrix**power @ v * weight).sum(), matrix)
        # Only the symmetric part of the gradient is defined for a symmetric matrix.
        torch.testing.assert_close(ours + ours.mT, plain + plain.mT)


def test_many_starts_share_one_matrix(monkeypatch):
    pointers = []
    original = torch.Tensor.__matmul__
    monkeypatch.setattr(torch.Tensor, "__matmul__", lambda a, b: pointers.append((a.shape, b.shape)) or original(a, b))
    DenseMetric(random_symmetric_matrix(5, 5)).apply(torch.randn(7, 5, 4, dtype=torch.float64))
    assert pointers == [((28, 5), (5, 5))]


def test_product_from_both_sides_is_contiguous():
    plan = torch.randn(2, 5, 6, dtype=torch.float64)
    dx, dy = DenseMetric(random_symmetric_matrix(5, 5)), DenseMetric(random_symmetric_matrix(6, 6))
    both = dy.apply(dx.apply(plan).mT).mT
    assert both.is_contiguous()
    torch.testing.assert_close(both, dx.matrix @ plan @ dy.matrix)


@pytest.mark.parametrize("index", [[4, 0], [[4, 0], [1, 1], [2, 3]]])
@pytest.mark.parametrize("shape", [(5, 5), (3, 5, 5)])
def test_columns(shape, index):
    matrix, index = random_symmetric_matrix(*shape).detach(), torch.tensor(index)
    columns = DenseMetric(matrix).columns(index)
    if index.ndim == 1:
        assert torch.equal(columns, matrix[..., index])
    else:
        rows = [(matrix[b] if matrix.ndim == 3 else matrix)[:, index[b]] for b in range(3)]
        assert torch.equal(columns, torch.stack(rows))


def test_take_item_scale_to():
    shared, batch = DenseMetric(random_symmetric_matrix(5, 5)), DenseMetric(random_symmetric_matrix(3, 5, 5))
    index = torch.tensor([2, 0])
    assert (shared.batched, batch.batched) == (False, True)
    assert shared.take(index) is shared
    assert torch.equal(batch.take(index).matrix, batch.matrix[[2, 0]])
    assert torch.equal(batch.item(1, 3).matrix, batch.matrix[1, :3, :3])
    assert torch.equal(shared.item(1, 3).matrix, shared.matrix[:3, :3])
    assert torch.equal(batch.scale(2.0).matrix, 2 * batch.matrix)
    factor = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    assert torch.equal(batch.scale(factor).matrix[2], 3 * batch.matrix[2])
    assert torch.equal(shared.scale(factor).matrix[1], 2 * shared.matrix)
    assert batch.to(torch.float32).dtype == torch.float32
    assert batch.factors() is None
