"""Values, plans, statuses and seconds of seeded problems over all public entry points, compared between two revisions.

    OMP_NUM_THREADS=1 python -m benchmarks.regression --store FILE.npz [--only REGEX] [--repeat 3]
    OMP_NUM_THREADS=1 python -m benchmarks.regression --against FILE.npz
    OMP_NUM_THREADS=1 python -m benchmarks.regression --baseline-src OTHER/src

The first form runs every case and stores its results. The second runs the cases again, with other code, and prints one
row per case. The third compares two source trees directly: each case runs alternately in two processes, so that both
have the same noise. Only public names are used, and eps is always given, so that one script serves both revisions.

A case returns named arrays. The first word of a name sets how an array is compared:

value     an objective that a solve reached from some start: lower is better. Relative to max(|value|, mass² · mean
          distortion).
number    a number that depends on no start, compared in the same way: terms of a given plan, linear transport.
derived   a number that follows from solves, where lower is not better: a distance, a ratio, a debiased value, a rho.
plan      a plan, a gradient or an embedding: relative L1, item by item.
status    compared for equality.

Tolerances: "tight" cases are solved with tol = 1e-10, and values must agree to 1e-9 and plans to 1e-6; "default" cases
to 1e-7 and 1e-4; "float32" cases to 1e-5 and 1e-3. A larger difference of the value means that the solve continued from
another start or reached another minimum; the row then has the verdict START CHANGED. The exit status is 1 if a status,
a number or an error differs, or if the values of the cases whose start changed rise on average. A plan or a derived
number that differs at equal values is printed as "differs", and does not change the exit status.

Seconds are processor time of one thread (time.process_time), the least of the runs after a warm-up; short cases are run
up to five times as often.
"""

import argparse
import gc
import os
import pickle
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch

import ugw

ROOT = Path(__file__).resolve().parents[1]
TOLERANCES = {"tight": (1e-9, 1e-6), "default": (1e-7, 1e-4), "float32": (1e-5, 1e-3)}  # of values, of plans
SHORT = 0.2  # seconds: a case whose runs take less in total is run more often
MORE = 5  # factor by which the runs of a short case may exceed --repeat
INF = float("inf")


@dataclass
class Prepared:
    """A case with its input: the timed function, the function that returns the named arrays of its result, and the unit
    of its values.
    """

    run: Callable[[], Any]
    describe: Callable[[Any], dict[str, Any]]
    scale: Any = 0.0


@dataclass
class Outcome:
    """The named arrays of a case, the unit of its values, its error if it raised one, and the seconds of each run."""

    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    scale: np.ndarray = field(default_factory=lambda: np.zeros(()))
    error: str = ""
    seconds: list[float] = field(default_factory=list)

    @property
    def best(self):
        """The least seconds of a run."""
        return min(self.seconds, default=float("nan"))

    @property
    def status(self):
        """All statuses in a few letters."""
        if self.error:
            return f"error: {self.error}"
        status_names = [str(s) for key, s in self.arrays.items() if array_kind(key) == "status" for s in np.ravel(s)]
        return ", ".join(
            f"{name} × {status_names.count(name)}" if status_names.count(name) > 1 else name
            for name in unique_names(status_names)
        )


CASES: dict[str, tuple[str, Callable[[], Prepared]]] = {}


def add(name, tolerance, prepare):
    """Register a case: its tolerance class, and a function that makes its input."""
    if name in CASES or tolerance not in TOLERANCES:
        raise ValueError(f"{name}: a name twice, or an unknown tolerance class {tolerance}")
    CASES[name] = tolerance, prepare


def array_kind(key):
    """The first word of the name of an array."""
    return key.split()[0]


def unique_names(status_names):
    """Without repetitions, in order."""
    return list(dict.fromkeys(status_names))


# -- input -------------------------------------------------------------------------------------------------------------


def clouds(seed, n, m, *, metric="euclidean", dtype="float64", features=False, even=False):
    """Uniform points in R³ and in R², with uneven weights of mass 1 and 1.25 (or 1/n each)."""
    rng = np.random.default_rng(seed)
    spaces = []
    for size, dim, mass in ((n, 3, 1.0), (m, 2, 1.25)):
        points, weights = rng.random((size, dim)), rng.uniform(0.5, 1.5, size)
        weights = np.full(size, 1.0 / size) if even else mass * weights / weights.sum()
        extra = rng.random((size, 2)).astype(dtype) if features else None
        spaces.append(
            ugw.Space.from_points(points.astype(dtype), weights=weights.astype(dtype), metric=metric, features=extra)
        )
    return tuple(spaces)


def copy_with_outliers(seed, n, n_outliers, *, metric="euclidean", dtype="float64"):
    """A cloud in R³, and the same cloud rotated, in reverse order, with noise and n_outliers additional points."""
    rng = np.random.default_rng(seed)
    cloud = rng.normal(size=(n, 3)) * [1.0, 0.6, 0.3]
    other = np.vstack([cloud[::-1, [1, 2, 0]] + 0.02 * rng.normal(size=(n, 3)), 3.0 + rng.normal(size=(n_outliers, 3))])
    weights = np.full(n + n_outliers, 1.0 / n)
    return (
        ugw.Space.from_points(cloud.astype(dtype), metric=metric),
        ugw.Space.from_points(other.astype(dtype), weights=weights.astype(dtype), metric=metric),
    )


def make_spaces(seed, sizes, dim, *, even=True):
    """Spaces of uniform points of these sizes."""
    rng = np.random.default_rng(seed)
    masses = np.ones(len(sizes)) if even else rng.uniform(0.7, 1.3, len(sizes))
    return [
        ugw.Space.from_points(rng.random((n, dim)), weights=np.full(n, mass / n))
        for n, mass in zip(sizes, masses, strict=True)
    ]


def points(seed, n, dim):
    """Uniform points, (n, dim)."""
    return np.random.default_rng(seed).random((n, dim))


def leaf_points(seed, n, dim):
    """Points that require gradients."""
    return torch.as_tensor(points(seed, n, dim)).requires_grad_()


def triangle_strip(seed, length):
    """Vertices (2·length, 3) of a strip of triangles near a plane, and its faces."""
    base = np.array([[i, side, 0.0] for i in range(length) for side in (0, 1)])
    faces = [[k, k + 1, k + 2] for k in range(2 * length - 2)]
    return base + 0.2 * np.random.default_rng(seed).normal(size=base.shape), faces


