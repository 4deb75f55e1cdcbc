"""A generator in R³ for data in R²
================================

A network learns to generate points in R³ whose distances match those of samples in R². Points of one space are never
compared with points of the other.
"""

# %%
# The data are three arms of different lengths; the number of samples is proportional to the length.

import matplotlib.pyplot as plt
import torch

import ugw

STEPS = 140
generator = torch.Generator().manual_seed(0)
torch.manual_seed(0)


def sample(n: int) -> torch.Tensor:
    """n points of the arms, (n, 2)."""
    ends = torch.tensor([[2.0, 0.0], [-0.5, 1.2], [-0.4, -0.7]])
    indices = torch.multinomial(ends.norm(dim=1), n, replacement=True, generator=generator)
    along = torch.rand(n, 1, generator=generator) * ends[indices]
    return along + 0.05 * torch.randn(n, 2, generator=generator)


# %%
# The debiased loss trains the network on one sample. With a large eps it has few local minima, so eps decreases during
# training.

layers = [torch.nn.Linear(2, 64), torch.nn.SiLU(), torch.nn.Linear(64, 64), torch.nn.SiLU(), torch.nn.Linear(64, 3)]
network = torch.nn.Sequential(*layers)
solver = ugw.AlternateMin(tol=1e-3)
loss = ugw.UGWLoss(rho=2.0, debiased=True, init="last", solver=solver)
optimizer = torch.optim.Adam(network.parameters(), lr=2e-2)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
latent, data = torch.rand(100, 2, generator=generator), sample(100)
for step in range(STEPS):
    loss.eps = 0.2 * 0.05 ** (step / STEPS)
    optimizer.zero_grad()
    value = loss(network(latent), data)
    value.backward()
    optimizer.step()
    schedule.step()
with torch.no_grad():
    data, generated = sample(300), network(torch.rand(300, 2, generator=generator))
    test_value = ugw.debiased(generated, data, rho=2.0, eps=0.02, solver=solver)
print(f"debiased loss {value.item():.3f} at the end of training, {test_value.value.item():.3f} on fresh samples")

# %%
# The plan transfers the colors. The orientation in R³ is arbitrary: the points are rotated to align with the data.

plan, flat = test_value.cross.plan, torch.nn.functional.pad(data, (0, 1))
aligned = ugw.plots.align_points(plan.T, flat, generated)
hue = torch.atan2(data[:, 1], data[:, 0] + 0.3)
plt.rcParams["figure.constrained_layout.h_pad"] = 0.1
figure = plt.figure(figsize=(11, 4.6), layout="constrained")
left, right = figure.add_subplot(1, 2, 1), figure.add_subplot(1, 2, 2, projection="3d")
left.scatter(*data.T, c=hue, s=16, cmap="turbo")
left.set_aspect("equal")
left.set_title("data in R²", fontsize=12)
right.scatter(*aligned.T, c=hue[plan.argmax(1)], s=16, cmap="turbo")
right.set_title("generated points in R³", fontsize=12)
right.set_box_aspect((3.0, 2.2, 0.9), zoom=1.2)
right.set_zlim(-0.5, 0.5)
right.set_zticks([-0.5, 0.5])
right.view_init(elev=60, azim=-80)
plt.show()
