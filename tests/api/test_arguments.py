"""Arguments that all entry points share: eps, init, the recorded parameters, and the convergence warning."""

import inspect
import itertools
import json

import numpy as np
import pytest
import torch

import ugw
from oracles.errors import assert_refused
from oracles.spaces import pair

# -- eps="auto" ----------------------------------------------------------------------------------------------


ENTROPIC = [ugw.solve, ugw.solve_linear, ugw.debiased, ugw.solve_differentiable, ugw.barycenter, ugw.ugw_loss,
            ugw.UGWLoss, ugw.pairwise, ugw.rho_for_mass]  # fmt: skip


@pytest.mark.parametrize("function", ENTROPIC, ids=lambda f: f.__name__)
def test_eps_has_one_default(function):
    assert inspect.signature(function).parameters["eps"].default == "auto"


def test_auto_is_one_percent_of_the_mean_distortion():
    x, y = pair(9, 8, dims=(2, 2))
    auto, relative = ugw.solve(x, y), ugw.solve(x, y, eps=ugw.relative(1e-2))
    assert auto.parameters["eps"] == relative.parameters["eps"] > 0
    assert auto.value == relative.value
    assert ugw.solve(x, y, rho=ugw.TV(0.3)).parameters["eps"] == 0.0


@pytest.mark.parametrize("solve", [ugw.solve, ugw.debiased, ugw.solve_differentiable])
def test_auto_does_not_depend_on_the_units(solve):
    values = [solve(*pair(9, 8, dims=(2, 2), scale=scale), rho=scale**2).value for scale in (1.0, 1000.0)]
    assert values[1] == pytest.approx(1e6 * values[0], rel=1e-5)


def test_auto_of_pairs_does_not_depend_on_the_units():
    for method in ("ugw", "debiased"):
        small, large = (
            ugw.pairwise(pair(9, 8, dims=(2, 2), scale=scale), method=method, rho=scale**2).values
            for scale in (1.0, 1000.0)
        )
        np.testing.assert_allclose(large, 1e6 * small, rtol=1e-4, atol=1.0)


def test_auto_of_linear_problems_does_not_depend_on_the_units():
    cost = np.random.default_rng(0).random((5, 4))
    small, large = (ugw.solve_linear(None, None, cost=s * cost, rho=s).value for s in (1.0, 1000.0))
    assert large == pytest.approx(1000.0 * small, rel=1e-6)
    assert ugw.solve_linear(None, None, cost=np.zeros((3, 3))).converged  # no mean cost to be relative to


# -- init ----------------------------------------------------------------------------------------------------


STREAMING = ugw.AlternateMin(inner=ugw.Sinkhorn(method="streaming"))


@pytest.mark.parametrize("kind", ["plan", "Result", "ConicResult", "LazyPlan"])
@pytest.mark.parametrize("solve", [ugw.solve, ugw.solve_conic, ugw.debiased, ugw.ugw_loss])
def test_init_takes_every_plan(kind, solve):
    x, y = pair(9, 8, dims=(2, 2))
    lazy = [ugw.Space.from_points(s.points, metric="sqeuclidean") for s in (x, y)]
    init = {
        "plan": lambda: ugw.solve(x, y, init="product").plan,
        "Result": lambda: ugw.solve(x, y, init="product"),
        "ConicResult": lambda: ugw.solve_conic(x, y),
        "LazyPlan": lambda: ugw.solve(*lazy, solver=STREAMING).plan,
    }[kind]()
    assert (type(init).__name__ if kind != "plan" else "plan") == kind
    result = solve(x, y, init=init)
    assert isinstance(result, torch.Tensor) or result.converged


# -- parameters ----------------------------------------------------------------------------------------------


def test_results_have_the_parameters_of_the_solve():
    x, y = pair(9, 8, dims=(2, 2))
    solver = ugw.AlternateMin(tol=1e-5, inner=ugw.Sinkhorn(max_iter=30))
    r = ugw.solve(x, y, rho=(0.5, np.inf), eps=0.03, solver=solver)
    assert r.parameters["rho"] == [0.5, np.inf]
    assert r.parameters["eps"] == 0.03
    assert r.parameters["solver"]["tol"] == 1e-5
    assert r.parameters["solver"]["inner"]["max_iter"] == 30
    assert json.loads(json.dumps(r.parameters)) == r.parameters
    assert ugw.solve(x, y, rho=ugw.Mass(0.5)).parameters["mass"] == 0.5
    assert ugw.solve_conic(x, y, rho=2.0).parameters["rho"] == [2.0, 2.0]
    assert ugw.solve_linear(x, y, rho=2.0, eps=0.1).parameters["eps"] == 0.1
    assert ugw.debiased(x, y, eps=0.1).parameters["eps"] == 0.1


