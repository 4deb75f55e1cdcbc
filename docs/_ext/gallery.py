"""How the gallery runs the examples: their order, and what they must not do."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

# From the first steps to whole pipelines. What is not named here comes last.
ORDER = (
    "moons",
    "graphs",
    "part_of_whole",
    "rolled_sheet",
    "fused",
    "mass_rule",
    "blur",
    "honest",
    "starts",
    "partial",
    "conic",
    "cells",
    "align_anndata",
    "single_cell",
    "positives",
    "streaming",
    "debiased_flow",
    "align",
    "generate",
    "barycentres",
)


class Order:
    """Sort key of a file name."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, name: str) -> tuple[int, str]:
        """Where an example comes."""
        stem = Path(name).stem
        return (ORDER.index(stem) if stem in ORDER else len(ORDER), stem)

    def __repr__(self) -> str:
        return "Order()"


def reset(gallery_conf: dict[str, Any], name: str) -> None:
    """Before each example: a warning that no solve converged must not pass unseen."""
    import ugw

    warnings.simplefilter("error", ugw.ConvergenceWarning)
