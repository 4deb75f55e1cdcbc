"""Losses and cones: closed forms against numerical infima, metric properties, and invalid losses."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

import ugw
from oracles import conic as oracles
from oracles.cases import label
from ugw.errors import InputError
from ugw.measures.cones import GaussianHellinger, HellingerKantorovich, Loss, parse_loss
from ugw.problems.distortion.base import PairLoss

CONES = {
    "gaussian-hellinger": (GaussianHellinger(), oracles.gh),
    "hellinger-kantorovich": (HellingerKantorovich(), oracles.hk),
    "with a cutoff": (HellingerKantorovich(0.8), lambda t: oracles.hk(t, 0.8)),
}


def tensor(values):
    """Numbers as a float64 tensor."""
    return torch.as_tensor(np.asarray(values, dtype=float))


@pytest.mark.parametrize("name", CONES)
def test_losses_equal_their_formulas(name):
    cone, numpy_loss = CONES[name]
    t = np.concatenate([np.linspace(0.0, 4.0, 301), [0.5 * math.pi, 0.8, 1e-9]])
    np.testing.assert_allclose(cone(tensor(t)).numpy(), numpy_loss(t), rtol=1e-12, atol=1e-15)
    assert cone(tensor([0.0])).item() == 0.0


@pytest.mark.parametrize("cutoff", [0.3, 1, 0.5 * math.pi, 20.0])
def test_the_cutoff_only_scales_distances(cutoff):
    t = tensor(np.linspace(0.0, 1.3 * cutoff, 100))
    scaled = HellingerKantorovich()(t * (0.5 * math.pi / cutoff))
    got = HellingerKantorovich(cutoff)(t)
    torch.testing.assert_close(got, scaled, rtol=1e-12, atol=0.0)
    assert bool(torch.isinf(got[t >= cutoff]).all())
    assert bool(torch.isfinite(got[t < cutoff]).all())
    assert math.isinf(HellingerKantorovich(cutoff)(tensor([float(cutoff)])).item())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CONES)
def test_losses_keep_dtype_and_shape(name, dtype):
    t = torch.rand(2, 3, 4, dtype=dtype, generator=torch.Generator().manual_seed(0))
    out = CONES[name][0](t)
    assert out.dtype == dtype
    assert out.shape == t.shape


# --- the cone costs ---


def infimum(c, r, s, rho):
    """inf over θ ≥ 0 of θ L_c(r/θ, s/θ) = θ c + r φ1(θ/r) + s φ2(θ/s), φ = rho·(x log x − x + 1), by search."""

    def entropy(theta, r, rho):
        """r·φ(θ/r)."""
        return rho * (theta * math.log(theta / r) - theta + r)

    at_zero = rho[0] * r + rho[1] * s
    if math.isinf(c) or r == 0 or s == 0:
        return at_zero  # the cost is infinite for every θ > 0
    minimum = minimize_scalar(
        lambda u: math.exp(u) * c + entropy(math.exp(u), r, rho[0]) + entropy(math.exp(u), s, rho[1]),
        bounds=(-60.0, 10.0),
        method="bounded",
        options={"xatol": 1e-12},
    )
    return min(at_zero, minimum.fun)


@pytest.mark.parametrize("rho", [(1.0, 1.0), (0.3, 0.3), (4.0, 4.0), (0.3, 1.2)])
@pytest.mark.parametrize("name", CONES)
def test_the_cone_cost_is_the_perspective_of_the_entropic_cost(name, rho):
    cone, total = CONES[name][0], sum(rho)
    kernel = PairLoss(cone, torch.tensor([total], dtype=torch.float64))
    rng = np.random.default_rng(0)
    for t in [0.0, *rng.uniform(0.0, 2.0, 12)]:
        for r, s in [(1.0, 1.0), (0.0, 0.7), (0.7, 0.0), *rng.uniform(0.01, 3.0, (3, 2))]:
            geometric = r ** (rho[0] / total) * s ** (rho[1] / total)
            closed = rho[0] * r + rho[1] * s - total * geometric * kernel(tensor([[t]])).item()
            assert closed == pytest.approx(infimum(cone(tensor([t])).item(), r, s, rho), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("rho", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("name", CONES)
def test_the_cone_cost_is_definite(name, rho):
    # 0 where both radii are 0 or the points agree, positive everywhere else.
    numpy_loss = CONES[name][1]
    values = np.array([0.0, 0.3, 1.0, 1.7])
    t, r, s = np.meshgrid(np.array([0.0, 0.05, 0.4, 1.2, 3.0]), values, values, indexing="ij")
    cost = oracles.cone_cost(t, r, s, rho, numpy_loss)
    same = ((r == 0) & (s == 0)) | ((r == s) & (t == 0))
    assert np.abs(cost[same]).max() < 1e-14
    assert cost[~same].min() > 1e-5


@pytest.mark.parametrize(("name", "rho"), [("gaussian-hellinger", 0.05), ("gaussian-hellinger", 20.0),
                                           ("hellinger-kantorovich", 0.3), ("hellinger-kantorovich", 1.0)])  # fmt: skip
def test_the_root_of_the_cone_cost_obeys_the_triangle_inequality(name, rho):
    numpy_loss = CONES[name][1]
    rng = np.random.default_rng(1)
    u, r = rng.uniform(0.0, 2.0, (3, 20_000)), rng.uniform(0.0, 2.0, (3, 20_000))
    root = [
        np.sqrt(oracles.cone_cost(np.abs(u[i] - u[j]), r[i], r[j], rho, numpy_loss).clip(0.0))
        for i, j in ((0, 1), (1, 2), (0, 2))
    ]
    assert (root[0] + root[1] - root[2]).min() > -1e-12


def test_which_cones_and_rhos_are_metrics():
    rho = torch.tensor([0.1, 1.0, 1.0001, 4.0])
    assert GaussianHellinger().is_metric(rho).tolist() == [True] * 4
    assert HellingerKantorovich().is_metric(rho).tolist() == [True, True, False, False]
    assert Loss(torch.square).is_metric(rho).tolist() == [False] * 4


# --- parsing ---


def test_names_objects_and_functions_are_parsed():
    assert parse_loss("gaussian-hellinger", 1.0) == GaussianHellinger()
    assert parse_loss("hellinger-kantorovich", 1.0) == HellingerKantorovich()
    cone = HellingerKantorovich(2.0)
    assert parse_loss(cone, 1.0) is cone
    read = parse_loss(torch.square, 1.0)
    assert isinstance(read, Loss)
    assert read(tensor([3.0])).item() == 9.0
    assert parse_loss(Loss(torch.square), 1.0).function is torch.square
    # Infinite values are allowed.
    assert isinstance(parse_loss(lambda t: torch.where(t > 0.5, torch.inf, 0.0), 1.0), Loss)


def raise_error(t):
    """A loss function that fails."""
    raise ZeroDivisionError("no")


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ("wfr", "must be one of 'gaussian-hellinger', 'hellinger-kantorovich'"),
        (3.0, "a name, a cone or a function of tensors, got float"),
        (None, "got NoneType"),
        (np.zeros(3), "got ndarray"),
        (lambda t: -t, "must be ≥ 0, got -"),
        (lambda t: torch.where(t > 0.7, -1.0, t), "must be ≥ 0, got -1 at t = 0.7"),
        (lambda t: t * math.nan, "must not be NaN, got NaN at t = 0"),
        (lambda t: torch.where(t > 0.7, math.nan, t), "NaN at t = 0.7"),
        (lambda t: t + 1.0, "must be 0 at t = 0, got 1"),
        (lambda t: t[:3], r"shape \(2000,\) to one of the same shape, got \(3,\)"),
        (lambda t: t.sum(), r"got \(\)"),
        (lambda t: 0.0, "got float"),
        (lambda t: t.numpy(), "got ndarray"),
        (raise_error, "must be a function of tensors of any shape, failed on one of float64 distances: no"),
        (lambda t: t**2 if t.ndim == 1 else t[:, 0], r"shape \(25, 40\) to one of the same shape, got \(25,\)"),
        (lambda t: t > 0.5, "must map float64 to real numbers, float32 or float64, got bool"),
        (lambda t: (t > 0.5).long(), "got int64"),
        (lambda t: t.cumsum(-1), "must be elementwise, got two values at t = "),
        (lambda t: t / t.max(), "must be elementwise"),
        (ugw.HellingerKantorovich, r"got the class HellingerKantorovich itself: call it, HellingerKantorovich\("),
        (ugw.PartialTransport, "got the class PartialTransport itself: call it"),
    ],
    ids=label,
)
def test_bad_losses_are_refused(loss, message):
    with pytest.raises(InputError, match=f"cone .*{message}"):
        parse_loss(loss, 1.0, name="cone")


def test_a_function_is_checked_in_the_dtype_of_the_spaces():
    def float64_only_loss(t):
        """A loss function that accepts float64 only."""
        if t.dtype != torch.float64:
            raise TypeError("expected double\nand more lines")
        return t.square()

    assert isinstance(parse_loss(float64_only_loss, 1.0), Loss)
    with pytest.raises(InputError, match=r"failed on one of float32 distances: expected double$"):
        parse_loss(float64_only_loss, 1.0, dtype=torch.float32)
    # A function may return a higher precision than that of its argument.
    wide = parse_loss(lambda t: t.double().square(), 1.0, dtype=torch.float32)
    assert wide(torch.ones(2)).dtype == torch.float32
    x = ugw.Space.from_points(np.random.default_rng(0).random((5, 2)).astype(np.float32))
    for solve, name in ((ugw.solve_conic, "cone"), (ugw.solve, "loss")):
        with pytest.raises(InputError, match=f"{name} must be .* float32"):
            solve(x, x, **{name: float64_only_loss})


@pytest.mark.parametrize("number", [np.float32(1.0), np.float64(1.0), np.int64(1), 1])
def test_numbers_of_numpy_are_numbers(number):
    assert ugw.HellingerKantorovich(number) == ugw.HellingerKantorovich(1.0)
    assert ugw.PartialTransport(number) == ugw.PartialTransport(1.0)


@pytest.mark.parametrize("cutoff", [0, -1.0, math.nan, math.inf, True, "1", None, [1.0]], ids=label)
def test_a_cutoff_is_a_positive_number(cutoff):
    with pytest.raises(InputError, match="cutoff must be a number > 0, got"):
        ugw.HellingerKantorovich(cutoff)
