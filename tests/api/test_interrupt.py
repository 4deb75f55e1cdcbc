"""Ctrl-C during a solve in a child process: KeyboardInterrupt within a second, in the search and in the solve."""

import pytest

from oracles.interrupts import MAX_SECONDS, fastest_of, interrupt_child, needs_sigint

SCRIPT = """
import numpy as np, ugw
def cloud(n, seed):
    return ugw.Space.from_points(np.random.default_rng(seed).normal(size=(n, 3)))
def batch(n, count, seed):
    return ugw.Space.stack([cloud(n, seed + k) for k in range(count)])
try:
    {call}
    print("finished")
except KeyboardInterrupt:
    print("interrupted")
"""
PROGRESS = "ugw.AlternateMin(progress=True)"
# A call that takes many seconds, and the text that it writes when it is in the middle of what is interrupted.
CALLS = {
    "compiled search": (f"ugw.solve(batch(200, 60, 0), batch(200, 60, 100), solver={PROGRESS})", "steps of candidates"),
    "search": (f"ugw.solve(cloud(1500, 0), cloud(1500, 1), solver={PROGRESS})", "steps of candidates"),
    "compiled solve": (
        "x, y = batch(300, 12, 0), batch(300, 12, 50); print('ready'); "
        "ugw.solve(x, y, eps=0.0, init='product', solver=ugw.AlternateMin(tol=1e-15, max_iter=10**6))",
        "ready\n",
    ),
    "solve": (
        "ugw.solve(cloud(1500, 0), cloud(1500, 1), init='product', "
        "solver=ugw.AlternateMin(tol=1e-15, callback=lambda step: print('step', step.iteration)))",
        "step 2\n",
    ),
    "linear programs": (
        "import ot; emd = ot.emd; ot.emd = lambda *args, **options: (print('program'), emd(*args, **options))[1]; "
        "ugw.solve_linear(cloud(3000, 0), cloud(3000, 1), rho=np.inf, eps=0.0)",
        "program\n",
    ),
}


@needs_sigint
@pytest.mark.parametrize("name", CALLS)
def test_ctrl_c_takes_effect_within_a_second(name):
    call, marker = CALLS[name]
    compiled = {"UGW_COMPILED": "0"} if name == "search" else {}

    def attempt():
        """Interrupt the call a moment after it has written the marker."""
        return interrupt_child(
            ["-c", SCRIPT.format(call=call)],
            lambda out, err: marker in out + err,
            reaction="interrupted",
            delay=0.5,  # from the marker into the long operation
            **compiled,
        )

    end = fastest_of(attempt)
    assert end.stdout.endswith("interrupted\n"), end
    assert "finished" not in end.stdout
    assert end.seconds <= MAX_SECONDS
