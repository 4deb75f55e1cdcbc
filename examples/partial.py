"""Partial matching: in full or not at all
=======================================

KL thins a plan out: where a point has no good partner its mass falls, but rarely to 0. Total
variation decides: a point is matched in full or left behind. `ugw.TV(rho)` sets a price for what is
left behind, `ugw.Mass(m)` says how much is matched.
"""

# %%
# Two keys with the same bow. They share their shank and two teeth; each has others of its own.

import matplotlib.pyplot as plt
import numpy as np

import ugw


def key(teeth):
    """A ring, a shank, and teeth at some places, as points 0.08 apart."""
    turn = np.linspace(0, 2 * np.pi, 30, endpoint=False)
    bow = 0.4 * np.stack([np.cos(turn), np.sin(turn)], axis=1)
    shank = np.stack([np.linspace(0.48, 2.4, 25), np.zeros(25)], axis=1)
    bits = [np.stack([np.full(5, place), -0.08 * np.arange(1, 6)], axis=1) for place in teeth]
    return np.concatenate([bow, shank, *bits])


first, second = key((1.2, 1.5, 2.4)), key((1.2, 1.8, 2.1, 2.4))
turned = second @ [[0.8, 0.6], [-0.6, 0.8]]
weight = 1 / len(first)  # every point weighs the same on both sides
x, y = (ugw.Space.from_points(points, weights=np.full(len(points), weight)) for points in (first, turned))

# %%
# Three ways to let go. Partial problems have no entropy; their solutions are vertices of a
# polytope, most points whole.

results = {
    "KL, rho = 0.05": ugw.solve(x, y, rho=0.05, eps=1e-3).check(),
    "TV, rho = 0.01": ugw.solve(x, y, rho=ugw.TV(0.01)).check(),
    "Mass, 65 points": ugw.solve(x, y, rho=ugw.Mass(65 * weight)).check(),
}
for name, result in results.items():
    share = result.marginals[1] / weight
    print(
        f"{name:16s} mass {result.mass:.3f}, {np.mean((share > 0.01) & (share < 0.99)):4.0%} of the points in between"
    )

# %%
# The second key: blue is matched in full, white not at all. The first key is drawn above.

figure, axes = plt.subplots(2, 2, figsize=(10, 4.6), layout="constrained", sharex=True, sharey=True)
axes[0, 0].scatter(*first.T, s=42, color="0.5")
axes[0, 0].set_title("the first key", fontsize=12)
for axis, (name, result) in zip(axes.flat[1:], results.items(), strict=True):
    axis.scatter(
        *second.T, s=42, c=result.marginals[1] / weight, cmap="Blues", vmin=0, vmax=1, edgecolors="0.6", lw=0.6
    )
    axis.set_title(f"the second: {name}", fontsize=12)
for axis in axes.flat:
    axis.set_aspect("equal")
    axis.axis("off")
plt.show()
