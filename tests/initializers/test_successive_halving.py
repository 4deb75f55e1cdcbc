"""Successive halving: survivors, ties, and the values that a schedule returns."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import ugw
from ugw.geometry.space import Space
from ugw.initializers.config import INITIALIZER_CONFIG
from ugw.initializers.partial import PENALTY_SCHEDULE, UNREGULARIZED_SCHEDULE
from ugw.initializers.plans import random_anchor_plans
from ugw.initializers.successive_halving import (
    Round,
    best_candidates,
    different_candidates,
    pick_plans,
    successive_halving,
)
from ugw.problems.build import build_partial, build_ugw


def space(n, d, seed):
    rng = np.random.default_rng(seed)
    weights = rng.random(n) + 0.2
    return Space.from_points(rng.random((n, d)), weights=weights / weights.sum())


def make_problem():
    return build_ugw(Space.stack([space(9, 2, 0), space(7, 2, 1)]), space(8, 3, 2), rho=0.5, eps=2e-3, fused=None)


def make_candidates(problem, count=6):
    return torch.cat([problem.product[:, None], random_anchor_plans(problem, count - 1)], dim=1)


def test_the_lowest_values_come_first():
    values = torch.tensor([[3.0, 1.0, torch.inf, 2.0], [0.5, 0.5, 0.1, torch.inf]])
    assert best_candidates(values, 3).tolist() == [[1, 3, 0], [2, 0, 1]]
    assert best_candidates(values, 9).shape == (2, 4)


@pytest.mark.parametrize(("tie", "first"), [(0.0, 2), (1e-3, 1), (0.5, 0)])
def test_values_within_the_tolerance_go_to_the_first(tie, first):
    values = torch.tensor([[1.2, 1.0005, 1.0, 4.0]])
    order = best_candidates(values, 4, tie)[0].tolist()
    assert order[0] == first
    assert sorted(order) == [0, 1, 2, 3]  # each once


def test_ties_where_nothing_is_finite():
    assert best_candidates(torch.full((1, 3), torch.inf), 2, 1e-9).tolist() == [[0, 1]]


def test_negative_values_tie_by_their_size():
    assert best_candidates(torch.tensor([[-1.0, -1.0 - 1e-12]]), 1, 1e-9).tolist() == [[0]]


def test_close_plans_are_one_candidate():
    one, other = torch.eye(3) / 3, torch.full((3, 3), 1 / 9)
    plans = torch.stack([one, 5.0 * one + 1e-6, other])[None]  # whatever their mass
    assert different_candidates(plans, torch.tensor([[1.0, 2.0, 3.0]]), 3).tolist() == [[0, 2]]
    both = torch.cat([plans, torch.stack([one, other, one.flip(0)])[None]])
    index = different_candidates(both, torch.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]), 3)
    assert index.tolist() == [[0, 2, 0], [2, 1, 0]]  # the item with fewer repeats its first


def test_rounds_keep_the_best_where_they_are_after_their_steps():
    problem = make_problem()
    plans, solver = make_candidates(problem), ugw.AlternateMin(tol=1e-4)
    ends, values = successive_halving(problem, plans, (Round(replace(solver, max_iter=5)),))
    assert ends.shape == plans.shape
    best, best_values = successive_halving(problem, plans, (Round(replace(solver, max_iter=5), 2),))
    index = values.argsort(dim=1, stable=True)[:, :2]
    torch.testing.assert_close(best, pick_plans(ends, index))
    torch.testing.assert_close(best_values, values.gather(1, index))
    two = (Round(replace(solver, max_iter=5), 2), Round(replace(solver, max_iter=20), 1))
    final, final_values = successive_halving(problem, plans, two)
    assert final.shape[1] == 1
    assert (final_values[:, 0] <= best_values.amin(1) + 1e-9).all()
    torch.testing.assert_close(final.sum((2, 3)), torch.ones(2, 1, dtype=torch.float64))


def test_candidates_of_a_batch_have_the_results_of_single_candidates(monkeypatch):
    problem = make_problem()
    schedule = (Round(ugw.AlternateMin(tol=1e-4, max_iter=8), 3),)
    together = successive_halving(problem, make_candidates(problem), schedule)
    one_by_one = replace(INITIALIZER_CONFIG, max_batch_entries={"cpu": 0})
    monkeypatch.setattr("ugw.initializers.successive_halving.INITIALIZER_CONFIG", one_by_one)
    torch.testing.assert_close(
        successive_halving(problem, make_candidates(problem), schedule), together, rtol=0, atol=1e-9
    )


def test_plans_of_a_partial_problem_keep_their_mass():
    tv = ugw.TV(0.05)
    partial, surrogate = build_partial(space(8, 2, 0), space(7, 3, 1), sides=(tv, tv), eps=0.0, fused=None, loss=None)
    plans = random_anchor_plans(surrogate, 4)
    ends, values = successive_halving(partial, plans, (Round(ugw.FrankWolfe(), 1, tie_tolerance=1e-9),))
    solved = [ugw.FrankWolfe()(partial, plans[:, k]) for k in range(4)]
    best = min(solved, key=lambda r: float(r.value))
    assert float(values[0, 0]) == pytest.approx(float(best.value), rel=1e-12)
    assert float(ends.sum()) == pytest.approx(float(best.mass), rel=1e-12)


def test_schedules_of_linear_programs_give_ties_to_the_first():
    for stage in (*UNREGULARIZED_SCHEDULE, *PENALTY_SCHEDULE):
        assert stage.tie_tolerance == INITIALIZER_CONFIG.solution_tie
        assert not stage.must_differ
    with pytest.raises(TypeError):
        Round(None, 1, 0.1)  # a tie tolerance without its name could be taken for `must_differ`
