"""Which calls are recorded, and what they return. Graphs themselves are tested on a GPU, in test_cuda.py."""

from dataclasses import replace

import pytest
import torch

import ugw
from ugw._utils.cuda_graphs import cache as recordings
from ugw._utils.cuda_graphs import calls as recorded
from ugw._utils.cuda_graphs import mode as _recording
from ugw.problems.build import build
from ugw.solvers import stopping as context

OPTIONS = ugw.AlternateMin(max_iter=1)

CALLS, RECORDING = [], []


def doubled(numbers, name):
    """A function of a module."""
    CALLS.append(name)
    return numbers + numbers.new_ones(()), 2.0 * numbers


def fussy(numbers):
    """One that has to look, and cannot while it is recorded."""
    if not _recording.looking():
        raise RuntimeError("cannot look while a graph is recorded")
    return numbers.sqrt()


class Twin(recorded.Call):
    """A recording without a GPU: it calls the function again, with the arguments that it holds."""

    def _record(self, work):
        self._work = work
        self._replay()
        CALLS.clear()
        return 0

    def _replay(self):
        RECORDING.append(True)
        try:
            self._work()
        finally:
            RECORDING.clear()
        CALLS[-1:] = ["replayed"]


@pytest.fixture(autouse=True)
def twins(monkeypatch):
    monkeypatch.setattr(recorded, "Call", Twin)
    monkeypatch.setattr(recorded, "_may_be", lambda given: True)
    monkeypatch.setattr(recorded, "MOST_BYTES", 2**40)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: bool(RECORDING))
    CALLS.clear()
    recordings.forget()
    yield
    recordings.forget()


class Pair:
    """A record that remembers what it has worked out."""

    def __init__(self, first, second):
        self.first, self.second = first, second

    def take(self, index):
        return Pair(self.first[index], self.second[index])


def total(pair):
    """A function that makes its argument remember something."""
    pair.known = pair.first.sum()
    return pair.known + pair.second


def test_what_arguments_remember_is_not_in_the_way():
    for number in (1.0, 2.0, 3.0, 4.0):
        made = recorded.recorded(total, Pair(torch.full((2,), number), torch.ones(3)))
        torch.testing.assert_close(made, torch.full((3,), 2.0 * number + 1.0))
    assert CALLS == ["replayed"]


def ramp(count):
    """What never changes."""
    return torch.arange(float(count))


def shifted(numbers):
    """A function that reads a constant."""
    return numbers + _recording.constant(ramp, len(numbers))


def test_a_recording_holds_the_constants_that_it_reads():
    for _ in range(3):
        made = recorded.recorded(shifted, torch.ones(4))
        torch.testing.assert_close(made, 1.0 + torch.arange(4.0))
    [call] = recordings._kept.values()
    held = _recording.constant(ramp, 4)
    for count in range(5, 7 + _recording.KEPT):
        _recording.constant(ramp, count)
    assert _recording.constant(ramp, 4) is not held  # dropped, as others came
    assert any(constant is held for constant in call._constants)


def test_what_a_recording_works_out_is_that_of_its_last_arguments():
    """Of two problems of one size: not the size of the cost of the one with which it was recorded."""
    for scale in (1.0, 2.0, 3.0, 4.0, 5.0):
        x, y = (replace(s, metric=s.metric.scale(scale)) for s in spaces(60, None, 0))
        problem = build(x, y, rho=1.0, eps=0.1, fused=None)
        with torch.no_grad():
            now, _, numbers = recorded.prepared(context._measured, problem, problem.product, OPTIONS, None)
            plain = context._measured(problem, problem.product, OPTIONS, None)
        torch.testing.assert_close(now.distortion, plain[0].distortion)
        torch.testing.assert_close(numbers, plain[2])


def called(*numbers, name="a"):
    CALLS.clear()
    made = recorded.recorded(doubled, torch.tensor(numbers), name)
    torch.testing.assert_close(made[1], 2.0 * torch.tensor(numbers), equal_nan=True)
    return list(CALLS)


def test_what_comes_again_is_recorded_for_any_numbers():
    assert called(1.0, 2.0) == ["a"]
    assert called(0.0, 1.0) == ["a"]
    assert called(3.0, 4.0) == ["replayed"]
    assert called(5.0, 6.0) == ["replayed"]
    assert called(1.0, 2.0, 3.0) == ["a"]  # another shape
    assert called(1.0, 2.0, name="b") == ["b"]  # another option


def test_what_is_not_finite_is_made_again_with_looks():
    called(1.0)
    called(1.0)
    assert called(float("nan")) == ["replayed", "a"]
    assert called(2.0) == ["replayed"]


def test_what_cannot_be_recorded_is_called(monkeypatch):
    number = torch.tensor([4.0])
    for _ in range(4):
        torch.testing.assert_close(recorded.recorded(fussy, number), torch.tensor([2.0]))
    tried = []
    monkeypatch.setattr(recorded, "Call", lambda *given: tried.append(given))
    recorded.recorded(fussy, number)
    assert not tried  # not again


def test_what_reads_too_much_is_called(monkeypatch):
    monkeypatch.setattr(recorded, "MOST_BYTES", 7)
    assert [called(1.0) for _ in range(3)][-1] == ["replayed"]  # four bytes
    assert [called(1.0, 2.0) for _ in range(3)][-1] == ["a"]


def test_on_a_cpu_functions_are_called(monkeypatch):
    monkeypatch.undo()
    for _ in range(3):
        assert called(1.0) == ["a"]
    assert _recording.looking()


@pytest.mark.parametrize(("n", "batch"), [(30, None), (60, None), (60, 3), (650, None)])
def test_a_recorded_solve_ends_where_a_plain_one_does(monkeypatch, n, batch):
    """Of alike problems two are solved by calls, the third by recordings, which then serve the first again."""
    pairs = [spaces(n, batch, seed) for seed in range(3)]
    results = [ugw.solve(*pair, eps=1e-2, rho=1.0) for pair in pairs]
    made = len(recordings._kept)
    results.append(ugw.solve(*pairs[0], eps=1e-2, rho=1.0))
    assert len(recordings._kept) == made or n < 650  # no other is needed, but where more or fewer plans differ
    kinds = {known.name for known, _ in recordings._kept}
    assert {"_many_starts", "_different_lifted", "_measured", "_finished"} <= kinds
    assert ("_gathered" in kinds) is (n == 650)
    monkeypatch.undo()
    for pair, result in zip((*pairs, pairs[0]), results, strict=True):
        torch.testing.assert_close(result.value, ugw.solve(*pair, eps=1e-2, rho=1.0).value, rtol=1e-9, atol=0.0)


def spaces(n, batch, seed):
    draw = torch.Generator().manual_seed(seed)
    lead = () if batch is None else (batch,)
    shapes = (*lead, n, 3), (*lead, n - 10, 2)
    return [ugw.Space.from_points(torch.rand(shape, generator=draw, dtype=torch.float64)) for shape in shapes]
