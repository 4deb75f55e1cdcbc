"""Unbalanced Gromov–Wasserstein: compare metric measure spaces of any total mass."""

from __future__ import annotations

from .api import objective, solve
from .calibrate import rho_for_mass
from .divergences import KL, Balanced
from .errors import ConvergenceWarning, InputError, NotConverged
from .multistart import Multistart
from .parameters import Fused, relative
from .result import Result, Status
from .solvers.alternate import AlternateMin
from .solvers.sinkhorn import Sinkhorn
from .spaces import Space

__all__ = [
    "KL",
    "AlternateMin",
    "Balanced",
    "ConvergenceWarning",
    "Fused",
    "InputError",
    "Multistart",
    "NotConverged",
    "Result",
    "Sinkhorn",
    "Space",
    "Status",
    "objective",
    "relative",
    "rho_for_mass",
    "solve",
]
