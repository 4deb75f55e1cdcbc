"""Barycenters of two shapes, one with outliers
============================================

Barycenters of a star and an egg for five weights, as points in the plane. The star has additional outliers, which
have no counterpart; with a finite rho the barycenters do not reproduce them.
"""

# %%
# Two closed curves. The mass of the outliers is added to the mass of the star.

import matplotlib.pyplot as plt
import numpy as np

import ugw

ROUNDS = 60


def outline(n: int, bumps: int, depth: float) -> np.ndarray:
    """Points of a closed curve with the given number of bumps, (n, 2)."""
    angle = np.linspace(0.0, 2 * np.pi, n, endpoint=False)
    radius = 1.0 + depth * np.cos(bumps * angle) + 0.12 * np.cos(angle)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)


star, egg = outline(40, 5, 0.35), outline(30, 2, 0.3) * [1.0, 0.55]
outliers = np.random.default_rng(0).normal([2.2, 1.6], 0.1, size=(5, 2))
x = ugw.Space.from_points(np.concatenate([star, outliers]), weights=np.full(45, 1 / 40))
y = ugw.Space.from_points(egg)

# %%
# The solver alternates between plans and points until the distances converge. Each weight starts from the barycenter of
# the previous one.

solver = ugw.BarycenterMin(max_iter=ROUNDS, tol=2e-3, inner=ugw.AlternateMin(tol=1e-4))
barycenters, start = {}, ugw.Space.from_points(star)
for share in (0.0, 0.25, 0.5, 0.75, 1.0):
    options = {"weights": [1 - share, share], "dim": 2, "rho": 0.3, "eps": 3e-3, "solver": solver}
    barycenters[share] = ugw.barycenter([x, y], start=start, **options)
    start = ugw.Space.from_points(barycenters[share].points)
    print(f"weight of the egg {share:<4}: {barycenters[share].status}, objective {barycenters[share].value:.4f}")

# %%
# The input shapes in gray, the barycenters in color.

plt.rcParams["figure.constrained_layout.h_pad"] = 0.1
figure, axes = plt.subplots(1, 7, figsize=(14, 2.3), layout="constrained", sharex=True, sharey=True)
panels = {"star with outliers": np.concatenate([star, outliers])}
panels |= {
    f"weight {share:g}": barycenter.points - barycenter.points.mean(axis=0) for share, barycenter in barycenters.items()
}
panels["egg"] = egg
colors = ["0.45", *plt.get_cmap("viridis")(np.linspace(0.05, 0.85, 5)), "0.45"]
for axis, color, (name, points) in zip(axes, colors, panels.items(), strict=True):
    axis.scatter(*points.T, s=14, color=color)
    axis.set_title(name, fontsize=11)
    axis.set_aspect("equal")
    axis.axis("off")
plt.show()
