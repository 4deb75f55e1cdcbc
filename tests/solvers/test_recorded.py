"""Which calls are recorded, and what they return. Graphs themselves are tested on a GPU, in test_cuda.py."""

import pytest
import torch

from ugw import _recording
from ugw.solvers import recorded, replay

CALLS = []


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

    def _record(self, function):
        self._function = function
        _recording.looking = lambda: False
        try:
            self._function(*self._given)
        finally:
            _recording.looking = LOOKING
        CALLS.clear()
        return 0

    def __call__(self, given):
        replay.write(replay.tensors(self._given), replay.tensors(given))
        self._made = self._function(*self._given)
        CALLS[-1:] = ["replayed"]
        return self._made if bool(self._made[-1].isfinite().all()) else None


LOOKING = _recording.looking


@pytest.fixture(autouse=True)
def twins(monkeypatch):
    monkeypatch.setattr(recorded, "Call", Twin)
    monkeypatch.setattr(recorded, "_may_be", lambda given: True)
    CALLS.clear()
    replay.forget()
    yield
    replay.forget()


def called(*numbers, name="a"):
    CALLS.clear()
    made = recorded.recorded(doubled, torch.tensor(numbers), name)
    torch.testing.assert_close(made[1], 2.0 * torch.tensor(numbers), equal_nan=True)
    return list(CALLS)


def test_what_comes_again_is_recorded_for_any_numbers():
    assert called(1.0, 2.0) == ["a"]
    assert called(3.0, 4.0) == ["replayed"]
    assert called(5.0, 6.0) == ["replayed"]
    assert called(1.0, 2.0, 3.0) == ["a"]  # another shape
    assert called(1.0, 2.0, name="b") == ["b"]  # another option


def test_what_is_not_finite_is_made_again_with_looks():
    called(1.0)
    assert called(float("nan")) == ["replayed", "a"]
    assert called(2.0) == ["replayed"]


def test_what_cannot_be_recorded_is_called(monkeypatch):
    number = torch.tensor([4.0])
    for _ in range(3):
        torch.testing.assert_close(recorded.recorded(fussy, number), torch.tensor([2.0]))
    tried = []
    monkeypatch.setattr(recorded, "Call", lambda *given: tried.append(given))
    recorded.recorded(fussy, number)
    assert not tried  # not again


def test_on_a_cpu_functions_are_called(monkeypatch):
    monkeypatch.undo()
    for _ in range(3):
        assert called(1.0) == ["a"]
    assert _recording.looking()
