"""Fit a cloud to a rotated target with outliers by gradient descent: unbalanced against balanced.

Run it: python examples/align.py [folder], about half a minute. It writes align.png.
"""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from debiased_flow import placed

import ugw


def spiral(n: int) -> torch.Tensor:
    """A planar spiral arm."""
    angle = torch.linspace(0.6, 4.6, n, dtype=torch.float64)
    return torch.stack([angle * angle.cos(), angle * angle.sin()], dim=1) / 4.5


def fitted(source: torch.Tensor, target: ugw.Space, rho: float, steps: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Points moved from the source until their distances fit the target's, and the last plan."""
    points = source.clone().requires_grad_()
    loss = ugw.UGWLoss(rho=rho, eps=0.02, debiased=True, init="last", solver=ugw.AlternateMin(tol=1e-5))
    optimiser = torch.optim.Adam([points], lr=0.03)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        optimiser.zero_grad()
        loss(points, target).backward()
        optimiser.step()
        schedule.step()
    return points.detach(), loss.result.cross.plan


def main(folder: str = ".", steps: int = 70) -> dict[float, float]:
    """Fit with both, draw, and give the relative error of the distances within the shape."""
    shape, generator = spiral(40), torch.Generator().manual_seed(0)
    turn = torch.tensor([[0.31, -0.95], [0.95, 0.31]], dtype=torch.float64)
    noise = [torch.randn(n, 2, dtype=torch.float64, generator=generator) for n in (40, 8)]
    strays = 1.7 + 0.15 * noise[1]
    cloud = torch.cat([shape @ turn + 0.01 * noise[0], strays])
    # The shape has mass 1, the strays come on top; balanced transport has to be told that the masses agree.
    target = {0.3: ugw.Space.from_points(cloud, weights=torch.full((48,), 1 / 40, dtype=torch.float64))}
    target[float("inf")] = ugw.Space.from_points(cloud)
    source = shape * torch.tensor([0.6, 1.2], dtype=torch.float64)  # squeezed, so there is something to fit
    figure, axes = plt.subplots(1, 3, figsize=(10.5, 3.9), sharex=True, sharey=True, layout="constrained")
    errors = {}
    true = torch.cdist(shape, shape)
    for axis, rho in zip(axes[1:], (float("inf"), 0.3), strict=True):
        points, plan = fitted(source, target[rho], rho, steps)
        errors[rho] = float((torch.cdist(points, points) - true).norm() / true.norm())
        onto = placed(points, cloud, plan)
        axis.scatter(*onto.T, s=16, color="#2a6f97" if rho == 0.3 else "#bc4b51")
        name = "balanced GW" if rho == float("inf") else "unbalanced, rho = 0.3"
        axis.set_title(f"{name}: distances off by {errors[rho]:.0%}", size=10)
    start = float((torch.cdist(source, source) - true).norm() / true.norm())
    axes[0].scatter(*(source - source.mean(0) + cloud[:40].mean(0)).T, s=16, color="#7a7a7a")
    axes[0].set_title(f"the cloud before: distances off by {start:.0%}", size=10)
    for axis in axes:
        axis.scatter(*cloud.T, s=30, facecolors="none", edgecolors="0.55", linewidths=0.8, zorder=0)
        axis.set_aspect("equal")
        axis.axis("off")
    figure.savefig(Path(folder) / "align.png", dpi=110)
    return errors


if __name__ == "__main__":
    print(main(*sys.argv[1:2]))
