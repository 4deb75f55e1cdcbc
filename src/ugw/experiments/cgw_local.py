"""CGW and UGW between a shape and a perturbed copy of it (a figure of the paper).

Points x_i in the unit square and y_i = x_i + t·Δ_i with Gaussian Δ_i: near t = 0 both values agree; for larger t CGW is
smaller, as it must be, and the difference grows as rho decreases.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import ugw

from ..plots.style import STYLE
from ._shared import write_results

RHOS = (0.1, 1.0, 10.0)
SHIFTS = tuple(np.round(np.linspace(0.0, 0.5, 11), 3).tolist())
POINTS = 10


@dataclass(frozen=True, eq=False)
class Curves:
    """Values of CGW and UGW, (len(rhos), len(shifts)) each, and whether CGW ≤ UGW is certified for all entries."""

    rhos: tuple[float, ...]
    shifts: tuple[float, ...]
    cgw: np.ndarray
    ugw: np.ndarray
    certified: bool


def run(*, n: int = POINTS, rhos: Sequence[float] = RHOS, shifts: Sequence[float] = SHIFTS, seed: int = 0) -> Curves:
    """Return the values (no roots) of CGW and UGW, eps = 0, of n points x_i and x_i + t·Δ_i, (rhos, shifts t) each.

    x_i: uniform in the unit square; Δ_i: standard normal; all weights 1/n. The record also has the rhos (of both
    sides), the shifts, and whether CGW ≤ UGW is certified for all entries.

    >>> curves = run(n=4, rhos=(1.0,), shifts=(0.0, 0.3))
    >>> bool(abs(curves.cgw[0, 0]) < 1e-6 < curves.cgw[0, 1]), curves.certified
    (True, True)
    """
    rng = np.random.default_rng(seed)
    points, moves = rng.random((n, 2)), rng.normal(size=(n, 2))
    original = ugw.Space.from_points(points)
    shifted = [ugw.Space.from_points(points + t * moves) for t in shifts]
    shape = (len(rhos), len(shifts))
    x, y = ugw.Space.stack([original] * (shape[0] * shape[1])), ugw.Space.stack(shifted * shape[0])
    bounds = ugw.tightness(x, y, rho=np.repeat(rhos, len(shifts)), eps=0.0)
    return Curves(tuple(rhos), tuple(shifts), bounds.cgw.reshape(shape), bounds.ugw.reshape(shape), bounds.holds)


def lines(curves: Curves) -> list[str]:
    """Return a table as lines: titles; by shift CGW, UGW, CGW/UGW of each rho; last whether CGW ≤ UGW is certified."""
    head = "      t" + "".join(f"   CGW ρ={rho:<5g}   UGW ρ={rho:<5g}   ratio" for rho in curves.rhos)
    rows = [head]
    for t, cgw, unbalanced in zip(curves.shifts, curves.cgw.T, curves.ugw.T, strict=True):
        pairs = zip(cgw, unbalanced, strict=True)
        cells = [f"{c:>z14.6f}{u:>z14.6f}{c / u if u > 1e-8 else 1.0:>8.3f}" for c, u in pairs]
        rows.append(f"{t:>7.3f}" + "".join(cells))
    rows.append(f"CGW ≤ UGW {'certified for every pair' if curves.certified else 'NOT certified'}")
    return rows


def figure(curves: Curves) -> Figure:
    """Return a picture with one panel for each rho: the curves of CGW and of UGW over the shift t."""
    canvas = Figure(figsize=(3.4 * len(curves.rhos), 3.0), layout="constrained")
    panels = canvas.subplots(1, len(curves.rhos), squeeze=False)[0]
    for ax, rho, cgw, unbalanced in zip(panels, curves.rhos, curves.cgw, curves.ugw, strict=True):
        ax.plot(curves.shifts, unbalanced, color=STYLE.palette[1], marker="o", markersize=4, label="UGW")
        ax.plot(curves.shifts, cgw, color=STYLE.palette[0], marker="s", markersize=4, label="CGW")
        ax.set_title(f"ρ = {rho:g}", color=STYLE.ink)
        ax.set_xlabel("shift t", color=STYLE.ink)
        ax.set_ylim(bottom=0)
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(colors=STYLE.ink)
    panels[0].set_ylabel("value", color=STYLE.ink)
    panels[0].legend(frameon=False, labelcolor=STYLE.ink)
    return canvas


def reproduce(folder: Path, echo: Callable[[str], None]) -> None:
    """Compute CGW and UGW for increasing shifts, `echo` a table, and write cgw-local.png and .json into `folder`."""
    curves = run()
    echo("\n".join(lines(curves)))
    numbers = asdict(curves) | {"cgw": curves.cgw.tolist(), "ugw": curves.ugw.tolist()}
    write_results(folder, "cgw-local", figure(curves), numbers)
