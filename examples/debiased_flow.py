"""Points that flow: entropy shrinks a shape, debiasing does not
=============================================================

Points descend from a blob along the gradient of a loss towards a target; all that the loss sees is distances within
each. With entropy the loss is lowest for something smaller and rounder than the target. The debiased loss has its
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
blob = 0.4 * torch.randn(target.shape, dtype=torch.float64, generator=generator)

# %%
# A loss is a module as any other. `init="last"` starts each solve from the plan before, which is nearly right.


def flow(*, debiased: bool) -> tuple[torch.Tensor, float, ugw.Result]:
    """Descend from the blob. Returns the points, the loss at the end, and the last plan."""
    points = blob.clone().requires_grad_()
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
# The loss knows no orientation: for the picture the points are turned to lie as their partners do.

plt.rcParams["figure.constrained_layout.h_pad"] = 0.1
figure, axes = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained", sharex=True, sharey=True)
for axis, debiased in zip(axes, (False, True), strict=True):
    points, value, result = flow(debiased=debiased)
    length = torch.pdist(points).mean() / torch.pdist(target).mean()
    name = "debiased" if debiased else "with entropy"
    print(f"{name}: loss {value:.4f}, mean distance {length:.0%} of the target's")
    turned = ugw.plots.aligned(result.plan.T, target, points)
    centered = target - result.plan.sum(0) @ target / result.plan.sum()
    axis.scatter(*centered.T, s=44, facecolors="none", edgecolors="0.55", lw=1.1, label="target")
    axis.scatter(*turned.T, s=26, color="#0072B2" if debiased else "#D55E00", label="points")
    axis.set_title(f"{name}: mean distance {length:.0%} of the target's", fontsize=12)
    axis.set_aspect("equal")
    axis.axis("off")
    axis.legend(frameon=False, loc="lower right", fontsize=12)
plt.show()
