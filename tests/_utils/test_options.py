"""The checks of solver fields: what passes, what is refused, and in which words."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ugw
from ugw._utils.options import choice, tolerance, whole_number
from ugw.errors import InputError


def refused(check, *args, **kwargs):
    """The one-line message of the InputError that a call ends with."""
    with pytest.raises(InputError) as caught:
        check(*args, **kwargs)
    message = str(caught.value)
    assert "\n" not in message
    assert "got" in message
    return message


@pytest.mark.parametrize("value", [1, 7, np.int64(3), np.uint8(1)])
def test_whole_numbers_pass(value):
    whole_number("n", value)


@pytest.mark.parametrize("value", [0, -1, 1.0, 2.5, True, False, "3", None, math.nan, [3], np.float64(3.0)])
def test_other_things_are_no_whole_numbers(value):
    assert refused(whole_number, "n", value).startswith("n must be a whole number ≥ 1, got ")


def test_the_least_whole_number_is_the_callers():
    whole_number("n", 0, least=0)
    assert "≥ 5" in refused(whole_number, "n", 4, least=5)


@given(st.floats(min_value=0, max_value=1, exclude_min=True, exclude_max=True))
def test_tolerances_between_0_and_1_pass(value):
    tolerance("tol", value)


@pytest.mark.parametrize("value", [np.float32(0.5), Fraction(1, 3)])
def test_any_real_type_is_a_tolerance(value):
    tolerance("tol", value)


@given(st.one_of(st.floats(max_value=0), st.floats(min_value=1), st.just(math.nan), st.booleans(), st.text()))
def test_other_things_are_no_tolerances(value):
    message = refused(tolerance, "tol", value) if "\n" not in repr(value) else "tol must"
    assert message.startswith("tol must")


def test_choices():
    choice("method", "log", ("log", "stabilized"))
    for value in ("Log", "", None, 0, ["log"], b"log"):
        message = refused(choice, "method", value, ("log", "stabilized"))
        assert "'log', 'stabilized'" in message
        assert message.endswith(repr(value))


BAD_FIELDS = [
    (ugw.AlternateMin, "tol", [0, 0.0, 1, 1.5, -1e-6, math.nan, "1e-6", None, True]),
    (ugw.AlternateMin, "max_iter", [0, -5, 10.0, "10", None, True, math.inf]),
    (ugw.AlternateMin, "anneal", [0, 1, -0.5, 2.0, math.nan, "0.9", True]),
    (ugw.AlternateMin, "inner", [None, "log", ugw.AlternateMin(), ugw.Sinkhorn]),
    (ugw.AlternateMin, "progress", ["yes", 2, None]),
    (ugw.AlternateMin, "callback", ["stop", 3]),
    (ugw.Sinkhorn, "tol", [0, 1, -1.0, math.nan, "x", None, False]),
    (ugw.Sinkhorn, "max_iter", [0, 2.5, "x", None, True]),
    (ugw.Sinkhorn, "method", ["exp", "LOG", None, 0]),
    (ugw.Multistart, "n", [0, -1, 2.0, "8", None, True]),
    (ugw.Multistart, "solver", [None, "alternate", ugw.Sinkhorn(), ugw.AlternateMin, ugw.Multistart()]),
]


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [(kind, name, value) for kind, name, values in BAD_FIELDS for value in values],
    ids=lambda v: v.__name__ if isinstance(v, type) else repr(v)[:20],
)
def test_a_solver_refuses_bad_fields_when_it_is_made(kind, name, value):
    message = refused(kind, **{name: value})
    assert message.startswith(f"{kind.__name__} {name} must be ")


@pytest.mark.parametrize("kind", [ugw.AlternateMin, ugw.Sinkhorn, ugw.Multistart])
def test_solvers_are_frozen_keyword_only_records(kind):
    made = kind()
    assert made == kind()
    name = next(iter(vars(made)))
    with pytest.raises(AttributeError):
        setattr(made, name, getattr(made, name))
    with pytest.raises(TypeError):
        kind(1)
    with pytest.raises(TypeError):
        kind(verbose=True)
