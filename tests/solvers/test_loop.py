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
    """A number per item, a nested pair of tensors, and a field that is None."""

    value: Tensor
    pair: tuple[Tensor, Tensor]  # nested, as potentials are
    nothing: None = None

    @property
    def residual(self):
        """One number per item, for batch size and device."""
        return self.value

    def take(self, index):
        """Return the state of some items."""
        return State(self.value[index], (self.pair[0][index], self.pair[1][index]))


@dataclass(frozen=True, eq=False)
class Context:
    """The constants of a run.

    goal: value at which an item converges; bad: value that is reported as NaN; seen: batch size of each step.
    """

    goal: Tensor
    bad: Tensor
    batch_sizes: list

    def take(self, index):
        """Return the context of some items."""
        return replace(self, goal=self.goal[index], bad=self.bad[index])


START = (1.0, 8.0, 64.0, 2.0, 32.0)
STEPS = (1, 4, 7, 2, 6)  # halvings until the number is at most one half


def initial_state(values=START):
    """Return the initial state with these numbers."""
    value = torch.tensor(values, dtype=torch.float64)
    return State(value, (value.clone(), value[:, None].expand(-1, 3).clone()))


def context(values=START, bad=None):
    """Return the context in which items converge at 1/2; bad: values that are reported as NaN."""
    bad = [math.nan] * len(values) if bad is None else bad
    return Context(torch.full((len(values),), 0.5, dtype=torch.float64), torch.tensor(bad, dtype=torch.float64), [])


def step(context, state):
    """Halve the number of each item, and report it."""
    context.batch_sizes.append(len(state.value))
    value = state.value / 2
    new = State(value, (state.pair[0] / 2, state.pair[1] / 2))
    status = torch.where(value <= context.goal, int(Status.CONVERGED), int(Status.RUNNING))
    number = torch.where(value == context.bad, math.nan, value)
    return new, loop.Report(status, {"value": number, "double": 2 * number})


def run(rules, values=START, bad=None, observer=None):
    """Return the outcome of a loop from these numbers, and the batch size of each step."""
    run_context = context(values, bad)
    return loop.iterate(step, run_context, initial_state(values), rules, observer), run_context.batch_sizes


@pytest.mark.parametrize("compact_at", [1.0, 0.5, 0.0])
def test_every_item_has_the_state_of_its_last_step(compact_at):
    end, batch_sizes = run(loop.Rules(max_iter=50, compact_at=compact_at))
    assert end.n_iter.tolist() == list(STEPS)
    assert end.status.tolist() == [Status.CONVERGED] * 5
    assert end.state.value.tolist() == [0.5] * 5  # fixed, although other items continued
    assert end.state.pair[0].tolist() == [0.5] * 5
    assert end.state.pair[1].tolist() == [[0.5] * 3] * 5
    assert len(batch_sizes) == max(STEPS)


def test_compaction_drops_ended_items():
    # Live items after each step: 5 → 4, 3, 3, 2, 2, 1, 0.
    assert run(loop.Rules(max_iter=50, compact_at=1.0))[1] == [5, 4, 3, 3, 2, 2, 1]
    assert run(loop.Rules(max_iter=50, compact_at=0.5))[1] == [5, 5, 5, 5, 2, 2, 2]
    assert run(loop.Rules(max_iter=50, compact_at=0.0))[1] == [5] * 7


def test_ended_items_are_kept_to_fill_the_requested_batch_size():
    end, batch_sizes = run(loop.Rules(max_iter=50, items_to_keep=lambda live: max(2, 1 << (live - 1).bit_length())))
    assert batch_sizes == [5, 4, 4, 4, 2, 2, 2]
    assert end.n_iter.tolist() == list(STEPS)
    assert end.state.value.tolist() == [0.5] * 5
    assert end.table()[0, 1:].isnan().all()


def test_an_item_that_is_not_finite_is_not_kept():
    # The second item is 8, 4, then NaN. Ended items stay in the batch, this one does not.
    end, batch_sizes = run(
        loop.Rules(max_iter=50, compact_at=0.0, items_to_keep=lambda live: 5), bad=[math.nan, 2.0, *[math.nan] * 3]
    )
    assert batch_sizes == [5, 5, 4, 4, 4, 4, 4]
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


