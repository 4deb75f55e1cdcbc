"""All pairs of molecule graphs by `ugw.pairwise` against a loop over POT, on one thread, in one run.

    UGW_DATA=/path/to/data OMP_NUM_THREADS=1 python -m benchmarks.molecules --graphs 12
    UGW_DATA=/path/to/data OMP_NUM_THREADS=1 python -m benchmarks.molecules --graphs 188  # all of MUTAG

Graphs are shortest-path distances with one-hot labels of atoms and uniform weights, alpha = 1/2. The values of all
plans of POT are computed by `ugw.objective`, or by the same formula at eps = 0.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from functools import partial
from pathlib import Path

import networkx as nx
import numpy as np
import ot

import ugw

ALPHA = 0.5  # weight of the labels, in POT
EPS = 0.05  # of the unbalanced problem
RHO = 1.0
N_LABELS = 7  # kinds of atoms in MUTAG
HIGHER = 1e-4  # relative excess over POT's objective that counts as higher


def load_molecules(n_graphs):
    """Return the distances and one-hot labels of the first graphs of MUTAG."""
    data = np.load(Path(os.environ["UGW_DATA"]) / "graph_classes" / "mutag.npz")
    molecules = []
    for k in range(n_graphs):
        nodes = np.flatnonzero(data["graph"] == k)
        graph = nx.Graph()
        graph.add_nodes_from(nodes)
        graph.add_edges_from(edge for edge in data["edges"] if edge[0] in graph)
        distances = np.asarray(nx.floyd_warshall_numpy(graph, nodelist=list(nodes)), dtype=float)
        molecules.append((distances, np.eye(N_LABELS)[data["node_label"][nodes].astype(int)]))
    return molecules


def make_spaces(molecules):
    """Return the spaces of molecules, with their labels as features."""
    return [
        ugw.Space.from_distances(d, weights=np.full(len(d), 1 / len(d)), features=features) for d, features in molecules
    ]


def upper_pairs(molecules):
    """Return the pairs (i, j), i < j."""
    return [(i, j) for i in range(len(molecules)) for j in range(i + 1, len(molecules))]


def fused_term(is_balanced):
    """Return the linear term that has the weights of POT: (1 - alpha) <M, p> + alpha GW(p) if balanced."""
    return ugw.Fused((1 - ALPHA) / ALPHA if is_balanced else ALPHA)


def feature_cost(fx, fy):
    """Return squared Euclidean distances between features."""
    return ((fx[:, None] - fy[None]) ** 2).sum(2)


def solve_pairs_by_pot(molecules, *, is_balanced):
    """Return the plans of POT of all pairs."""
    plans = []
    for i, j in upper_pairs(molecules):
        (dx, fx), (dy, fy) = molecules[i], molecules[j]
        a, b = np.full(len(dx), 1 / len(dx)), np.full(len(dy), 1 / len(dy))
        if is_balanced:
            plans.append(ot.gromov.fused_gromov_wasserstein(feature_cost(fx, fy), dx, dy, a, b, alpha=ALPHA))
        else:
            options = {"reg_marginals": RHO, "epsilon": EPS, "divergence": "kl", "unbalanced_solver": "sinkhorn_log"}
            limits = {"max_iter": 1000, "tol": 1e-6, "max_iter_ot": 1000, "tol_ot": 1e-6}
            cost = feature_cost(fx, fy)
            plan, _ = ot.gromov.fused_unbalanced_gromov_wasserstein(
                dx, dy, a, b, M=cost, alpha=ALPHA, **options, **limits
            )
            plans.append(plan)
    return plans


def values_of_plans(molecules, spaces, plans, *, is_balanced):
    """Return the objective of plans, as `ugw.pairwise` reports it."""
    rho, eps = (float("inf"), 0.0) if is_balanced else (RHO, EPS)
    return np.array(
        [
            ugw.objective(plan, spaces[i], spaces[j], rho=rho, eps=eps, fused=fused_term(is_balanced)).total
            for (i, j), plan in zip(upper_pairs(molecules), plans, strict=True)
        ]
    )


def fastest(function, n_repeats):
    """Return the result of a function and the minimum of its processor times in seconds."""
    times = []
    for _ in range(n_repeats):
        start = time.process_time()
        result = function()
        times.append(time.process_time() - start)
    return result, min(times)


def main():
    """Print a row per problem and initial plan."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", type=int, default=12)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", choices=("balanced", "unbalanced"))
    arguments = parser.parse_args()
    molecules = load_molecules(arguments.graphs)
    spaces, n_pairs = make_spaces(molecules), len(upper_pairs(molecules))
    upper = np.triu_indices(len(molecules), 1)
    warnings.simplefilter("ignore")
    for name in ("balanced", "unbalanced"):
        if arguments.only not in (None, name):
            continue
        is_balanced = name == "balanced"
        plans, pot = fastest(partial(solve_pairs_by_pot, molecules, is_balanced=is_balanced), arguments.repeat)
        of_pot = values_of_plans(molecules, spaces, plans, is_balanced=is_balanced)
        method, rho, eps = ("gw", "auto", 0.0) if is_balanced else ("ugw", RHO, EPS)
        for init in ("product", "auto"):
            with_init = ugw.Method(method, init=init, fused=fused_term(is_balanced))
            solve = partial(ugw.pairwise, spaces, method=with_init, rho=rho, eps=eps)
            result, ours = fastest(solve, arguments.repeat)
            excess = (result.values[upper] - of_pot) / np.maximum(of_pot, 1e-9)
            print(
                f"{name:<11} {init:<8} {n_pairs} pairs  ours {ours:8.3f} s  POT {pot:8.3f} s  ratio {pot / ours:7.3f}  "
                f"mean excess {excess.mean():+.2e}  higher on {np.mean(excess > HIGHER):.2%}  "
                f"converged {np.mean(np.asarray(result.converged)[upper]):.2%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
