"""Many spaces: every pair of them solved, on one machine or on many."""

from __future__ import annotations

from .methods import Method
from .pairwise import pairwise
from .table import PairwiseResult

__all__ = ["Method", "PairwiseResult", "pairwise"]