def test_the_iteration_limit_is_a_status():
    end, batch_sizes = run(loop.Rules(max_iter=3))
    assert len(batch_sizes) == 3
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


def test_non_finite_takes_precedence_over_converged_and_the_iteration_limit():
    end, _ = run(loop.Rules(max_iter=50), values=(1.0, 4.0), bad=[0.5, math.nan])
    assert end.status.tolist() == [Status.NON_FINITE, Status.CONVERGED]
    assert end.state.value.tolist() == [1.0, 0.5]
    end, _ = run(loop.Rules(max_iter=1), values=(8.0, 8.0), bad=[4.0, math.nan])
    assert end.status.tolist() == [Status.NON_FINITE, Status.MAX_ITER]
    assert end.state.value.tolist() == [8.0, 4.0]


def test_check_every_reduces_the_number_of_checks():
    # Looked at in steps 3, 6 and, the limit, 7; an item that is ready in between goes on until then.
    end, batch_sizes = run(loop.Rules(max_iter=7, check_every=3))
    assert len(batch_sizes) == 7
    assert end.n_iter.tolist() == [3, 6, 7, 3, 6]
    assert end.state.value.tolist() == [1 / 8, 1 / 8, 0.5, 1 / 4, 0.5]
    assert end.status.tolist() == [Status.CONVERGED] * 5
    assert end.table().shape == (5, 3, 2)


def test_the_monitor_sees_running_items_and_can_stop_them():
    calls = []

    def observer(numbers, live):
        """Record the numbers, and stop the run at the third call."""
        calls.append((numbers["value"].tolist(), live))
        return len(calls) == 3

    end, batch_sizes = run(loop.Rules(max_iter=50), observer=observer)
    assert len(batch_sizes) == 3
    assert calls == [([0.5, 4.0, 32.0, 1.0, 16.0], 5), ([2.0, 16.0, 0.5, 8.0], 4), ([1.0, 8.0, 4.0], 3)]
    assert end.status.tolist() == [Status.CONVERGED, Status.STOPPED, Status.STOPPED, Status.CONVERGED, Status.STOPPED]
    assert end.state.value.tolist() == [0.5, 1.0, 8.0, 0.5, 4.0]
    assert end.n_iter.tolist() == [1, 3, 3, 2, 3]


def test_stopping_keeps_the_status_of_finished_items():
    end, _ = run(loop.Rules(max_iter=50), values=(1.0, 8.0), observer=lambda *_: True)
    assert end.status.tolist() == [Status.CONVERGED, Status.STOPPED]


def test_the_initial_state_is_not_changed():
    start = initial_state()
    loop.iterate(step, context(), start, loop.Rules(max_iter=50))
    assert start.value.tolist() == list(START)
    assert start.pair[1][:, 0].tolist() == list(START)


def test_each_item_has_its_own_limit():
    end, _ = run(loop.Rules(max_iter=6, max_iter_per_item=torch.tensor([6, 2, 6, 1, 5])))
    assert end.n_iter.tolist() == [1, 2, 6, 1, 5]
    last = [Status.CONVERGED, *[Status.MAX_ITER] * 4]
    assert end.status.tolist() == last
    assert end.state.value.tolist() == [0.5, 2.0, 1.0, 1.0, 1.0]


def test_items_that_make_no_step_keep_their_state():
    index = torch.tensor([0, 3])
    items = context(START).take(index)
    part = loop.iterate(step, items, initial_state().take(index), loop.Rules(max_iter=50))
    end = part.expand_to_batch(index, initial_state())
    assert end.n_iter.tolist() == [1, 0, 0, 2, 0]
    assert end.status.tolist() == [Status.CONVERGED, 0, 0, Status.CONVERGED, 0]
    assert end.state.value.tolist() == [0.5, 8.0, 64.0, 0.5, 32.0]
    assert end.table().isnan().all(2).tolist() == [[False, True], [True] * 2, [True] * 2, [False] * 2, [True] * 2]
