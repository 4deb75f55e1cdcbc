"""Unbalanced Gromov–Wasserstein: compare metric measure spaces of any total mass."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ._utils.version import version
from .all_pairs import Method, PairwiseResult, pairwise
from .api.certificate import Tightness, tightness
from .api.config_report import show_config
from .api.conic import solve_conic
from .api.estimate import Estimate, estimate
from .api.linear import solve_linear
from .api.objective import objective
from .api.solve import solve
from .api.tuning import rho_for_mass
from .errors import ConvergenceWarning, Incomplete, InputError, NotConverged, OutOfMemory
from .geometry.space import Space
from .initializers.multistart import Multistart
from .learning.barycenter import Barycenter, BarycenterMin, barycenter
from .learning.debiased import Debiased, debiased
from .learning.implicit import solve_differentiable
from .learning.losses import CGWLoss, UGWLoss, ugw_loss
from .measures.cones import GaussianHellinger, HellingerKantorovich, Loss, PartialTransport
from .measures.divergences import KL, TV, Balanced, Mass
from .problems.build import Fused, relative
from .results.conic_result import ConicResult
from .results.records import Status
from .results.result import Result
from .solvers.alternating import AlternateMin
from .solvers.alternating_lp import AlternateLP
from .solvers.frank_wolfe import FrankWolfe
from .solvers.proximal import ProximalSchedule
from .solvers.sinkhorn import Sinkhorn

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
    "ProximalSchedule",
    "Result",
    "Sinkhorn",
    "Space",
    "Status",
    "Tightness",
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
    "show_config",
    "solve",
    "solve_conic",
    "solve_differentiable",
    "solve_linear",
    "tightness",
    "ugw_loss",
]


def __getattr__(name: str) -> Any:
    """Return the version, or import a module that needs more than torch, numpy and scipy, on first access."""
    if name == "__version__":
        return version()
    if name in ("plots", "datasets", "estimators", "experiments", "report"):
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names, including modules that are not imported yet."""
    return sorted([*__all__, "__version__"])