def cycle_with_chords(seed, n, chords):
    """The adjacency of a cycle with random lengths and chords, as a sparse matrix."""
    rng = np.random.default_rng(seed)
    i, j = np.r_[np.arange(n), rng.integers(0, n, chords)], np.r_[np.roll(np.arange(n), -1), rng.integers(0, n, chords)]
    length = rng.uniform(0.5, 1.5, n + chords)
    adjacency = np.zeros((n, n))
    adjacency[i, j] = length
    adjacency = np.maximum(adjacency, adjacency.T)
    np.fill_diagonal(adjacency, 0.0)
    return scipy.sparse.csr_array(adjacency)


def similarity_matrix(space):
    """A similarity matrix of a space."""
    return np.exp(-as_array(space.metric.dense()))


def opposite_similarities(seed, n, m):
    """Two spaces whose similarity matrices have opposite signs: steps alternate between two plans."""
    x, y = clouds(seed, n, m)
    return ugw.Space.from_matrix(-similarity_matrix(x)), ugw.Space.from_matrix(similarity_matrix(y))


def item_of_batch(space, i):
    """Item i of a batch, or the one space itself."""
    return space[i] if space.batched else space


def value_unit(x, y):
    """mass² · mean distortion: the distortion of the product plan of mass sqrt(m(a) m(b)). A number, or (B,)."""
    if x.batched or y.batched:
        count = len(x) if x.batched else len(y)
        return np.array([value_unit(item_of_batch(x, i), item_of_batch(y, i)) for i in range(count)])
    a, b = (as_array(space.weights).astype(float) for space in (x, y))
    product_plan = np.outer(a, b) / np.sqrt(a.sum() * b.sum())
    product_plan = product_plan.astype(as_array(x.weights).dtype)
    return as_array(ugw.objective(product_plan, x, y, rho=1.0, eps=0.0).distortion)


# -- results -----------------------------------------------------------------------------------------------------------


def as_array(value):
    """A tensor, an array or a number as an array."""
    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)


def dense_array(plan):
    """A plan or a metric, stored or not, as an array."""
    return as_array(plan.dense() if hasattr(plan, "dense") else plan)


def status_names(status):
    """The names of a status, or of an array of statuses, as an array."""
    return np.array([str(s.name) for s in np.ravel(np.array(status, dtype=object))])


def names_of_codes(codes):
    """Codes of `ugw.Status` as strings."""
    return status_names([ugw.Status(int(code)) for code in np.ravel(codes)])


def describe_result(result, label=""):
    """Value, plan and status of a Result."""
    end = f" {label}" if label else ""
    return {
        f"value{end}": result.value,
        f"plan{end}": dense_array(result.plan),
        f"status{end}": status_names(result.status),
    }


def tight_solver(**inner):
    """A solver for the class "tight"."""
    return ugw.AlternateMin(tol=1e-10, max_iter=3000, inner=ugw.Sinkhorn(tol=1e-12, **inner))


def streaming_solver(**options):
    """A solver that stores no plan."""
    return ugw.AlternateMin(inner=ugw.Sinkhorn(method="streaming"), **options)


def solve_case(spaces, **options):
    """`ugw.solve` with these options."""
    x, y = spaces
    return Prepared(lambda: ugw.solve(x, y, **options), describe_result, value_unit(x, y))


def conic_case(spaces, **options):
    """`ugw.solve_conic` with these options."""
    x, y = spaces

    def describe(result):
        return {**describe_result(result), "derived distance": result.distance, "derived bound": result.value_bound}

    return Prepared(lambda: ugw.solve_conic(x, y, **options), describe, value_unit(x, y))


def linear_case(x, y, **options):
    """`ugw.solve_linear`, which has one minimum: its value is a number."""

    def describe(result):
        return {"number value": result.value, "plan": dense_array(result.plan), "status": status_names(result.status)}

    return Prepared(lambda: ugw.solve_linear(x, y, **options), describe)


# -- cases: solve ------------------------------------------------------------------------------------------------------

for n, m, rho in ((8, 7, 1.0), (20, 25, 0.3), (60, 50, 0.3), (150, 160, 0.1)):
    add(
        f"solve-kl-{n}",
        "tight",
        lambda n=n, m=m, rho=rho: solve_case(clouds(n, n, m), rho=rho, eps=1e-2, solver=tight_solver()),
    )
for n, m in ((20, 20), (60, 70), (150, 140), (400, 400)):
    add(f"solve-default-{n}", "default", lambda n=n, m=m: solve_case(clouds(n + 1, n, m), rho=0.1, eps=1e-2))
