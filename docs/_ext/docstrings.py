"""Docstrings are plain text with `names` and indented formulas; here they become reStructuredText.

Indented lines are formulas and stay as they are, lines that begin with the name of a parameter become a list, names
in backticks that are public become links, and signs that mean something in reStructuredText are kept from doing so.
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
# Classes that other functions make: how they are put together is nobody's business.
MADE_ELSEWHERE = {"Space", "Result", "ConicResult", "Barycenter", "Debiased", "Estimate", "Candidate"}
DOCS = Path(__file__).resolve().parents[1]


def public() -> dict[str, str]:
    """Every way to spell a public name, and where it is documented: solve and ugw.solve -> ugw.solve."""
    names = {name: f"ugw.{name}" for name in ugw.__all__ if name not in MODULES}
    for module in MODULES:
        names |= {f"{module}.{name}": f"ugw.{module}.{name}" for name in getattr(ugw, module).__all__}
    return names | {full: full for full in names.values()}


NAMES = public()


def source(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Rewrite the lines of one docstring in place."""
    try:
        parameters = set(inspect.signature(obj).parameters) if callable(obj) else set()
    except (TypeError, ValueError):
        parameters = set()
    lines[:] = list(rewritten(lines, parameters))


def rewritten(lines: Iterable[str], parameters: set[str]) -> Iterable[str]:
    """reStructuredText of a docstring's lines."""
    kind = "text"  # of the paragraph: text, example, formula, parameters
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
        named = re.match(r"([a-z_]\w*(?:, [a-z_]\w*)*): ", line)
        if named and parameters.issuperset(named[1].split(", ")):
            if kind == "text":
                yield ""
            kind = "parameters"
            yield f"- **{named[1]}**: {escaped(line[named.end() :])}"
        else:
            yield ("  " if kind == "parameters" else "") + escaped(line)


def _kind(line: str) -> str:
    if line.lstrip().startswith(">>>"):
        return "example"
    return "formula" if line.startswith("    ") else "text"


def escaped(line: str) -> str:
    """A line of text: code in backticks, pages as links, nothing else with a meaning of its own."""
    parts = line.split("`")
    for k, part in enumerate(parts):
        if k % 2:
            call = re.fullmatch(r"(ugw\.)?([\w.]+)(\(.*\))?", part)
            target = NAMES.get(call[2]) if call else None
            parts[k] = f":py:obj:`{part} <{target}>`" if target and "<" not in part else f"``{part}``"
        else:
            parts[k] = re.sub(r"docs/(\w+)\.md", _page, re.sub(r"([\\*|]|_(?=\W|$))", r"\\\1", part))
    for k in range(2, len(parts), 2):  # markup must stand apart from what follows it
        parts[k] = "\\ " * parts[k][:1].isalnum() + parts[k]
    return "".join(parts)


def _page(found: re.Match[str]) -> str:
    return f":doc:`/{found[1]}`" if (DOCS / f"{found[1]}.md").exists() else found[0]


def signature(app: Sphinx, what: str, name: str, obj: Any, *rest: Any) -> tuple[str, str | None] | None:
    """Hide the constructors of classes that are made elsewhere."""
    return ("", None) if what == "class" and name.rsplit(".", 1)[-1] in MADE_ELSEWHERE else None


def skip(app: Sphinx, what: str, name: str, obj: Any, skipped: bool, options: Any) -> bool | None:  # noqa: FBT001
    """Leave out what scikit-learn adds to estimators, and how solvers call each other."""
    return True if name in ("run", "with_random", "get_metadata_routing") or name.endswith("_request") else None


def setup(app: Sphinx) -> dict[str, Any]:
    """Hook into autodoc."""
    app.connect("autodoc-process-docstring", source)
    app.connect("autodoc-process-signature", signature)
    app.connect("autodoc-skip-member", skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
