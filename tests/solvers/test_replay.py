"""Which steps are replayed. What a replayed step is worth is tested on a GPU, in test_cuda.py."""

from types import SimpleNamespace

import pytest
import torch

from ugw import _batch
from ugw.solvers import replay
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


def test_on_a_cpu_every_live_item_and_no_other_is_held():
    state = SimpleNamespace(now=SimpleNamespace(shape=torch.ones(40, 3, 3)))
    held = Replay(lambda *_: None).sizes(None, state)
    assert [held(live) for live in (1, 3, 40)] == [1, 3, 40]


class Context:
    def __init__(self, one, other, label="context"):
        self.one, self.other, self.label = one, other, label

    def take(self, index):
        return Context(self.one[index], self.other[index], self.label)


def test_steps_are_alike_that_differ_by_numbers_alone():
    once, twice = torch.ones(2), torch.zeros(2)
    key = replay._key(Context(once, twice), (once,))
    assert key == replay._key(Context(twice, once), (twice,))
    assert key != replay._key(Context(once, once), (once,)), "one tensor in two places is written to once"
    assert key != replay._key(Context(once, twice, "other"), (once,))
    assert key != replay._key(Context(once, twice), (torch.ones(3),))


def test_a_copied_context_shares_what_the_first_does():
    one = torch.ones(2)
    copied = replay._copied(Context(one, one))
    assert copied.one is copied.other
    replay._write(list(_batch.tensors(copied)), _batch.tensors(Context(one + 1, one + 1)))
    assert copied.one.tolist() == [2.0, 2.0]
    assert one.tolist() == [1.0, 1.0]
