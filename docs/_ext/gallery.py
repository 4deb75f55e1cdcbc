"""Order and sections of the example gallery, and the state that is reset before each example."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

# Sections of the gallery and their examples, in order. Examples that are not listed appear under "More".
SECTIONS = {
    "First steps": ("moons", "graphs", "semi_relaxed", "rolled_sheet", "fused"),
    "Choosing parameters, checking results": ("effect_of_rho", "effect_of_eps", "multiple_starts", "check_convergence"),
    "Other problems": ("partial_matching", "conic_distance", "barycenters"),
    "Single cells and labels": ("single_cell", "align_anndata", "single_cell_benchmark", "pu_learning"),
    "Learning": ("debiased_flow", "fit_with_outliers", "train_generator"),
    "Many points, many spaces": ("streaming", "camels", "graph_families"),
    "More": (),
}
ORDER = [name for names in SECTIONS.values() for name in names]
CARD = re.compile(
    r'^\.\. raw:: html\n\n    <div class="sphx-glr-thumbcontainer".*\n\n\.\. only:: html\n\n'
    r"  \.\. image:: /gallery/images/thumb/sphx_glr_(\w+)_thumb",
    re.MULTILINE,
)
HEADING = """
.. raw:: html

    </div>

{name}
{line}

.. raw:: html

    <div class="sphx-glr-thumbnails">

"""


def place(path: str) -> tuple[int, str]:
    """Return the sort key of an example file: its position in SECTIONS, then its name."""
    stem = Path(path).stem
    return (ORDER.index(stem) if stem in ORDER else len(ORDER), stem)


class Order:
    """Sort key for sphinx-gallery, which creates one instance per folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, name: str) -> tuple[int, str]:
        """Return the sort key of an example, by its file name."""
        return place(name)

    def __repr__(self) -> str:
        return "Order()"


def reset(gallery_conf: dict[str, Any], name: str) -> None:
    """Turn convergence warnings into errors before each example runs, so that the build fails on them."""
    import ugw

    warnings.simplefilter("error", ugw.ConvergenceWarning)


def sections(app: Sphinx, docname: str, text: list[str]) -> None:
    """Insert the section headings between the cards of the gallery page."""
    if docname != "gallery/index":
        return
    parts, last, end = [], None, 0
    for card in CARD.finditer(text[0]):
        section = next((name for name, names in SECTIONS.items() if card[1] in names), "More")
        if section != last:
            parts += [text[0][end : card.start()], HEADING.format(name=section, line="-" * len(section))]
            last, end = section, card.start()
    text[0] = "".join([*parts, text[0][end:]])


def setup(app: Sphinx) -> dict[str, Any]:
    """Register `sections` for the gallery page."""
    app.connect("source-read", sections)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
