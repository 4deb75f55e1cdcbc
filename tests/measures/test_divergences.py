"""KL divergence, and the parameters of divergences."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from oracles import cases
from ugw.errors import InputError
from ugw.measures.divergences import KL, Balanced, divergence_pair, kl


def measures(seed, n=6):
    """Two random measures (3, n) of different mass."""
    rng = np.random.default_rng(seed)
    return torch.tensor(rng.random((3, n)) * 4), torch.tensor(rng.random((3, n)) * 0.3)


def test_kl_equals_its_definition():
    p, a = measures(0)
    for i in range(3):
        assert kl(p[i], a[i].log()).item() == pytest.approx(float(cases.kl(p[i], a[i])), rel=1e-14)
    assert kl(p, a.log()).shape == (3,)


def test_kl_counts_masses():
    # KL(s·a | a) = m(a)(s log s − s + 1): the term that a divergence of probability measures does not have.
    _, a = measures(1)
    expected = a.sum(-1) * (3.0 * math.log(3.0) - 2.0)
    torch.testing.assert_close(kl(3.0 * a, a.log()), expected, rtol=1e-13, atol=0.0)


def test_kl_is_zero_only_on_itself():
    p, a = measures(2)
    assert kl(a, a.log()).abs().max() < 1e-16
    assert (kl(p, a.log()) > 0.01).all()


def test_kl_at_zeros():
    a = torch.tensor([0.5, 0.0, 0.5], dtype=torch.float64)
    assert kl(torch.tensor([0.0, 0.0, 0.0], dtype=torch.float64), a.log()).item() == 1.0
    assert kl(a, a.log()).item() == 0.0
    assert kl(torch.tensor([0.5, 0.1, 0.5], dtype=torch.float64), a.log()).item() == math.inf


def test_kl_keeps_the_digits_of_a_small_divergence():
    a = torch.full((50,), 0.02, dtype=torch.float64)
    wiggle = torch.tensor(np.random.default_rng(3).normal(size=50)) * 1e-5
    second_order = 0.5 * (a * wiggle**2).sum()
    assert kl(a * (1 + wiggle), a.log()).item() == pytest.approx(second_order.item(), rel=1e-4)


@pytest.mark.parametrize(("p_mass", "q_mass"), [(1.0, 1.0), (0.4, 2.5)])
def test_tensorized_identity_with_unequal_arguments(p_mass, q_mass):
    # KL(p⊗q | a⊗b) = m(q) KL(p|a) + m(p) KL(q|b) + (m(p) − m(a))(m(q) − m(b)), all four of them different.
    rng = np.random.default_rng(4)
    p, a, q, b = (torch.tensor(rng.random(n) + 0.1) for n in (5, 5, 4, 4))
    p, q = p * p_mass / p.sum(), q * q_mass / q.sum()
    whole = kl(cases.outer(p, q).flatten(), cases.outer(a, b).flatten().log())
    parts = q.sum() * kl(p, a.log()) + p.sum() * kl(q, b.log()) + (p.sum() - a.sum()) * (q.sum() - b.sum())
    assert whole.item() == pytest.approx(parts.item(), rel=1e-13)
    assert whole.item() == pytest.approx(float(cases.kl(cases.outer(p, q), cases.outer(a, b))), rel=1e-13)


# --- rho ---


def test_a_hard_side_has_no_penalty():
    sides = KL(torch.tensor([0.5, math.inf, 2.0]))
    assert sides.is_hard.tolist() == [False, True, False]
    assert sides.penalty.tolist() == [0.5, 0.0, 2.0]
    assert sides.rho.dtype == torch.float64
    assert Balanced().is_hard.item()


def test_damping():
    eps = torch.tensor([0.1, 0.1, 3.0], dtype=torch.float64)
    damping = KL(torch.tensor([0.5, math.inf, 2.0])).damping(eps)
    torch.testing.assert_close(damping, torch.tensor([0.5 / 0.6, 1.0, 2.0 / 5.0], dtype=torch.float64))
    assert KL(1.0).damping(torch.zeros(1, dtype=torch.float64)).item() == 1.0


@pytest.mark.parametrize(("rho", "eps"), [(0.5, 0.1), (0.05, 2.0)])
def test_damping_is_the_proximal_step(rho, eps):
    # The dual in one potential: max_f −rho·e^{−f/rho} − eps·s·e^{f/eps} is at f = −damping·eps·log s.
    s = 0.3
    best = minimize_scalar(
        lambda f: rho * math.exp(-f / rho) + eps * s * math.exp(f / eps), bounds=(-3, 3), method="bounded"
    )
    damping = KL(rho).damping(torch.tensor(eps, dtype=torch.float64)).item()
    assert -damping * eps * math.log(s) == pytest.approx(best.x, abs=1e-4)


def test_take_and_expand():
    sides = KL(torch.tensor([0.5, math.inf, 2.0])).take(torch.tensor([2, 1]))
    assert sides.rho.tolist() == [2.0, math.inf]
    assert sides.is_hard.tolist() == [False, True]
    assert sides.penalty.tolist() == [2.0, 0.0]
    assert KL(3.0).expand(4, torch.device("cpu")).penalty.tolist() == [3.0] * 4


def test_a_pair_is_a_tuple():
    first, second = divergence_pair((1.0, KL(2.0)))
    assert (first.rho.item(), second.rho.item()) == (1.0, 2.0)
    first, second = divergence_pair(np.array([1.0, 3.0]))  # not a tuple: one per item
    assert first.rho.tolist() == second.rho.tolist() == [1.0, 3.0]


@pytest.mark.parametrize("rho", [0.0, -1.0, math.nan, "soft", (1.0, 2.0, 3.0), (1.0, 0.0), [1.0, -1.0], None])
def test_invalid_rhos_are_refused(rho):
    with pytest.raises(InputError, match="rho"):
        divergence_pair(rho)
