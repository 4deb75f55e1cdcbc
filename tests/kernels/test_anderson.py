"""Anderson moments and extrapolation by their definitions; coefficients: tests/solvers/test_extrapolation.py."""

import pytest
import torch

from ugw.kernels import anderson


def random_costs(shape, count, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return [torch.rand(shape, generator=draw, dtype=torch.float64) for _ in range(count)]


def test_differences_of_inputs_and_residuals():
    g0, g1, g2, f0, f1, f2 = costs = random_costs((2, 3, 4), 6)
    expected = g1 - g0, g2 - g1, (f1 - g1) - (f0 - g0), (f2 - g2) - (f1 - g1), f2 - g2
    for result, difference in zip(anderson.anderson_differences(costs[:3], costs[3:]), expected, strict=True):
        torch.testing.assert_close(result, difference)


# One block, several items in a block, several blocks of rows, blocks of one row.
@pytest.mark.parametrize("shape", [(1, 1, 1), (90, 33, 20), (2, 300, 200), (1, 3, 40_000)], ids=str)
def test_moments(shape):
    inputs, outputs = random_costs(shape, 3), random_costs(shape, 3, seed=3)
    costs = anderson.anderson_differences(inputs, outputs)
    a, b = (side.softmax(1) for side in (*random_costs(shape[:2], 1, 1), *random_costs((shape[0], shape[2]), 1, 2)))
    weight = a[:, :, None] * b[:, None, :]
    means = torch.stack([(weight * c).sum((1, 2)) for c in costs], 1)[:, :, None]
    products = torch.stack([torch.stack([(weight * c * d).sum((1, 2)) for d in costs], 1) for c in costs], 1)
    result = anderson.anderson_moments(a, b, inputs, outputs)
    torch.testing.assert_close(result, (means, products), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_moments_of_an_item_do_not_depend_on_its_batch(dtype):
    inputs, outputs = ([cost.to(dtype) for cost in random_costs((64, 40, 50), 3, seed=k)] for k in (0, 3))
    a, b = (torch.rand(64, size, dtype=dtype) for size in (40, 50))
    batch = anderson.anderson_moments(a, b, inputs, outputs)
    alone = anderson.anderson_moments(a[5:6], b[5:6], [c[5:6] for c in inputs], [c[5:6] for c in outputs])
    assert all(torch.equal(one, many[5:6]) for one, many in zip(alone, batch, strict=True))


def test_extrapolate():
    last_input, *outputs = random_costs((3, 4, 5), 4)
    factors = [torch.tensor(c, dtype=torch.float64) for c in ([0.0, 1.0, 2.0], [0.5, 0.0, -1.0], [0.0, 0.0, 10.0])]
    directions = outputs[1] - outputs[0], outputs[2] - outputs[1], outputs[2] - last_input
    expected = outputs[2] + sum(c[:, None, None] * d for c, d in zip(factors, directions, strict=True))
    torch.testing.assert_close(anderson.extrapolate(last_input, outputs, factors), expected)