add("solve-default-1000", "default", lambda: solve_case(clouds(3, 1000, 1000), rho=0.1, eps=1e-2))
add(
    "solve-outliers-60",
    "tight",
    lambda: solve_case(copy_with_outliers(4, 50, 10), rho=1.0, eps=1e-2, solver=tight_solver()),
)
add("solve-outliers-400", "default", lambda: solve_case(copy_with_outliers(5, 360, 40), rho=1.0, eps=1e-2))
add("solve-small-eps-20", "tight", lambda: solve_case(clouds(6, 20, 18), rho=0.5, eps=1e-3, solver=tight_solver()))
add("solve-small-eps-60", "default", lambda: solve_case(clouds(7, 60, 60), rho=0.1, eps=1e-3))
add("solve-small-eps-150", "default", lambda: solve_case(copy_with_outliers(8, 140, 10), rho=0.5, eps=1e-3))
add("solve-large-eps-60", "tight", lambda: solve_case(clouds(9, 60, 55), rho=1.0, eps=0.5, solver=tight_solver()))
add(
    "solve-relative-60",
    "tight",
    lambda: solve_case(clouds(10, 60, 40), rho=0.5, eps=ugw.relative(0.1), solver=tight_solver()),
)
add(
    "solve-relative-150",
    "default",
    lambda: solve_case(copy_with_outliers(11, 130, 20), rho=1.0, eps=ugw.relative(1e-2)),
)
add(
    "solve-unequal-rho-60",
    "tight",
    lambda: solve_case(clouds(12, 60, 50), rho=(0.1, 2.0), eps=1e-2, solver=tight_solver()),
)
add(
    "solve-semi-relaxed-60",
    "tight",
    lambda: solve_case(clouds(13, 60, 50), rho=(INF, 0.2), eps=1e-2, solver=tight_solver()),
)
add(
    "solve-balanced-20",
    "tight",
    lambda: solve_case(clouds(14, 20, 24, even=True), rho=INF, eps=1e-2, solver=tight_solver()),
)
add("solve-balanced-150", "default", lambda: solve_case(clouds(15, 150, 150, even=True), rho=ugw.Balanced(), eps=1e-2))
add("solve-balanced-eps-0-20", "default", lambda: solve_case(clouds(16, 20, 20, even=True), rho=INF, eps=0.0))
add("solve-balanced-eps-0-60", "default", lambda: solve_case(clouds(17, 60, 60, even=True), rho=INF, eps=0.0))
add("solve-eps-0-20", "default", lambda: solve_case(clouds(18, 20, 25), rho=0.2, eps=0.0))
add("solve-eps-0-60", "default", lambda: solve_case(copy_with_outliers(19, 55, 5), rho=0.5, eps=0.0))
add("solve-tv-20", "default", lambda: solve_case(clouds(20, 20, 22), rho=ugw.TV(0.1), eps=0.0))
add(
    "solve-tv-unequal-60",
    "default",
    lambda: solve_case(copy_with_outliers(21, 50, 10), rho=(ugw.TV(0.2), ugw.TV(0.4)), eps=0.0),
)
add("solve-mass-20", "default", lambda: solve_case(clouds(22, 20, 22), rho=ugw.Mass(0.5), eps=0.0))
add("solve-mass-60", "default", lambda: solve_case(copy_with_outliers(23, 50, 10), rho=ugw.Mass(0.8), eps=0.0))
add(
    "solve-fused-features-60",
    "tight",
    lambda: solve_case(
        clouds(24, 60, 50, features=True), rho=0.5, eps=1e-2, fused=ugw.Fused(0.5), solver=tight_solver()
    ),
)
add(
    "solve-fused-cost-20",
    "tight",
    lambda: solve_case(
        clouds(25, 20, 25), rho=0.5, eps=1e-2, fused=ugw.Fused(1.0, cost=points(25, 20, 25)), solver=tight_solver()
    ),
)
add(
    "solve-loss-20",
    "tight",
    lambda: solve_case(clouds(26, 20, 18), rho=0.5, eps=1e-2, loss=lambda t: t**1.5, solver=tight_solver()),
)
add(
    "solve-loss-60",
    "default",
    lambda: solve_case(copy_with_outliers(27, 50, 10), rho=0.5, eps=2e-2, loss=ugw.Loss(lambda t: t**2 / (1.0 + t**2))),
)
add("solve-float32-60", "float32", lambda: solve_case(clouds(28, 60, 50, dtype="float32"), rho=0.3, eps=1e-2))
add(
    "solve-float32-400",
    "float32",
    lambda: solve_case(copy_with_outliers(29, 360, 40, dtype="float32"), rho=1.0, eps=1e-2),
)
add(
    "solve-log-60",
    "tight",
    lambda: solve_case(clouds(30, 60, 50), rho=0.3, eps=1e-2, solver=tight_solver(method="log")),
)
add("solve-anneal-60", "default", lambda: solve_case(clouds(31, 60, 50), rho=0.3, eps=1e-2, solver=annealing_solver()))
add(
    "solve-max-iter-60",
    "default",
    lambda: solve_case(clouds(32, 60, 50), rho=0.3, eps=1e-2, solver=three_step_solver()),
)
add("solve-stopped-20", "default", lambda: solve_case(clouds(33, 20, 20), rho=0.3, eps=1e-2, solver=stopping_solver()))
add("solve-small-rho-20", "default", lambda: solve_case(clouds(34, 20, 20), rho=1e-4, eps=1e-2))
add("solve-precision-20", "float32", lambda: solve_case(clouds(34, 20, 20, dtype="float32"), rho=0.3, eps=1e-6))
add(
    "solve-alternating-12",
    "default",
    lambda: solve_case(opposite_similarities(36, 12, 10), rho=0.3, eps=1e-2, init="product"),
)
add(
    "solve-multistart-20",
    "tight",
    lambda: solve_case(clouds(35, 20, 20), rho=0.3, eps=1e-2, solver=multistart_solver(tight_solver())),
)
add(
    "solve-multistart-60",
    "default",
    lambda: solve_case(clouds(36, 60, 50), rho=0.1, eps=1e-2, solver=multistart_solver()),
)
for number, start in enumerate(("best", "product", "flb", "random", "coarse")):
    add(
        f"solve-init-{start}-60",
        "default",
        lambda number=number, start=start: solve_case(clouds(40 + number, 60, 55), rho=0.2, eps=1e-2, init=start),
    )
add(
    "solve-init-linear-60",
    "default",
    lambda: solve_case(copy_with_outliers(45, 50, 10), rho=0.5, eps=1e-2, init="linear"),
)
add(
    "solve-init-plan-60",
    "tight",
    lambda: solve_case(clouds(46, 60, 55), rho=0.2, eps=1e-2, init=points(46, 60, 55) / 3300.0, solver=tight_solver()),
)
add("solve-best-400", "default", lambda: solve_case(clouds(47, 400, 380), rho=0.1, eps=2e-2, init="best"))


def annealing_solver():
    """A solver whose eps decreases."""
    return ugw.AlternateMin(anneal=0.8)


def three_step_solver():
    """A solver that ends before it has converged."""
    return ugw.AlternateMin(max_iter=3)


def stopping_solver():
    """A solver whose callback stops it after a step."""
    return ugw.AlternateMin(callback=lambda *_: True)


def multistart_solver(solver=None):
    """A solver with six starts."""
    return ugw.Multistart(n=6) if solver is None else ugw.Multistart(n=6, solver=solver)


def batches(seed, sizes_x, sizes_y):
    """Two batches of spaces of these sizes."""
    return (
        ugw.Space.stack(make_spaces(seed, sizes_x, 3, even=False)),
        ugw.Space.stack(make_spaces(seed + 1, sizes_y, 2, even=False)),
    )


