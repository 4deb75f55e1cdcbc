"""Options of AlternateMin: given ones are used as they are, None is replaced by the values of the problem's strategy."""

import math
import sys
import warnings
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

import ugw
from oracles.errors import assert_refused
from oracles.spaces import pair
from ugw.initializers.conic import TRANSPORT_SOLVER
from ugw.solvers.config import SOLVER_CONFIG

PAIR = pair(12, 10, seed=8, dims=(2, 2))
SMALL_PAIR = pair(4, 5, seed=8, dims=(2, 2))
used_schedules, used_max_iter = set(), set()


@dataclass(frozen=True, kw_only=True)
class RecordingSchedule(ugw.ProximalSchedule):
    """A proximal schedule that records (first, last, factor) whenever a run asks for its entropy bounds."""

    def bounds(self, eps, scale, min_entropy):
        """Record the schedule and return its bounds."""
        used_schedules.add((self.first, self.last, self.factor))
        return super().bounds(eps, scale, min_entropy)


@dataclass(frozen=True, kw_only=True)
class RecordingSinkhorn(ugw.Sinkhorn):
    """A Sinkhorn solver that records its max_iter whenever it solves a linear problem."""

    def __call__(self, *args, **kwargs):
        """Record max_iter and solve."""
        used_max_iter.add(self.max_iter)
        return super().__call__(*args, **kwargs)


@pytest.fixture(autouse=True)
def clear_records():
    """Clear the records of other tests."""
    used_schedules.clear()
    used_max_iter.clear()


def test_a_given_schedule_is_used_in_a_conic_problem_although_it_equals_the_ugw_default():
    schedule = RecordingSchedule(first=0.3, last=0.01, factor=0.95)
    result = ugw.solve_conic(*PAIR, init="product", solver=ugw.AlternateMin(proximal=schedule))
    assert used_schedules == {(0.3, 0.01, 0.95)}
    default = ugw.solve_conic(*PAIR, init="product")
    assert result.value == pytest.approx(default.value, rel=1e-5)


def test_a_given_number_of_inner_iterations_is_used_in_a_conic_problem_although_it_equals_the_ugw_default():
    ugw.solve_conic(*PAIR, init="product", solver=ugw.AlternateMin(inner=RecordingSinkhorn(max_iter=50)))
    assert used_max_iter == {50}


@pytest.mark.parametrize(
    ("solve", "expected"),
    [(ugw.solve, SOLVER_CONFIG.default_inner_max_iter), (ugw.solve_conic, TRANSPORT_SOLVER.inner.max_iter)],
)
def test_none_for_the_inner_iterations_means_those_of_the_strategy(solve, expected):
    solve(*PAIR, init="product", solver=ugw.AlternateMin(inner=RecordingSinkhorn()))
    assert used_max_iter == {expected}


def test_none_for_the_schedule_means_that_of_the_strategy():
    default = ugw.solve_conic(*PAIR, init="product")
    same = ugw.solve_conic(*PAIR, init="product", solver=ugw.AlternateMin(proximal=TRANSPORT_SOLVER.proximal))
    other = ugw.solve_conic(
        *PAIR, init="product", solver=ugw.AlternateMin(proximal=ugw.ProximalSchedule(first=0.3, last=0.01, factor=0.95))
    )
    assert default.history.objective.tolist() == same.history.objective.tolist()
    assert default.history.objective.tolist() != other.history.objective.tolist()


def test_options_without_a_strategy_are_the_documented_defaults():
    resolved = ugw.AlternateMin().with_defaults()
    assert resolved.proximal == ugw.ProximalSchedule()
    assert resolved.inner.max_iter == SOLVER_CONFIG.default_inner_max_iter
    assert (resolved.tol, resolved.inner.tol) == (1e-6, None)


@pytest.mark.parametrize("backend", ["0", "1"])
def test_a_given_inner_tolerance_is_met_in_the_last_step(backend, monkeypatch):
    monkeypatch.setenv("UGW_COMPILED", backend)
    last = {}
    for tol in (None, 1e-9, 1e-12):
        inner = ugw.Sinkhorn(tol=tol, max_iter=3000)
        last[tol] = ugw.solve(
            *PAIR, rho=(1.0, math.inf), eps=0.05, solver=ugw.AlternateMin(inner=inner)
        ).history.residual[-1]
        assert last[tol] <= (tol or 1e-6)
    assert last[None] > 1e-9 > last[1e-9] > 1e-12


