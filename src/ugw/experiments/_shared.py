"""What the experiments share: how files are written and how panels are titled."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..plots.style import STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


LARGE = 150_000  # bytes of a picture in a page


def write(folder: Path, name: str, figure: Figure, numbers: Mapping[str, Any], *, dpi: int = 160) -> None:
    """Write NAME.png, in 256 colors if it would be large otherwise, and NAME.json into the folder."""
    from PIL import Image

    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=dpi, bbox_inches="tight", pad_inches=0.08)
    with Image.open(drawn) as image:
        whole = image.convert("RGB")
    if len(drawn.getvalue()) > LARGE:
        whole = whole.quantize(256)
    whole.save(folder / f"{name}.png", optimize=True)
    (folder / f"{name}.json").write_text(json.dumps(dict(numbers), indent=1), encoding="utf-8")


def heading(ax: Axes, title: str, below: str) -> None:
    """A bold title, and under it what the picture shows in numbers."""
    height = below.count("\n") + 1
    ax.set_title(title, fontsize=11, fontweight="bold", color=STYLE.ink, pad=6 + 12.5 * height)
    style = {"fontsize": 9, "color": STYLE.ink, "ha": "center", "va": "bottom", "linespacing": 1.25}
    ax.annotate(below, (0.5, 1.0), xycoords="axes fraction", xytext=(0, 4), textcoords="offset points", **style)


def uniform(plan: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights 1/n and 1/m for a plan (n, m)."""
    n, m = plan.shape
    return np.full(n, 1 / n), np.full(m, 1 / m)


def strength(rho: float) -> str:
    """How a rho is written: ∞ where the marginals are hard."""
    return f"ρ = {rho:g}".replace("inf", "∞")