RAGGED = ((8, 30, 17, 60, 45), (12, 25, 40, 50, 9))
add("solve-ragged", "tight", lambda: solve_case(batches(50, *RAGGED), rho=0.3, eps=1e-2, solver=tight_solver()))
add(
    "solve-ragged-parameters",
    "default",
    lambda: solve_case(
        batches(52, *RAGGED),
        rho=np.array([0.1, 0.3, 1.0, 0.5, 2.0]),
        eps=np.array([1e-2, 3e-3, 0.1, 1e-2, 1.0]),
    ),
)
add("solve-ragged-eps-0", "default", lambda: solve_case(batches(54, (8, 15, 12), (9, 11, 14)), rho=0.3, eps=0.0))
add("solve-batch-16x20", "default", lambda: solve_case(batches(56, (20,) * 16, (20,) * 16), rho=0.2, eps=1e-2))
add("solve-batch-4x150", "default", lambda: solve_case(batches(58, (150,) * 4, (140,) * 4), rho=0.2, eps=1e-2))
add(
    "solve-grid-of-rho-40",
    "default",
    lambda: solve_case(clouds(60, 40, 40), rho=np.array([0.05, 0.1, 0.3, 1.0, 3.0]), eps=1e-2),
)

# -- cases: plans that are not stored ----------------------------------------------------------------------------------

add(
    "solve-streaming-60",
    "tight",
    lambda: solve_case(
        clouds(61, 60, 50, metric="sqeuclidean"), rho=0.3, eps=1e-2, solver=tight_solver(method="streaming")
    ),
)
add(
    "solve-streaming-400",
    "default",
    lambda: solve_case(clouds(62, 400, 380, metric="sqeuclidean"), rho=0.1, eps=2e-2, solver=streaming_solver()),
)
add(
    "solve-streaming-1000",
    "default",
    lambda: solve_case(
        copy_with_outliers(63, 950, 50, metric="sqeuclidean"), rho=1.0, eps=0.1, solver=streaming_solver(tol=1e-5)
    ),
)
add(
    "solve-streaming-product-150",
    "default",
    lambda: solve_case(
        clouds(64, 150, 140, metric="sqeuclidean"), rho=0.3, eps=2e-2, init="product", solver=streaming_solver()
    ),
)
add(
    "solve-streaming-fused-150",
    "default",
    lambda: solve_case(
        clouds(65, 150, 140, metric="sqeuclidean", features=True),
        rho=0.3,
        eps=2e-2,
        fused=ugw.Fused(0.5),
        solver=streaming_solver(),
    ),
)
add(
    "solve-streaming-float32-150",
    "float32",
    lambda: solve_case(
        clouds(66, 150, 140, metric="sqeuclidean", dtype="float32"), rho=0.3, eps=5e-2, solver=streaming_solver()
    ),
)
add(
    "solve-sqeuclidean-150",
    "tight",
    lambda: solve_case(clouds(67, 150, 140, metric="sqeuclidean"), rho=0.3, eps=2e-2, solver=tight_solver()),
)
add(
    "solve-compressed-150",
    "default",
    lambda: solve_case([s.compressed(0.1) for s in clouds(68, 150, 140)], rho=0.3, eps=2e-2, solver=streaming_solver()),
)

# -- cases: spaces -----------------------------------------------------------------------------------------------------


def construct_and_solve_case(make, **options):
    """A case that constructs two spaces by `make` and solves; both are timed."""

    def run():
        x, y = make()
        return x, y, ugw.solve(x, y, **options)

    def describe(outcome):
        x, y, result = outcome
        return {
            **describe_result(result),
            "plan of distances x": dense_array(x.metric),
            "plan of distances y": dense_array(y.metric),
        }

    return Prepared(run, describe, value_unit(*make()))


add(
    "space-from-graph-40",
    "tight",
    lambda: construct_and_solve_case(
        lambda: (
            ugw.Space.from_graph(cycle_with_chords(70, 40, 6)),
            ugw.Space.from_graph(cycle_with_chords(71, 35, 5)),
        ),
        rho=1.0,
        eps=5e-2,
        solver=tight_solver(),
    ),
)
add(
    "space-from-knn-150",
    "default",
    lambda: construct_and_solve_case(
        lambda: (ugw.Space.from_knn(points(72, 150, 3), k=10), ugw.Space.from_knn(points(73, 140, 2), k=10)),
        rho=0.2,
        eps=1e-2,
    ),
)
add(
    "space-from-mesh-40",
    "tight",
    lambda: construct_and_solve_case(
        lambda: (ugw.Space.from_mesh(*triangle_strip(74, 20)), ugw.Space.from_mesh(*triangle_strip(75, 18))),
        rho=1.0,
        eps=0.2,
        solver=tight_solver(),
    ),
)
add(
    "space-from-matrix-40",
    "tight",
    lambda: construct_and_solve_case(
        lambda: [ugw.Space.from_matrix(similarity_matrix(s), weights=as_array(s.weights)) for s in clouds(76, 40, 35)],
        rho=0.3,
        eps=1e-2,
        solver=tight_solver(),
    ),
)
add(
    "space-scaled-cityblock-60",
    "default",
    lambda: construct_and_solve_case(
        lambda: [s.scaled("max") for s in clouds(77, 60, 50, metric="cityblock")], rho=0.2, eps=1e-2
    ),
)

# -- cases: conic ------------------------------------------------------------------------------------------------------

add("conic-gaussian-8", "default", lambda: conic_case(clouds(80, 8, 9), rho=1.0, eps=0.0))
add("conic-gaussian-60", "default", lambda: conic_case(copy_with_outliers(81, 50, 10), rho=1.0, eps=0.0))
add("conic-gaussian-150", "default", lambda: conic_case(copy_with_outliers(82, 140, 10), rho=0.5, eps=0.0))
add(
    "conic-unequal-rho-20",
    "default",
    lambda: conic_case(clouds(83, 20, 18), rho=(0.3, 1.0), eps=0.0, cone=ugw.GaussianHellinger(tol=1e-8)),
)
add(
    "conic-hellinger-kantorovich-15",
    "default",
    lambda: conic_case(clouds(84, 15, 16), rho=0.5, eps=0.0, cone="hellinger-kantorovich"),
)
add(
    "conic-hellinger-kantorovich-40",
    "default",
    lambda: conic_case(clouds(85, 40, 35), rho=0.5, eps=0.0, cone=ugw.HellingerKantorovich(cutoff=2.0)),
)
add(
    "conic-loss-15",
    "default",
    lambda: conic_case(clouds(86, 15, 14), rho=0.5, eps=0.0, cone=ugw.Loss(lambda t: t**1.5)),
)
add(
    "conic-partial-transport-8",
    "default",
    lambda: conic_case(clouds(87, 8, 7), rho=0.3, eps=0.0, cone=ugw.PartialTransport(q=2)),
)
add("conic-entropy-20", "default", lambda: conic_case(clouds(88, 20, 20), rho=0.5, eps=1e-2, init="product"))
add("conic-ragged", "default", lambda: conic_case(batches(89, (8, 20, 14), (10, 15, 12)), rho=0.5, eps=0.0))

