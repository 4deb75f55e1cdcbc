"""The names of starts. The command line reads them without importing torch."""

from __future__ import annotations

INIT_NAMES = ("auto", "best", "product", "flb", "linear", "random", "coarse")
