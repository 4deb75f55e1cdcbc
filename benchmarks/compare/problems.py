"""Seeded problems as distance matrices, weights, rho and eps, and the evaluation of plans."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch

import ugw

PU_SIZE, PU_FOLDS, PU_EPS, PU_RHO = 100, 40, 2.0**-9, 2.0**-7
PU_RHOS = [2.0**-k for k in range(10, 4, -1)]  # 36 pairs
OUTLIERS = 0.1


@dataclass(frozen=True, eq=False)
class Instance:
    """One problem in float64 on the CPU: distances (n, n) and (m, m), weights (n,) and (m,)."""

    dx: np.ndarray
    dy: np.ndarray
    a: np.ndarray
    b: np.ndarray
    rho: float
    eps: float
    _spaces: dict = field(default_factory=dict, init=False, repr=False)  # by device

    @cached_property
    def spaces(self):
        return self.on("cpu", torch.float64, numpy=True)

    def on(self, device, dtype, *, numpy=False):
        """Return the two spaces, made from the distance matrices that the peers also get."""
        sides = ((self.dx, self.a), (self.dy, self.b))
        if not numpy:
            sides = [[torch.as_tensor(v, dtype=dtype, device=device) for v in side] for side in sides]
        return [ugw.Space.from_distances(d, weights=w) for d, w in sides]

    def tensors(self, device="cpu", dtype=torch.float64):
        """Return a, dx, b, dy as tensors."""
        return [torch.as_tensor(v, dtype=dtype, device=device) for v in (self.a, self.dx, self.b, self.dy)]

    @property
    def start(self):
        """Return the product plan a⊗b of mass sqrt(m(a) m(b)), the start of every peer."""
        return np.outer(self.a, self.b) / np.sqrt(self.a.sum() * self.b.sum())

    def evaluate(self, plan):
        """Return the objective of a plan in float64, for all packages. Not finite if the plan is not."""
        plan = torch.as_tensor(plan).detach().double()
        if not bool(torch.isfinite(plan).all()):
            return float("nan")
        return float(ugw.objective(plan, *self._evaluation_spaces(plan.device.type), rho=self.rho, eps=self.eps).total)

    def _evaluation_spaces(self, device):
        """Return the spaces in float64 on the device of the plan."""
        if device not in self._spaces:
            self._spaces[device] = self.on(device, torch.float64)
        return self._spaces[device]


def distances(points):
    """Return Euclidean distances divided by their maximum. (n, d) → (n, n)."""
    t = torch.as_tensor(points)
    d = torch.cdist(t, t, compute_mode="donot_use_mm_for_euclid_dist").numpy()
    return d / d.max()


def clouds(n, *, rho, eps, seed=0, masses=(1.0, 1.0)):
    """Return n uniform points in R³ against n in R², with distances scaled to a maximum of 1."""
    rng = np.random.default_rng(seed)
    x, y = rng.random((n, 3)), rng.random((n, 2))
    return Instance(distances(x), distances(y), *(np.full(n, mass / n) for mass in masses), rho, eps)


def pu_batch(count=PU_FOLDS, n=PU_SIZE):
    """Return many small problems with the sizes and parameters of positive-unlabeled learning."""
    return [clouds(n, rho=PU_RHO, eps=PU_EPS, seed=seed) for seed in range(count)]


def pu_grid(count=PU_FOLDS):
    """Return rho1 and rho2 (count·36,): every pair of the grid for every fold, folds slowest."""
    first, second = (v.ravel() for v in np.meshgrid(PU_RHOS, PU_RHOS, indexing="ij"))
    return np.tile(first, count), np.tile(second, count)


def sheets_with_outliers(n, seed=0):
    """Return points (n, 3) and weights of a bent sheet, and of a rotated second sample of it with 10 % outliers.

    The masses are 1 and 1.1. Points are scaled so that squared distances are at most about 1.
    """
    rng = np.random.default_rng(seed)
    rotation = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    sheets = []
    for _ in range(2):
        u, v = rng.random((2, n))
        sheets.append(np.stack([np.sin(2.0 * u), np.cos(2.0 * u), 0.7 * v], axis=1) + 0.02 * rng.normal(size=(n, 3)))
    x, y = sheets[0], sheets[1] @ rotation
    far = rng.choice(n, int(OUTLIERS * n), replace=False)
    y[far] = y.mean(0) + rng.uniform(-1.5, 1.5, (len(far), 3))
    x, y = ((p - p.mean(0)) / 3.0 for p in (x, y))
    return (x, np.full(n, 1.0 / n)), (y, np.full(n, 1.1 / n))
