"""Problems that are solved on two devices, and how closely their results must agree.

No test framework is needed: `tests/test_cuda.py` and `benchmarks/cuda_parity.py` run the same cases.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

import ugw
from oracles.captured_graphs import kept_names
from ugw._utils.cuda_graphs.cache import clear
from ugw.initializers.coarse import coarse_plan
from ugw.problems.build import build_ugw

INF = float("inf")
# The largest relative L1 distance of two plans, and relative difference of two values.
CLOSE = {torch.float64: (1e-9, 1e-10), torch.float32: (1e-4, 1e-4)}


@dataclass(frozen=True)
class CaseResult:
    """The result of a case: a plan, or None, and values (k,), accurate to the fraction `known`."""

    plan: torch.Tensor | None
    values: torch.Tensor
    accuracy: float = 0.0


def clouds(
    n: int, m: int, device: str, dtype: torch.dtype, seed: int = 0, metric: str = "euclidean"
) -> tuple[ugw.Space, ugw.Space]:
    """Random points of R³ and R² with uneven weights, distances up to 1."""
    rng = np.random.default_rng((n, m, seed))
    spaces = []
    for shape in ((n, 3), (m, 2)):
        points, weights = rng.random(shape), rng.random(shape[0]) + 0.5
        to = {"dtype": dtype, "device": device}
        weights = torch.tensor(weights / weights.sum(), **to)
        space = ugw.Space.from_points(torch.tensor(points, **to), weights=weights, metric=metric)
        spaces.append(space.scaled("max"))
    return spaces[0], spaces[1]


def ragged_batch(device: str, dtype: torch.dtype) -> tuple[ugw.Space, ugw.Space]:
    """A batch of three pairs of different sizes."""
    pairs = [clouds(n, m, device, dtype) for n, m in ((30, 25), (12, 20), (25, 7))]
    x, y = zip(*pairs, strict=True)
    return ugw.Space.stack(x), ugw.Space.stack(y)


def case_result(result: ugw.Result) -> CaseResult:
    """Plan and values of a result."""
    return CaseResult(result.plan, torch.as_tensor(result.value).reshape(-1))


def tight_solver(dtype: torch.dtype) -> ugw.AlternateMin:
    """A solver of small tolerance, so that the plans of two devices agree."""
    tol = 1e-10 if dtype == torch.float64 else 1e-6
    return ugw.AlternateMin(tol=tol, max_iter=3000, inner=ugw.Sinkhorn(tol=1e-2 * tol, max_iter=200))


def solve_case(**options: Any) -> Callable[[str, torch.dtype], CaseResult]:
    """A case that solves UGW between 60 and 50 points from the product plan with these options."""

    def run(device: str, dtype: torch.dtype) -> CaseResult:
        return case_result(
            ugw.solve(*clouds(60, 50, device, dtype), init="product", solver=tight_solver(dtype), **options)
        )

    return run


def solve_without_entropy(device: str, dtype: torch.dtype) -> CaseResult:
    """In float64 always: without entropy many plans are nearly as good, and float32 rounds to another of them."""
    x, y = clouds(15, 12, device, torch.float64)
    r = case_result(ugw.solve(x, y, eps=0.0, init="flb", solver=ugw.AlternateMin(tol=1e-11)))
    return CaseResult(r.plan.to(dtype), r.values)


def solve_fused(device: str, dtype: torch.dtype) -> CaseResult:
    """UGW with a random linear cost."""
    cost = torch.tensor(np.random.default_rng(0).random((60, 50)), dtype=dtype, device=device)
    x, y = clouds(60, 50, device, dtype)
    return case_result(
        ugw.solve(x, y, eps=1e-2, fused=ugw.Fused(0.5, cost), init="product", solver=tight_solver(dtype))
    )


def solve_ragged_batch(device: str, dtype: torch.dtype) -> CaseResult:
    """A ragged batch with a rho and an eps for each item."""
    options = {"rho": np.array([0.1, 1.0, 10.0]), "eps": np.array([1e-2, 1e-2, 2e-2]), "init": "product"}
    return case_result(ugw.solve(*ragged_batch(device, dtype), solver=tight_solver(dtype), **options))


def solve_from_coarse_start(device: str, dtype: torch.dtype) -> CaseResult:
    """UGW from the default initial plans."""
    return case_result(ugw.solve(*clouds(120, 100, device, dtype), eps=1e-2, solver=tight_solver(dtype)))


def conic_case(n: int, m: int, cone: str, init: str = "auto") -> Callable[[str, torch.dtype], CaseResult]:
    """Only the values are compared: many plans are nearly as good as the best, as without entropy.

    The tolerance of CGW bounds the decrease of the value that is still to come.
    """

    def run(device: str, dtype: torch.dtype) -> CaseResult:
        x, y = clouds(n, m, device, dtype)
        solver = ugw.AlternateMin(tol=1e-2 * CLOSE[dtype][1], max_iter=3000)
        return CaseResult(None, case_result(ugw.solve_conic(x, y, rho=0.5, cone=cone, init=init, solver=solver)).values)

    return run


def solve_tightness(device: str, dtype: torch.dtype) -> CaseResult:
    """Values without entropy of plans that are solved with entropy to a change of 1e-6."""
    t = ugw.tightness(*clouds(12, 10, device, dtype), rho=0.5)
    assert t.holds, "CGW ≤ UGW is not certified"
    return CaseResult(None, torch.stack([torch.as_tensor(v) for v in (t.cgw, t.ugw, t.ratio)]), 1e-8)


def evaluate_objective(device: str, dtype: torch.dtype) -> CaseResult:
    """The terms of a random plan."""
    plan = torch.tensor(np.random.default_rng(0).random((60, 50)), dtype=dtype, device=device)
    terms = ugw.objective(plan / plan.sum(), *clouds(60, 50, device, dtype), rho=(0.5, 2.0), eps=0.1)
    sides = (terms.distortion, terms.marginal_a, terms.marginal_b, terms.entropy, terms.total)
    return CaseResult(None, torch.stack([torch.as_tensor(v) for v in sides]))


CASES: dict[str, Callable[[str, torch.dtype], CaseResult]] = {
    "ugw": solve_case(rho=1.0, eps=1e-2),
    "unequal rhos": solve_case(rho=(0.1, 2.0), eps=1e-2),
    "semi-relaxed": solve_case(rho=(INF, 1.0), eps=1e-2),
    "balanced": solve_case(rho=INF, eps=1e-2),
    "per item": solve_case(rho=np.array([0.1, 1.0, 10.0]), eps=np.array([2e-2, 1e-2, 4e-2])),
    "eps = 0": solve_without_entropy,
    "fused": solve_fused,
    "ragged batch": solve_ragged_batch,
    "coarse start": solve_from_coarse_start,
    "conic, term by term": conic_case(15, 12, "gaussian-hellinger"),
    "conic, by factors": conic_case(40, 30, "gaussian-hellinger", init="flb"),
    "conic, hellinger": conic_case(15, 12, "hellinger-kantorovich"),
    "conic, hellinger, by factors": conic_case(40, 30, "hellinger-kantorovich", init="flb"),
    "tightness": solve_tightness,
    "objective": evaluate_objective,
}


def compare(expected: CaseResult, result: CaseResult, dtype: torch.dtype) -> tuple[float, float]:
    """Relative distances of plans and of values; an AssertionError where they are not close enough.

    here: in float64; there: in `dtype`, perhaps on another device.
    """
    plans, values = CLOSE[dtype]
    values = max(values, expected.accuracy)
    plan_distance, value_difference = 0.0, relative_differences(result.values, expected.values).max().item()
    if expected.plan is not None and result.plan is not None:
        assert result.plan.dtype == dtype, f"the plan is {result.plan.dtype}, not {dtype}"
        plan_distance = float((result.plan.cpu().double() - expected.plan).abs().sum() / expected.plan.sum())
    assert plan_distance <= plans, f"plans are {plan_distance:.1e} apart in L1, more than {plans:.0e}"
    assert value_difference <= values, f"values are {value_difference:.1e} apart, more than {values:.0e}"
    return plan_distance, value_difference


def relative_differences(u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """|u − v| / |v|, elementwise."""
    u, v = u.cpu().double(), v.cpu().double()
    return (u - v).abs() / v.abs().clamp(min=1e-300)


# -- checks of results --------------------------------------------------------------------------------------


def check_device_and_dtype(device: str, dtype: torch.dtype) -> None:
    """Results of tensors are on the device of the tensors; results of arrays are arrays."""
    x, y = clouds(9, 8, device, dtype)
    for result in (ugw.solve(x, y), ugw.solve_conic(x, y)):
        for name in ("plan", "value", "mass"):
            value = torch.as_tensor(getattr(result, name))
            assert value.device.type == device, f"{name} is on {value.device}, not on {device}"
        assert result.plan.dtype == dtype, f"the plan is {result.plan.dtype}, not {dtype}"
    points = np.random.default_rng(0).random((9, 2)).astype(str(dtype)[6:])
    back = ugw.solve(ugw.Space.from_points(points), ugw.Space.from_points(points)).plan
    assert isinstance(back, np.ndarray), f"arrays came back as {type(back).__name__}"
    assert back.dtype == points.dtype, f"{points.dtype} came back as {back.dtype}"


def check_problems_of_one_signature(device: str, dtype: torch.dtype) -> None:
    """Problems of one size may be solved by the same captured steps: each has its own result, and keeps it.

    One metric is stored, the other has cached properties.
    """
    sizes, seeds = ((60, 50), (200, 150)), (0, 1, 0)
    for (n, m), init, metric in product(sizes, ("product", "auto"), ("euclidean", "sqeuclidean")):
        first, other, again = (
            ugw.solve(*clouds(n, m, device, dtype, seed, metric), eps=1e-2, init=init, rho=1.0 + seed) for seed in seeds
        )
        copy = first.plan.clone()
        ugw.solve(*clouds(n, m, device, dtype, 2, metric), eps=1e-2, init=init)
        assert torch.equal(first.plan, copy), f"n = {n}, {init}: a later solve changed a result"
        assert not torch.equal(first.plan, other.plan), f"n = {n}, {init}: another problem had the same result"
        difference = float(relative_differences(first.value.reshape(-1), again.value.reshape(-1)))
        assert difference <= CLOSE[dtype][1], f"n = {n}, {init}: the same call gave values {difference:.1e} apart"
        clear()
        recaptured = ugw.solve(*clouds(n, m, device, dtype, 1, metric), eps=1e-2, init=init, rho=2.0)
        for name, one, two in (("the same call", first, again), ("calls by kept and by new graphs", other, recaptured)):
            off = float((one.plan - two.plan).abs().sum() / one.plan.sum())  # a GPU adds in any order
            assert off <= 1e-2, f"n = {n}, {init}: {name} gave plans {off:.1e} apart"


def noisy_copies(n: int, m: int, device: str, dtype: torch.dtype, seed: int) -> tuple[ugw.Space, ugw.Space]:
    """A cloud of n random points and its first m points, moved a little: the best plan is much better than others."""
    rng = np.random.default_rng((n, m, seed))
    cloud = rng.random((n, 3)) * [1.0, 0.6, 0.3]
    copy = cloud[:m] + 0.01 * rng.random((m, 3))
    to = {"dtype": dtype, "device": device}
    return ugw.Space.from_points(torch.tensor(cloud, **to)), ugw.Space.from_points(torch.tensor(copy, **to))


def check_captured_initial_plans(device: str, dtype: torch.dtype) -> None:
    """Initial plans of a problem whose signature has come before are computed by graphs, to the same plan.

    Rounding must not decide which candidate is best, because sums on a GPU are made in any order.
    """
    clear()
    expected = {120: {"coarsest_level", "fine_candidates"}}
    expected[650] = expected[120] | {"middle_level", "prolongate_first"}
    for n, names in expected.items():
        problems = [
            build_ugw(*noisy_copies(n, n - 20, device, dtype, k), rho=1.0, eps=1e-2, fused=None) for k in range(5)
        ]
        with torch.no_grad():
            *_, last = (coarse_plan(problem) for problem in problems)
            if device == "cuda":
                captured = set(kept_names())
                assert names <= captured, f"n = {n}: captured were {captured}"
            clear()
            off = float((coarse_plan(problems[-1]) - last).abs().sum())
        assert off <= 1e-2, f"n = {n}: an initial plan by graphs is {off:.1e} from a plain one"


def check_saved_results(device: str, dtype: torch.dtype) -> None:
    """A file has no device: what it holds is read to the CPU, bit for bit."""
    x, y = ragged_batch(device, dtype)
    with TemporaryDirectory() as folder:
        for number, result in enumerate((ugw.solve(x, y), ugw.solve_conic(x, y, rho=0.5))):
            path = Path(folder) / f"{number}.npz"
            result.save(path)
            loaded = type(result).load(path)
            for name in ("plan", "value", "status", "n_iter"):
                one, two = (torch.as_tensor(getattr(r, name)).cpu() for r in (result, loaded))
                assert one.dtype == two.dtype, f"{name}: {one.dtype} was loaded as {two.dtype}"
                assert torch.equal(one, two), f"{name} was loaded as something else"


def check_rho_for_mass(device: str, dtype: torch.dtype) -> None:
    """The search ends within 1e-3 of the share asked for: in float32 perhaps one solve sooner or later."""
    expected = float(ugw.rho_for_mass(*clouds(20, 15, "cpu", torch.float64), kept=0.9))
    rho = float(ugw.rho_for_mass(*clouds(20, 15, device, dtype), kept=0.9))
    limit = 1e-9 if dtype == torch.float64 else 2e-2
    assert abs(rho - expected) <= limit * expected, f"rho is {rho} there and {expected} here"


def check_gradients(device: str, dtype: torch.dtype) -> None:
    """Of every kind of value, with respect to points and weights; float32 is far from the precision of the plan."""
    limit = 1e-7 if dtype == torch.float64 else 2e-2
    for name, value in DIFFERENTIABLE.items():
        all_gradients = []
        for where, kind in (("cpu", torch.float64), (device, dtype)):
            rng = np.random.default_rng(0)
            to = {"dtype": kind, "device": where}
            points, others = (torch.tensor(rng.random((n, 2)), **to) for n in (14, 12))
            weights = torch.tensor(rng.random(14) + 0.5, **to)
            leaves = points.requires_grad_(), weights.requires_grad_()
            x = ugw.Space.from_points(points, weights=weights, metric="sqeuclidean")
            y = ugw.Space.from_points(others, metric="sqeuclidean")
            all_gradients.append(torch.autograd.grad(value(x, y, tight_solver(kind)), leaves))
        for expected, gradient in zip(*all_gradients, strict=True):
            assert gradient.device.type == device, f"{name}: the gradient is on {gradient.device}, not on {device}"
            off = float((gradient.cpu().double() - expected).norm() / expected.norm())
            assert off <= limit, f"{name}: gradients are {off:.1e} apart, more than {limit:.0e}"


def with_streaming(solver: ugw.AlternateMin) -> ugw.AlternateMin:
    """The solver with streaming Sinkhorn iterations, which store no plan."""
    return replace(solver, inner=replace(solver.inner, method="streaming"))


DIFFERENTIABLE: dict[str, Callable[[ugw.Space, ugw.Space, ugw.AlternateMin], torch.Tensor]] = {
    "ugw": lambda x, y, s: ugw.ugw_loss(x, y, rho=(0.5, 2.0), eps=0.05, solver=s),
    "semi-relaxed": lambda x, y, s: ugw.ugw_loss(x, y, rho=(INF, 1.0), eps=0.05, solver=s),
    "streaming": lambda x, y, s: ugw.ugw_loss(x, y, rho=(0.5, 2.0), eps=0.05, solver=with_streaming(s)),
    "conic": lambda x, y, s: ugw.CGWLoss(rho=0.5)(x, y),
    "debiased": lambda x, y, s: ugw.debiased(x, y, rho=0.5, eps=0.05, solver=s).value,
    "plan": lambda x, y, s: ugw.solve_differentiable(x, y, rho=0.5, eps=0.1, solver=s).plan.square().sum(),
}

CHECKS: dict[str, Callable[[str, torch.dtype], None]] = {
    "gradients": check_gradients,
    "rho for mass": check_rho_for_mass,
    "device and dtype": check_device_and_dtype,
    "saved and loaded": check_saved_results,
    "problems of one signature": check_problems_of_one_signature,
    "initial plans": check_captured_initial_plans,
}
