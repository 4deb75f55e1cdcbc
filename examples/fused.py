"""Features beside distances
=========================

Distances alone cannot determine the matching of a symmetric shape. Features that both spaces share
resolve the symmetry: `ugw.Fused(alpha)` adds alpha times the mean squared difference of the
features to the objective.
"""

# %%
# Two flowers have four petals each; the second is rotated by an eighth of a turn. The feature is a
# color. Half of the points have the mean color instead, which contains no information.

import matplotlib.pyplot as plt
import numpy as np

import ugw

rng = np.random.default_rng(0)
angle = np.linspace(0, 2 * np.pi, 96, endpoint=False)
radius = 1 + 0.5 * np.cos(4 * angle)
flower = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
turn = np.array([[np.cos(np.pi / 4), np.sin(np.pi / 4)], [-np.sin(np.pi / 4), np.cos(np.pi / 4)]])
hue = np.stack([np.cos(angle), np.sin(angle)], axis=1)  # the color wheel
faded = hue * (rng.random((96, 1)) < 0.5)
x = ugw.Space.from_points(flower, features=faded)
y = ugw.Space.from_points(flower @ turn + 0.01 * rng.normal(size=flower.shape), features=faded)

# %%
# Petal k corresponds to petal k. A product plan sends 25 % of the mass to the correct petal. Without
# features the share is 0 % or 100 %, depending on the start.

petal = np.floor((angle / (np.pi / 2) + 0.5) % 4)
alphas = (0.0, 0.02)
results = []
for alpha in alphas:
    fused = ugw.Fused(alpha) if alpha else None
    result = ugw.solve(x, y, rho=1.0, eps=5e-3, fused=fused).check()
    right = result.plan[petal[:, None] == petal].sum() / result.mass
    print(f"alpha = {alpha:g}: {right:.0%} to the correct petal, distortion {result.terms.distortion:.4f}")
    results.append(result)

# %%
# The plans transfer the colors of the first flower to the second.

colors = plt.get_cmap("hsv")(angle / (2 * np.pi))[:, :3]
figure, axes = plt.subplots(1, 3, figsize=(10.5, 3.9), layout="constrained")
axes[0].scatter(*flower.T, c=colors, s=45)
axes[0].set_title("first flower", fontsize=12)
for axis, alpha, result in zip(axes[1:], alphas, results, strict=True):
    axis.scatter(*(flower @ turn).T, c=np.clip(result.transport(colors), 0, 1), s=45)
    axis.set_title(f"second flower, alpha = {alpha:g}", fontsize=12)
for axis in axes:
    axis.set_aspect("equal")
    axis.axis("off")
plt.show()
