"""Unbalanced Gromov–Wasserstein: compare metric measure spaces of any total mass."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ._version import version
from .api import estimate, objective, solve, solve_conic
from .barycenters import Barycenter, BarycenterMin, barycenter
from .calibrate import rho_for_mass
from .certify import tightness
from .cones import GaussianHellinger, HellingerKantorovich, Loss, PartialTransport
from .conic_result import ConicResult
from .debias import Debiased, debiased
from .divergences import KL, TV, Balanced, Mass
from .errors import ConvergenceWarning, Incomplete, InputError, NotConverged, OutOfMemory
from .implicit import solve_differentiable
from .linear import solve_linear
from .loss import CGWLoss, UGWLoss, ugw_loss
from .many import Method, PairwiseResult, pairwise
from .memory import Estimate
from .multistart import Multistart
from .parameters import Fused, relative
from .records import Status
from .result import Result
from .solvers.alternate import AlternateMin
from .solvers.frank_wolfe import FrankWolfe
from .solvers.programs import AlternateLP
from .solvers.sinkhorn import Sinkhorn
from .spaces import Space

__all__ = [
    "KL",
    "TV",
    "AlternateLP",
    "AlternateMin",
    "Balanced",
    "Barycenter",
    "BarycenterMin",
    "CGWLoss",
    "ConicResult",
    "ConvergenceWarning",
    "Debiased",
    "Estimate",
    "FrankWolfe",
    "Fused",
    "GaussianHellinger",
    "HellingerKantorovich",
    "Incomplete",
    "InputError",
    "Loss",
    "Mass",
    "Method",
    "Multistart",
    "NotConverged",
    "OutOfMemory",
    "PairwiseResult",
    "PartialTransport",
    "Result",
    "Sinkhorn",
    "Space",
    "Status",
    "UGWLoss",
    "barycenter",
    "datasets",
    "debiased",
    "estimate",
    "estimators",
    "objective",
    "pairwise",
    "plots",
    "relative",
    "report",
    "rho_for_mass",
    "solve",
    "solve_conic",
    "solve_differentiable",
    "solve_linear",
    "tightness",
    "ugw_loss",
]


def __getattr__(name: str) -> Any:
    """Modules that need more than torch, numpy and scipy load on first touch, and the version is then looked up."""
    if name == "__version__":
        return version()
    if name in ("plots", "datasets", "estimators", "experiments", "report"):
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, also of modules that have not been loaded yet."""
    return sorted([*__all__, "__version__"])
