"""How the gallery runs the examples: their order, their arguments, and how sharp their pictures are."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

# From the first steps to whole pipelines. What is not named here comes last.
ORDER = (
    "moons",
    "communities",
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


class Arguments:
    """What an example is called with: those that write their picture to a folder get one that nobody keeps."""

    def __call__(self, gallery_conf: dict[str, Any], script_vars: dict[str, Any]) -> list[str]:
        """The arguments of one example."""
        writes = "sys.argv[1:2]" in Path(script_vars["src_file"]).read_text(encoding="utf-8")
        return [tempfile.mkdtemp(prefix="ugw-docs-")] if writes else []

    def __repr__(self) -> str:
        return "Arguments()"


arguments = Arguments()


def reset(gallery_conf: dict[str, Any], name: str) -> None:
    """Before each example: a warning that no solve converged must not pass unseen."""
    import ugw

    warnings.simplefilter("error", ugw.ConvergenceWarning)
