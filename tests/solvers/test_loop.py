"""The loop, driven by a fake step: each item halves its number until it is small, so every answer is known."""

import math
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from ugw.results.records import Status
from ugw.solvers import loop


@dataclass(frozen=True, eq=False)
class State:
    value: Tensor
    pair: tuple[Tensor, Tensor]  # nested, as potentials are
    nothing: None = None

    @property
    def batch(self):
        return len(self.value)

    @property
    def device(self):
        return self.value.device

    def take(self, index):
        return State(self.value[index], (self.pair[0][index], self.pair[1][index]))


@dataclass(frozen=True, eq=False)
class Context:
    """goal: where an item stops; bad: the value at which its numbers turn NaN; seen: sizes of the batches."""

    goal: Tensor
    bad: Tensor
    seen: list

    def take(self, index):
        return replace(self, goal=self.goal[index], bad=self.bad[index])


START = (1.0, 8.0, 64.0, 2.0, 32.0)
STEPS = (1, 4, 7, 2, 6)  # halvings until the number is at most one half


def first(values=START):
    value = torch.tensor(values, dtype=torch.float64)
    return State(value, (value.clone(), value[:, None].expand(-1, 3).clone()))


def context(values=START, bad=None):
    bad = [math.nan] * len(values) if bad is None else bad
    return Context(torch.full((len(values),), 0.5, dtype=torch.float64), torch.tensor(bad, dtype=torch.float64), [])


def step(context, state):
    context.seen.append(state.batch)
    value = state.value / 2
    new = State(value, (state.pair[0] / 2, state.pair[1] / 2))
    status = torch.where(value <= context.goal, int(Status.CONVERGED), int(Status.RUNNING))
    number = torch.where(value == context.bad, math.nan, value)
    return new, loop.Report(status, {"value": number, "double": 2 * number})


def run(rules, values=START, bad=None, watch=None):
    held = context(values, bad)
    return loop.iterate(step, held, first(values), rules, watch), held.seen


@pytest.mark.parametrize("compact_at", [1.0, 0.5, 0.0])
def test_items_retire_where_they_end(compact_at):
    end, seen = run(loop.Rules(max_iter=50, compact_at=compact_at))
    assert end.n_iter.tolist() == list(STEPS)
    assert end.status.tolist() == [Status.CONVERGED] * 5
    assert end.state.value.tolist() == [0.5] * 5  # frozen, though others went on
    assert end.state.pair[0].tolist() == [0.5] * 5
    assert end.state.pair[1].tolist() == [[0.5] * 3] * 5
    assert len(seen) == max(STEPS)


def test_compaction_drops_retired_items():
    # Live items after each step: 5 → 4, 3, 3, 2, 2, 1, 0.
    assert run(loop.Rules(max_iter=50, compact_at=1.0))[1] == [5, 4, 3, 3, 2, 2, 1]
    assert run(loop.Rules(max_iter=50, compact_at=0.5))[1] == [5, 5, 5, 5, 2, 2, 2]
    assert run(loop.Rules(max_iter=50, compact_at=0.0))[1] == [5] * 7


def test_retired_items_fill_the_sizes_that_are_wanted():
    end, seen = run(loop.Rules(max_iter=50, items_to_keep=lambda live: max(2, 1 << (live - 1).bit_length())))
    assert seen == [5, 4, 4, 4, 2, 2, 2]
    assert end.n_iter.tolist() == list(STEPS)
    assert end.state.value.tolist() == [0.5] * 5
    assert end.table()[0, 1:].isnan().all()


def test_a_broken_item_is_not_held():
    # The second item is 8, 4, 2: there it breaks. Retired items stay, this one does not.
    end, seen = run(
        loop.Rules(max_iter=50, compact_at=0.0, items_to_keep=lambda live: 5), bad=[math.nan, 2.0, *[math.nan] * 3]
    )
    assert seen == [5, 5, 4, 4, 4, 4, 4]
    assert end.status.tolist() == [Status.CONVERGED, Status.NON_FINITE, *[Status.CONVERGED] * 3]
    assert end.n_iter.tolist() == [1, 1, 7, 2, 6]
    assert end.state.value.tolist() == [0.5, 4.0, 0.5, 0.5, 0.5]


@pytest.mark.parametrize("compact_at", [1.0, 0.5, 0.0])
def test_the_table_has_nan_after_an_item_ended(compact_at):
    end, _ = run(loop.Rules(max_iter=50, compact_at=compact_at))
    table = end.table()
    assert table.shape == (5, 7, 2)
    for i, (start, steps) in enumerate(zip(START, STEPS, strict=True)):
        expected = [start / 2 ** (k + 1) for k in range(steps)]
        assert table[i, :steps, 0].tolist() == expected
        assert table[i, :steps, 1].tolist() == [2 * v for v in expected]
        assert table[i, steps:].isnan().all()


