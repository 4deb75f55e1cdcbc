"""Steps by captured graphs have the results of plain steps. Graphs are emulated; tests/test_cuda.py uses real ones."""

from dataclasses import dataclass, replace
from functools import cached_property
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from oracles.captured_graphs import kept_names
from oracles.thresholds import changed_thresholds
from ugw._utils.cuda_graphs.captured_step import CapturedStep, CaptureProperties
from ugw._utils.cuda_graphs.config import CAPTURE_CONFIG
from ugw._utils.pytree import BatchRecord, clone

USUAL, MANY, PATIENCE = CAPTURE_CONFIG.usual_rounds, CAPTURE_CONFIG.many_rounds, CAPTURE_CONFIG.patience_steps


@dataclass(frozen=True, eq=False)
class Settings(BatchRecord):
    target: Tensor
    factor: Tensor
    label: str = ""

    @cached_property
    def force(self):
        return self.factor * self.target


@dataclass(frozen=True, eq=False)
class State(BatchRecord):
    """value: moves to the target; previous: the one before; anchor: is passed on; requested: rounds of the next step"""

    value: Tensor
    previous: Tensor
    anchor: Tensor
    requested: Tensor


class Steps:
    """A contraction to the target of the settings, and the rounds with which it was called.

    With a fixed number of rounds it fails for values above `limit`, as inner iterations without checks may overflow.
    requests_after: rounds that the next step needs; for values in the interval `request_between` more than many.
    """

    __name__ = "steps"

    def __init__(self, limit=float("inf"), requests_after=0.0, request_between=(0.0, 0.0)):
        self.calls, self.limit = [], limit
        self.requests_after, self.request_between = requests_after, request_between

    def __call__(self, settings, state, n_rounds):
        self.calls.append(n_rounds)
        value = settings.force + (1.0 - settings.factor) * state.value + 0.01 * state.anchor + 0.1 * state.previous
        if n_rounds is not None:
            value = value.masked_fill(state.value > self.limit, torch.nan)
        low, high = self.request_between
        requested = torch.where((value > low) & (value < high), MANY + 1.0, self.requests_after)
        return State(value, state.value, state.anchor, requested), SimpleNamespace(diagnostics={"value": value})


def requested_rounds(settings, state):
    return state.requested


def properties_function(**changes):
    fields = {"is_capturable": True, "is_sync_free": True, "n_entries": 4, "n_item_entries": 1} | changes
    return lambda settings, state: CaptureProperties(**fields)


def make_captured_step(steps, **changes):
    return CapturedStep(steps, requested_rounds, properties_function(**changes))


def make_settings(seed, batch=4, label=""):
    draw = torch.Generator().manual_seed(seed)
    return Settings(torch.rand(batch, generator=draw), 0.2 + 0.5 * torch.rand(batch, generator=draw), label)


def make_state(seed, batch=4, requested=0.0):
    draw = torch.Generator().manual_seed(100 + seed)
    value, previous, anchor = (torch.rand(batch, generator=draw) for _ in range(3))
    return State(value, previous, anchor, torch.as_tensor(requested).expand(batch).clone())


def run(step, settings, state, count=6):
    """Return the values after each step, and the last state."""
    values = []
    for _ in range(count):
        state, report = step(settings, state)
        torch.testing.assert_close(report.diagnostics["value"], state.value)
        values.append(state.value.clone())
    return torch.stack(values), state


def run_uncaptured(settings, state, count=6):
    return run(lambda settings, state: Steps()(settings, state, None), settings, state, count)[0]


def test_captured_steps_have_the_results_of_plain_steps(cuda):
    steps = Steps()
    values, _ = run(make_captured_step(steps), make_settings(0), make_state(0))
    torch.testing.assert_close(values, run_uncaptured(make_settings(0), make_state(0)), rtol=0.0, atol=0.0)
    assert steps.calls == [USUAL] * 2, "one step without a graph, and one for its capture"


def test_a_second_problem_of_the_same_signature_gets_its_own_result_by_the_kept_graphs(cuda):
    steps = Steps()
    for seed in range(4):
        step = make_captured_step(steps)
        values, last = run(step, make_settings(seed), make_state(seed))
        torch.testing.assert_close(values, run_uncaptured(make_settings(seed), make_state(seed)), rtol=0.0, atol=0.0)
        step.release(last)
        assert cuda.n_captures == 2, "one graph of the step, one that copies its result to where it starts"
    assert len(steps.calls) == 2


def test_other_settings_of_one_run_are_written_to_its_graphs(cuda):
    """A loop may compact its batch, or go on with another problem."""
    steps = Steps()
    step = make_captured_step(steps)
    run(step, make_settings(0), make_state(0))
    for seed, batch in ((1, 4), (2, 3), (3, 4)):
        inputs = make_settings(seed, batch), make_state(seed, batch)
        torch.testing.assert_close(run(step, *inputs)[0], run_uncaptured(*inputs), rtol=0.0, atol=0.0)


