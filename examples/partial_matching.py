"""Partial matching with TV and Mass
=================================

With KL a point without a good counterpart keeps a small part of its mass. With total variation a
point is usually matched fully or not at all. `ugw.TV(rho)` sets a penalty for unmatched mass,
`ugw.Mass(m)` sets the matched mass.
"""

# %%
# Two keys have the same bow, shank and two teeth. Each has further teeth of its own.

import matplotlib.pyplot as plt
import numpy as np

import ugw


def key(teeth):
    """Points of a key, 0.08 apart: a ring, a shank, and teeth at the given places."""
    turn = np.linspace(0, 2 * np.pi, 30, endpoint=False)
    bow = 0.4 * np.stack([np.cos(turn), np.sin(turn)], axis=1)
    shank = np.stack([np.linspace(0.48, 2.4, 25), np.zeros(25)], axis=1)
    bits = [np.stack([np.full(5, place), -0.08 * np.arange(1, 6)], axis=1) for place in teeth]
    return np.concatenate([bow, shank, *bits])


first, second = key((1.2, 1.5, 2.4)), key((1.2, 1.8, 2.1, 2.4))
rotated = second @ [[0.8, 0.6], [-0.6, 0.8]]
weight = 1 / len(first)  # all points of both keys have the same weight
x, y = (ugw.Space.from_points(points, weights=np.full(len(points), weight)) for points in (first, rotated))

# %%
# Three penalties. Partial problems have no entropy. Their solutions are vertices of a polytope, at
# which most points are matched fully or not at all.

results = {
    "KL, rho = 0.05": ugw.solve(x, y, rho=0.05, eps=1e-3).check(),
    "TV, rho = 0.01": ugw.solve(x, y, rho=ugw.TV(0.01)).check(),
    "Mass, 65 points": ugw.solve(x, y, rho=ugw.Mass(65 * weight)).check(),
}
for name, result in results.items():
    share = result.marginals[1] / weight
    in_part = np.mean((share > 0.01) & (share < 0.99))
    print(f"{name:16s} mass {result.mass:.3f}, {in_part:4.0%} of the points matched in part")

# %%
# The second key: blue points are matched fully, white points not at all.

figure, axes = plt.subplots(2, 2, figsize=(10, 4.6), layout="constrained", sharex=True, sharey=True)
axes[0, 0].scatter(*first.T, s=42, color="0.5")
axes[0, 0].set_title("first key", fontsize=12)
for axis, (name, result) in zip(axes.flat[1:], results.items(), strict=True):
    axis.scatter(
        *second.T, s=42, c=result.marginals[1] / weight, cmap="Blues", vmin=0, vmax=1, edgecolors="0.6", lw=0.6
    )
    axis.set_title(f"second key: {name}", fontsize=12)
for axis in axes.flat:
    axis.set_aspect("equal")
    axis.axis("off")
plt.show()
