"""Check that the built site loads no script, style, font or image from the network."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.util import logging

AWAY = r"""["'](?:https?:)?//[^"']+"""
LOADED = re.compile(rf"<(?:script|img|iframe|source)\b[^>]*\bsrc={AWAY}|<link\b[^>]*\bhref={AWAY}")
IMPORTED = re.compile(r"""(?:@import\s+|url\()["']?(?:https?:)?//[^"')]+""")
logger = logging.getLogger(__name__)


def check(app: Sphinx, exception: Exception | None) -> None:
    """Emit a warning for every external resource that a page or style sheet would load."""
    if exception or app.builder.format != "html":
        return
    for path in sorted(Path(app.outdir).rglob("*.html")):
        for resource in LOADED.findall(path.read_text(encoding="utf-8")):
            logger.warning("%s loads %s", path.relative_to(app.outdir), resource)
    for path in sorted(Path(app.outdir).rglob("*.css")):
        for resource in IMPORTED.findall(path.read_text(encoding="utf-8")):
            logger.warning("%s loads %s", path.relative_to(app.outdir), resource)


def setup(app: Sphinx) -> dict[str, Any]:
    """Run the check when the build is finished."""
    app.connect("build-finished", check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