# -- cases: linear -----------------------------------------------------------------------------------------------------

add("linear-kl-150", "default", lambda: linear_case(points(100, 150, 2), points(101, 140, 2), rho=0.3, eps=1e-2))
add(
    "linear-unequal-60",
    "default",
    lambda: linear_case(*planar_spaces(102, 60, 50), rho=(0.1, 1.0), eps=ugw.relative(5e-2)),
)
add("linear-kl-eps-0-40", "default", lambda: linear_case(points(104, 40, 2), points(105, 35, 2), rho=0.3, eps=0.0))
add("linear-tv-60", "default", lambda: linear_case(points(106, 60, 2), points(107, 50, 2), rho=ugw.TV(0.05), eps=0.0))
add(
    "linear-mass-60", "default", lambda: linear_case(points(108, 60, 2), points(109, 50, 2), rho=ugw.Mass(0.6), eps=0.0)
)
add("linear-exact-60", "default", lambda: linear_case(points(110, 60, 2), points(111, 60, 2), rho=INF, eps=0.0))
add(
    "linear-matrix-batch-20",
    "default",
    lambda: linear_case(None, None, cost=np.random.default_rng(112).random((3, 20, 18)), rho=0.5, eps=2e-2),
)


def planar_spaces(seed, n, m):
    """Points of one plane with weights."""
    return [ugw.Space.from_points(points(seed + k, size, 2), weights=np.full(size, mass / size))
            for k, (size, mass) in enumerate(((n, 1.0), (m, 1.25)))]  # fmt: skip


# -- cases: objective, estimate, rho_for_mass, tightness ---------------------------------------------------------------


def objective_case(spaces, plan, **options):
    """The terms of the objective of a plan."""
    x, y = spaces

    def describe(terms):
        return {f"number {name}": value for name, value in {**terms.as_dict(), "total": terms.total}.items()}

    return Prepared(lambda: ugw.objective(plan, x, y, **options), describe)


add(
    "objective-kl-150",
    "tight",
    lambda: objective_case(clouds(120, 150, 140), points(120, 150, 140) / 2e4, rho=0.5, eps=1e-2),
)
add(
    "objective-fused-loss-40",
    "tight",
    lambda: objective_case(
        clouds(121, 40, 35, features=True),
        points(121, 40, 35) / 1e3,
        rho=(0.5, INF),
        eps=0.0,
        loss=lambda t: t**1.5,
        fused=ugw.Fused(0.5),
    ),
)
add(
    "objective-tv-60",
    "tight",
    lambda: objective_case(clouds(122, 60, 50), points(122, 60, 50) / 3e3, rho=ugw.TV(0.3), eps=0.0),
)


def estimate_case(spaces, **options):
    """`ugw.estimate` with these options."""
    x, y = spaces

    def describe(prediction):
        return {
            "number bytes": float(prediction.bytes),
            "number work": float(prediction.work),
            "status path": prediction.path,
        }

    return Prepared(lambda: ugw.estimate(x, y, **options), describe)


add("estimate-stored-1000", "default", lambda: estimate_case(clouds(123, 1000, 900)))
add(
    "estimate-streaming-1000",
    "default",
    lambda: estimate_case(clouds(124, 1000, 900, metric="sqeuclidean"), solver=streaming_solver()),
)


def rho_for_mass_case(spaces, **options):
    """`ugw.rho_for_mass` with these options."""
    x, y = spaces
    return Prepared(lambda: ugw.rho_for_mass(x, y, **options), lambda rho: {"derived rho": rho})


add("rho-for-mass-60", "default", lambda: rho_for_mass_case(copy_with_outliers(125, 50, 10), kept=0.8, eps=1e-2))
add("rho-for-mass-ragged", "default", lambda: rho_for_mass_case(batches(126, (12, 20), (15, 18)), kept=0.85, eps=1e-2))


def tightness_case(spaces, **options):
    """`ugw.tightness` with these options."""
    x, y = spaces

    def describe(comparison):
        return {
            **describe_result(comparison.conic, "conic"),
            **describe_result(comparison.unbalanced, "unbalanced"),
            "value ugw": comparison.ugw,
            "derived ratio": comparison.ratio,
            "status holds": str(comparison.holds),
        }

    return Prepared(lambda: ugw.tightness(x, y, **options), describe, value_unit(x, y))


add("tightness-12", "default", lambda: tightness_case(clouds(128, 12, 11), rho=0.5, eps=1e-3))
add("tightness-40", "default", lambda: tightness_case(copy_with_outliers(129, 35, 5), rho=1.0, eps=ugw.relative(1e-2)))

# -- cases: many spaces ------------------------------------------------------------------------------------------------


def pairwise_case(spaces, others=None, **options):
    """`ugw.pairwise` in this process; debiased values may rise when a start gets better, so these are derived."""
    cols = spaces if others is None else others
    scale = np.array([[value_unit(x, y) for y in cols] for x in spaces])
    word = "derived values" if options["method"] == "debiased" else "value"

    def describe(result):
        return {
            word: result.values,
            "derived masses": result.masses,
            "status": names_of_codes(result.codes),
        }

    return Prepared(lambda: ugw.pairwise(spaces, others, n_jobs=1, **options), describe, scale)


SIZES = (8, 15, 20, 12, 25)
add("pairwise-ugw", "default", lambda: pairwise_case(make_spaces(130, SIZES, 2), method="ugw", rho=0.3, eps=1e-2))
add("pairwise-gw", "default", lambda: pairwise_case(make_spaces(131, SIZES, 2), method="gw", eps=1e-2))
add(
    "pairwise-cgw",
    "default",
    lambda: pairwise_case(make_spaces(132, SIZES, 2, even=False), method="cgw", rho=0.5, eps=0.0),
)
add(
    "pairwise-debiased",
    "default",
    lambda: pairwise_case(make_spaces(133, SIZES[:4], 2), method="debiased", rho=0.3, eps=2e-2),
)
add(
    "pairwise-two-lists",
    "default",
    lambda: pairwise_case(
        make_spaces(134, SIZES[:3], 3, even=False),
        make_spaces(135, SIZES, 2, even=False),
        method=ugw.Method("ugw", init="product"),
        rho=(0.2, 0.6),
        eps=1e-2,
    ),
)


