"""Conversion of plain-text docstrings to reStructuredText for autodoc.

Indented lines are formulas and become literal blocks, lines that begin with the name of a parameter become a list,
public names in backticks become links, and characters with a special meaning in reStructuredText are escaped.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

import ugw

MODULES = [name for name in ugw.__all__ if inspect.ismodule(getattr(ugw, name))]  # plots, datasets, …
# Classes that users do not construct themselves; their constructors are not documented.
NOT_CONSTRUCTED = {"Space", "Result", "ConicResult", "Barycenter", "Debiased", "Estimate", "Candidate"}
DOCS = Path(__file__).resolve().parents[1]


def public_names() -> dict[str, str]:
    """Map every spelling of a public name to its documented name: solve and ugw.solve -> ugw.solve."""
    names = {name: f"ugw.{name}" for name in ugw.__all__ if name not in MODULES}
    for module in MODULES:
        names |= {f"{module}.{name}": f"ugw.{module}.{name}" for name in getattr(ugw, module).__all__}
    return names | {full: full for full in names.values()}


NAMES = public_names()


def source(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Convert the lines of one docstring in place (handler of autodoc-process-docstring)."""
    try:
        parameters = set(inspect.signature(obj).parameters) if callable(obj) else set()
    except (TypeError, ValueError):
        parameters = set()
    lines[:] = list(rewrite_lines(lines, parameters))


def rewrite_lines(lines: Iterable[str], parameters: set[str]) -> Iterable[str]:
    """Yield the lines of a docstring as reStructuredText."""
    kind = "text"  # kind of the current paragraph: text, example, formula or parameters
    after_blank = True
    for line in lines:
        if not line.strip():
            after_blank = True
            yield ""
            continue
        if after_blank:
            kind, before = _kind(line), kind
            if kind == "formula" and before != "formula":
                yield from ("::", "")
        after_blank = False
        if kind in ("formula", "example"):
            yield line
            continue
        match = re.match(r"([a-z_]\w*(?:, [a-z_]\w*)*): ", line)
        if match and parameters.issuperset(match[1].split(", ")):
            if kind == "text":
                yield ""
            kind = "parameters"
            yield f"- **{match[1]}**: {escape_markup(line[match.end() :])}"
        else:
            yield ("  " if kind == "parameters" else "") + escape_markup(line)


def _kind(line: str) -> str:
    """Return the kind of the paragraph that begins with this line: example, formula or text."""
    if line.lstrip().startswith(">>>"):
        return "example"
    return "formula" if line.startswith("    ") else "text"


def escape_markup(line: str) -> str:
    """Return a line of text with code in backticks, names of pages as links, and all other markup escaped."""
    parts = line.split("`")
    for k, part in enumerate(parts):
        if k % 2:
            call = re.fullmatch(r"(ugw\.)?([\w.]+)(\(.*\))?", part)
            target = NAMES.get(call[2]) if call else None
            parts[k] = f":py:obj:`{part} <{target}>`" if target and "<" not in part else f"``{part}``"
        else:
            parts[k] = re.sub(r"docs/(\w+)\.md", _page, re.sub(r"([\\*|]|_(?=\W|$))", r"\\\1", part))
    for k in range(2, len(parts), 2):  # inline markup must be separated from a following letter
        parts[k] = "\\ " * parts[k][:1].isalnum() + parts[k]
    return "".join(parts)


def _page(match: re.Match[str]) -> str:
    """Return a link to a documentation page, or the matched text if there is no such page."""
    return f":doc:`/{match[1]}`" if (DOCS / f"{match[1]}.md").exists() else match[0]


def signature(app: Sphinx, what: str, name: str, obj: Any, *rest: Any) -> tuple[str, str | None] | None:
    """Hide the constructor signatures of the classes in NOT_CONSTRUCTED."""
    return ("", None) if what == "class" and name.rsplit(".", 1)[-1] in NOT_CONSTRUCTED else None


def skip(app: Sphinx, what: str, name: str, obj: Any, skipped: bool, options: Any) -> bool | None:  # noqa: FBT001
    """Skip methods that scikit-learn adds to estimators, and internal methods of solvers."""
    return True if name in ("run", "with_random", "get_metadata_routing") or name.endswith("_request") else None


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the handlers to autodoc."""
    app.connect("autodoc-process-docstring", source)
    app.connect("autodoc-process-signature", signature)
    app.connect("autodoc-skip-member", skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
