"""How the gallery runs and orders the examples."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

# From the first steps to whole pipelines. What is not named here comes in a section of its own at the end.
SECTIONS = {
    "First steps": ("moons", "graphs", "part_of_whole", "rolled_sheet", "fused"),
    "Choosing, and trusting": ("mass_rule", "blur", "starts", "honest"),
    "Other problems": ("partial", "conic", "barycenters"),
    "Cells and labels": ("cells", "align_anndata", "single_cell", "positives"),
    "Learning": ("debiased_flow", "align", "generate"),
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
    """Sort key of an example, by its file name."""
    stem = Path(path).stem
    return (ORDER.index(stem) if stem in ORDER else len(ORDER), stem)


class Order:
    """The same as sphinx-gallery wants it: a key for each folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, name: str) -> tuple[int, str]:
        """Where an example comes."""
        return place(name)

    def __repr__(self) -> str:
        return "Order()"


def reset(gallery_conf: dict[str, Any], name: str) -> None:
    """Before each example: a solve that did not converge must not pass unseen."""
    import ugw

    warnings.simplefilter("error", ugw.ConvergenceWarning)


def sections(app: Sphinx, docname: str, text: list[str]) -> None:
    """Put headings between the cards of the gallery."""
    if docname != "gallery/index":
        return
    made, last, end = [], None, 0
    for card in CARD.finditer(text[0]):
        section = next((name for name, names in SECTIONS.items() if card[1] in names), "More")
        if section != last:
            made += [text[0][end : card.start()], HEADING.format(name=section, line="-" * len(section))]
            last, end = section, card.start()
    text[0] = "".join([*made, text[0][end:]])


def setup(app: Sphinx) -> dict[str, Any]:
    """Read the gallery's page through `sections`."""
    app.connect("source-read", sections)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