def test_parameters_name_the_values_used_and_hold_no_matrices():
    x, y = pair(9, 8, dims=(2, 2))
    r = ugw.solve(x, y, fused=ugw.Fused(0.3, cost=np.ones((x.n, y.n))))
    assert r.parameters["fused"] == {"name": "Fused", "alpha": 0.3, "cost": f"array of shape {(x.n, y.n)}"}
    assert r.parameters["solver"]["inner"]["max_iter"] == 50
    assert r.parameters["solver"]["proximal"]["first"] == 0.3
    assert ugw.solve_conic(x, y, cone="partial-transport").parameters["divergence"] == "TV"


@pytest.mark.parametrize(
    "solve",
    [
        ugw.solve,
        ugw.solve_conic,
        lambda x, y, solver: ugw.solve_linear(x, y, solver=solver),
        lambda x, y, solver: ugw.pairwise([x, y], method="ugw", solver=solver),
        lambda x, y, solver: ugw.pairwise([x, y], method="cgw", solver=solver),
        ugw.debiased,
        ugw.solve_differentiable,
    ],
)
def test_parameters_have_all_options_of_a_solver_that_is_not_given(solve):
    x, y = pair(6, 5, dims=(2, 2))
    options = [solve(x, y, solver=solver).parameters["solver"] for solver in (None, ugw.AlternateMin())]
    assert options[0] == options[1]
    required = options[0]["tol"], options[0]["proximal"]["last"], options[0]["inner"]["max_iter"]
    assert None not in required


def test_items_of_a_batch_keep_their_own_parameters():
    x, y = pair(9, 8, dims=(2, 2))
    batch = ugw.solve(x, y, rho=np.array([1.0, 2.0]), eps=np.array([0.1, 0.2]))
    assert batch.parameters["eps"] == [0.1, 0.2]
    assert batch[1].parameters["rho"] == [2.0, 2.0]
    assert batch[1].parameters["eps"] == 0.2


# -- the convergence warning ---------------------------------------------------------------------------------


HASTY = ugw.AlternateMin(max_iter=1)
CALLS = {
    "solve": lambda x, y: ugw.solve(x, y, eps=1e-3, solver=HASTY),
    "solve_conic": lambda x, y: ugw.solve_conic(x, y, solver=HASTY),
    "solve_linear": lambda x, y: ugw.solve_linear(x, y, eps=1e-6, solver=HASTY),
    "debiased": lambda x, y: ugw.debiased(x, y, eps=1e-3, solver=HASTY),
    "ugw_loss": lambda x, y: ugw.ugw_loss(x, y, eps=1e-3, solver=HASTY),
    "UGWLoss": lambda x, y: ugw.UGWLoss(eps=1e-3, solver=HASTY)(x, y),
    "barycenter": lambda x, y: ugw.barycenter([x, y], n=4, eps=1e-3, solver=ugw.BarycenterMin(max_iter=1)),
    "pairwise": lambda x, y: ugw.pairwise([x, y], eps=1e-3, solver=HASTY),
}


@pytest.mark.parametrize("name", CALLS)
def test_one_warning_at_the_line_of_the_caller(name):
    with pytest.warns(ugw.ConvergenceWarning) as caught:
        CALLS[name](*pair(9, 8, dims=(2, 2)))
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_the_british_spelling_of_a_method_still_works():
    with pytest.warns(DeprecationWarning, match="stabilized"):
        assert ugw.Sinkhorn(method="stabilised").method == "stabilized"


# -- messages -------------------------------------------------------------------------------------------------