def test_settings_with_another_label_have_their_own_graphs(cuda):
    for label in ("first", "second"):
        step = make_captured_step(Steps())
        step.release(run(step, make_settings(0, label=label), make_state(0))[1])
    assert cuda.n_captures == 4


def test_cached_properties_of_settings_are_not_taken_over(cuda):
    """Cached values would belong to the settings with which the graph was captured."""
    steps = Steps()
    for seed in range(3):
        settings = make_settings(seed)
        assert settings.force.shape == (4,)
        step = make_captured_step(steps)
        values, last = run(step, settings, make_state(seed))
        torch.testing.assert_close(values, run_uncaptured(make_settings(seed), make_state(seed)), rtol=0.0, atol=0.0)
        step.release(last)
    assert cuda.n_captures == 2


def test_a_released_state_is_not_overwritten(cuda):
    steps = Steps()
    step = make_captured_step(steps)
    _, last = run(step, make_settings(0), make_state(0))
    released = step.release(last)
    before = clone(released)
    again = make_captured_step(steps)
    run(again, make_settings(1), make_state(1))
    for name in ("value", "previous", "anchor"):
        torch.testing.assert_close(getattr(released, name), getattr(before, name), rtol=0.0, atol=0.0)


def test_steps_may_start_anew_from_any_state(cuda):
    step, settings = make_captured_step(Steps()), make_settings(0)
    run(step, settings, make_state(0))
    other = make_state(5)
    torch.testing.assert_close(run(step, settings, other)[0], run_uncaptured(settings, other), rtol=0.0, atol=0.0)


# -- non-finite steps --------------------------------------------------------------------------------------


def test_a_non_finite_step_is_undone_and_repeated_without_a_graph(cuda):
    """Values exceed the limit above which steps with a fixed number of rounds fail."""
    settings, state = make_settings(0), replace(make_state(0), value=torch.zeros(4))
    expected = run_uncaptured(settings, state, 8)
    limit = float(expected[3].max())  # only later values are above
    assert (expected[4:].amax(1) > limit).all()
    steps = Steps(limit=limit)
    values, _ = run(make_captured_step(steps), settings, state, 8)
    torch.testing.assert_close(values, expected, rtol=0.0, atol=0.0)
    assert steps.calls == [USUAL] * 2 + [None] * 3, "graphs up to the failure, plain steps after it"


def test_a_non_finite_first_step_is_repeated(cuda):
    settings, state = make_settings(0), make_state(0)
    steps = Steps(limit=-1.0)
    values, _ = run(make_captured_step(steps), settings, state)
    torch.testing.assert_close(values, run_uncaptured(settings, state), rtol=0.0, atol=0.0)
    assert steps.calls == [USUAL] + [None] * 6
    assert cuda.n_captures == 0


def test_other_settings_are_captured_after_a_non_finite_step(cuda):
    steps = Steps()
    step = make_captured_step(steps)
    steps.limit = -1.0
    run(step, make_settings(0), make_state(0))
    steps.limit = float("inf")
    run(step, make_settings(1), make_state(1))
    assert cuda.n_captures == 2


def test_a_non_finite_step_does_not_undo_the_step_of_another_graph(cuda):
    """The first step of a known signature has a graph of many rounds, the second one the usual graph."""
    steps = Steps()
    for seed in range(2):
        step = make_captured_step(steps)
        step.release(run(step, make_settings(seed), make_state(seed, requested=MANY))[1])
    assert MANY in steps.calls
    inputs = make_settings(2), make_state(2, requested=MANY)
    cuda.fail_replay(2)
    values, _ = run(make_captured_step(steps), *inputs)
    assert cuda.has_failed
    torch.testing.assert_close(values, run_uncaptured(*inputs), rtol=0.0, atol=0.0)


def test_a_graph_does_not_overwrite_the_state_of_a_plain_step(cuda):
    """The plain step passes on a part of the state of a graph, and the next step of the graph must be repeated."""
    settings, state = make_settings(0, 1), replace(make_state(0, 1), value=torch.zeros(1))
    expected = run_uncaptured(settings, state)
    second = float(expected[1])
    steps = Steps(request_between=(second - 1e-6, second + 1e-6))
    cuda.fail_replay(2)
    values, _ = run(make_captured_step(steps), settings, state)
    assert cuda.has_failed
    assert steps.calls[:4] == [USUAL, USUAL, None, None], "warm-up, capture, plain step, repeated step"
    torch.testing.assert_close(values, expected, rtol=0.0, atol=0.0)


