"""Final objective of the default start, against the best of 32 starts and against POT, on mixed seeded problems.

    OMP_NUM_THREADS=1 python -m benchmarks.quality  # 160 problems, some minutes; --seed draws others, --pot adds POT
    OMP_NUM_THREADS=1 python -m benchmarks.quality --points 10 30 --eps 0.001 0.1 --starts 64  # few points

Problems are pairs of clouds, clusters, curves, block-model graphs and trees of 25 to 220 points, in spaces of mean
distance about 1/2; a quarter contain an exact copy of a part of the other space. The best of 32 is over the product
plan, 31 random plans and the default; it is kept in a file, so that another start can be measured in seconds. Excess
is (value − best) / |best|.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from functools import partial
from pathlib import Path

import networkx as nx
import numpy as np
import ot
import torch

import ugw

CACHE = Path(__file__).parent.parent / "out" / "quality-references"
CLOSE = 1e-4  # excess up to which a start counts as good
MEAN_DISTANCE = 0.5  # of all spaces: that of points in a unit square


# -- spaces, as matrices of distances ----------------------------------------------------------------------------------


def point_distances(points):
    """Return Euclidean distances."""
    return np.sqrt(np.square(points[:, None] - points[None]).sum(2))


def make_cloud(rng, n):
    """Return distances of uniform points in a box of random sides in R² or R³."""
    dim = rng.integers(2, 4)
    return point_distances(rng.random((n, dim)) * rng.uniform(0.5, 1.0, dim))


def make_clusters(rng, n):
    """Return distances of a Gaussian mixture."""
    k, dim = rng.integers(2, 6), rng.integers(2, 4)
    centers = rng.normal(size=(k, dim))
    labels = rng.choice(k, size=n, p=rng.dirichlet(np.full(k, 3.0)))
    return point_distances(centers[labels] + rng.uniform(0.1, 0.4) * rng.normal(size=(n, dim)))


def make_curve(rng, n):
    """Return distances of points near an open or closed smooth curve in R³."""
    t = np.sort(rng.random(n)) * 2 * np.pi
    waves = rng.normal(size=(3, 3, 2)) / np.arange(1, 4)[None, :, None]
    angles = t[:, None] * np.arange(1, 4) * rng.choice([0.5, 1.0])
    points = np.stack([(w[:, 0] * np.cos(angles) + w[:, 1] * np.sin(angles)).sum(1) for w in waves], axis=1)
    return point_distances(points + 0.02 * rng.normal(size=points.shape))


def graph_distances(graph, rng, weighted):
    """Return shortest-path distances of the largest component, with edges of length 1 or random lengths."""
    graph = graph.subgraph(max(nx.connected_components(graph), key=len))
    for _, _, data in graph.edges(data=True):
        data["weight"] = rng.uniform(0.5, 1.5) if weighted else 1.0
    return np.asarray(nx.floyd_warshall_numpy(graph))


def make_blocks(rng, n):
    """Return shortest paths of a stochastic block model."""
    k = rng.integers(2, 5)
    sizes = np.bincount(rng.choice(k, size=n), minlength=k).clip(min=3)
    inside, outside = min(0.9, 8 * k / n), min(0.3, 1.0 / n**0.5 / k)
    matrix = np.full((k, k), outside) + (inside - outside) * np.eye(k)
    graph = nx.stochastic_block_model(sizes.tolist(), matrix, seed=int(rng.integers(2**31)))
    return graph_distances(graph, rng, weighted=rng.random() < 0.5)


def make_tree(rng, n):
    """Return shortest paths of a random tree."""
    graph = nx.Graph([(i, int(rng.integers(max(0, i - 12), i))) for i in range(1, n)])
    return graph_distances(graph, rng, weighted=rng.random() < 0.7)


FAMILIES = (make_cloud, make_clusters, make_curve, make_blocks, make_tree)


def make_problem(seed, k, points, eps_range):
    """Return problem number k of a seed: family, two matrices of distances, weights, rho and eps.

    points, eps_range: smallest and largest number of points and eps.
    """
    rng = np.random.default_rng((seed, k))
    n, m = rng.integers(points[0], points[1] + 1, 2)
    make = FAMILIES[k % len(FAMILIES)]
    dx = make(rng, n)
    if k % 4 == 3:  # a part of the first space, among other points
        part = rng.choice(len(dx), size=rng.integers(len(dx) // 2, len(dx)), replace=False)
        dy = dx[np.ix_(part, part)]
        name = make.__name__ + ", part"
        scales = (MEAN_DISTANCE / dx.mean(),) * 2
    else:
        dy = make(rng, m) if rng.random() < 0.6 else FAMILIES[rng.integers(len(FAMILIES))](rng, m)
        name = make.__name__
        scales = MEAN_DISTANCE / dx.mean(), MEAN_DISTANCE / dy.mean()
    weights = [
        np.full(len(d), 1 / len(d)) if rng.random() < 0.5 else rng.dirichlet(np.full(len(d), 4.0)) for d in (dx, dy)
    ]
    rho, eps = np.exp(rng.uniform(np.log(0.03), 0.0)), np.exp(rng.uniform(*np.log(eps_range)))
    return name.removeprefix("make_"), (dx * scales[0], dy * scales[1]), weights, float(rho), float(eps)


# -- values ------------------------------------------------------------------------------------------------------------


def load_references(options):
    """Return the file of the values of the best of many starts, and these values by problem, as far as known."""
    text = "-".join(f"{number:g}" for number in (options.seed, *options.points, *options.eps, options.starts))
    path = CACHE / f"seed-{text}.json"
    return path, {int(k): v for k, v in json.loads(path.read_text()).items()} if path.exists() else {}


def best_of_starts(x, y, rho, eps, n_starts):
    """Return the lowest value over the product plan and random plans."""
    return ugw.solve(x, y, rho=rho, eps=eps, init="product", solver=ugw.Multistart(n=n_starts)).value


def pot_value(x, y, rho, eps):
    """Return the value of POT's plan, from the product plan."""
    dx, dy = (s.metric.dense().numpy() for s in (x, y))
    plan = ot.gromov.fused_unbalanced_gromov_wasserstein(
        dx, dy, np.asarray(x.weights), np.asarray(y.weights), reg_marginals=rho, epsilon=eps, alpha=0,
        unbalanced_solver="sinkhorn_log", max_iter=1000, tol=1e-6,
    )[0]  # fmt: skip
    return float(ugw.objective(plan, x, y, rho=rho, eps=eps).total)


