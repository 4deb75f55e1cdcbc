"""Frequency of π = γ in the relaxation to two plans π, γ: kernels of negative type, and graphs (paper, section 3).

F(π, π) + F(γ, γ) − 2 F(π, γ) is the distortion form at π − γ. With hard marginals and distances of negative type it
is never positive, so that the better of π and γ costs no more than the pair. Otherwise a pair may cost less than
either of its plans: the relaxation is not tight. Two measurements, both from random initial plans: UGW with entropy by
`ugw.solve`, and GW without entropy by alternating exact assignments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.optimize import linear_sum_assignment
from scipy.sparse.csgraph import floyd_warshall
from scipy.spatial.distance import cdist

import ugw

from ..plots.style import STYLE
from ._shared import write_results

RHOS = (0.1, 1.0)
EPS = 1e-2  # of distances with mean 1
# Points per space, pairs of spaces per kind, and initial plans per pair.
POINTS = 12
PAIRS = 60
STARTS = 20
# Two plans count as equal if their L1 distance is below this fraction of their mass.
EQUAL_PLAN_TOLERANCE = 1e-3
# Relative difference of two objectives that counts as rounding.
ROUNDING = 1e-9
PAPER = (
    "the paper: always π = γ where the kernels are of negative type; "
    "for others the relaxation has spurious minima more often, and its tightness is open"
)

# -- random spaces -----------------------------------------------------------------------------------------

Rng = np.random.Generator


def euclidean_distances(rng: Rng, n: int) -> np.ndarray:
    """Return the Euclidean distances (n, n) between n points of the plane with a standard normal distribution."""
    points = rng.normal(size=(n, 2))
    return cdist(points, points)


def sphere_distances(rng: Rng, n: int) -> np.ndarray:
    """Return the great-circle distances (n, n) of uniform points of the unit sphere."""
    points = rng.normal(size=(n, 3))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    # Computed from the chord: the arc cosine loses half of the digits of small distances.
    return 2 * np.arcsin(np.clip(cdist(points, points) / 2, 0, 1))


def hyperbolic_distances(rng: Rng, n: int) -> np.ndarray:
    """Return the distances (n, n), curvature −1, of points uniform by area in the Poincaré disk, within radius 0.95."""
    angle, radius = rng.uniform(0, 2 * np.pi, size=n), 0.95 * np.sqrt(rng.random(n))
    points = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    height = 1 - radius**2
    return 2 * np.arcsinh(cdist(points, points) / np.sqrt(height[:, None] * height))


def tree_distances(rng: Rng, n: int) -> np.ndarray:
    """Return the path lengths (n, n) of a random recursive tree with uniform edge lengths in [0.1, 1]."""
    lengths = np.full((n, n), np.inf)
    for child in range(1, n):
        lengths[child, rng.integers(child)] = rng.uniform(0.1, 1)
    return floyd_warshall(np.minimum(lengths, lengths.T))


def graph_distances(rng: Rng, n: int) -> np.ndarray:
    """Return the path lengths (n, n), in edges, of a connected Erdős–Rényi graph, edges with probability 3/n."""
    return _connected_paths(lambda: np.triu(rng.random((n, n)) < 3 / n, k=1))


def bipartite_distances(rng: Rng, n: int) -> np.ndarray:
    """Return the path lengths (n, n), in edges, of a connected random graph between n // 3 nodes and the others."""
    side = np.arange(n) < n // 3
    return _connected_paths(lambda: (side[:, None] & ~side) & (rng.random((n, n)) < 0.6))


def _connected_paths(draw_edges: Callable[[], np.ndarray]) -> np.ndarray:
    """Return the path lengths (n, n), in edges, of the first graph that is connected.

    draw_edges: called until then; it returns a random graph as booleans (n, n), true for i < j if (i, j) is an edge.
    """
    while True:
        adjacent = draw_edges()
        paths = floyd_warshall(np.where(adjacent | adjacent.T, 1.0, np.inf))
        if np.isfinite(paths).all():
            return paths


KINDS: dict[str, Callable[[Rng, int], np.ndarray]] = {
    "Euclidean": euclidean_distances,
    "tree": tree_distances,
    "sphere": sphere_distances,
    "hyperbolic": hyperbolic_distances,
    "random graph": graph_distances,
    "bipartite graph": bipartite_distances,
}