# -- rounds of inner iterations ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_waiting", "n_long_steps"), [(0, 0), (1, 3), (9, 3), (10, 3 * PATIENCE), (40, 3 * PATIENCE)]
)
def test_few_items_that_need_more_rounds_do_not_delay_the_others(cuda, n_waiting, n_long_steps):
    """Of 40 items: they get more rounds in every PATIENCE-th step, or in all steps if they are a quarter."""
    waiting = (MANY + 1.0) * (torch.arange(40) < n_waiting)
    steps = Steps()
    step = CapturedStep(steps, lambda settings, state: waiting, properties_function())
    run(step, make_settings(0, 40), make_state(0, 40), 3 * PATIENCE)
    assert steps.calls.count(None) == n_long_steps


@pytest.mark.parametrize(("requested", "n_rounds"), [(20, MANY), (MANY, MANY), (MANY + 1, None)])
def test_known_signatures_have_a_graph_of_many_rounds(cuda, requested, n_rounds):
    """A signature is known after a step without synchronization; more rounds than many are made one by one."""
    steps = Steps()
    step = make_captured_step(steps)
    step.release(run(step, make_settings(0), make_state(0, requested=float(requested)))[1])
    assert steps.calls[0] is None, "the signature was not known"
    steps.calls.clear()
    make_captured_step(steps)(make_settings(1), make_state(1, requested=float(requested)))
    assert steps.calls == [n_rounds]


def test_nothing_is_captured_before_a_step_without_synchronization(cuda):
    """The kernels that a graph needs are not compiled by steps that check values."""
    steps = Steps(requests_after=10.0)
    for seed in range(4):
        step = make_captured_step(steps)
        step.release(run(step, make_settings(seed), make_state(seed, requested=10.0), 1)[1])
    assert steps.calls == [None] * 4
    assert cuda.n_captures == 0


# -- limits ------------------------------------------------------------------------------------------------


def test_large_steps_run_without_synchronization_and_without_graphs(cuda):
    steps = Steps()
    values, _ = run(
        make_captured_step(steps, n_entries=CAPTURE_CONFIG.max_step_entries + 1), make_settings(0), make_state(0)
    )
    torch.testing.assert_close(values, run_uncaptured(make_settings(0), make_state(0)), rtol=0.0, atol=0.0)
    assert steps.calls == [USUAL] * 6
    assert cuda.n_captures == 0


def test_steps_with_one_synchronization_run_without_graphs(cuda):
    """They depend on a value of their own, but their inner iterations need none."""
    steps = Steps()
    run(make_captured_step(steps, is_capturable=False), make_settings(0), make_state(0))
    assert steps.calls == [USUAL] * 6
    assert cuda.n_captures == 0


def test_steps_that_must_synchronize_run_as_they_are():
    steps = Steps()
    step = make_captured_step(steps, is_capturable=False, is_sync_free=False)
    values, last = run(step, make_settings(0), make_state(0))
    torch.testing.assert_close(values, run_uncaptured(make_settings(0), make_state(0)), rtol=0.0, atol=0.0)
    assert steps.calls == [None] * 6
    assert step.release(last) is last


@changed_thresholds(CAPTURE_CONFIG, max_cached_step_bytes=10)
def test_graphs_that_read_much_are_not_kept(cuda):
    steps = Steps()
    for seed in range(2):
        step = make_captured_step(steps)
        values, last = run(step, make_settings(seed), make_state(seed))
        torch.testing.assert_close(values, run_uncaptured(make_settings(seed), make_state(seed)), rtol=0.0, atol=0.0)
        step.release(last)
        assert kept_names() == []
    assert cuda.n_captures == 4


@changed_thresholds(CAPTURE_CONFIG, max_graphs=3)
def test_the_number_of_kept_graphs_is_limited(cuda):
    steps = Steps()
    for batch in range(2, 8):
        step = make_captured_step(steps)
        step.release(run(step, make_settings(0, batch), make_state(0, batch))[1])
        assert len(kept_names()) == min(3, batch - 1)


# -- batch sizes -------------------------------------------------------------------------------------------


def test_without_graphs_only_running_items_are_kept():
    keep = make_captured_step(Steps(), is_capturable=False).batch_sizes(None, None)
    assert [keep(n_running) for n_running in (1, 3, 40)] == [1, 3, 40]


def test_graphs_have_few_batch_sizes():
    """Batch sizes are powers of two, and not so small that a GPU would be idle."""
    keep = make_captured_step(Steps(), n_item_entries=256 * 256).batch_sizes(None, None)
    assert [keep(n_running) for n_running in (1, 16, 17, 32, 33, 40)] == [16, 16, 32, 32, 64, 64]
