"""Random metrics and plans, and the four-index sum written out, for the tests of distortion sums."""

import numpy as np
import torch

from ugw.geometry.metric import DenseMetric

N, M, B = 5, 6, 4
BATCHED = [(False, False), (True, False), (False, True), (True, True)]


def random_metrics(batched_x, batched_y, n=N, m=M, batch=B, seed=0):
    """Distances of random points in R³ and R²; a batched side has one matrix for each item."""
    rng = np.random.default_rng(seed)

    def distances(n, d):
        """Distances (n, n) of random points in R^d."""
        points = torch.as_tensor(rng.random((n, d)))
        return torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist")

    def metric(n, d, batched):
        """A dense metric of random points, with one matrix per item if batched."""
        return DenseMetric(torch.stack([distances(n, d) for _ in range(batch)]) if batched else distances(n, d))

    return metric(n, 3, batched_x), metric(m, 2, batched_y)


def random_plans(batch=B, n=N, m=M, seed=1):
    """Random entries in [0, 1), (batch, n, m), float64."""
    return torch.as_tensor(np.random.default_rng(seed).random((batch, n, m)))


def item_matrix(metric, b):
    """The distance matrix (n, n) of batch item b in float64."""
    dense = metric.dense().double()
    return dense[b] if dense.ndim == 3 else dense


def explicit_sum(dx, dy, g, plan):
    """Σ g(|Dx_ii' − Dy_jj'|) plan_i'j', item by item; g: one function, or a list with one for each item."""
    sums = []
    for b in range(len(plan)):
        t = (item_matrix(dx, b)[:, None, :, None] - item_matrix(dy, b)[None, :, None, :]).abs()
        sums.append(torch.einsum("ijkl,kl->ij", (g[b] if isinstance(g, list) else g)(t), plan[b].double()))
    return torch.stack(sums)


def rho_total(*rhos):
    """rho1 + rho2 for equal rhos on both sides, one for each item."""
    return torch.tensor([2.0 * rho for rho in rhos], dtype=torch.float64)


def gaussian_kernel(rho):
    """The conic kernel exp(−t²/2rho) of the Gaussian–Hellinger cone."""
    return lambda t: torch.exp(-(t**2) / (2 * rho))


def assert_close(result, expected, mass, tol=1e-8):
    """Assert that sums agree to `tol` times the mass of the plan."""
    assert result.shape == expected.shape
    assert float((result.double() - expected).abs().max()) <= tol * mass
