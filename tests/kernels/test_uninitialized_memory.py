"""Compiled solves do not depend on what their work arrays held before: the C library fills allocated memory."""

import os
import subprocess
import sys

import pytest

from ugw.kernels.cpu import native

pytestmark = [
    pytest.mark.skipif(not native.is_available(), reason="the compiled library is not built"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs MALLOC_PERTURB_ of the GNU C library"),
]

SOLVES = """
import warnings
import numpy as np, torch, ugw
warnings.simplefilter("ignore")
torch.set_num_threads(1)
rng, inf = np.random.default_rng(0), float("inf")
def space(n, d, weighted):
    weights = rng.dirichlet(np.ones(n)) if weighted else np.full(n, 1 / n)
    return ugw.Space.from_points(rng.random((n, d)), weights=weights, features=rng.random((n, 2)))
pairs = [(space(n, 2, k % 2), space(m, 3, k % 3 == 0)) for k, (n, m) in enumerate([(7, 9), (12, 5), (21, 18), (16, 16)])]
penalties = [(1.0, 0.05), (0.1, 0.001), ((inf, 1.0), 0.01), (inf, 0.01), (0.5, 0.0), (inf, 0.0)]
penalties += [(ugw.TV(0.2), 0.0), (ugw.Mass(0.5), 0.0)]
results = [ugw.solve(x, y, rho=rho, eps=eps) for x, y in pairs for rho, eps in penalties]
results += [ugw.solve(x, y, rho=rho, eps=eps, fused=ugw.Fused(0.5)) for x, y in pairs for rho, eps in penalties]
results += [ugw.solve_conic(x, y, rho=0.2) for x, y in pairs]
for r in results:
    print(f"{r.value:.17g} {int(r.n_iter)} {float(np.square(r.plan).sum()):.17g}")
"""


def run_solves(**environment):
    """Return what the solves print in a process with more environment variables."""
    command = [sys.executable, "-c", SOLVES]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_results_do_not_depend_on_uninitialized_memory():
    """128 fills new memory with huge numbers, whose products overflow, and 85 with tiny negative ones."""
    expected = run_solves()
    assert len(expected) == 68
    for byte in ("128", "85"):
        assert run_solves(MALLOC_PERTURB_=byte) == expected
