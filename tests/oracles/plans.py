"""Random plans, their marginals and product plans as tensors, and a plan that is not stored."""

import torch

import ugw
from oracles.spaces import space

STREAMING = ugw.AlternateMin(inner=ugw.Sinkhorn(method="streaming"))


def random_plans(batch=2, n=4, m=5, dtype=torch.float64, seed=0):
    """Return positive random plans (batch, n, m) of any mass."""
    return torch.rand(batch, n, m, dtype=dtype, generator=torch.Generator().manual_seed(seed)) + 0.1


def log_marginals(plans):
    """Return the logs of both marginals, (B, n) and (B, m), of plans divided by their mass."""
    plans = plans / plans.sum(dim=(1, 2), keepdim=True)
    return plans.sum(2).log(), plans.sum(1).log()


def product_plan(log_a, log_b):
    """Return the product plan a⊗b, (B, n, m)."""
    return log_a.exp()[:, :, None] * log_b.exp()[:, None, :]


def streamed_result():
    """Return the result of a solve between 30 and 20 points of masses 1 and 2, whose plan is not stored."""
    x, y = space(30, 3, 0, metric="sqeuclidean"), space(20, 2, 1, mass=2.0, metric="sqeuclidean")
    return ugw.solve(x, y, rho=0.5, eps=0.02, solver=STREAMING)
