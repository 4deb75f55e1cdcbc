"""Which steps are replayed, and by which recordings. Graphs themselves are tested on a GPU, in test_cuda.py."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import ugw
from ugw._utils import pytree as _batch
from ugw._utils.cuda_graphs import cache as recordings
from ugw._utils.cuda_graphs import steps as replay
from ugw._utils.cuda_graphs.steps import EVERY, Replay
from ugw.solvers import alternating as alternate


def nothing(*_):
    """A step that is never taken."""


@pytest.mark.parametrize(
    ("waiting", "expected"),
    [(0, 0), (1, 3), (9, 3), (10, 3 * EVERY), (40, 3 * EVERY)],
    ids=["none", "1", "9", "10", "all"],
)
def test_few_that_ask_for_more_do_not_hold_up_the_others(waiting, expected):
    """Of 40 items so many ask: they get it in one of EVERY steps, or in all of them if they are a quarter."""
    asking = 20.0 * (torch.arange(40) < waiting)
    steps = Replay(nothing, lambda context, state: asking)
    assert sum(steps._rounds(object()) is None for _ in range(3 * EVERY)) == expected


@pytest.mark.parametrize(("wanted", "rounds"), [(20, replay.LONG), (replay.LONG, replay.LONG), (replay.LONG + 1, None)])
def test_problems_that_come_again_have_a_long_recording(wanted, rounds):
    steps = Replay(nothing, lambda context, state: torch.tensor([float(wanted)]))
    assert steps._rounds(object()) is None
    steps._again = True
    assert steps._rounds(object()) == rounds


def test_on_a_cpu_every_live_item_and_no_other_is_held():
    held = Replay(nothing, nothing).sizes(None, state_of(torch.ones(40, 3, 3)))
    assert [held(live) for live in (1, 3, 40)] == [1, 3, 40]


def test_for_recordings_few_sizes_are_held(monkeypatch):
    monkeypatch.setattr(replay, "_may_fit", lambda *_: True)
    held = Replay(nothing, nothing).sizes(None, state_of(torch.ones(40, 256, 256)))
    assert [held(live) for live in (1, 16, 17, 32, 33, 40)] == [16, 16, 32, 32, 64, 64]


class Context:
    def __init__(self, one, other, label="context"):
        self.one, self.other, self.label = one, other, label

    def take(self, index):
        return Context(self.one[index], self.other[index], self.label)


def state_of(shape):
    return SimpleNamespace(now=SimpleNamespace(unit_plan=shape))


class State(Context):
    @property
    def now(self):
        return SimpleNamespace(unit_plan=self.one)


def test_steps_are_alike_that_differ_by_numbers_alone():
    one, other = torch.ones(2), torch.zeros(2)

    def known(context, shape, step=nothing):
        return recordings.known(step, context, _batch.parts(State(shape, shape))[0])[0]

    recordings.forget()
    first = known(Context(one, other), one)
    assert first is known(Context(other, one), other)
    assert first is not known(Context(one, one), one), "one tensor in two places is written to once"
    assert first is not known(Context(one, other, "another"), one)
    assert first is not known(Context(one, other), torch.ones(3))
    assert first is not known(Context(one, other), one, step=print)
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = not before
    assert first is not known(Context(one, other), one)
    torch.backends.cuda.matmul.allow_tf32 = before


def test_a_copied_context_shares_what_the_first_does():
    one = torch.ones(2)
    copied = recordings.copied(Context(one, one))
    assert copied.one is copied.other
    recordings.write(list(_batch.tensors(copied)), _batch.tensors(Context(one + 1, one + 1)))
    assert copied.one.tolist() == [2.0, 2.0]
    assert one.tolist() == [1.0, 1.0]


# --- whole solves, with a twin of a recording that takes its step anew ---


class Twin(replay.Recording):
    """A recording without a graph: it reads and writes the same places, by taking the step again."""

    made, used, broken = [], 0, -1

    def __init__(self, step, asks, context, state, rounds, *, kept):
        Twin.made.append(rounds)
        super().__init__(step, asks, context, state, rounds, kept=kept)

    def _record(self, step, asks):
        self._step, self._asks = step, asks
        self.new = _batch.mapped(step()[0], torch.clone)
        return 1

    def read(self, given):
        Twin.used += 1
        super().read(given)

    def next(self, state):
        recordings.write(_batch.tensors(self._first), [t.clone() for t in _batch.tensors(state)])
        new, report = self._step()
        recordings.write(_batch.tensors(self.new), [t.clone() for t in _batch.tensors(new)])
        signals = replay._signals(self._asks, self._context, self.new, report)
        Twin.broken -= 1
        signals[0] = float(Twin.broken != 0)
        return self.new, report, signals


@pytest.fixture
def twins(monkeypatch):
    """Steps recorded by twins, on a CPU."""
    monkeypatch.setattr(replay, "Recording", Twin)
    monkeypatch.setattr(replay, "_may_fit", lambda context, state: context.problem.recordable)
    monkeypatch.setattr(replay, "BUSY", 1)
    monkeypatch.setattr(Twin, "made", [])
    monkeypatch.setattr(Twin, "used", 0)
    monkeypatch.setattr(Twin, "broken", -1)
    recordings.forget()
    yield
    recordings.forget()


def pair(seed, batch=None, metric="euclidean"):
    rng = np.random.default_rng(seed)
    made = [[ugw.Space.from_points(rng.random((n, 2)), metric=metric) for n in (22, 18)] for _ in range(batch or 1)]
    return made[0] if batch is None else [ugw.Space.stack(side) for side in zip(*made, strict=True)]


def solve(seed, batch=None, metric="euclidean", **options):
    return ugw.solve(*pair(seed, batch, metric), **{"rho": 1.0 + seed, "eps": 2e-2, "init": "product"} | options)


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])  # one that is stored, one that remembers norms
@pytest.mark.parametrize("batch", [None, 7])
def test_kept_recordings_serve_alike_problems(twins, batch, metric):
    alone = []
    for seed in (0, 1):
        recordings.forget()
        alone.append(solve(seed, batch, metric))
    made, used = len(Twin.made), Twin.used
    recordings.forget()
    solve(0, batch, metric)
    again = solve(1, batch, metric)  # by what was recorded for another problem, with another rho
    assert Twin.used > 1.5 * used
    assert len(Twin.made) <= 2 * made
    np.testing.assert_allclose(again.plan, alone[1].plan, rtol=0.0, atol=1e-9 * alone[1].plan.max())
    kept = alone[0].plan.copy()
    solve(2, batch, metric)
    np.testing.assert_array_equal(alone[0].plan, kept)


@pytest.mark.parametrize("batch", [None, 7])
def test_a_recorded_solve_ends_where_a_plain_one_does(twins, monkeypatch, batch):
    recorded = solve(3, batch)
    monkeypatch.undo()
    plain = solve(3, batch)
    np.testing.assert_allclose(recorded.value, plain.value, rtol=1e-9)
    np.testing.assert_array_equal(recorded.converged, plain.converged)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_solution_is_not_left(twins, seed):
    x, y = pair(seed)
    found = ugw.solve(x, y, solver=ugw.AlternateMin(tol=1e-8))
    again = ugw.solve(x, y, init=found.plan)
    assert again.converged
    assert again.n_iter == 1
    assert again.value == pytest.approx(found.value, rel=1e-9)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_solution_is_not_left_by_recorded_steps_either(twins, seed):
    x, y = pair(seed)
    found = ugw.solve(x, y, solver=ugw.AlternateMin(tol=1e-8))
    given = {"init": found.plan, "rho": 1.0, "eps": 1e-2}
    for _ in range(2):  # the first one has no recording that could be long
        again = ugw.solve(x, y, **given | {"rho": 1.5, "init": "product"})
        again = ugw.solve(x, y, **given)
    assert replay.LONG in Twin.made
    assert again.converged
    assert again.value == pytest.approx(found.value, rel=1e-9)


def test_a_step_that_turns_out_broken_is_taken_again(twins):
    plain = solve(0)
    recordings.forget()
    Twin.broken = 3
    broken = solve(0)
    assert Twin.broken == 0, "no step was broken"
    np.testing.assert_allclose(broken.value, plain.value, rtol=1e-9)
    assert broken.converged


def test_nothing_is_recorded_before_such_a_step_was_taken(twins):
    """A run from a solution takes one step, with looks: nothing that a recording needs is compiled by that."""
    x, y = pair(0)
    found = ugw.solve(x, y, solver=ugw.AlternateMin(tol=1e-8))
    recordings.forget()
    Twin.made.clear()
    for _ in range(3):
        assert ugw.solve(x, y, init=found.plan).n_iter == 1
    assert Twin.made == []


def test_a_broken_step_does_not_take_back_the_one_before_it(twins):
    plain = [solve(0) for _ in range(3)][-1]  # its first step by a long recording, the others by the usual one
    assert replay.LONG in Twin.made
    Twin.broken = 2
    broken = solve(0)
    assert Twin.broken == 0, "no step was broken"
    np.testing.assert_allclose(broken.history.objective[:2], plain.history.objective[:2], rtol=1e-6)
    assert broken.history.objective[1] != broken.history.objective[0]


def test_steps_too_large_to_record_are_taken_without_looks(twins, monkeypatch):
    monkeypatch.setattr(replay, "MOST_ENTRIES", 0)
    taken, step = [], alternate._step
    monkeypatch.setattr(alternate, "_step", lambda c, s, rounds=None: (taken.append(rounds), step(c, s, rounds))[1])
    found = solve(0)
    assert Twin.made == []
    assert taken.count(replay.ROUNDS) >= len(taken) - 2, "but for the first, and one that asks"
    monkeypatch.undo()
    np.testing.assert_allclose(found.value, solve(0).value, rtol=1e-9)


def test_what_is_kept_is_bounded(twins, monkeypatch):
    monkeypatch.setattr(recordings, "KEPT", 3)
    for n in range(5, 12):
        ugw.solve(*[ugw.Space.from_points(np.random.default_rng(n).random((n, 2)))] * 2, init="product")
        assert len(recordings._kept) <= 3
    assert len(recordings._kept) == 3
    monkeypatch.setattr(replay, "READ_BYTES", 10)
    recordings.forget()
    solve(0)
    assert not recordings._kept


class Held:
    """What a recording says of itself."""

    def __init__(self, size):
        self.bytes = size


def test_what_is_kept_is_bounded_by_its_bytes_and_by_who_can_find_it(monkeypatch):
    recordings.forget()
    first, *others = (recordings.known(nothing, torch.zeros(n))[0] for n in range(1, 6))
    monkeypatch.setattr(recordings, "KEPT_BYTES", 100)
    for known in (first, *others):
        recordings.keep(known, 1, Held(40))
    assert len(recordings._kept) == 2
    assert recordings.kept(first, 1) is None
    assert recordings.kept(others[-1], 1).bytes == 40
    recordings.keep(others[-1], 1, Held(1000))  # too large alone
    assert not recordings._kept
    recordings.keep(first, 1, Held(10))
    monkeypatch.setattr(recordings, "MET", 3)
    for n in range(6, 10):
        recordings.known(nothing, torch.zeros(n))
    assert not recordings._kept
    assert recordings._held == 0
    recordings.forget()


def test_items_that_have_settled_ask_for_nothing():
    one = torch.ones(4)
    context = SimpleNamespace(options=ugw.AlternateMin(), limit=1e-6 * one, residual_limit=1e-6 * one)
    state = SimpleNamespace(
        change=torch.tensor([0.0, 1e-7, 1e-7, 1e-3]),
        residual=torch.tensor([1.0, 1e-7, 1e-3, 1e-7]),
        patience=torch.tensor([1.0, 4.0, 4.0, 1.0]),
    )
    assert alternate._asks(context, state).tolist() == [40.0, 0.0, 40.0, 0.0]
