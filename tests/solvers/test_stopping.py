"""The status of an item after a step."""

from dataclasses import replace

import torch

import ugw
from oracles import cases
from oracles.cases import Parameters
from ugw.solvers import stopping
from ugw.solvers.run_state import Iterate, prepare_run


def test_a_plan_has_converged_only_if_the_inner_solver_has_and_annealing_has_ended():
    problem = cases.problem(cases.clouds(5, 6, 0), Parameters(1.0, 1.0, 0.1))
    state, settings = prepare_run(problem, problem.product, ugw.AlternateMin().with_defaults())
    old = Iterate.initial(state, settings)
    for change, residual, code in ((0.0, 0.0, "CONVERGED"), (0.0, 1e-3, "RUNNING"), (1e-3, 0.0, "RUNNING")):
        new = replace(old, change=old.change + change, residual=0.0 * old.residual + residual)
        assert stopping.status_after_step(settings, old, new).tolist() == [int(ugw.Status[code])]
    annealing = replace(old, controls=replace(old.controls, eps=2.0 * old.controls.eps))
    still = replace(old, residual=0.0 * old.residual)
    assert stopping.status_after_step(settings, annealing, still).tolist() == [int(ugw.Status.RUNNING)]


def test_a_plan_that_returns_to_that_of_two_steps_before_is_counted():
    problem = cases.problem(cases.clouds(5, 6, 0), Parameters(1.0, 1.0, 0.1))
    state, settings = prepare_run(problem, problem.product, ugw.AlternateMin().with_defaults())
    other = problem.state_of_plan(torch.tensor(cases.random_plan(cases.clouds(5, 6, 0), 1)[None]))
    iterate = replace(Iterate.initial(state, settings), previous_state=state, n_returns=settings.noise * 0.0 + 2.0)
    assert stopping.count_returns(settings, iterate, state).tolist() == [3.0]
    assert stopping.count_returns(settings, iterate, other).tolist() == [0.0]