SCALARS = {
    "AlternateMin": (ugw.AlternateMin, ("tol", "max_iter", "progress", "callback")),
    "Sinkhorn": (ugw.Sinkhorn, ("tol", "max_iter", "method")),
    "ProximalSchedule": (ugw.ProximalSchedule, ("first", "last", "factor")),
    "Multistart": (ugw.Multistart, ("n",)),
    "cones": (ugw.HellingerKantorovich, ("cutoff",)),
    "PartialTransport": (ugw.PartialTransport, ("q",)),
    "Method": (ugw.Method, ("name", "init", "fused", "cone")),
    "from_points": (ugw.Space.from_points, ("metric", "tol")),
    "from_knn": (ugw.Space.from_knn, ("k",)),
    "solve": (ugw.solve, ("init", "solver", "fused", "rho", "eps")),
    "rho_for_mass": (ugw.rho_for_mass, ("kept",)),
    "two_moons": (ugw.datasets.two_moons, ("n", "noise", "seed")),
}


@pytest.mark.parametrize("array", [np.full((20, 20), 0.5), torch.full((20, 20), 0.5)], ids=["array", "tensor"])
@pytest.mark.parametrize("name", SCALARS)
def test_an_array_in_place_of_a_number_or_a_name_is_refused_in_one_line(name, array):
    function, arguments = SCALARS[name]
    data = {"from_points": (np.eye(4),), "from_knn": (np.eye(4),)}.get(name, ())
    data = pair(4, 3) if name in ("solve", "rho_for_mass") else data
    for argument in arguments:
        assert_refused(function, *data, **{argument: array})


def test_other_objects_as_a_plan_are_refused_with_what_is_accepted():
    x, y = pair(5, 4, dims=(2, 2))
    objects = {"Debiased": ugw.debiased(x, y), "Tightness": ugw.tightness(x, y), "Space": x, "None": None, "dict": {}}
    accepted = "an array, a LazyPlan, a Result or a ConicResult"
    for (name, init), solve in itertools.product(objects.items(), (ugw.solve, ugw.solve_conic)):
        expected = f'init must be the name of an initial plan such as "auto", {accepted}, got {name}$'
        assert_refused(solve, x, y, init=init, match=expected)
        assert_refused(ugw.objective, init, x, y, match=f"plan must be {accepted}, got {name}$")


CONIC_EPS = r'eps of a conic problem must be a number .* or "auto", which is 0, got '


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (ugw.solve, {"eps": None}, 'eps must be a number, a relative eps or "auto", got None'),
        (ugw.solve, {"rho": None}, r"rho must be a number or an array \(B,\), got None"),
        (ugw.solve, {"rho": ugw.TV(0.1), "eps": None}, '"auto", got None'),
        (ugw.objective, {"eps": None}, '"auto", got None'),
        (ugw.solve_conic, {"eps": None}, CONIC_EPS + "None"),
        (ugw.solve_conic, {"eps": "small"}, CONIC_EPS + "'small'"),
        (ugw.solve_conic, {"eps": ugw.relative(0.1)}, CONIC_EPS + r"relative\(0.1\)"),
        (ugw.solve_conic, {"rho": ugw.relative(0.1)}, r"rho must be a number or an array \(B,\), got relative\(0.1\)"),
        (ugw.pairwise, {"method": "cgw", "eps": ugw.relative(0.1)}, CONIC_EPS + r"relative\(0.1\)"),
        (ugw.pairwise, {"eps": None}, '"auto", got None'),
        (ugw.pairwise, {"rho": None}, 'rho of pairwise must be one number .* or "auto", got None'),
        (ugw.pairwise, {"rho": "large"}, "or \"auto\", got 'large'"),
        (ugw.solve_differentiable, {"rho": ugw.TV(0.1)}, r"for a rho of KL, got TV\(rho=0.1\)"),
        (ugw.solve_differentiable, {"rho": ugw.Mass(0.1)}, r"for a rho of KL, got Mass\(m=0.1\)"),
        (ugw.solve_differentiable, {"eps": 0.0}, "eps > 0, got eps = 0"),
        (ugw.barycenter, {"n": 3, "solver": ugw.BarycenterMin(inner=STREAMING)}, "barycenter stores its plans"),
    ],
)
def test_messages_name_the_argument_with_what_was_given_and_what_is_accepted(function, options, message):
    x, y = pair(5, 4, dims=(2, 2))
    arguments = {ugw.pairwise: ([x, y],), ugw.barycenter: ([x, y],), ugw.objective: (np.ones((5, 4)), x, y)}
    assert_refused(function, *arguments.get(function, (x, y)), **options, match=message)