@pytest.mark.parametrize("backend", ["0", "1"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_an_inner_tolerance_above_the_outer_one_acts_as_the_outer_one(backend, dtype, monkeypatch):
    """As the docstring of `Sinkhorn` says: a run whose last linear problem is solved worse would not converge."""
    monkeypatch.setenv("UGW_COMPILED", backend)
    x, y = (ugw.Space.from_points(np.asarray(space.points, dtype=dtype)) for space in PAIR)
    loose, exact = (
        ugw.solve(x, y, eps=0.05, init="product", solver=ugw.AlternateMin(tol=1e-3, inner=ugw.Sinkhorn(tol=tol)))
        for tol in (0.3, 1e-3)
    )
    assert loose.converged
    assert loose.history.residual[-1] <= 1e-3
    np.testing.assert_array_equal(loose.history.residual, exact.history.residual)


@pytest.mark.filterwarnings("ignore::ugw.ConvergenceWarning")
def test_a_schedule_may_end_above_the_largest_entropy_that_rounding_requires():
    plans = [
        ugw.solve(
            *PAIR,
            eps=1e-3,
            init="product",
            solver=ugw.AlternateMin(max_iter=3, proximal=ugw.ProximalSchedule(first=0.9, last=last, factor=0.5)),
        ).plan
        for last in (0.4, 0.8)
    ]
    assert abs(plans[0] - plans[1]).sum() > 1e-3


@pytest.mark.filterwarnings("ignore::ugw.ConvergenceWarning")
@pytest.mark.parametrize("max_iter", [1, 3, 20, 120])
def test_max_iter_bounds_all_steps_of_a_balanced_problem_without_entropy(max_iter):
    steps = []
    solver = ugw.AlternateMin(max_iter=max_iter, callback=steps.append)
    result = ugw.solve(*PAIR, rho=math.inf, eps=0.0, init="product", solver=solver)
    assert result.n_iter == len(steps) <= max_iter


# A solve of few steps with each solver, as a function of the options of the solver.
SOLVES = {
    "soft": lambda **options: solve_small(solver=ugw.AlternateMin(**options)),
    "vertex": lambda **options: solve_small(rho=math.inf, eps=0.0, solver=ugw.AlternateMin(**options)),
    "observed": lambda **options: solve_small(solver=ugw.AlternateMin(callback=lambda step: False, **options)),
    "linear": lambda **options: ugw.solve_linear(*SMALL_PAIR, solver=ugw.AlternateMin(**options)),
    "conic": lambda **options: ugw.solve_conic(*SMALL_PAIR, init="product", solver=ugw.AlternateMin(**options)),
    "mass": lambda **options: solve_small(rho=ugw.Mass(0.5), eps=0.0, solver=ugw.FrankWolfe(**options)),
    "programs": lambda **options: ugw.solve_conic(
        *SMALL_PAIR, init="product", rho=0.1, cone=ugw.PartialTransport(), solver=ugw.AlternateLP(**options)
    ),
}


def solve_small(rho=1.0, eps=0.05, **options):
    """Return the result of a solve of 4 × 5 points from the product plan."""
    return ugw.solve(*SMALL_PAIR, rho=rho, eps=eps, init="product", **options)


@pytest.mark.filterwarnings("ignore::ugw.ConvergenceWarning")
@pytest.mark.parametrize("compiled", ["0", "1"])
@pytest.mark.parametrize("name", SOLVES)
def test_integers_of_numpy_limit_the_steps_as_others_do(name, compiled, monkeypatch):
    monkeypatch.setenv("UGW_COMPILED", compiled)
    plain, other = (SOLVES[name](max_iter=number) for number in (2, np.int64(2)))
    assert plain.n_iter <= 2
    assert (other.n_iter, other.value) == (plain.n_iter, plain.value)


@pytest.mark.parametrize("compiled", ["0", "1"])
@pytest.mark.parametrize("name", SOLVES)
def test_a_limit_of_any_size_is_no_limit(name, compiled, monkeypatch):
    monkeypatch.setenv("UGW_COMPILED", compiled)
    for limit in (sys.maxsize, 10**30):
        assert SOLVES[name](max_iter=limit, tol=1e-3).converged


@pytest.mark.parametrize("compiled", ["0", "1"])
def test_inner_iterations_may_be_any_whole_number(compiled, monkeypatch):
    monkeypatch.setenv("UGW_COMPILED", compiled)
    for number in (np.int64(50), sys.maxsize, 10**30):
        assert solve_small(solver=ugw.AlternateMin(inner=ugw.Sinkhorn(max_iter=number))).converged


@pytest.mark.parametrize("compiled", ["0", "1"])
@pytest.mark.parametrize("name", SOLVES)
def test_tolerances_may_be_of_any_real_type(name, compiled, monkeypatch):
    monkeypatch.setenv("UGW_COMPILED", compiled)
    assert SOLVES[name](tol=Fraction(1, 1024)).value == SOLVES[name](tol=1.0 / 1024).value


def test_options_are_stored_as_numbers_of_python():
    schedule = ugw.ProximalSchedule(first=Fraction(1, 4), last=np.float32(0.125), factor=Fraction(1, 2))
    inner = ugw.Sinkhorn(tol=Fraction(1, 8), max_iter=np.int64(7))
    solver = ugw.AlternateMin(
        tol=np.float32(0.25), max_iter=np.uint8(9), anneal=Fraction(1, 2), inner=inner, proximal=schedule
    )
    multistart = ugw.Multistart(n=np.int64(3))
    cone = ugw.GaussianHellinger(tol=Fraction(1, 2), max_rank=np.int64(4))
    assert (schedule.first, schedule.last, schedule.factor) == (0.25, 0.125, 0.5)
    numbers = schedule.first, schedule.last, schedule.factor, inner.tol, solver.tol, solver.anneal, cone.tol
    assert {type(number) for number in numbers} == {float}
    assert {type(n) for n in (inner.max_iter, solver.max_iter, multistart.n, cone.max_rank)} == {int}


@pytest.mark.parametrize("kind", [ugw.FrankWolfe, ugw.AlternateLP, ugw.BarycenterMin])
def test_none_is_no_tolerance_of_a_solver_with_one_default(kind):
    with pytest.raises(ugw.InputError, match="tol"):
        kind(tol=None)


def test_a_tuple_as_schedule_works_with_a_deprecation_warning():
    with pytest.warns(DeprecationWarning, match=r"use proximal=ugw.ProximalSchedule\(first=0.2, last=0.02") as caught:
        solver = ugw.AlternateMin(proximal=(0.2, 0.02, 0.9))
    assert caught[0].filename == __file__
    new = ugw.AlternateMin(proximal=ugw.ProximalSchedule(first=0.2, last=0.02, factor=0.9))
    assert solver == new
    with warnings.catch_warnings(action="error"):  # derived options do not warn again
        result = ugw.solve(*PAIR, eps=1e-4, init="product", solver=solver)
    assert result.value == ugw.solve(*PAIR, eps=1e-4, init="product", solver=new).value


@pytest.mark.parametrize("value", [(0.3, 0.01), [0.3, 0.01, 0.95], 0.3, (0.3, 0.01, 2.0)])
def test_anything_else_as_schedule_is_an_input_error(value):
    with pytest.raises(ugw.InputError, match="ProximalSchedule"):
        ugw.AlternateMin(proximal=value)


BAD_FIELDS = [
    (ugw.AlternateMin, "tol", [0, 0.0, 1, 1.5, -1e-6, math.nan, "1e-6", True]),
    (ugw.AlternateMin, "max_iter", [0, -5, 10.0, "10", None, True, math.inf]),
    (ugw.AlternateMin, "anneal", [0, 1, -0.5, 2.0, math.nan, "0.9", True]),
    (ugw.AlternateMin, "inner", [None, "log", ugw.AlternateMin(), ugw.Sinkhorn]),
    (ugw.AlternateMin, "progress", ["yes", 2, None]),
    (ugw.AlternateMin, "callback", ["stop", 3]),
    (ugw.Sinkhorn, "tol", [0, 1, -1.0, math.nan, "x", False]),
    (ugw.Sinkhorn, "max_iter", [0, 2.5, "x", True]),
    (ugw.Sinkhorn, "method", ["exp", "LOG", None, 0]),
    (ugw.Multistart, "n", [0, -1, 2.0, "8", None, True]),
    (ugw.Multistart, "solver", [None, "alternate", ugw.Sinkhorn(), ugw.AlternateMin, ugw.Multistart()]),
]


@pytest.mark.parametrize(
    ("solver_class", "name", "value"),
    [(solver_class, name, value) for solver_class, name, values in BAD_FIELDS for value in values],
    ids=lambda v: v.__name__ if isinstance(v, type) else repr(v)[:20],
)
def test_solvers_refuse_invalid_fields_at_construction(solver_class, name, value):
    message = assert_refused(solver_class, **{name: value})
    assert message.startswith(f"{solver_class.__name__} {name} must be ")


@pytest.mark.parametrize("solver_class", [ugw.AlternateMin, ugw.Sinkhorn, ugw.Multistart])
def test_solvers_are_frozen_keyword_only_records(solver_class):
    solver = solver_class()
    assert solver == solver_class()
    name = next(iter(vars(solver)))
    with pytest.raises(AttributeError):
        setattr(solver, name, getattr(solver, name))
    with pytest.raises(TypeError):
        solver_class(1)
    with pytest.raises(TypeError):
        solver_class(verbose=True)
