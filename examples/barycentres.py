"""Barycentres between two shapes, one of them with strays: five shares, as points in R².

Run it: python examples/barycentres.py [folder], about half a minute. It writes barycentres.png.
"""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import ugw


def outline(n: int, corners: int, depth: float) -> np.ndarray:
    """A closed curve with as many bumps as corners."""
    angle = np.linspace(0.0, 2 * np.pi, n, endpoint=False)
    radius = 1.0 + depth * np.cos(corners * angle) + 0.12 * np.cos(angle)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)


def main(folder: str = ".", rounds: int = 60) -> list[float]:
    """Solve for five shares, draw, and give the values."""
    rng = np.random.default_rng(0)
    star, egg = outline(45, 5, 0.35), outline(36, 2, 0.3) * [1.0, 0.55]
    strays = rng.normal([2.2, 1.6], 0.1, size=(5, 2))
    x = ugw.Space.from_points(np.vstack([star, strays]), weights=np.full(50, 1 / 45))
    y = ugw.Space.from_points(egg)
    figure, axes = plt.subplots(1, 7, figsize=(12.6, 2.4), layout="constrained", sharex=True, sharey=True)
    solver = ugw.BarycenterMin(max_iter=rounds, tol=1e-3, inner=ugw.AlternateMin(tol=1e-5))
    values = []
    axes[0].scatter(*np.vstack([star, strays]).T, s=8, color="0.45")
    axes[6].scatter(*egg.T, s=8, color="0.45")
    colours = plt.get_cmap("viridis")(np.linspace(0.05, 0.85, 5))
    start = ugw.Space.from_points(star)
    for axis, share, colour in zip(axes[1:6], (0.0, 0.25, 0.5, 0.75, 1.0), colours, strict=True):
        b = ugw.barycenter([x, y], start=start, weights=[1 - share, share], dim=2, rho=0.3, eps=3e-3, solver=solver)
        start = ugw.Space.from_points(b.points)  # the next one begins here
        values.append(b.value)
        axis.scatter(*(b.points - b.points.mean(0)).T, s=8, color=colour)
        axis.set_title(f"share {share:g}, {b.n_iter} rounds", size=8)
    for axis, name in ((axes[0], "first, with strays"), (axes[6], "second")):
        axis.set_title(name, size=8)
    for axis in axes:
        axis.set_aspect("equal")
        axis.axis("off")
    figure.savefig(Path(folder) / "barycentres.png", dpi=110)
    return values


if __name__ == "__main__":
    print(main(*sys.argv[1:2]))
