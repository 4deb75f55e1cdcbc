"""Functions shared by the experiments: writing of files, titles of panels."""

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


# Size in bytes above which a picture is reduced to 256 colors, to keep the documentation small.
MAX_PICTURE_BYTES = 150_000


def write_results(folder: Path, name: str, figure: Figure, numbers: Mapping[str, Any], *, dpi: int = 160) -> None:
    """Write NAME.png, with 256 colors if it would be large otherwise, and NAME.json into the folder."""
    from PIL import Image

    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=dpi, bbox_inches="tight", pad_inches=0.08)
    with Image.open(buffer) as image:
        picture = image.convert("RGB")
    if len(buffer.getvalue()) > MAX_PICTURE_BYTES:
        picture = picture.quantize(256)
    picture.save(folder / f"{name}.png", optimize=True)
    (folder / f"{name}.json").write_text(json.dumps(dict(numbers), indent=1), encoding="utf-8")


def set_heading(ax: Axes, title: str, below: str) -> None:
    """Write a bold title, and the numbers of the picture below it."""
    height = below.count("\n") + 1
    ax.set_title(title, fontsize=11, fontweight="bold", color=STYLE.ink, pad=6 + 12.5 * height)
    style = {"fontsize": 9, "color": STYLE.ink, "ha": "center", "va": "bottom", "linespacing": 1.25}
    ax.annotate(below, (0.5, 1.0), xycoords="axes fraction", xytext=(0, 4), textcoords="offset points", **style)


def uniform_weights(plan: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights 1/n, (n,), and 1/m, (m,), for a plan (n, m)."""
    n, m = plan.shape
    return np.full(n, 1 / n), np.full(m, 1 / m)


def format_rho(rho: float) -> str:
    """Return the text `ρ = 0.1`, or `ρ = ∞` for hard marginals."""
    return f"ρ = {rho:g}".replace("inf", "∞")
