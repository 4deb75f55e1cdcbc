"""How conic problems are solved: which items start alike, and whose options count."""

import numpy as np
import pytest
import torch

import ugw
from oracles import cases
from ugw.initializers import conic as ways
from ugw.initializers.conic import TRANSPORT, WAYS, tuned


def first_plans(sizes):
    """The plans that a ragged batch starts from."""
    pairs = [cases.clouds(n, m, n) for n, m in sizes]
    x, y = (ugw.Space.stack([getattr(p, side) for p in pairs]) for side in "xy")
    way = WAYS["transport"]
    problem, twin = way.build(x, y, rho=0.5, cone="gaussian-hellinger", eps=0.0)
    return way.plans(problem, twin, way.solver, "auto")


def test_items_start_together_only_if_they_would_start_alike_alone(monkeypatch):
    seen = []

    def made(problem, twin, how):
        assert twin.sizes == problem.sizes
        seen.append((problem.sizes, how[2]))
        count = len(seen)  # another number of plans each time
        entries = torch.tensor([n * m for n, m in problem.sizes]).double()
        plans = entries[:, None] + torch.arange(count).double() / 10
        return plans[:, :, None, None].expand(*plans.shape, problem.x.n, problem.y.n)

    monkeypatch.setattr(ways, "_informed", made)
    plans = first_plans([(4, 5), (30, 40), (6, 60), (21, 22)])
    # At most 400 entries, more than that, and so many that fewer plans of noise are tried.
    assert seen == [(((4, 5), (6, 60)), 360), (((30, 40),), 1200), (((21, 22),), 462)]
    assert plans.shape == (4, 3, 30, 60)
    assert plans[:, :, 0, 0].tolist() == [[20, 20, 20], [1200, 1200.1, 1200], [360, 360, 360], [462, 462.1, 462.2]]


@pytest.mark.parametrize(("entries", "count"), [(1, 256), (781, 256), (782, 128), (2500, 64), (10**5, 2), (10**6, 0)])
def test_plans_of_noise_are_a_power_of_2(entries, count):
    assert ways._noisy(entries) == count


def test_a_small_item_has_the_starts_it_has_alone():
    sizes = [(4, 5), (21, 22)]
    together = first_plans(sizes)
    for i, (n, m) in enumerate(sizes):
        alone = first_plans([(n, m)])[0]
        assert len(alone) == together.shape[1]
        np.testing.assert_allclose(together[i, :, :n, :m], alone, atol=1e-3)  # rough steps


def test_only_options_left_alone_are_tuned():
    given = ugw.AlternateMin(proximal=(0.2, 0.02, 0.9), inner=ugw.Sinkhorn(max_iter=20, tol=1e-6))
    assert tuned(given, TRANSPORT) == given
    assert tuned(ugw.AlternateMin(), TRANSPORT) == TRANSPORT
    inner = tuned(ugw.AlternateMin(inner=ugw.Sinkhorn(tol=1e-6)), TRANSPORT).inner
    assert inner == ugw.Sinkhorn(tol=1e-6, max_iter=TRANSPORT.inner.max_iter)
    many = tuned(ugw.Multistart(n=3), TRANSPORT)
    assert many == ugw.Multistart(n=3, solver=TRANSPORT)
    assert tuned(ugw.AlternateLP(tol=1e-3), ugw.AlternateLP()) == ugw.AlternateLP(tol=1e-3)
