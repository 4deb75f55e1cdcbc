"""Gradient descent on points: the entropic loss shrinks the shape that its debiased form recovers.

Run it: python examples/debiased_flow.py [folder], about half a minute. It writes debiased_flow.png.
"""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch

import ugw


def cross(n: int, seed: int) -> torch.Tensor:
    """Points of a cross with one long arm, evenly spaced along its arms."""
    generator = torch.Generator().manual_seed(seed)
    along = torch.linspace(0.08, 1.0, n // 4, dtype=torch.float64)
    arms = [(1.6, 0.0), (-0.7, 0.0), (0.0, 0.9), (0.0, -0.9)]
    points = torch.cat([along[:, None] * torch.tensor(arm, dtype=torch.float64) for arm in arms])
    return points + 0.02 * torch.randn(points.shape, dtype=torch.float64, generator=generator)


def flow(target: torch.Tensor, steps: int, *, debiased: bool) -> tuple[torch.Tensor, list[float], ugw.UGWLoss]:
    """Descend from a blob; the points' own distances are all that the loss sees."""
    generator = torch.Generator().manual_seed(1)
    points = (0.4 * torch.randn(target.shape, dtype=torch.float64, generator=generator)).requires_grad_()
    loss = ugw.UGWLoss(rho=1.0, eps=0.05, debiased=debiased, init="last")
    optimiser = torch.optim.Adam([points], lr=0.03)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    values = []
    for _ in range(steps):
        optimiser.zero_grad()
        value = loss(points, target)
        value.backward()
        optimiser.step()
        schedule.step()
        values.append(value.item())
    return points.detach(), values, loss


def placed(points: torch.Tensor, target: torch.Tensor, plan: torch.Tensor) -> torch.Tensor:
    """The points turned and shifted onto their partners, for the picture: the loss knows no orientation."""
    mass = plan.sum()
    mean_x, mean_y = (plan.sum(1) @ points) / mass, (plan.sum(0) @ target) / mass
    left, _, right = torch.linalg.svd((points - mean_x).T @ plan @ (target - mean_y))
    return (points - mean_x) @ left @ right + mean_y


def main(folder: str = ".", steps: int = 150) -> dict[bool, float]:
    """Both flows, a picture, and how long the recovered shape is beside the target."""
    target = cross(60, seed=0)
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.6), sharex=True, sharey=True, layout="constrained")
    lengths = {}
    for axis, debiased in zip(axes, (False, True), strict=True):
        points, values, loss = flow(target, steps, debiased=debiased)
        plan = loss.result.cross.plan if debiased else loss.result.plan
        lengths[debiased] = float(torch.pdist(points).mean() / torch.pdist(target).mean())
        name = "debiased UGW" if debiased else "UGW"
        axis.scatter(*target.T, s=26, facecolors="none", edgecolors="0.55", linewidths=0.9, label="target")
        axis.scatter(*placed(points, target, plan).T, s=14, color="#2a6f97" if debiased else "#bc4b51", label="points")
        axis.set_title(f"{name}: loss {values[-1]:.4f}, mean distance {lengths[debiased]:.0%} of the target's", size=9)
        axis.set_aspect("equal")
        axis.axis("off")
    axes[1].legend(loc="lower right", frameon=False, fontsize=9)
    figure.savefig(Path(folder) / "debiased_flow.png", dpi=110)
    return lengths


if __name__ == "__main__":
    print(main(*sys.argv[1:2]))
