"""Values of all pairs of many spaces, on one machine or on several."""

from __future__ import annotations

from .front import pairwise
from .methods import Method
from .result import PairwiseResult

__all__ = ["Method", "PairwiseResult", "pairwise"]
