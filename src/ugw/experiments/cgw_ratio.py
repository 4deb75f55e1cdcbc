"""Histograms of CGW / UGW for random spaces with n = 2, 3 and 5 points (a figure of the paper), and with n = 100.

Points are uniform in the unit square on both sides, rho = 0.1. The linear programs of the paper are limited to five
points.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import ugw

from ..plots.style import STYLE
from ._shared import format_flag, write_results

RHO, EPS = 0.1, 1e-3
# Number of pairs of spaces for each number of points.
PAIRS = {2: 200, 3: 200, 5: 200, 100: 24}
# Pairs solved as one batch.
BATCH_SIZE = 50


@dataclass(frozen=True, eq=False)
class Ratios:
    """Ratios CGW / UGW of random pairs of spaces with n points each, and whether CGW ≤ UGW is certified for all.

    values: one ratio for each pair.
    """

    n: int
    values: np.ndarray
    certified: bool

    @property
    def line(self) -> str:
        """A line of the table: n, number of pairs, five quantiles of the ratios, certified (yes or no).

        The columns are those of `HEADER`: the quantiles are minimum, 5%, median, 95% and maximum.
        """
        low, median, high = np.quantile(self.values, (0.05, 0.5, 0.95))
        return (
            f"{self.n:>4} {len(self.values):>6} {self.values.min():>8.4f} {low:>8.4f} {median:>8.4f} {high:>8.4f} "
            f"{self.values.max():>8.4f}   {format_flag(self.certified)}"
        )


HEADER = "   n  pairs      min       5%   median      95%      max   CGW ≤ UGW certified"


def run(n: int, pairs: int, *, seed: int = 0) -> Ratios:
    """Return the ratios CGW / UGW (pairs,) of random pairs of spaces of n points, for rho = 0.1.

    A ratio is 1 where both are 0. UGW is solved with eps = 1e-3, and valued without entropy. The record also has n, and
    whether CGW ≤ UGW is certified for all. Points are uniform in the unit square, with weights 1/n.

    >>> ratios = run(2, 5)
    >>> bool(ratios.values.max() <= 1 + 1e-9), ratios.certified
    (True, True)
    """
    rng = np.random.default_rng([seed, n])
    spaces = [ugw.Space.from_points(rng.random((n, 2))) for _ in range(2 * pairs)]
    values, certified = [], True
    for start in range(0, pairs, BATCH_SIZE):
        part = slice(2 * start, 2 * min(pairs, start + BATCH_SIZE))
        x, y = ugw.Space.stack(spaces[part][::2]), ugw.Space.stack(spaces[part][1::2])
        bounds = ugw.tightness(x, y, rho=RHO, eps=EPS)
        values.append(bounds.ratio)
        certified &= bounds.holds
    return Ratios(n, np.concatenate(values), certified)


def figure(ratios: Sequence[Ratios]) -> Figure:
    """Return a picture with a histogram of ratios for each number of points; a dashed line marks the median."""
    canvas = Figure(figsize=(2.6 * len(ratios), 2.8), layout="constrained")
    lowest = min(0.5, *(float(r.values.min()) for r in ratios))
    bins = np.linspace(np.floor(20 * lowest) / 20, 1.0, 26)
    panels = canvas.subplots(1, len(ratios), sharex=True, squeeze=False)[0]
    for ax, sample, color in zip(panels, ratios, STYLE.palette, strict=False):
        ax.hist(np.minimum(sample.values, 1.0), bins=bins, color=color, edgecolor="white", linewidth=0.5)
        ax.axvline(np.median(sample.values), color=STYLE.ink, linewidth=1, linestyle="--")
        ax.set_title(f"n = {sample.n}", color=STYLE.ink)
        ax.set_xlabel("CGW / UGW", color=STYLE.ink)
        ax.set_yticks([])
        ax.spines[["top", "right", "left"]].set_visible(False)
        ax.tick_params(colors=STYLE.ink)
    return canvas


def reproduce(folder: Path, echo: Callable[[str], None], pairs: Mapping[int, int] = PAIRS) -> None:
    """Compute CGW / UGW of random spaces, `echo` a table, and write cgw-ratio.png and .json into `folder`.

    pairs: number of pairs of spaces for each number of points.
    """
    echo(HEADER)
    ratios = []
    for n, count in pairs.items():
        ratios.append(run(n, count))
        echo(ratios[-1].line)
    numbers = {"rho": RHO, "eps": EPS, "ratios": {sample.n: sample.values.tolist() for sample in ratios}}
    write_results(folder, "cgw-ratio", figure(ratios), numbers)
