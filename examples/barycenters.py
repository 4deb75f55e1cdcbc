"""Between two shapes, one with strays
===================================

Barycenters of a star and an egg, for five shares, as points in the plane. The star has strays beside it, which no
barycenter follows: they have no counterpart, and rho says what it costs to leave them behind.
"""

# %%
# Two closed curves; the strays come on top of the mass of the star.

import matplotlib.pyplot as plt
import numpy as np

import ugw

ROUNDS = 60


def outline(n: int, bumps: int, depth: float) -> np.ndarray:
    """A closed curve with so many bumps, (n, 2)."""
    angle = np.linspace(0.0, 2 * np.pi, n, endpoint=False)
    radius = 1.0 + depth * np.cos(bumps * angle) + 0.12 * np.cos(angle)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)


star, egg = outline(40, 5, 0.35), outline(30, 2, 0.3) * [1.0, 0.55]
strays = np.random.default_rng(0).normal([2.2, 1.6], 0.1, size=(5, 2))
x = ugw.Space.from_points(np.concatenate([star, strays]), weights=np.full(45, 1 / 40))
y = ugw.Space.from_points(egg)

# %%
# Plans and points are improved in turn until the distances settle. Each share starts where the last one ended.

solver = ugw.BarycenterMin(max_iter=ROUNDS, tol=2e-3, inner=ugw.AlternateMin(tol=1e-4))
found, start = {}, ugw.Space.from_points(star)
for share in (0.0, 0.25, 0.5, 0.75, 1.0):
    options = {"weights": [1 - share, share], "dim": 2, "rho": 0.3, "eps": 3e-3, "solver": solver}
    found[share] = ugw.barycenter([x, y], start=start, **options)
    start = ugw.Space.from_points(found[share].points)
    print(f"share {share:<4}: {found[share]}")

# %%
# The two shapes at the ends, what lies between them in colors.

plt.rcParams["figure.constrained_layout.h_pad"] = 0.1
figure, axes = plt.subplots(1, 7, figsize=(14, 2.3), layout="constrained", sharex=True, sharey=True)
shown = {"star with strays": np.concatenate([star, strays])}
shown |= {f"share {share:g}": made.points - made.points.mean(axis=0) for share, made in found.items()}
shown["egg"] = egg
colors = ["0.45", *plt.get_cmap("viridis")(np.linspace(0.05, 0.85, 5)), "0.45"]
for axis, color, (name, points) in zip(axes, colors, shown.items(), strict=True):
    axis.scatter(*points.T, s=14, color=color)
    axis.set_title(name, fontsize=11)
    axis.set_aspect("equal")
    axis.axis("off")
plt.show()
