"""The iterate before the first step: potentials of an implicit plan are kept, others start at zero."""

import torch

import ugw
from oracles.spaces import pair, ugw_problem
from ugw.solvers.config import SOLVER_CONFIG
from ugw.solvers.run_state import Iterate, prepare_run


def first_iterate(method):
    """Return the first iterate of a run from the product plan, with potentials of ones where it is implicit."""
    problem = ugw_problem(*pair(metric="sqeuclidean"), eps=0.1, method=method)
    plan = problem.product
    if method == "streaming":
        plan.f.fill_(1.0)
        plan.g.fill_(1.0)
    state, settings = prepare_run(problem, plan, ugw.AlternateMin().with_defaults())
    return Iterate.initial(state, settings)


def test_an_implicit_plan_brings_its_potentials():
    iterate = first_iterate("streaming")
    assert torch.equal(iterate.f, torch.ones_like(iterate.f))
    assert torch.equal(iterate.g, torch.ones_like(iterate.g))
    assert iterate.change.tolist() == [SOLVER_CONFIG.assumed_first_change]


def test_a_stored_plan_has_none():
    iterate = first_iterate("stabilized")
    assert (iterate.f.shape, iterate.g.shape) == ((1, 6), (1, 7))
    assert not iterate.f.any()
    assert not iterate.g.any()
    assert iterate.change.tolist() == [0.0]  # the first linear problem is solved well
