"""Rows that need a CUDA device: dense solves of ugw and of peers, and the rate of the streaming kernel.

Every function takes a `device`, so that its code can be tested on a CPU at a small size.
"""

import torch

import ugw
from ugw.kernels import dispatch as kernels

from . import dense, measure, peers, problems

RHO, EPS, MASSES = 1.0, 0.01, (1.0, 1.5)
PEERS_UP_TO = 4000  # points; for more, peers take minutes
RANK, ITERATIONS = 4, 20
WARM = 4  # calls in which kernels are compiled and CUDA graphs captured


def dense_row(n, *, repeats, limit, device="cuda", dtype=torch.float32):
    """Measure our solve before any peer is loaded, then compare with the peers that fit into memory."""
    instance = problems.clouds(n, rho=RHO, eps=EPS, masses=MASSES)
    spaces = instance.on(device, dtype)
    now, seconds = measure.clock(device), []
    for _ in range(WARM + repeats):  # without a monitor
        start = now()
        ugw.solve(*spaces, rho=RHO, eps=EPS)
        seconds.append(now() - start)
    selected = peers.ON_CUDA if n <= PEERS_UP_TO else ()
    row = dense.row(instance, selected, repeats=repeats, limit=limit, device=device, dtype=dtype)
    row["ours"]["total"] = min(seconds)
    row["measured"]["seconds"] = min(seconds)
    return {"n": n, "rho": RHO, "eps": EPS, **row}


def fastest_call(call, device, repeats=3):
    """Return the least seconds of several calls, after one call that compiles."""
    now = measure.clock(device)
    call()
    times = []
    for _ in range(repeats):
        start = now()
        call()
        times.append(now() - start)
    return min(times)


def our_pairs(n, device):
    """Return a call of our streaming kernel at rank 4 with as many passes over n² pairs as that of FlashSinkhorn."""
    rng = torch.Generator(device=device).manual_seed(0)
    left, right = (torch.rand(1, n, RANK, device=device, generator=rng) for _ in range(2))
    zeros = torch.zeros(1, n, device=device)
    guess = kernels.streaming_logsumexp(left, right, zeros)  # as in every iteration but the first
    return lambda: [kernels.streaming_logsumexp(left, right, zeros, guess) for _ in range(2 * ITERATIONS)]


def flash_pairs(n, device):
    """Return a call of FlashSinkhorn with 20 (f, g) iterations in R³, and its number of pairs."""
    from flash_sinkhorn.sinkhorn_solvers import sinkhorn_flashstyle_alternating

    (x, _), (y, _) = problems.sheets_with_outliers(n)
    x, y = (torch.as_tensor(v, dtype=torch.float32, device=device) for v in (x, y))
    w = torch.full((n,), 1.0 / n, device=device)
    return lambda: sinkhorn_flashstyle_alternating(x, y, w, w, eps=0.01, n_iters=ITERATIONS, rho_x=0.1, rho_y=0.1)


def kernel_row(n, *, device="cuda"):
    """Measure pairs per second of our kernel at rank 4 and of FlashSinkhorn, whose iteration is two passes."""
    rate = 2.0 * ITERATIONS * n * n / fastest_call(our_pairs(n, device), device) / 1e12
    row = {"n": n, "peers": {}, "measured": {"Tpairs/s": rate}, "ours": {"rate": rate}}
    try:
        seconds = fastest_call(flash_pairs(n, device), device) / ITERATIONS
        row["peers"]["FlashSinkhorn"] = {"same": False, "seconds": seconds, "rate": 2.0 * n * n / seconds / 1e12}
    except Exception as error:
        row["peers"]["FlashSinkhorn"] = {"same": False, "reason": f"{type(error).__name__}: {str(error)[:100]}"}
    return row