def is_of_negative_type(distances: np.ndarray) -> bool:
    """Return whether the matrix (n, n) is negative semidefinite, up to rounding, on vectors that sum to 0.

    >>> is_of_negative_type(np.abs(np.subtract.outer(np.arange(4.0), np.arange(4.0))))
    True
    """
    n = len(distances)
    centered = distances - distances.mean(axis=0) - distances.mean(axis=1, keepdims=True) + distances.mean()
    return bool(np.linalg.eigvalsh(centered).max() <= ROUNDING * n * distances.max())


# -- alternating assignments -------------------------------------------------------------------------------


def alternate_assignments(dx: np.ndarray, dy: np.ndarray, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return permutations (π, γ), (n,) each, that minimize `distortion(dx, dy, π, γ)` locally.

    The distortion is the mean over i, i' of (dx_ii' − dy_jj')², j = π_i, j' = γ_i'; π and γ may be exchanged. Starting
    from π = γ = start, (n,), each is replaced in turn by the best one for the fixed other, by an exact assignment,
    until the distortion no longer decreases. dx, dy: distances (n, n).

    >>> line = np.abs(np.subtract.outer(np.arange(4.0), np.arange(4.0)))
    >>> first, second = alternate_assignments(line, line, np.array([3, 2, 1, 0]))
    >>> first.tolist() == second.tolist()
    True
    """
    pair, value = (start, start), np.inf
    while True:
        # Only the cross term of the distortion depends on the plan.
        gain = dx @ dy[pair[1]]
        assignment = linear_sum_assignment(gain, maximize=True)[1]
        new_value = -float(gain[np.arange(len(assignment)), assignment].sum())
        if new_value >= value - ROUNDING * abs(value) and np.isfinite(value):
            return pair
        pair, value = (pair[1], assignment), new_value


def distortion(dx: np.ndarray, dy: np.ndarray, first: np.ndarray, second: np.ndarray) -> float:
    """Return the form F(first, second), the mean over i, i' of (dx_ii' − dy_jj')², j = first[i], j' = second[i'].

    dx, dy: distances (n, n); first, second: permutations (n,).
    """
    return float(((dx - dy[np.ix_(first, second)]) ** 2).mean())


# -- the experiment ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """Fractions in [0, 1] measured for spaces of one kind.

    F: distortion form of two plans; π, γ: the two plans of a run.
    """

    kind: str
    negative: float  # spaces of negative type
    entropic: float  # UGW solves with entropy that end with π = γ
    exact: float  # runs of `alternate_assignments`, without entropy, that end with π = γ
    lower: float  # runs of `alternate_assignments` that end with F(π, γ) below F(π, π) and F(γ, γ)
    lowest: float  # pairs of spaces for which the lowest F(π, γ) of all runs is below the lowest F(π, π)

    @property
    def line(self) -> str:
        """A line of the table: the kind of spaces, and five percentages.

        Spaces of negative type; solves with entropy that end with two equal plans; runs without entropy that do; runs
        whose pair of plans costs less than either plan; pairs of spaces where this holds for the lowest costs of all
        runs.
        """
        fractions = f"{self.negative:>14.1%} {self.entropic:>11.1%} {self.exact:>16.1%}"
        return f"{self.kind:<16} {fractions} {self.lower:>14.1%} {self.lowest:>14.1%}"


HEADER = (
    f"{'':<16} {'negative type':>14} {'UGW: π = γ':>11} {'GW, ε=0: π = γ':>16} {'pair is lower':>14} "
    f"{'also at best':>14}"
)
LEGEND = (
    "negative type: share of the spaces; pair is lower: of GW's runs, ends with F(π, γ) below F(π, π) and F(γ, γ);\n"
    "also at best: share of the problems where the lowest F(π, γ) of all runs is below every F(π, π)"
)


def run(
    *, kinds: Sequence[str] = tuple(KINDS), n: int = POINTS, pairs: int = PAIRS, starts: int = STARTS, seed: int = 0
) -> list[Row]:
    """Return for each kind of spaces the fractions of solves that end with two equal plans, with and without entropy.

    Further fractions: spaces of negative type; runs without entropy that end with F(π, γ) below F(π, π) and F(γ, γ);
    and pairs of spaces for which the lowest F(π, γ) of all runs is below the lowest F(π, π). F: distortion of two plans
    π, γ. All are measured on `pairs` pairs of random spaces of n points. kinds: names such as "tree", keys of `KINDS`;
    starts: runs of `alternate_assignments` for each pair, from random permutations.

    >>> (row,) = run(kinds=("Euclidean",), n=6, pairs=3, starts=3)
    >>> row.negative, row.entropic, row.lower
    (1.0, 1.0, 0.0)
    """
    rows = []
    for kind in kinds:
        rng = np.random.default_rng(seed)
        spaces = [distances / distances.mean() for distances in (KINDS[kind](rng, n) for _ in range(2 * pairs))]
        runs = _alternating_runs(rng, spaces, starts)
        best_plan, pair, same = (np.array(part).reshape(pairs, starts) for part in zip(*runs, strict=True))
        rows.append(
            Row(
                kind=kind,
                negative=float(np.mean([is_of_negative_type(distances) for distances in spaces])),
                entropic=_entropic_fraction(spaces),
                exact=float(same.mean()),
                lower=float((pair < best_plan - ROUNDING).mean()),
                lowest=float((pair.min(axis=1) < best_plan.min(axis=1) - ROUNDING).mean()),
            )
        )
    return rows


def _entropic_fraction(spaces: list[np.ndarray]) -> float:
    """Return the fraction of UGW solves from random plans, over all pairs and `RHOS`, that end with two equal plans.

    Equal: with an L1 distance below 1e-3 of their mass. spaces: distances (n, n); the pairs are spaces 0 and 1, 2 and
    3, and so on.
    """
    x, y = (ugw.Space.stack([ugw.Space.from_distances(d) for d in side]) for side in (spaces[::2], spaces[1::2]))
    same = []
    for rho in RHOS:
        first, second = ugw.solve(x, y, rho=rho, eps=EPS, init="random").plan_pair
        same.append(np.abs(first - second).sum(axis=(1, 2)) < EQUAL_PLAN_TOLERANCE * first.sum(axis=(1, 2)))
    return float(np.mean(same))


def _alternating_runs(rng: Rng, spaces: list[np.ndarray], starts: int) -> list[tuple[float, float, bool]]:
    """Return min(F(π, π), F(γ, γ)), F(π, γ) and whether π = γ at the end of each run of `alternate_assignments`.

    spaces: distances (n, n); the pairs are spaces 0 and 1, 2 and 3, and so on. starts: runs per pair, which are
    consecutive in the list. F: the `distortion` of two permutations, a mean over pairs of points.
    """
    runs = []
    for dx, dy in zip(spaces[::2], spaces[1::2], strict=True):
        for _ in range(starts):
            first, second = alternate_assignments(dx, dy, rng.permutation(len(dy)))
            best_plan = min(distortion(dx, dy, plan, plan) for plan in (first, second))
            runs.append((best_plan, distortion(dx, dy, first, second), bool((first == second).all())))
    return runs


def figure(rows: Sequence[Row]) -> Figure:
    """Return a picture with a bar for each kind: % of runs that end with π = γ, with F(π, γ) below both, and others."""
    canvas = Figure(figsize=(8.0, 0.5 * len(rows) + 1.3), layout="constrained")
    ax = canvas.subplots()
    positions = np.arange(len(rows))[::-1]
    exact, lower = np.array([row.exact for row in rows]), np.array([row.lower for row in rows])
    parts = (
        ("π = γ", exact, STYLE.palette[0]),
        ("π ≠ γ, one of them is as good as the pair", 1 - exact - lower, STYLE.pale),
        ("π ≠ γ, the pair is lower than both", lower, STYLE.mismatch),
    )
    left = np.zeros(len(rows))
    for name, width, color in parts:
        ax.barh(positions, 100 * width, left=100 * left, color=color, height=0.62, label=name)
        left = left + width
    for row, height in zip(rows, positions, strict=True):
        ax.text(101, height, f"{row.lower:.1%} lower", va="center", fontsize=9, color=STYLE.ink)
    kinds = [f"{row.kind}\n{row.negative:.0%} of negative type" for row in rows]
    ax.set_yticks(positions, kinds, fontsize=9, color=STYLE.ink)
    ax.set_xlim(0, 100)
    ax.set_xlabel("% of runs of GW without entropy from random permutations", fontsize=9, color=STYLE.ink)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    ax.tick_params(axis="x", labelsize=8, colors=STYLE.ink)
    canvas.legend(loc="outside upper center", ncols=3, frameon=False, fontsize=9, labelcolor=STYLE.ink)
    return canvas


def reproduce(folder: Path, echo: Callable[[str], None]) -> None:
    """Measure how often two plans become equal, `echo` a table, and write tightness.png and .json into `folder`."""
    rows = run()
    echo("\n".join((HEADER, *(row.line for row in rows), LEGEND, PAPER)))
    numbers = {"rhos": RHOS, "eps": EPS, "points": POINTS, "pairs": PAIRS, "starts": STARTS}
    write_results(folder, "tightness", figure(rows), numbers | {"rows": [asdict(row) for row in rows]}, dpi=130)
