"""Many spaces: every pair of them solved, on one machine or on many."""

from __future__ import annotations

from .front import pairwise
from .methods import Method
from .result import PairwiseResult

__all__ = ["Method", "PairwiseResult", "pairwise"]
