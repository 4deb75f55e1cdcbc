"""Unbalanced Gromov–Wasserstein: compare metric measure spaces of any total mass."""

from __future__ import annotations

TYPE_CHECKING = False  # as in `typing`, whose import would take longer than all the rest of this file

if TYPE_CHECKING:
    from typing import Any

    from . import datasets, estimators, plots, report
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

# The module of each public object. It is imported at the first access of the name, so that `import ugw` and the command
# line start fast: torch alone takes most of a second.
_MODULES = {
    "KL": "measures.divergences",
    "TV": "measures.divergences",
    "AlternateLP": "solvers.alternating_lp",
    "AlternateMin": "solvers.alternating",
    "Balanced": "measures.divergences",
    "Barycenter": "learning.barycenter",
    "BarycenterMin": "learning.barycenter",
    "CGWLoss": "learning.losses",
    "ConicResult": "results.conic_result",
    "ConvergenceWarning": "errors",
    "Debiased": "learning.debiased",
    "Estimate": "api.estimate",
    "FrankWolfe": "solvers.frank_wolfe",
    "Fused": "problems.build",
    "GaussianHellinger": "measures.cones",
    "HellingerKantorovich": "measures.cones",
    "Incomplete": "errors",
    "InputError": "errors",
    "Loss": "measures.cones",
    "Mass": "measures.divergences",
    "Method": "all_pairs",
    "Multistart": "initializers.multistart",
    "NotConverged": "errors",
    "OutOfMemory": "errors",
    "PairwiseResult": "all_pairs",
    "PartialTransport": "measures.cones",
    "ProximalSchedule": "solvers.proximal",
    "Result": "results.result",
    "Sinkhorn": "solvers.sinkhorn",
    "Space": "geometry.space",
    "Status": "results.records",
    "Tightness": "api.certificate",
    "UGWLoss": "learning.losses",
    "barycenter": "learning.barycenter",
    "debiased": "learning.debiased",
    "estimate": "api.estimate",
    "objective": "api.objective",
    "pairwise": "all_pairs",
    "relative": "problems.build",
    "rho_for_mass": "api.tuning",
    "show_config": "api.config_report",
    "solve": "api.solve",
    "solve_conic": "api.conic",
    "solve_differentiable": "learning.implicit",
    "solve_linear": "api.linear",
    "tightness": "api.certificate",
    "ugw_loss": "learning.losses",
}
# Modules of this package that are attributes of it: those in `__all__`, and `errors` and `experiments`.
_SUBMODULES = ("datasets", "errors", "estimators", "experiments", "plots", "report")


def __getattr__(name: str) -> Any:
    """Return the version, or the public object or module `name`, imported on first access; raise if there is none."""
    from importlib import import_module

    if name == "__version__":
        from ._utils.version import version

        return version()
    if name in _SUBMODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value  # found without this function from now on
    return value


def __dir__() -> list[str]:
    """Return the public names, including those that are not imported yet."""
    return sorted([*__all__, "__version__"])
