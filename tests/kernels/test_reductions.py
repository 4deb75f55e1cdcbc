"""Sums over entries and extrapolated costs: torch by the definition, Triton (interpreted without a GPU) by torch."""

import pytest
import torch

from ugw.kernels import dispatch as kernels
from ugw.kernels import reductions as entries

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
triton_entries = pytest.importorskip("ugw.kernels.triton.reductions", reason="Triton is not installed")
# One entry, ragged edges, powers of two on an edge, more than one part and strip.
SHAPES = [(1, 1, 1), (3, 5, 9), (2, 16, 16), (2, 33, 20), (1, 100, 100), (2, 9, 1100)]
EACH = pytest.mark.parametrize("shape", SHAPES, ids=str)


def drawn(shape, count, seed=0, dtype=torch.float64):
    draw = torch.Generator().manual_seed(seed)
    return [torch.rand(shape, generator=draw, dtype=torch.float64).to(DEVICE, dtype) for _ in range(count)]


def weights(shape):
    sides = drawn((shape[0], shape[1]), 1, seed=1)[0], drawn((shape[0], shape[2]), 1, seed=2)[0]
    return [side / side.sum(1, keepdim=True) for side in sides]


@EACH
@pytest.mark.parametrize("backend", [entries, triton_entries], ids=["torch", "triton"])
def test_sums(shape, backend):
    u, v = drawn(shape, 2)
    u[u < 0.3] = 0.0
    short, expected = (u.float(), v.float()), (u.float().double(), v.float().double())
    logs = torch.where(expected[0] > 0, expected[0], 1.0).log()
    torch.testing.assert_close(backend.dot(*short), (expected[0] * expected[1]).sum((1, 2)), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(
        backend.l1_distance(*short), (expected[0] - expected[1]).abs().sum((1, 2)), rtol=1e-6, atol=1e-6
    )
    torch.testing.assert_close(backend.neg_entropy(short[0]), (expected[0] * logs).sum((1, 2)), rtol=1e-5, atol=1e-5)


@EACH
def test_covariances_of_steps(shape):
    costs = drawn(shape, 6)
    a, b = weights(shape)
    made = triton_entries.anderson_moments(
        a.float(), b.float(), [c.float() for c in costs[:3]], [c.float() for c in costs[3:]]
    )
    for found, expected in zip(made, entries.anderson_moments(a, b, costs[:3], costs[3:]), strict=True):
        assert found.shape == expected.shape
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@EACH
@pytest.mark.parametrize("backend", [entries, triton_entries], ids=["torch", "triton"])
def test_extrapolated(shape, backend):
    given, *found = drawn(shape, 4)
    c = drawn((shape[0],), 3, seed=3)
    ways = found[1] - found[0], found[2] - found[1], found[2] - given
    expected = found[2] + sum(k[:, None, None] * way for k, way in zip(c, ways, strict=True))
    short = [t.float() for t in (given, *found)]
    made = backend.extrapolate(short[0], short[1:], c)
    assert made.dtype == torch.float32
    torch.testing.assert_close(made.double(), expected, rtol=1e-5, atol=1e-5)


def test_what_is_not_finite_is_told():
    u, v = drawn((2, 3, 4), 2, dtype=torch.float32)
    u[1, 2, 3] = torch.nan
    for sums in (triton_entries.dot(u, v), triton_entries.l1_distance(u, v)):
        assert sums.isfinite().tolist() == [True, False]


class Elsewhere(torch.Tensor):
    """A tensor that says that it is on a GPU."""

    is_cuda = True


def test_torch_serves_where_triton_does_not():
    double, single = drawn((2, 3, 4), 2), drawn((2, 3, 4), 2, dtype=torch.float32)
    one, two = (t.as_subclass(Elsewhere) for t in single)
    assert kernels._of_entries(one, two) is triton_entries
    assert kernels._of_entries(*(t.as_subclass(Elsewhere) for t in double)) is entries
    assert kernels._of_entries(one[0], two) is entries, "one plan for all items"
    with torch.no_grad():
        assert kernels._of_entries(one.requires_grad_(), two) is triton_entries
    assert kernels._of_entries(one, two) is entries, "it wants a gradient"


def test_drawn_rows():
    """At even steps of the weight, wherever points without weight stand; their mean is that of all rows, nearly."""
    a = torch.rand(2, 300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    cost = torch.linspace(0.0, 1.0, 300, dtype=torch.float64)[None, :, None].expand(2, -1, 3).contiguous()
    weights, (rows,) = entries.sample_rows(a, [cost], 40)
    assert rows.shape == (2, 40, 3)
    torch.testing.assert_close(weights.sum(1), torch.ones(2, dtype=torch.float64))
    all_rows = (a[:, :, None] * cost).sum(1) / a.sum(1)[:, None]
    torch.testing.assert_close((weights[:, :, None] * rows).sum(1), all_rows, rtol=0.0, atol=0.01)
    apart_a, apart_cost = torch.zeros(2, 700, dtype=torch.float64), torch.full((2, 700, 3), 9.0, dtype=torch.float64)
    apart_a[:, 1:601:2], apart_cost[:, 1:601:2] = a, cost
    torch.testing.assert_close(entries.sample_rows(apart_a, [apart_cost], 40)[1][0], rows)
