"""Sinkhorn's iterations as one kernel or a few (interpreted where there is no GPU), against the loop in float64."""

import pytest
import torch

from ugw.kernels import dispatch as kernels
from ugw.solvers import sinkhorn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
triton_small = pytest.importorskip("ugw.kernels.triton.sinkhorn_registers", reason="Triton is not installed")
triton_medium = pytest.importorskip("ugw.kernels.triton.sinkhorn_cache", reason="Triton is not installed")
BACKENDS = pytest.mark.parametrize("backend", [triton_small, triton_medium], ids=["small", "medium"])
# One point, ragged edges, powers of two on an edge, more rows than columns and fewer.
SHAPES = [(1, 1, 1), (3, 5, 9), (2, 16, 16), (2, 33, 20), (1, 100, 100), (2, 17, 130)]
SOFT, HARD, HALF_HARD = (0.9, 0.8), (1.0, 1.0), (1.0, 0.5)  # damping of both sides


def problem(shape, dtype, eps=0.01, damping=SOFT, seed=0):
    """A step with its kernel and a state; a point without weight on each side where there are more than four."""
    batch, n, m = shape
    draw = torch.Generator().manual_seed(seed)
    cost = torch.rand(shape, generator=draw, dtype=torch.float64).to(DEVICE, dtype)
    logs = [torch.rand(batch, size, generator=draw, dtype=torch.float64).log().to(DEVICE, dtype) for size in (n, m)]
    for log in logs:
        if log.shape[1] > 4:
            log[:, 2] = -torch.inf
    phi, gamma = (torch.rand(batch, size, generator=draw, dtype=torch.float64).to(DEVICE, dtype) for size in (n, m))
    one = torch.ones(batch, dtype=dtype, device=DEVICE)
    kernel = kernels.make_gibbs_kernel(cost, *logs, eps * one, gamma)
    hard = all(d == 1.0 for d in damping)
    share = torch.full_like(one, 0.0 if hard else 1.0 / sum(1.0 / d - 1.0 for d in damping))[:, None]
    step = sinkhorn._Step(kernel, tuple(d * one[:, None] for d in damping), share, one, one)
    return step, sinkhorn._Potentials(phi, gamma, gamma, one, one, one)


def fused(step, state, backend):
    k, sides = step.kernel.stored()
    of_item = torch.cat((*step.damping, step.share), dim=1)
    return backend.sweeps(
        k, sides, (state.phi, state.ahead), of_item, step.kernel.iterations_per_check, sinkhorn.SLOWEST
    )


@BACKENDS
@pytest.mark.parametrize(
    ("shape", "damping"),
    [(shape, SOFT) for shape in SHAPES] + [(shape, damping) for shape in SHAPES[:3] for damping in (HARD, HALF_HARD)],
    ids=str,
)
def test_one_round_agrees_with_the_torch_loop(shape, damping, backend):
    short, long = (problem(shape, dtype, damping=damping) for dtype in (torch.float32, torch.float64))
    got, step = fused(*short, backend), long[0]
    rounded, wanted = (sinkhorn._sweeps(s, s.kernel.log_domain(), state) for s, state in (short, long))
    with_weight = step.kernel.log_a > -torch.inf, step.kernel.log_b > -torch.inf
    for k, seen in enumerate((*with_weight, with_weight[1], ...)):
        if k == 2 and shape == (1, 1, 1) and damping == HARD:
            continue  # done after one iteration: the rate is one of rounding errors
        found, loop, exact = (numbers[k].double() for numbers in (got, rounded, wanted))
        # An extrapolation far ahead multiplies what float32 rounds, for each item here as in the loop itself.
        slack = torch.where(with_weight[1], (loop - exact).abs(), 0.0).amax(1, keepdim=True) if k == 2 else 0.0
        near = (found - exact).abs() <= 2e-4 + 1e-4 * exact.abs() + 2.0 * slack
        assert bool(near[seen].all())
    assert all(bool(torch.isfinite(found).all()) for found in got)


@BACKENDS
def test_underflow_gives_a_nonfinite_change(backend):
    step, state = problem((2, 6, 8), torch.float32)
    state.ahead[1] -= 300.0  # exp(−300) is 0 in float32
    assert torch.isfinite(fused(step, state, backend)[3]).tolist() == [True, False]


@BACKENDS
def test_a_row_without_kernel_entries_gives_a_nonfinite_change(backend):
    step, state = problem((2, 6, 8), torch.float32)
    step.kernel.stored()[0][0, 3] = 0.0
    assert torch.isfinite(fused(step, state, backend)[3]).tolist() == [False, True]


@pytest.mark.parametrize("shape", [(1, 9, 70), (2, 70, 6), (1, 35, 40)], ids=str)
def test_vectors_longer_than_a_block(shape, monkeypatch):
    for name, size in (("ROWS", (4, 32)), ("COLS", (8, 32)), ("BLOCK", 32)):
        monkeypatch.setattr(triton_medium, name, size)  # small, so that short vectors already take several blocks
    short, long = (problem(shape, dtype) for dtype in (torch.float32, torch.float64))
    got, wanted = fused(*short, triton_medium), sinkhorn._sweeps(*(long[0], long[0].kernel.log_domain(), long[1]))
    present = long[0].kernel.log_a > -torch.inf, long[0].kernel.log_b > -torch.inf, ...
    for found, exact, seen in zip((*got[:2], got[3]), (*wanted[:2], wanted[3]), present, strict=True):
        assert torch.allclose(found.double()[seen], exact[seen], rtol=1e-4, atol=2e-4)


def test_which_plan_shapes_each_backend_accepts():
    assert triton_medium.fits(torch.zeros(1, 2000, 2000))
    assert not triton_medium.fits(torch.zeros(1, 2000, 3000))
    assert triton_small.fits(torch.zeros(1, 100, 200))
    assert not triton_small.fits(torch.zeros(1, 100, 300))
    assert not triton_small.fits(torch.zeros(1, 10, 10, dtype=torch.float64))
    assert kernels.fused_sweeps(problem((1, 5, 5), torch.float64)[0].kernel, (), (), 1, 0.5) is None
