"""Implicit plans and their kernel against stored plans and the stored kernel."""

from dataclasses import replace

import pytest
import torch

from oracles.bilinear import entries, random_matrix
from ugw.geometry.implicit_plan import StreamingKernel
from ugw.kernels.dispatch import LogKernel


def random_tensor(*shape, seed):
    """Normal random numbers in float64."""
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def case():
    """A bilinear cost, the streaming and the stored kernel, and potentials; one point on each side has no weight."""
    cost = random_matrix()
    log_a, log_b = (random_tensor(2, k, seed=k).abs().log() for k in (6, 8))
    log_a[0, 2] = log_b[1, 3] = -torch.inf
    eps = torch.tensor([0.3, 0.05], dtype=torch.float64)
    streaming = StreamingKernel.from_cost(cost, log_a, log_b, eps)
    stored = LogKernel(entries(cost) / -eps[:, None, None], log_a, log_b)
    damping = torch.tensor([[0.7], [1.0]], dtype=torch.float64)
    return cost, streaming, stored, random_tensor(2, 8, seed=2), damping


@pytest.fixture
def plans(case):
    """The cost, an implicit plan and the same plan stored."""
    cost, streaming, stored, gamma, damping = case
    return cost, streaming.plan(gamma, damping)[1], stored.plan(gamma, damping)[1]


def test_the_streaming_kernel_equals_the_stored_one(case):
    _, streaming, stored, gamma, damping = case
    for _ in range(2):  # the second time the last sums are the guess
        torch.testing.assert_close(streaming.row_logsumexp(gamma), stored.row_logsumexp(gamma))
        phi, plan, log_mass = streaming.plan(gamma, damping)
        expected_phi, expected, expected_log_mass = stored.plan(gamma, damping)
        torch.testing.assert_close(phi, expected_phi)
        torch.testing.assert_close(log_mass, expected_log_mass)
        torch.testing.assert_close(plan.log_plan.dense().exp(), expected)
        torch.testing.assert_close(streaming.col_logsumexp(phi), stored.col_logsumexp(phi))


def test_sums_and_products_equal_those_of_the_stored_plan(plans):
    cost, plan, expected = plans
    for dim in (1, 2, (1, 2)):
        torch.testing.assert_close(plan.sum(dim), expected.sum(dim))
    v = random_tensor(2, 8, 3, seed=5)
    torch.testing.assert_close(plan @ v, expected @ v)
    torch.testing.assert_close(plan.mT @ v[:, :6], expected.mT @ v[:, :6])
    torch.testing.assert_close(plan.basis_product, cost.left.mT @ expected @ cost.right)
    torch.testing.assert_close(plan.rows(torch.tensor([5, 0])), expected[:, [5, 0]])


def test_inner_products_with_matrices_over_the_same_bases(plans):
    cost, plan, expected = plans
    matrix = replace(random_matrix(3), left=cost.left, right=cost.right)
    torch.testing.assert_close(plan.dot(matrix), (entries(matrix) * expected).sum((1, 2)))


def test_multiples_scale_entries_and_sums(plans):
    _, plan, expected = plans
    factor = torch.tensor([2.0, 0.3], dtype=torch.float64)[:, None, None]
    for scaled, stored in ((plan * factor, factor * expected), (plan / factor, expected / factor)):
        torch.testing.assert_close(scaled.log_plan.dense().exp(), stored)
        torch.testing.assert_close(scaled.mT.sum(2), stored.sum(1))


def test_the_log_ratio_to_the_product_of_the_weights_ignores_points_without_weight(case, plans):
    _, streaming, _, _, _ = case
    _, plan, expected = plans
    log_a, log_b = streaming.log_a, streaming.log_b
    ratio = plan.log_ratio(log_a, log_b).dense()
    has_weight = (log_a[:, :, None] > -torch.inf) & (log_b[:, None, :] > -torch.inf)
    reference = expected.log() - log_a[:, :, None] - log_b[:, None, :]
    torch.testing.assert_close(ratio[has_weight], reference[has_weight])
    assert torch.isfinite(ratio).all()


def test_crop_and_take_select_points_and_items(plans):
    _, plan, expected = plans
    cropped = plan.crop(4, 5)
    torch.testing.assert_close(cropped.log_plan.dense().exp(), expected[:, :4, :5])
    assert (cropped.f.shape, cropped.g.shape) == ((2, 4), (2, 5))
    item = plan.take(torch.tensor([1]))
    torch.testing.assert_close(item.log_plan.dense().exp(), expected[[1]])
    torch.testing.assert_close(item.sum(2), expected.sum(2)[[1]])