def test_the_limit_is_a_status():
    end, seen = run(loop.Rules(max_iter=3))
    assert len(seen) == 3
    assert end.status.tolist() == [
        Status.CONVERGED,
        Status.MAX_ITER,
        Status.MAX_ITER,
        Status.CONVERGED,
        Status.MAX_ITER,
    ]
    assert end.n_iter.tolist() == [1, 3, 3, 2, 3]
    assert end.state.value.tolist() == [0.5, 1.0, 8.0, 0.5, 4.0]


def test_an_item_that_ends_in_the_last_step_has_converged():
    end, _ = run(loop.Rules(max_iter=4))
    assert end.status[1] == Status.CONVERGED


@pytest.mark.parametrize("compact_at", [1.0, 0.0])
def test_a_step_that_is_not_finite_is_undone(compact_at):
    # Item 2 turns NaN as it reaches 16: it keeps the 32 before. Its neighbors do not notice.
    end, _ = run(loop.Rules(max_iter=50, compact_at=compact_at), bad=[math.nan, math.nan, 16.0, math.nan, math.nan])
    assert end.status.tolist() == [
        Status.CONVERGED, Status.CONVERGED, Status.NON_FINITE, Status.CONVERGED, Status.CONVERGED
    ]  # fmt: skip
    assert end.state.value.tolist() == [0.5, 0.5, 32.0, 0.5, 0.5]
    assert end.state.pair[1][2].tolist() == [32.0] * 3
    assert end.n_iter.tolist() == [1, 4, 1, 2, 6]  # the step that was undone does not count,
    assert end.table()[2, :, 0].isnan().tolist() == [False] + [True] * 5  # nor does history know of it


def test_a_single_item_that_is_not_finite_is_undone():
    end, _ = run(loop.Rules(max_iter=50), values=(8.0,), bad=[2.0])
    assert end.status.tolist() == [Status.NON_FINITE]
    assert end.state.value.tolist() == [4.0]


def test_not_finite_overrules_converged_and_the_limit():
    end, _ = run(loop.Rules(max_iter=50), values=(1.0, 4.0), bad=[0.5, math.nan])
    assert end.status.tolist() == [Status.NON_FINITE, Status.CONVERGED]
    assert end.state.value.tolist() == [1.0, 0.5]
    end, _ = run(loop.Rules(max_iter=1), values=(8.0, 8.0), bad=[4.0, math.nan])
    assert end.status.tolist() == [Status.NON_FINITE, Status.MAX_ITER]
    assert end.state.value.tolist() == [8.0, 4.0]


def test_check_every_reduces_the_number_of_checks():
    # Looked at in steps 3, 6 and, the limit, 7; an item that is ready in between goes on until then.
    end, seen = run(loop.Rules(max_iter=7, check_every=3))
    assert len(seen) == 7
    assert end.n_iter.tolist() == [3, 6, 7, 3, 6]
    assert end.state.value.tolist() == [1 / 8, 1 / 8, 0.5, 1 / 4, 0.5]
    assert end.status.tolist() == [Status.CONVERGED] * 5
    assert end.table().shape == (5, 3, 2)


def test_the_monitor_sees_running_items_and_can_stop_them():
    calls = []

    def watch(numbers, live):
        calls.append((numbers["value"].tolist(), live))
        return len(calls) == 3

    end, seen = run(loop.Rules(max_iter=50), watch=watch)
    assert len(seen) == 3
    assert calls == [([0.5, 4.0, 32.0, 1.0, 16.0], 5), ([2.0, 16.0, 0.5, 8.0], 4), ([1.0, 8.0, 4.0], 3)]
    assert end.status.tolist() == [Status.CONVERGED, Status.STOPPED, Status.STOPPED, Status.CONVERGED, Status.STOPPED]
    assert end.state.value.tolist() == [0.5, 1.0, 8.0, 0.5, 4.0]
    assert end.n_iter.tolist() == [1, 3, 3, 2, 3]


def test_stopping_keeps_the_status_of_finished_items():
    end, _ = run(loop.Rules(max_iter=50), values=(1.0, 8.0), watch=lambda *_: True)
    assert end.status.tolist() == [Status.CONVERGED, Status.STOPPED]


def test_the_first_state_is_left_alone():
    start = first()
    loop.iterate(step, context(), start, loop.Rules(max_iter=50))
    assert start.value.tolist() == list(START)
    assert start.pair[1][:, 0].tolist() == list(START)