def fastest(call, n_repeats=3):
    """Return the result of a call and the minimum of its times in seconds."""
    times = []
    for _ in range(n_repeats):
        start = time.perf_counter()
        result = call()
        times.append(time.perf_counter() - start)
    return result, min(times)


def summarize(name, excess):
    """Return a row of the table of excesses."""
    excess = np.asarray(excess)
    return f"| {name} | {excess.mean():.1e} | {100 * (excess <= CLOSE).mean():.1f} % | {100 * excess.max():.2f} % |"


def measure(k, reference, options):
    """Return the name of a problem, its excesses by start, its entries n·m, and seconds of the default and product."""
    name, distances, weights, rho, eps = make_problem(options.seed, k, options.points, options.eps)
    x, y = (ugw.Space.from_distances(d, weights=w) for d, w in zip(distances, weights, strict=True))
    if reference is None:
        reference = best_of_starts(x, y, rho, eps, options.starts)
    values, seconds = {}, {}
    for key, start in (("default", options.init), ("product", "product")):
        result, seconds[key] = fastest(partial(ugw.solve, x, y, rho=rho, eps=eps, init=start))
        values[key] = result.value
    if options.pot:
        values["POT"] = pot_value(x, y, rho, eps)
    best = min(reference, *values.values())
    excess = {key: (value - best) / abs(best) for key, value in values.items()}
    text = f"{k:>3} {name:<14} {x.n:>3} × {y.n:<3} rho {rho:.3f} eps {eps:.4f}  {excess['default']:+.1e}"
    return text, excess, (x.n * y.n, seconds["default"], seconds["product"]), reference


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--problems", type=int, default=160)
    parser.add_argument("--points", type=int, nargs=2, default=(25, 220), help="fewest and most points of a space")
    parser.add_argument("--eps", type=float, nargs=2, default=(0.001, 0.03), help="smallest and largest eps")
    parser.add_argument("--starts", type=int, default=32, help="starts whose best solution is the reference")
    parser.add_argument("--init", default="auto")
    parser.add_argument("--pot", action="store_true", help="solve by POT as well: slow")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    path, references = load_references(options)
    path.parent.mkdir(parents=True, exist_ok=True)
    rows, times = [], []
    for k in range(options.problems):
        text, excess, seconds, references[k] = measure(k, references.get(k), options)
        rows.append(excess)
        times.append(seconds)
        path.write_text(json.dumps(references))
        if excess["default"] > CLOSE:
            print(f"{text}  {1e3 * seconds[1]:.1f} ms, {seconds[1] / seconds[2]:.1f} × product", flush=True)
    print(
        f"\n{options.problems} problems of seed {options.seed}, one thread; init={options.init!r} is called default.\n"
    )
    print("| start | mean excess over the best | within 1e-4 | worst |\n|---|---|---|---|")
    print(*(summarize(name, [row[name] for row in rows]) for name in rows[0]), sep="\n")
    if options.pot:
        above = sum(row["default"] > row["POT"] + CLOSE for row in rows)
        print(f"\nThe default is above POT by more than {CLOSE:.0e} on {above} problems.")
    entries, default, product = np.array(times).T
    for label, subset in (("up to 100 × 100", entries <= 1e4), ("larger", entries > 1e4)):
        if not subset.any():
            continue
        logs = np.log((default / product)[subset])
        quartiles = np.round(np.exp(np.quantile(logs, (0.25, 0.5, 0.75))), 2)
        print(f"\nTime of the default over that of init='product', {label}: geometric mean {np.exp(logs.mean()):.2f}, "
              f"quartiles {quartiles}")  # fmt: skip


if __name__ == "__main__":
    main()