def debiased_case(spaces, **options):
    """`ugw.debiased` with these options."""
    x, y = spaces

    def describe(result):
        return {
            "derived value": result.value,
            **describe_result(result.cross, "cross"),
            **describe_result(result.self_x, "self x"),
            **describe_result(result.self_y, "self y"),
            "status": status_names(result.status),
        }

    return Prepared(lambda: ugw.debiased(x, y, **options), describe, value_unit(x, y))


add("debiased-20", "tight", lambda: debiased_case(clouds(140, 20, 18), rho=0.5, eps=5e-2, solver=tight_solver()))
add("debiased-60", "default", lambda: debiased_case(clouds(141, 60, 50), rho=0.3, eps=2e-2))


def barycenter_case(spaces, **options):
    """`ugw.barycenter` with these options."""

    def describe(result):
        return {
            "value": result.value,
            "plan of distances": result.distances,
            "plan of parts": dense_array(result.parts.plan),
            "status": status_names(result.status),
        }

    return Prepared(lambda: ugw.barycenter(spaces, **options), describe, value_unit(spaces[0], spaces[1]))


add("barycenter-free", "default", lambda: barycenter_case(make_spaces(142, (12, 15, 10), 2), n=10, rho=1.0, eps=2e-2))
add(
    "barycenter-points",
    "default",
    lambda: barycenter_case(make_spaces(143, (12, 15), 2), n=12, dim=2, rho=(1.0, INF), eps=2e-2),
)

# -- cases: gradients --------------------------------------------------------------------------------------------------


def gradient_case(loss, *sources, word="value"):
    """A loss of tensors that require gradients, and these gradients."""

    def run():
        leaves = [source.detach().clone().requires_grad_() for source in sources]
        value, statuses = loss(*leaves)
        value.backward()
        return value, statuses, [tensor.grad for tensor in leaves]

    def describe(outcome):
        value, statuses, gradients = outcome
        grads = {f"plan of gradient {k}": gradient for k, gradient in enumerate(gradients)}
        return {word: value, **grads, **({} if statuses is None else {"status": status_names(statuses)})}

    clouds_of = [ugw.Space.from_points(source.detach()) for source in sources[:2] if source.ndim == 2]
    return Prepared(run, describe, value_unit(*clouds_of) if len(clouds_of) == 2 else 0.0)


def loss_of_module(make, calls=1):
    """A function of two clouds that calls a loss module `calls` times and returns the last value and its status."""

    def loss(x, y):
        criterion = make()
        for _ in range(calls):
            value = criterion(x, y)
        return value, criterion.result.status

    return loss


def loss_with_weights(x, weights, distances):
    """`ugw.ugw_loss` of points with weights, and of a distance matrix."""
    first = ugw.Space.from_points(x, weights=weights)
    second = ugw.Space.from_distances(0.5 * (distances + distances.mT))
    return ugw.ugw_loss(first, second, rho=0.5, eps=2e-2, solver=tight_solver()), None


def loss_of_plan(x, y):
    """The value of `ugw.solve_differentiable` plus a moment of its plan."""
    result = ugw.solve_differentiable(x, y, rho=0.5, eps=5e-2, solver=tight_solver())
    return result.value + (result.plan * torch.linspace(0.0, 1.0, result.plan.shape[1])).sum(), result.status


def planar_distances(seed, n):
    """Distances of points in the plane."""
    flat_points = torch.as_tensor(points(seed, n, 2))
    return torch.cdist(flat_points, flat_points)


add(
    "loss-ugw-60",
    "tight",
    lambda: gradient_case(
        loss_of_module(lambda: ugw.UGWLoss(rho=0.5, eps=2e-2, solver=tight_solver())),
        leaf_points(150, 60, 3),
        leaf_points(151, 50, 2),
    ),
)
add(
    "loss-ugw-last-60",
    "default",
    lambda: gradient_case(
        loss_of_module(lambda: ugw.UGWLoss(rho=0.5, eps=2e-2, init="last"), calls=2),
        leaf_points(152, 60, 3),
        leaf_points(153, 50, 2),
    ),
)
add(
    "loss-ugw-debiased-20",
    "default",
    lambda: gradient_case(
        loss_of_module(lambda: ugw.UGWLoss(rho=0.5, eps=5e-2, debiased=True)),
        leaf_points(154, 20, 3),
        leaf_points(155, 18, 2),
        word="derived",
    ),
)
add(
    "loss-cgw-15",
    "default",
    lambda: gradient_case(
        loss_of_module(lambda: ugw.CGWLoss(rho=0.5)), leaf_points(156, 15, 3), leaf_points(157, 14, 2)
    ),
)
add(
    "loss-weights-distances-20",
    "tight",
    lambda: gradient_case(
        loss_with_weights,
        leaf_points(158, 20, 3),
        torch.as_tensor(points(159, 20, 1)[:, 0] + 0.5) / 20,
        planar_distances(160, 18),
    ),
)
add(
    "loss-of-plan-15",
    "default",
    lambda: gradient_case(loss_of_plan, leaf_points(161, 15, 3), leaf_points(162, 14, 2), word="derived"),
)

# -- cases: estimators -------------------------------------------------------------------------------------------------


def aligner_case(spaces, fit_options=None, **options):
    """An `Aligner` fitted to the points of two spaces."""
    x, y = (as_array(space.points) for space in spaces)

    def run():
        return ugw.estimators.Aligner(**options).fit(x, y, **(fit_options or {}))

    def describe(aligner):
        return {
            **describe_result(aligner.result_),
            "plan of embedding": aligner.embedding_,
            "plan of masses": np.concatenate(aligner.mass_),
            "status chosen": f"rho {aligner.rho_}, eps {aligner.eps_}",
        }

    return Prepared(run, describe, value_unit(*(space.scaled("max") for space in spaces)))


def classifier_case(fit, **options):
    """A `PUClassifier`, fitted by the given function."""

    def run():
        return fit(ugw.estimators.PUClassifier(prior=0.25, **options))

    def describe(classifier):
        return {
            **describe_result(classifier.result_),
            "plan of scores": classifier.scores_,
            "plan of labels": classifier.labels_,
        }

    return Prepared(run, describe)


