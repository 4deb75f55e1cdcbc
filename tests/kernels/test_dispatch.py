"""All backends of every primitive against its torch reference in float64; Triton is interpreted without a GPU."""

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from oracles.streaming import DEVICE, streaming_factors
from oracles.streaming import SHAPES as STREAMING_SHAPES
from oracles.thresholds import changed_thresholds
from ugw.kernels import dispatch
from ugw.kernels.anderson import AndersonStep
from ugw.kernels.config import KERNEL_CONFIG
from ugw.kernels.dispatch import BACKENDS, Backend, select_backend
from ugw.kernels.sinkhorn import LogKernel, StabilizedKernel, sinkhorn_iterations
from ugw.kernels.triton.config import TRITON_CONFIG

pytest.importorskip("triton", reason="Triton is not installed")

# One entry, ragged edges, powers of two on an edge, more than one program and strip, more rows than columns and fewer.
SHAPES = [(1, 1, 1), (3, 5, 9), (2, 16, 16), (2, 33, 20), (1, 100, 100), (2, 9, 1100)]
# Sinkhorn: dampings of both sides; a damping of 1 is a hard marginal.
SOFT, HARD, HALF_HARD = (0.9, 0.8), (1.0, 1.0), (1.0, 0.5)
MAX_RATE = 1.0 - 1e-6


@dataclass(frozen=True)
class Case:
    """Arguments of a primitive as a function of the dtype, and the errors allowed in float32."""

    name: str
    arguments: Any
    rtol: float = 1e-5
    atol: float = 1e-5


