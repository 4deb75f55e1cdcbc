"""Which steps are replayed. What a replayed step is worth is tested on a GPU, in test_cuda.py."""

from types import SimpleNamespace

import pytest
import torch

from ugw.solvers.replay import EVERY, Replay


@pytest.mark.parametrize(
    ("waiting", "expected"),
    [(0, 0), (1, 3), (9, 3), (10, 3 * EVERY), (40, 3 * EVERY)],
    ids=["none", "1", "9", "10", "all"],
)
def test_few_that_ask_for_patience_do_not_hold_up_the_others(waiting, expected):
    """Of 40 items so many ask: they get it in one of EVERY steps, or in all of them if they are a quarter."""
    patience = torch.ones(40)
    patience[:waiting] = 4.0
    replay = Replay(lambda *_: None)
    assert sum(replay._patient(SimpleNamespace(patience=patience)) for _ in range(3 * EVERY)) == expected