def labeled_points(seed):
    """Points of two kinds, and which of them are known to be positive."""
    rng = np.random.default_rng(seed)
    x = np.vstack([0.3 * rng.normal(size=(60, 2)), 2.0 * rng.normal(size=(60, 2))])
    return x, np.r_[np.ones(40, int), np.zeros(80, int)]


add("aligner-60", "default", lambda: aligner_case(copy_with_outliers(170, 50, 10), rho=1.0, eps=5e-3))
add(
    "aligner-choice-40",
    "default",
    lambda: aligner_case(
        copy_with_outliers(171, 40, 0),
        fit_options={"pairs": np.c_[np.arange(40), np.arange(40)[::-1]]},
        rho=[0.1, 1.0],
        eps=[5e-3, 5e-2],
    ),
)
add("pu-one-space-120", "default", lambda: classifier_case(lambda pu: pu.fit(*labeled_points(172)), rho=0.05, eps=5e-3))
add(
    "pu-two-spaces-60",
    "default",
    lambda: classifier_case(lambda pu: pu.fit_spaces(points(173, 40, 3), points(174, 60, 2)), rho=0.05, eps=5e-3),
)

# -- running -----------------------------------------------------------------------------------------------------------


class Runner:
    """A case that is prepared once and run repeatedly. An exception that it raises is part of the outcome."""

    def __init__(self, name):
        self.outcome, self.prepared = Outcome(), None
        try:
            with ignore_warnings():
                self.prepared = CASES[name][1]()
                result = self.prepared.run()
                arrays = self.prepared.describe(result)
            self.outcome.arrays = {key: as_array(value) for key, value in arrays.items()}
            self.outcome.scale = as_array(self.prepared.scale)
        except Exception as error:
            self.outcome = Outcome(error=f"{type(error).__name__}: {' '.join(str(error).split())}")
        gc.collect()

    def run_once(self):
        """One timed run; returns its seconds."""
        if self.outcome.error:
            return 0.0
        with ignore_warnings():
            begin = time.process_time()
            self.prepared.run()
            self.outcome.seconds.append(time.process_time() - begin)
        return self.outcome.seconds[-1]


def ignore_warnings():
    """A context that ignores warnings, because statuses are compared."""
    return warnings.catch_warnings(action="ignore")


def has_enough_runs(seconds, repeat):
    """Are there `repeat` runs that take long enough in total, or MORE times as many?"""
    return len(seconds) >= repeat and (sum(seconds) >= SHORT or len(seconds) >= MORE * repeat)


def run_case(name, repeat):
    """The outcome of a case in this process."""
    runner = Runner(name)
    while not runner.outcome.error and not has_enough_runs(runner.outcome.seconds, repeat):
        runner.run_once()
    return runner.outcome


class Worker:
    """A process with the package of one source tree that runs cases on request."""

    def __init__(self, source):
        environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "benchmarks.regression", "--worker"]
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def ask(self, *question):
        """("prepare", name), ("again",) or ("outcome",)."""
        pickle.dump(question, self.process.stdin)
        self.process.stdin.flush()
        return pickle.load(self.process.stdout)

    def close(self):
        """End the process."""
        self.process.stdin.close()
        self.process.wait()


def serve():
    """Run a worker: answer the requests on stdin until it is closed."""
    answers, sys.stdout = sys.stdout.buffer, sys.stderr  # so that output of a case is not part of the answers
    runner = None
    while True:
        try:
            question = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        if question[0] == "prepare":
            runner = Runner(question[1])
            answer = runner.outcome.error
        else:
            answer = runner.run_once() if question[0] == "again" else runner.outcome
        pickle.dump(answer, answers)
        answers.flush()


def run_alternately(name, workers, repeat):
    """The outcomes of a case that runs alternately in both workers."""
    failed = [worker.ask("prepare", name) for worker in workers]
    seconds = []
    while not all(failed) and not has_enough_runs(seconds, repeat):
        seconds.append(max(worker.ask("again") for worker in workers))
    return [worker.ask("outcome") for worker in workers]


# -- storing -----------------------------------------------------------------------------------------------------------


def store(path, outcomes):
    """Write outcomes to a file."""
    arrays = {}
    for name, outcome in outcomes.items():
        arrays |= {f"{name}|{key}": value for key, value in outcome.arrays.items()}
        arrays |= {f"{name}|{key}": np.asarray(getattr(outcome, key)) for key in ("scale", "error", "seconds")}
    with Path(path).open("wb") as file:
        np.savez_compressed(file, **arrays)


def load(path):
    """Read outcomes from a file of `store`."""
    outcomes = {}
    with np.load(path, allow_pickle=False) as file:
        for key in file.files:
            name, part = key.split("|")
            outcome = outcomes.setdefault(name, Outcome())
            if part == "error":
                outcome.error = str(file[key])
            elif part == "seconds":
                outcome.seconds = file[key].tolist()
            elif part == "scale":
                outcome.scale = file[key]
            else:
                outcome.arrays[part] = file[key]
    return outcomes


# -- comparing ---------------------------------------------------------------------------------------------------------


@dataclass
class Comparison:
    """A row: the largest difference of each kind of array, and the mean relative change of each array of values."""

    name: str
    before: Outcome
    now: Outcome
    value: float = 0.0
    number: float = 0.0
    derived: float = 0.0
    plan: float = 0.0
    status: bool = True  # equal?
    changes: list[float] = field(default_factory=list)  # of the values

    @property
    def verdict(self):
        """ "ok", "differs" or "START CHANGED"."""
        values, plans = TOLERANCES[CASES[self.name][0]]
        if self.before.error or self.now.error:
            return "ok" if self.before.error == self.now.error else "differs"
        if self.value > values:
            return "START CHANGED"
        near = max(self.number, self.derived) <= values and self.plan <= plans
        return "ok" if near and self.status else "differs"

    @property
    def change(self):
        """The mean relative change of the values."""
        return float(np.mean(self.changes))

    @property
    def has_failed(self):
        """Does this case alone make the comparison fail? A changed start does not, because it may be an improvement."""
        if self.verdict == "START CHANGED":
            return not self.status
        values = TOLERANCES[CASES[self.name][0]][0]
        other_error = self.before.error != self.now.error
        return other_error or not self.status or self.number > values

    @property
    def ratio(self):
        """Seconds now against before."""
        return self.now.best / self.before.best if self.before.best else float("nan")

    def row(self):
        """A line of the table."""
        status = self.now.status if self.status else f"{self.before.status} → {self.now.status}"
        if self.before.error and not self.now.error:
            status = f"{self.before.status} → {self.now.status}"
        return (
            f"{self.name:<34} {self.verdict:<13} {max(self.value, self.number, self.derived):>8.1e} {self.plan:>8.1e} "
            f"{self.before.best:>9.4f} {self.now.best:>9.4f} {self.ratio:>6.2f}  {status}"
        )


