"""A gradient flow with the entropic and the debiased loss
=======================================================

Points move from a random cloud along the gradient of a loss toward a target. The loss depends only on distances within
each set. The entropic loss has its minimum at a smaller, rounder shape than the target. The debiased loss has its
minimum, 0, at the target.
"""

# %%
# The target is a cross with one long arm.

import matplotlib.pyplot as plt
import torch

import ugw

STEPS = 80
generator = torch.Generator().manual_seed(0)
arms = torch.tensor([(1.6, 0.0), (-0.7, 0.0), (0.0, 0.9), (0.0, -0.9)], dtype=torch.float64)
target = (torch.linspace(0.08, 1.0, 10, dtype=torch.float64)[:, None, None] * arms).flatten(0, 1)
target += 0.02 * torch.randn(target.shape, dtype=torch.float64, generator=generator)
cloud = 0.4 * torch.randn(target.shape, dtype=torch.float64, generator=generator)

# %%
# `UGWLoss` is a torch module. `init="last"` starts each solve from the previous plan, which is close to the solution.


def flow(*, debiased: bool) -> tuple[torch.Tensor, float, ugw.Result]:
    """Run gradient descent from the random cloud. Returns the points, the final loss and the last result."""
    points = cloud.clone().requires_grad_()
    solver = ugw.AlternateMin(tol=1e-4)
    loss = ugw.UGWLoss(rho=1.0, eps=0.05, debiased=debiased, init="last", solver=solver)
    optimizer = torch.optim.Adam([points], lr=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for _ in range(STEPS):
        optimizer.zero_grad()
        value = loss(points, target)
        value.backward()
        optimizer.step()
        schedule.step()
    return points.detach(), value.item(), loss.result.cross if debiased else loss.result


# %%
# The loss is invariant to rotations: for the plot the points are rotated to align with their partners.

plt.rcParams["figure.constrained_layout.h_pad"] = 0.1
figure, axes = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained", sharex=True, sharey=True)
for axis, debiased in zip(axes, (False, True), strict=True):
    points, value, result = flow(debiased=debiased)
    length = torch.pdist(points).mean() / torch.pdist(target).mean()
    name = "debiased" if debiased else "with entropy"
    print(f"{name}: loss {value:.4f}, mean distance {length:.0%} of the target's")
    aligned = ugw.plots.align_points(result.plan.T, target, points)
    centered = target - result.plan.sum(0) @ target / result.plan.sum()
    axis.scatter(*centered.T, s=44, facecolors="none", edgecolors="0.55", lw=1.1, label="target")
    axis.scatter(*aligned.T, s=26, color="#0072B2" if debiased else "#D55E00", label="points")
    axis.set_title(f"{name}: mean distance {length:.0%} of the target's", fontsize=12)
    axis.set_aspect("equal")
    axis.axis("off")
    axis.legend(frameon=False, loc="lower right", fontsize=12)
plt.show()
