"""A distance between spaces: CGW
==============================

UGW violates the triangle inequality, so it is not a distance. The conic distance CGW satisfies it
and is never above UGW.
"""

# %%
# An arc is bent in eight steps from a straight line to nearly a circle. Its mass decreases from step to
# step.

import matplotlib.pyplot as plt
import numpy as np

import ugw

n, steps = 24, 8
arms = []
for k in range(steps):
    bend = 2 * np.pi * k / steps + 1e-9
    angle = bend * np.linspace(-0.5, 0.5, n)
    arms.append(np.stack([np.sin(angle), 1 - np.cos(angle)], axis=1) / bend)
masses = np.linspace(1.0, 0.6, steps)
spaces = [ugw.Space.from_points(arm, weights=np.full(n, mass / n)) for arm, mass in zip(arms, masses, strict=True)]

# %%
# All pairs are solved as one batch. These shapes are similar, so the first lower bound is a sufficient
# start and cheaper than the default search.

first, second = np.triu_indices(steps, k=1)
x, y = (ugw.Space.stack([spaces[i] for i in side]) for side in (first, second))
distance = np.zeros((steps, steps))
conic = ugw.solve_conic(x, y, rho=0.1, init="flb")
distance[first, second] = distance[second, first] = conic.distance
detour = (distance[:, :, None] + distance[None]).min(axis=1)
print(f"{len(conic)} pairs, {conic.converged.mean():.0%} converged; a distance at this rho: {conic.is_metric.all()}")
print("triangle inequality holds for all triples:", bool((detour >= distance - 1e-6).all()))

# %%
# CGW is at most UGW without entropy. `ugw.tightness` certifies this for one pair; the ratio depends on
# rho.

bound = ugw.tightness(spaces[0], spaces[-1], rho=0.1)
print(bound)

# %%
# Classical multidimensional scaling of the distances: the shapes lie on a curve, in order.

center = np.eye(steps) - 1 / steps
values, vectors = np.linalg.eigh(-0.5 * center @ distance**2 @ center)
plane = vectors[:, [-1, -2]] * np.sqrt(values[[-1, -2]])
figure, axes = plt.subplots(1, 2, figsize=(10, 4.3), layout="constrained", width_ratios=[1, 1.25])
image = axes[0].imshow(distance, cmap="viridis")
axes[0].set_title("CGW between all pairs", fontsize=12)
axes[0].set(xticks=[], yticks=[])
figure.colorbar(image, ax=axes[0], fraction=0.046)
axes[1].plot(*plane.T, color="0.8", zorder=0)
size = np.ptp(plane[:, 0]) / 9
for k, arm in enumerate(arms):
    color = plt.get_cmap("viridis")(k / steps)
    axes[1].plot(*(plane[k] + size * (arm - arm.mean(axis=0))).T, ".", color=color, ms=10 * masses[k])
axes[1].set_title("multidimensional scaling of CGW", fontsize=12)
axes[1].set_aspect("equal")
axes[1].axis("off")
plt.show()
