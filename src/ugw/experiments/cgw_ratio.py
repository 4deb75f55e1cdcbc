"""Histograms of CGW / UGW for random spaces (the paper's figure, n = 2, 3 and 5), and the same for n = 100.

Points uniform in the unit square on both sides, rho = 0.1. The paper's linear programs end at five points; what
the ratio does at a hundred could not be seen before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import ugw

from ..plots.style import STYLE
from ._shared import write

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RHO, EPS = 0.1, 1e-3
PAIRS = {2: 200, 3: 200, 5: 200, 100: 24}  # points: how many pairs of spaces
TOGETHER = 50  # pairs solved as one batch


@dataclass(frozen=True, eq=False)
class Ratios:
    """CGW / UGW of random pairs with n points on each side, and whether CGW ≤ UGW is certified for all of them."""

    n: int
    values: np.ndarray
    certified: bool

    @property
    def line(self) -> str:
        """The numbers in one line."""
        low, middle, high = np.quantile(self.values, (0.05, 0.5, 0.95))
        return (
            f"{self.n:>4} {len(self.values):>6} {self.values.min():>8.4f} {low:>8.4f} {middle:>8.4f} {high:>8.4f} "
            f"{self.values.max():>8.4f}   {'yes' if self.certified else 'NO'}"
        )


HEADER = "   n  pairs      min       5%   median      95%      max   CGW ≤ UGW certified"


def run(n: int, pairs: int, *, seed: int = 0) -> Ratios:
    """The ratios of random pairs, UGW at eps = 1e-3.

    >>> found = run(2, 5)
    >>> bool(found.values.max() <= 1 + 1e-9), found.certified
    (True, True)
    """
    rng = np.random.default_rng([seed, n])
    spaces = [ugw.Space.from_points(rng.random((n, 2))) for _ in range(2 * pairs)]
    values, certified = [], True
    for start in range(0, pairs, TOGETHER):
        part = slice(2 * start, 2 * min(pairs, start + TOGETHER))
        x, y = ugw.Space.stack(spaces[part][::2]), ugw.Space.stack(spaces[part][1::2])
        found = ugw.tightness(x, y, rho=RHO, eps=EPS)
        values.append(found.ratio)
        certified &= found.holds
    return Ratios(n, np.concatenate(values), certified)


def figure(ratios: Sequence[Ratios]) -> Figure:
    """One histogram for each size, on a common axis."""
    from matplotlib.figure import Figure

    made = Figure(figsize=(2.6 * len(ratios), 2.8), layout="constrained")
    lowest = min(0.5, *(float(r.values.min()) for r in ratios))
    bins = np.linspace(np.floor(20 * lowest) / 20, 1.0, 26)
    panels = made.subplots(1, len(ratios), sharex=True, squeeze=False)[0]
    for ax, some, color in zip(panels, ratios, STYLE.palette, strict=False):
        ax.hist(np.minimum(some.values, 1.0), bins=bins, color=color, edgecolor="white", linewidth=0.5)
        ax.axvline(np.median(some.values), color=STYLE.ink, linewidth=1, linestyle="--")
        ax.set_title(f"n = {some.n}", color=STYLE.ink)
        ax.set_xlabel("CGW / UGW", color=STYLE.ink)
        ax.set_yticks([])
        ax.spines[["top", "right", "left"]].set_visible(False)
        ax.tick_params(colors=STYLE.ink)
    return made


def reproduce(folder: Path, echo: Callable[[str], None]) -> None:
    """Run, print the numbers, and write cgw-ratio.png and cgw-ratio.json."""
    echo(HEADER)
    ratios = []
    for n, pairs in PAIRS.items():
        ratios.append(run(n, pairs))
        echo(ratios[-1].line)
    numbers = {"rho": RHO, "eps": EPS, "ratios": {some.n: some.values.tolist() for some in ratios}}
    write(folder, "cgw-ratio", figure(ratios), numbers)
