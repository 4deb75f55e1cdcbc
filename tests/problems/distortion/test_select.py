"""Choice between term-by-term and factorized sums, and the error of the factors."""

import pytest
import torch

from oracles import cases
from oracles.distortion import assert_close, explicit_sum, gaussian_kernel, random_metrics, random_plans, rho_total
from ugw.measures.cones import GaussianHellinger, HellingerKantorovich
from ugw.problems.distortion.base import PairLoss
from ugw.problems.distortion.config import DISTORTION_CONFIG
from ugw.problems.distortion.factorized import FactorizedDistortion
from ugw.problems.distortion.select import select_distortion
from ugw.problems.distortion.term_by_term import TermByTermDistortion


def test_small_plans_are_summed_term_by_term_and_others_factorized():
    pair_loss = PairLoss(GaussianHellinger(), rho_total(0.3))
    assert isinstance(select_distortion(*random_metrics(False, False, n=20, m=20), pair_loss), TermByTermDistortion)
    assert DISTORTION_CONFIG.max_exact_plan == 400
    distortion = select_distortion(*random_metrics(False, False, n=20, m=21), pair_loss)
    assert isinstance(distortion, FactorizedDistortion)
    assert distortion.rank.tolist() == [distortion.factors.rank]
    assert distortion.error.tolist() == [distortion.factors.error]
    exact = select_distortion(*random_metrics(False, False), pair_loss)
    assert exact.rank.tolist() == [0]
    assert exact.error.tolist() == [0.0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("rho", [1e-3, 0.1, 1.0, 100.0])
@pytest.mark.parametrize("cone", [GaussianHellinger(), HellingerKantorovich(), HellingerKantorovich(0.9)], ids=str)
def test_the_error_of_factors_is_bounded(rho, dtype, cone):
    dx, dy = (metric.to(dtype) for metric in random_metrics(False, False, n=20, m=21))
    distortion = select_distortion(dx, dy, PairLoss(cone, rho_total(rho)))
    plan = random_plans(2, 20, 21)
    plan = (plan / plan.sum((1, 2), keepdim=True)).to(dtype)
    g = [lambda t: torch.exp(-cone(t) / (2 * rho))] * 2
    stated = distortion.error.item()
    # Beside the stated error there is only rounding, of the Chebyshev recursion and of the products.
    rounding = torch.finfo(dtype).eps * (distortion.rank.item() + 20)
    assert_close(distortion.apply(plan), explicit_sum(dx, dy, g, plan), 1.0, tol=stated + rounding)
    kinked = isinstance(cone, HellingerKantorovich) and cone.cutoff < 1.0 and rho > 0.5
    assert stated <= (2.0 if kinked else 1e-8)
    # Single entries of the kernel: a plan with one pair of points.
    for k, h in ((0, 0), (3, 7), (19, 20)):
        one = torch.zeros_like(plan[:1])
        one[0, k, h] = 1.0
        assert_close(distortion.apply(one), explicit_sum(dx, dy, g[:1], one), 1.0, tol=stated + 10 * rounding)


def test_items_with_one_length_and_one_rho_share_their_factors():
    dx, dy = random_metrics(False, False, n=20, m=21)
    shared = select_distortion(dx, dy, PairLoss(GaussianHellinger(), rho_total(0.3)))
    assert isinstance(shared, FactorizedDistortion)
    assert shared.take(torch.tensor([0, 0, 0])) is shared
    of_two_rhos = select_distortion(dx, dy, PairLoss(GaussianHellinger(), rho_total(0.3, 1.0, 0.3)))
    factors = [part.factors for part in of_two_rhos.parts]
    assert factors[0] is factors[2] is not factors[1]
    assert of_two_rhos.rank.tolist() == [f.rank for f in factors]
    plan = random_plans(3, 20, 21)
    assert_close(
        of_two_rhos.apply(plan),
        explicit_sum(dx, dy, [gaussian_kernel(0.3), gaussian_kernel(1.0), gaussian_kernel(0.3)], plan),
        420,
    )
    items = of_two_rhos.take(torch.tensor([1, 2]))
    assert items.error.tolist() == of_two_rhos.error[1:].tolist()


def test_plans_of_moderate_size_are_exact_where_factors_are_too_coarse():
    kink = PairLoss(torch.abs, rho_total(1.0))
    assert DISTORTION_CONFIG.max_exact_plan_if_coarse == 2500
    distortion = select_distortion(*random_metrics(False, False, n=50, m=50), kink)
    assert isinstance(distortion, TermByTermDistortion)
    large = select_distortion(*random_metrics(False, False, n=50, m=51), kink)
    assert isinstance(large, FactorizedDistortion)
    assert bool((large.error > large.tolerance).all())
    # With a given rank, or with a tolerance that the factors meet, they are used.
    assert select_distortion(*random_metrics(False, False, n=50, m=50), kink, max_rank=20).rank.item() == 20
    assert isinstance(
        select_distortion(*random_metrics(False, False, n=20, m=21), kink, tol=0.02), FactorizedDistortion
    )


def test_tolerance_and_rank_are_passed_on():
    dx, dy = random_metrics(False, False, n=20, m=21)
    pair_loss = PairLoss(GaussianHellinger(), rho_total(0.1))
    loose = select_distortion(dx, dy, pair_loss, tol=1e-2)
    assert loose.rank.item() < select_distortion(dx, dy, pair_loss).rank.item()
    assert loose.error.item() <= 1e-2
    assert select_distortion(dx, dy, pair_loss, max_rank=3).rank.item() == 3


@pytest.mark.parametrize("n", [4, 22])
def test_similarities_of_both_signs(n):
    case = cases.similarities(n, n + 1, 0)
    dx, dy = case.x.metric, case.y.metric
    plan = random_plans(1, n, n + 1)
    plan = plan / plan.sum()
    distortion = select_distortion(dx, dy, PairLoss(GaussianHellinger(), rho_total(1.0)))
    assert_close(distortion.apply(plan), explicit_sum(dx, dy, gaussian_kernel(1.0), plan), 1.0, tol=1e-8)