HEAD = f"{'case':<34} {'verdict':<13} {'value':>8} {'plan':>8} {'before s':>9} {'now s':>9} {'ratio':>6}  status"


def compare(name, before, now):
    """Compare two outcomes of a case, array by array."""
    row = Comparison(name, before, now)
    if before.error or now.error:
        return row
    for key in unique_names([*before.arrays, *now.arrays]):
        old, new, prefix = before.arrays.get(key), now.arrays.get(key), array_kind(key)
        if prefix == "status":
            row.status &= old is not None and new is not None and np.array_equal(old, new)
        elif old is None or new is None or old.shape != new.shape:
            setattr(row, prefix, INF)
        elif prefix == "plan":
            row.plan = max(row.plan, plan_distance(old, new))
        else:
            change = relative_change(old, new, before.scale)
            setattr(row, prefix, max(getattr(row, prefix), float(np.abs(change).max(initial=0.0))))
            if prefix == "value":
                row.changes.append(float(change.mean()))
    return row


def relative_change(old, new, scale):
    """(new − old) / max(|old|, scale), elementwise; infinite where only one of them is a number."""
    old, new = old.astype(float), new.astype(float)
    size = np.maximum(np.abs(old), scale if np.ndim(scale) <= old.ndim else np.max(scale))
    same = (old == new) | (np.isnan(old) & np.isnan(new))
    with np.errstate(invalid="ignore", divide="ignore"):
        change = np.where(same, 0.0, (new - old) / size)
    return np.where(np.isnan(change), INF, change)


def plan_distance(old, new):
    """The largest relative L1 distance over the items of a batch; entries that are NaN in both do not count."""
    if old.ndim < 3:
        old, new = old[None], new[None]
    worst = 0.0
    for p, q in zip(old.astype(float), new.astype(float), strict=True):
        if not np.array_equal(np.isnan(p), np.isnan(q)):
            return INF
        size = np.nansum(np.abs(p))
        worst = max(worst, float(np.nansum(np.abs(p - q)) / (size or 1.0)))
    return worst


def print_conclusion(rows):
    """Print a summary of the rows; returns the exit status."""
    changed = [row for row in rows if row.verdict == "START CHANGED"]
    failed = [row.name for row in rows if row.has_failed]
    differing = [row.name for row in rows if row.verdict == "differs"]
    faster = [row.ratio for row in rows if np.isfinite(row.ratio) and row.ratio > 0]
    print(f"\n{len(rows)} cases, {sum(row.verdict == 'ok' for row in rows)} ok")
    if faster:
        total = sum(row.now.best for row in rows if np.isfinite(row.ratio)) / sum(
            row.before.best for row in rows if np.isfinite(row.ratio)
        )
        print(f"seconds, now / before: geometric mean {np.exp(np.mean(np.log(faster))):.3f}, of the sums {total:.3f}")
    if differing:
        print("differ: " + ", ".join(differing))
    rises = False
    if changed:
        print("start changed, mean relative change of the values:")
        for row in changed:
            print(f"  {row.name:<34} {row.change:+.3e}")
        mean = float(np.mean([row.change for row in changed]))
        rises = not mean <= 0.0
        print(f"  {'mean of these cases':<34} {mean:+.3e}{', which is worse' if rises else ''}")
    if failed:
        print("statuses, numbers or errors differ: " + ", ".join(failed))
    return int(rises or bool(failed))


# -- command line ------------------------------------------------------------------------------------------------------


def arguments():
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--store", metavar="FILE.npz", help="run and store")
    mode.add_argument("--against", metavar="FILE.npz", help="run and compare with a stored file")
    mode.add_argument("--baseline-src", metavar="PATH", help="run in turns with the package of another source tree")
    mode.add_argument("--list", action="store_true", help="list the cases")
    mode.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--only", metavar="REGEX", default="", help="cases whose name matches")
    parser.add_argument("--repeat", type=int, default=3, help="timed runs of each case, after a warm-up (3)")
    return parser.parse_args()


def run_and_store(path, chosen, repeat):
    """Run the cases, print and store them."""
    outcomes = {}
    for name in chosen:
        outcomes[name] = run_case(name, repeat)
        print(f"{name:<34} {CASES[name][0]:<8} {outcomes[name].best:>9.4f} s  {outcomes[name].status}", flush=True)
    store(path, outcomes)
    errors = [name for name, outcome in outcomes.items() if outcome.error]
    print(f"\n{len(chosen)} cases, {len(errors)} errors{': ' * bool(errors)}{', '.join(errors)}")
    return 0


def compare_and_print(pairs):
    """Compare pairs of outcomes, print a row for each and the summary; returns the exit status."""
    print(HEAD, flush=True)
    rows = []
    for name, before, now in pairs:
        rows.append(compare(name, before, now))
        print(rows[-1].row(), flush=True)
    return print_conclusion(rows)


def main():
    """Run the command line; returns the exit status."""
    torch.set_num_threads(1)
    options = arguments()
    if options.worker:
        serve()
        return 0
    chosen = [name for name in CASES if re.search(options.only, name)]
    if options.list:
        print("\n".join(chosen))
        return 0
    if options.store:
        return run_and_store(options.store, chosen, options.repeat)
    if options.against:
        before = load(options.against)
        missing = [name for name in chosen if name not in before]
        if missing:
            print(f"not in {options.against}: {', '.join(missing)}")
        return compare_and_print(
            (name, before[name], run_case(name, options.repeat)) for name in chosen if name not in missing
        )
    sources = Path(options.baseline_src).resolve(), Path(ugw.__file__).resolve().parents[1]
    workers = [Worker(source) for source in sources]
    try:
        return compare_and_print((name, *run_alternately(name, workers, options.repeat)) for name in chosen)
    finally:
        for worker in workers:
            worker.close()


if __name__ == "__main__":
    sys.exit(main())
