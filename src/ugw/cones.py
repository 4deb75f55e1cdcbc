"""Losses λ(t) of the difference t of two distances, and the cones they span."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .errors import InputError


@dataclass(frozen=True)
class GaussianHellinger:
    """λ(t) = t²: the conic distance is a metric for every rho."""

    def __call__(self, t: Tensor) -> Tensor:
        """λ at t ≥ 0, elementwise."""
        return t.square()

    def is_metric(self, rho: Tensor) -> Tensor:
        """(B,) bool: does the conic distance obey the triangle inequality? rho: (B,)."""
        return torch.ones_like(rho, dtype=torch.bool)


@dataclass(frozen=True)
class HellingerKantorovich:
    """λ(t) = −log cos²(π t / 2 cutoff), infinite from the cutoff on (Wasserstein–Fisher–Rao): a metric for rho ≤ 1."""

    cutoff: float = 0.5 * math.pi

    def __post_init__(self) -> None:
        if not isinstance(self.cutoff, int | float) or not 0.0 < self.cutoff < math.inf:
            raise InputError(f"cutoff must be a number > 0, got {self.cutoff!r}")

    def __call__(self, t: Tensor) -> Tensor:
        """λ at t ≥ 0, elementwise; +inf from the cutoff on."""
        near = -2.0 * torch.cos((t * (0.5 * math.pi / self.cutoff)).clamp(max=0.5 * math.pi)).log()
        return torch.where(t < self.cutoff, near, torch.inf)

    def is_metric(self, rho: Tensor) -> Tensor:
        """(B,) bool: does the conic distance obey the triangle inequality? rho: (B,)."""
        return rho <= 1.0


@dataclass(frozen=True, eq=False)
class Loss:
    """λ given as a function of tensors: λ(0) = 0, λ ≥ 0, +inf allowed. Whether its cone is a metric is not known."""

    function: Callable[[Tensor], Tensor]

    def __call__(self, t: Tensor) -> Tensor:
        """λ at t ≥ 0, elementwise."""
        return self.function(t)

    def is_metric(self, rho: Tensor) -> Tensor:
        """(B,) bool: False, since nothing is known."""
        return torch.zeros_like(rho, dtype=torch.bool)


Cone = GaussianHellinger | HellingerKantorovich | Loss
NAMED = {"gaussian-hellinger": GaussianHellinger, "hellinger-kantorovich": HellingerKantorovich}
# Points at which a given function is tried.
TRIED = 2000


def read_loss(loss: Any, longest: float, *, name: str = "loss") -> Cone:
    """A cone given by name, as an object, or as a function of tensors, which is tried on [0, longest]."""
    if isinstance(loss, str):
        if loss not in NAMED:
            raise InputError(f"{name} must be one of {', '.join(map(repr, NAMED))} or a function, got {loss!r}")
        return NAMED[loss]()
    if isinstance(loss, GaussianHellinger | HellingerKantorovich):
        return loss
    given = loss.function if isinstance(loss, Loss) else loss
    if not callable(given):
        raise InputError(f"{name} must be a name, a cone or a function of tensors, got {type(loss).__name__}")
    t = torch.linspace(0.0, longest, TRIED, dtype=torch.float64)
    try:
        values = given(t)
    except Exception as error:  # whatever a user's function raises
        raise InputError(f"{name} failed on a tensor of distances: {error}") from error
    _check_values(name, t, values)
    return Loss(given)


def _check_values(name: str, t: Tensor, values: Any) -> None:
    if not isinstance(values, Tensor) or values.shape != t.shape:
        got = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise InputError(f"{name} must map a tensor of shape {tuple(t.shape)} to one of the same shape, got {got}")
    if bool(torch.isnan(values).any()):
        raise InputError(f"{name} must not be NaN, got NaN at t = {float(t[torch.isnan(values)][0]):.6g}")
    if bool((values < 0).any()):
        where = values < 0
        raise InputError(f"{name} must be ≥ 0, got {float(values[where][0]):.6g} at t = {float(t[where][0]):.6g}")
    if float(values[0]) != 0.0:
        raise InputError(f"{name} must be 0 at t = 0, got {float(values[0]):.6g}")