def uniform_numbers(*shape, seed=0, dtype=torch.float32):
    """Random float32 numbers in [0, 1), in the given dtype."""
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def normal_numbers(*shape, seed=0, dtype=torch.float32):
    """Random normal float32 numbers in the given dtype."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def plan_with_zeros(shape, dtype):
    plan = uniform_numbers(*shape, seed=1, dtype=dtype)
    return torch.where(plan < 0.3, 0.0, plan)


def weights(shape, dtype):
    sides = uniform_numbers(shape[0], shape[1], seed=1), uniform_numbers(shape[0], shape[2], seed=2)
    return [(side / side.sum(1, keepdim=True)).to(dtype) for side in sides]


def anderson_arguments(shape, dtype):
    costs = [uniform_numbers(*shape, seed=k, dtype=dtype) for k in range(6)]
    return *weights(shape, dtype), costs[:3], costs[3:]


def extrapolate_arguments(shape, dtype):
    costs = [uniform_numbers(*shape, seed=k, dtype=dtype) for k in range(4)]
    return costs[0], costs[1:], [uniform_numbers(shape[0], seed=k, dtype=torch.float64) for k in range(4, 7)]


def coefficient_arguments(rank, _dtype, count=60):
    """Covariances of five vectors, of any length, of which the last three are nearly dependent on the first two."""
    draw = torch.Generator().manual_seed(0)
    base = torch.randn(count, 5, 40, generator=draw, dtype=torch.float64)
    base[:, 1] = base[:, 0] * torch.rand(count, 1, generator=draw, dtype=torch.float64) + 10.0**-rank * base[:, 1]
    base[:, 2:4] = (torch.rand(count, 1, 1, generator=draw, dtype=torch.float64) - 0.7) * base[:, :2]
    base = base * 10.0 ** torch.randint(-6, 3, (count, 1, 1), generator=draw)
    gram = base @ base.mT
    gram[1], gram[2, 4, 4], gram[3] = 0.0, torch.nan, torch.inf
    draw = torch.Generator().manual_seed(1)
    relative_change = (30.0 * torch.rand(count, generator=draw, dtype=torch.float64) - 10.0).clamp(min=0.0)
    was_rejected = torch.rand(count, generator=draw) < 0.5
    return gram.to(DEVICE), relative_change.to(DEVICE), was_rejected.to(DEVICE)


def row_logsumexp(left, right, bias):
    return torch.logsumexp(left.double() @ right.double().mT + bias.double()[:, None, :], dim=2)


def logsumexp_arguments(shape, offset, dtype):
    factors = streaming_factors(shape, dtype)
    return *factors, None if offset is None else (row_logsumexp(*factors) + offset).to(torch.float32).to(dtype)


def weighted_sum_arguments(shape, width, dtype):
    factors = streaming_factors(shape, dtype)
    shift = row_logsumexp(*factors).to(torch.float32).to(dtype)
    return *factors, shift, normal_numbers(shape[0], shape[2], width, seed=4, dtype=dtype)


def sinkhorn_arguments(shape, dampings, dtype, eps=0.01):
    """A stabilized kernel with a point without weight on each side that has more than four, and the other arguments."""
    batch, n, m = shape
    log_weights = [uniform_numbers(batch, size, seed=k, dtype=dtype).log() for k, size in ((1, n), (2, m))]
    for log in log_weights:
        if log.shape[1] > 4:
            log[:, 2] = -torch.inf
    gamma = uniform_numbers(batch, m, seed=4, dtype=dtype)
    one = torch.ones(batch, dtype=dtype, device=DEVICE)
    kernel = StabilizedKernel.from_kernel(LogKernel(uniform_numbers(*shape, dtype=dtype) / -eps, *log_weights), gamma)
    share = 0.0 if dampings == HARD else 1.0 / sum(1.0 / d - 1.0 for d in dampings)
    return gamma, kernel, tuple(d * one[:, None] for d in dampings), share * one[:, None], MAX_RATE


def cases_by_shape(arguments, shapes=SHAPES, **tolerances):
    return [Case(str(s), lambda dtype, s=s: arguments(s, dtype), **tolerances) for s in shapes]


def two_matrices(shape, dtype):
    return plan_with_zeros(shape, dtype), uniform_numbers(*shape, seed=2, dtype=dtype)


CASES = {
    "dot": cases_by_shape(two_matrices, rtol=1e-6, atol=1e-6),
    "l1_distance": cases_by_shape(two_matrices, rtol=1e-6, atol=1e-6),
    "neg_entropy": cases_by_shape(lambda shape, dtype: (plan_with_zeros(shape, dtype),)),
    "anderson_moments": cases_by_shape(anderson_arguments, atol=1e-6),
    "extrapolate": cases_by_shape(extrapolate_arguments),
    "anderson_coefficients": cases_by_shape(coefficient_arguments, [0, 2, 5, 9]),
    "streaming_logsumexp": [
        # A guess far from the result costs digits of the sum.
        Case(f"{s}-{off}", lambda dtype, s=s, off=off: logsumexp_arguments(s, off, dtype), 0.0, 3e-5 + 6e-7 * abs(off or 0))
        for s in STREAMING_SHAPES
        for off in (None, 0.0, 5.0, -400.0, 2000.0)
    ],
    "streaming_weighted_sum": [
        Case(f"{s}-{width}", lambda dtype, s=s, width=width: weighted_sum_arguments(s, width, dtype), 0.0, 1.5e-4)
        for s in STREAMING_SHAPES
        for width in (1, 5, 40)
    ],
    "sinkhorn_iterations": [
        Case(f"{s}-{d}", lambda dtype, s=s, d=d: sinkhorn_arguments(s, d, dtype), 1e-4, 2e-4)
        for s in [*SHAPES[:5], (2, 17, 130)]
        for d in (SOFT, HARD, HALF_HARD)
        if d == SOFT or s in SHAPES[:3]
    ],
}  # fmt: skip


def assert_close(result, expected, case):
    """Compare tensors, or tuples of them, in float64."""
    if not isinstance(expected, tuple):
        result, expected = (result,), (expected,)
    for one, other in zip(result, expected, strict=True):
        assert one.shape == other.shape
        torch.testing.assert_close(one.double(), other.double(), rtol=case.rtol, atol=case.atol)


def assert_close_coefficients(result, expected, case):
    """Choices at the edge between two answers may differ; coefficients may differ by a grain."""
    assert isinstance(result, AndersonStep)
    assert expected.is_overrelaxed.any()
    assert (expected.is_extrapolated & ~expected.is_overrelaxed).any()
    assert not expected.is_extrapolated.all()
    same = (expected.is_extrapolated == result.is_extrapolated) & (expected.is_overrelaxed == result.is_overrelaxed)
    assert int((~same).sum()) <= 1
    grain = 1.1 * KERNEL_CONFIG.coefficient_grain
    torch.testing.assert_close(result.factors[same], expected.factors[same], rtol=1e-6, atol=grain)


def assert_close_iterates(result, expected, case):
    """Compare potentials at points with weight.

    A convergence rate near 1 multiplies rounding errors in the extrapolation without bound: there, twice the error of
    the reference itself in float32, in the log domain or stabilized, is allowed on top.
    """
    arguments = case.arguments(torch.float32)
    gamma, kernel, *others = arguments
    rounded = [sinkhorn_iterations(gamma, k, *others).extrapolated_gamma for k in (kernel.log_domain(), kernel)]
    has_weight = kernel.log_b > -torch.inf
    present = {"gamma": has_weight, "extrapolated_gamma": has_weight, "residual": ...}
    for name, at in present.items():
        one, exact = getattr(result, name).double(), getattr(expected, name)
        assert bool(torch.isfinite(one).all())
        allowed = case.atol + case.rtol * exact.abs()
        if name == "extrapolated_gamma":
            if kernel.matrix[0].numel() == 1 and float(arguments[3].abs().max()) == 0.0:
                continue  # exact after one iteration: the rate is a quotient of rounding errors
            errors = torch.stack([torch.where(has_weight, (r - exact).abs(), 0.0) for r in rounded])
            allowed = allowed + 2.0 * errors.amax(dim=(0, 2))[:, None]
        assert bool(((one - exact).abs() <= allowed)[at].all()), name


COMPARISONS = {"anderson_coefficients": assert_close_coefficients, "sinkhorn_iterations": assert_close_iterates}


def reference(primitive, case):
    """The result of the torch reference in float64; of Sinkhorn in the log domain."""
    arguments = case.arguments(torch.float64)
    if primitive == "sinkhorn_iterations":
        arguments = arguments[0], arguments[1].log_domain(), *arguments[2:]
    return BACKENDS[primitive][-1].implementation(primitive)(*arguments)


@pytest.mark.parametrize(
    ("primitive", "backend", "case"),
    [
        pytest.param(primitive, backend, case, id=f"{primitive}-{backend.module}-{case.name}")
        for primitive, backends in BACKENDS.items()
        for backend in backends
        for case in CASES[primitive]
    ],
)
def test_backends_agree_with_the_reference(primitive, backend, case):
    result = backend.implementation(primitive)(*case.arguments(torch.float32))
    COMPARISONS.get(primitive, assert_close)(result, reference(primitive, case), case)


def test_every_primitive_has_a_torch_reference_that_accepts_everything():
    for backends in BACKENDS.values():
        assert "triton" not in backends[-1].module
        assert backends[-1].supports(object())


# --- numbers that are not finite ---

SINKHORN_BACKENDS = pytest.mark.parametrize("backend", BACKENDS["sinkhorn_iterations"], ids=lambda b: b.module)


@pytest.mark.parametrize("primitive", ["dot", "l1_distance"])
def test_nan_entries_give_nan_sums(primitive):
    u, v = uniform_numbers(2, 3, 4), uniform_numbers(2, 3, 4, seed=1)
    u[1, 2, 3] = torch.nan
    for backend in BACKENDS[primitive]:
        assert backend.implementation(primitive)(u, v).isfinite().tolist() == [True, False]


@SINKHORN_BACKENDS
def test_underflow_gives_a_nonfinite_residual(backend):
    gamma, *others = sinkhorn_arguments((2, 6, 8), SOFT, torch.float32)
    gamma = gamma.clone()
    gamma[1] -= 300.0  # exp(−300) is 0 in float32
    iterate = backend.implementation("sinkhorn_iterations")(gamma, *others)
    assert torch.isfinite(iterate.residual).tolist() == [True, False]


@SINKHORN_BACKENDS
def test_an_empty_row_gives_a_nonfinite_residual(backend):
    arguments = sinkhorn_arguments((2, 6, 8), SOFT, torch.float32)
    arguments[1].matrix[0, 3] = 0.0
    iterate = backend.implementation("sinkhorn_iterations")(*arguments)
    assert torch.isfinite(iterate.residual).tolist() == [False, True]


@pytest.mark.parametrize("shape", [(1, 9, 70), (2, 70, 6), (1, 35, 40)], ids=str)
@changed_thresholds(TRITON_CONFIG, row_sum_block=(4, 32), col_sum_block=(8, 32), vector_block=32)
def test_vectors_longer_than_a_block(shape):
    sinkhorn_cache = pytest.importorskip("ugw.kernels.triton.sinkhorn_cache")
    case = Case(str(shape), lambda dtype: sinkhorn_arguments(shape, SOFT, dtype), 1e-4, 2e-4)
    result = sinkhorn_cache.sinkhorn_iterations(*case.arguments(torch.float32))
    assert_close_iterates(result, reference("sinkhorn_iterations", case), case)


# --- selection ---


class FakeCuda(torch.Tensor):
    """A CPU tensor that claims to be on a GPU."""

    is_cuda = True
    device = torch.device("cuda")


def fake_kernel(n, m, dtype=torch.float32):
    kernel = sinkhorn_arguments((1, 5, 5), SOFT, dtype)[1]
    return replace(kernel, matrix=torch.zeros(1, 1, 1, dtype=dtype).expand(1, n, m).as_subclass(FakeCuda))


def fake_cuda(value):
    """The value with `FakeCuda` tensors; in place of a kernel a small one."""
    if isinstance(value, torch.Tensor):
        return value.as_subclass(FakeCuda)
    if isinstance(value, list | tuple):
        return type(value)(map(fake_cuda, value))
    return fake_kernel(5, 5) if isinstance(value, StabilizedKernel) else value


@pytest.mark.parametrize("primitive", BACKENDS)
def test_primitives_call_the_selected_backend_on_the_device_of_their_first_argument(primitive, monkeypatch):
    called, devices = [], []
    arguments = CASES[primitive][0].arguments(torch.float32)
    monkeypatch.setattr(torch.cuda, "device", lambda device: devices.append(device) or nullcontext())
    monkeypatch.setattr(
        Backend, "implementation", lambda backend, _: lambda *args: called.append((backend.module, args))
    )
    if DEVICE == "cpu":
        getattr(dispatch, primitive)(*arguments)
        assert not called, "the reference is called directly"
    getattr(dispatch, primitive)(*fake_cuda(arguments))
    ((module, passed),) = called
    assert module == BACKENDS[primitive][0].module
    assert len(passed) == len(arguments)
    assert devices == [torch.device("cuda")]


def test_reductions_in_triton_need_stored_float32_without_gradients():
    one, two = (uniform_numbers(2, 3, 4, seed=k).as_subclass(FakeCuda) for k in range(2))
    assert select_backend("dot", one, two).module == "triton.reductions"
    assert select_backend("dot", one.double(), two.double()).module == "reductions"
    assert select_backend("dot", one[0], two).module == "reductions", "one plan for all items"
    assert select_backend("extrapolate", one, object(), two, two).module == "anderson", "not stored"
    with torch.no_grad():
        assert select_backend("dot", one.requires_grad_(), two).module == "triton.reductions"
    assert select_backend("dot", one, two).module == "reductions", "a gradient is needed"
    assert select_backend("dot", *(uniform_numbers(2, 3, 4).cpu() for _ in range(2))).module == "reductions", "on a CPU"


def test_sinkhorn_backends_are_selected_by_size_and_dtype():
    sizes = [(100, 200), (100, 300), (2000, 2000), (2000, 3000)]
    modules = [select_backend("sinkhorn_iterations", fake_kernel(*size)).module for size in sizes]
    assert modules == ["triton.sinkhorn_registers", "triton.sinkhorn_cache", "triton.sinkhorn_cache", "sinkhorn"]
    assert select_backend("sinkhorn_iterations", fake_kernel(10, 10, torch.float64)).module == "sinkhorn"
    kernel = sinkhorn_arguments((1, 5, 5), SOFT, torch.float32)[1]
    assert select_backend("sinkhorn_iterations", kernel.log_domain()).module == "sinkhorn"


def test_other_primitives_are_selected_by_dtype():
    gram = torch.zeros(1, 5, 5, dtype=torch.float64).as_subclass(FakeCuda)
    assert select_backend("anderson_coefficients", gram).module == "triton.anderson"
    assert select_backend("anderson_coefficients", gram.float()).module == "anderson"
    left = torch.zeros(1, 5, 2).as_subclass(FakeCuda)
    assert select_backend("streaming_logsumexp", left).module == "triton.streaming"
    assert select_backend("streaming_logsumexp", left.double()).module == "streaming_logsumexp"


def test_without_triton_torch_is_selected(monkeypatch):
    monkeypatch.setattr(dispatch.Backend, "is_available", property(lambda backend: "triton" not in backend.module))
    one = uniform_numbers(2, 3, 4).as_subclass(FakeCuda)
    assert select_backend("dot", one, one).module == "reductions"
    assert select_backend("sinkhorn_iterations", fake_kernel(10, 10)).module == "sinkhorn"
