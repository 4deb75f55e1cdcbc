"""Fitting a cloud to a target with outliers
=========================================

Gradient descent fits the points of a squeezed spiral to a rotated copy of the true one. The target has additional
outliers, a fifth of its mass. Balanced Gromov–Wasserstein must match them; unbalanced Gromov–Wasserstein leaves them
unmatched.
"""

# %%
# The spiral has mass 1 and the outliers add to it. Balanced GW requires equal masses, so its target is normalized.

import matplotlib.pyplot as plt
import torch

import ugw

STEPS = 60
generator = torch.Generator().manual_seed(0)
angle = torch.linspace(0.6, 4.6, 30, dtype=torch.float64)
spiral = torch.stack([angle * angle.cos(), angle * angle.sin()], dim=1) / 4.5
turn = torch.tensor([[0.31, -0.95], [0.95, 0.31]], dtype=torch.float64)
noise, outliers = (torch.randn(n, 2, dtype=torch.float64, generator=generator) for n in (30, 6))
cloud = torch.cat([spiral @ turn + 0.01 * noise, 1.7 + 0.15 * outliers])
squeezed = spiral * torch.tensor([0.6, 1.2], dtype=torch.float64)

# %%
# Only distances are fitted, so the result is determined up to rotation, reflection and translation.


def fit(target: ugw.Space, rho: float) -> tuple[torch.Tensor, ugw.Result]:
    """Fit the squeezed spiral to a target. Returns its points and the last result."""
    points = squeezed.clone().requires_grad_()
    solver = ugw.AlternateMin(tol=1e-4)
    loss = ugw.UGWLoss(rho=rho, eps=0.02, debiased=True, init="last", solver=solver)
    optimizer = torch.optim.Adam([points], lr=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss(points, target).backward()
        optimizer.step()
        schedule.step()
    return points.detach(), loss.result.cross


def error(points: torch.Tensor) -> torch.Tensor:
    """Relative error of the distances, in the Frobenius norm."""
    true = torch.cdist(spiral, spiral)
    return (torch.cdist(points, points) - true).norm() / true.norm()


heavy = ugw.Space.from_points(cloud, weights=torch.full((36,), 1 / 30, dtype=torch.float64))
fits = {"balanced": fit(ugw.Space.from_points(cloud), float("inf")), "unbalanced, rho = 0.3": fit(heavy, 0.3)}

# %%
# Circles: the target. Dots: the points, turned to lie as their partners do.

plt.rcParams["figure.constrained_layout.h_pad"] = 0.1
start = ugw.solve(ugw.Space.from_points(squeezed), heavy, rho=0.3, eps=0.02)
panels = {"before": (squeezed, start), **fits}
figure, axes = plt.subplots(1, 3, figsize=(12, 3.7), layout="constrained", sharex=True, sharey=True)
colors = ("0.35", "#D55E00", "#0072B2")
for axis, color, (name, (points, result)) in zip(axes, colors, panels.items(), strict=True):
    print(f"{name}: distances off by {error(points):.0%}")
    middle = (result.plan.sum(0) @ cloud / result.plan.sum()).numpy()
    axis.scatter(*cloud.T, s=44, facecolors="none", edgecolors="0.55", lw=1.1)
    axis.scatter(*(middle + ugw.plots.aligned(result.plan.T, cloud, points)).T, s=26, color=color)
    axis.set_title(f"{name}: distances off by {error(points):.0%}", fontsize=12)
    axis.set_aspect("equal")
    axis.axis("off")
plt.show()
