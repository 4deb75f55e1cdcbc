"""Small spaces, tight solvers and central differences of solved values for the tests of gradients."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

import ugw

INF = float("inf")
SHARP = ugw.AlternateMin(tol=1e-11, max_iter=20_000, inner=ugw.Sinkhorn(tol=1e-12, max_iter=2000))
CONIC = replace(SHARP, proximal=ugw.ProximalSchedule(first=0.003, last=0.001, factor=0.8))
STREAMING = replace(SHARP, inner=ugw.Sinkhorn(tol=1e-12, max_iter=2000, method="streaming"))


def rand(*shape: int, seed: int) -> torch.Tensor:
    """Uniform float64 numbers in [0, 1) of the given shape."""
    return torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@dataclass
class Data:
    """Points, weights and features of two spaces; masses about 3.5, or equal ones for balanced problems."""

    x: torch.Tensor
    y: torch.Tensor
    a: torch.Tensor
    b: torch.Tensor
    fx: torch.Tensor
    fy: torch.Tensor

    @classmethod
    def make(cls, *, equal: bool = False, batch: tuple[int, ...] = ()) -> Data:
        """Random data of 4 points in R² and 5 in R³, with leading batch dimensions. equal: of one mass."""
        n, m = 4, 5
        a, b = rand(*batch, n, seed=2) + 0.3, rand(*batch, m, seed=3) + 0.3
        b = b * (a.sum(-1) / b.sum(-1))[..., None] if equal else b
        points = rand(*batch, n, 2, seed=0), rand(*batch, m, 3, seed=1)
        return cls(*points, a, b, rand(*batch, n, 2, seed=4), rand(*batch, m, 2, seed=5))

    def spaces(self, metric: str = "euclidean", metric_y: str | None = None) -> tuple[ugw.Space, ugw.Space]:
        """Both spaces. metric_y: the metric of the second one, if it differs."""
        return (
            ugw.Space.from_points(self.x, weights=self.a, metric=metric, features=self.fx),
            ugw.Space.from_points(self.y, weights=self.b, metric=metric_y or metric, features=self.fy),
        )


def check_gradient(
    value, data: Data, names: str, *, balanced: bool = False, step: float = 1e-5, rtol: float = 1e-6
) -> None:
    """Assert that the derivative of value(data) along a random direction of all inputs equals its central difference.

    Each input has a direction of its own, so an error in any one of the gradients shows in the sum.
    """
    inputs = {name: getattr(data, name) for name in names.split()}
    directions = {name: rand(*t.shape, seed=10 + k) - 0.5 for k, (name, t) in enumerate(inputs.items())}
    if balanced:
        directions |= {name: d - d.mean(-1, keepdim=True) for name, d in directions.items() if name in "ab"}
    leaves = {name: t.clone().requires_grad_() for name, t in inputs.items()}
    gradients = torch.autograd.grad(value(replace(data, **leaves)).sum(), list(leaves.values()))
    slope = sum((g * d).sum() for g, d in zip(gradients, directions.values(), strict=True))
    with torch.no_grad():
        shifted = ({name: t + s * step * directions[name] for name, t in inputs.items()} for s in (1, -1))
        forward, backward = (value(replace(data, **one)).sum() for one in shifted)
    assert torch.allclose(slope, (forward - backward) / (2 * step), rtol=rtol, atol=1e-8)
