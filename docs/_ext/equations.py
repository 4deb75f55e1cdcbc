r"""Mathematics without a network: LaTeX becomes MathML when the site is built, which current browsers draw themselves.

Sphinx would load MathJax from a server, and its other renderer needs LaTeX. A display equation may end with
\tag{4.2}; it gets the anchor #eq-4.2 of its page, and "eq. (4.2)" anywhere on the site is a link to it. Git hosts
understand the same source.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging

PAGE = "mathematics"  # where all tagged equations are
TAG = re.compile(r"\\tag\{([^}]*)\}")
REFERENCE = re.compile(r"([Ee]qs?\. )((?:\(\d+\.\d+\)(?:, | and )?)+)")
NUMBER = re.compile(r"\((\d+\.\d+)\)")
logger = logging.getLogger(__name__)


def mathml(source: str, display: str) -> str:
    """MathML of a formula; `aligned` is the name that Git hosts know for what the converter calls `split`."""
    made = convert(re.sub(r"(begin|end)\{aligned\}", r"\1{split}", source), display=display)
    return re.sub(r"&(?![#\w]+;)", "&amp;", made)


def inline(writer: Any, node: nodes.math) -> None:
    """Write a formula in a line of text."""
    writer.body.append(mathml(node.astext(), "inline"))
    raise nodes.SkipNode


def display(writer: Any, node: nodes.math_block) -> None:
    """Write a formula on its own, with its number where it has one."""
    source = node.astext()
    tag = TAG.search(source)
    body = mathml(TAG.sub("", source).strip(), "block")
    if tag:
        name = f"eq-{tag[1]}"
        number = f'<a class="eqno" href="#{name}" title="Link to this equation">({tag[1]})</a>'
        writer.body.append(f'<div class="equation" id="{name}">{body}{number}</div>\n')
    else:
        writer.body.append(f'<div class="equation">{body}</div>\n')
    raise nodes.SkipNode


def collect(app: Sphinx, doctree: nodes.document) -> None:
    """Remember which equations the page of mathematics has."""
    if app.env.docname == PAGE:
        tags = [tag for block in doctree.findall(nodes.math_block) for tag in TAG.findall(block.astext())]
        for tag in {tag for tag in tags if tags.count(tag) > 1}:
            logger.warning("equation (%s) is there twice", tag, location=PAGE)
        app.env.ugw_equations = set(tags)


def merge(app: Sphinx, env: Any, docnames: list[str], other: Any) -> None:
    """Take over what another process has read."""
    if PAGE in docnames:
        env.ugw_equations = other.ugw_equations


def link(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Make "eq. (4.2)" a link, and warn where there is no such equation."""
    known = getattr(app.env, "ugw_equations", set())
    for text in list(doctree.findall(nodes.Text)):
        if isinstance(text.parent, (nodes.literal, nodes.literal_block, nodes.reference, nodes.math, nodes.math_block)):
            continue
        if REFERENCE.search(text):
            text.parent.replace(text, list(_linked(app, str(text), docname, known)))


def _linked(app: Sphinx, text: str, docname: str, known: set[str]) -> Any:
    place = 0
    for found in REFERENCE.finditer(text):
        for number in NUMBER.finditer(text, found.start(2), found.end(2)):
            if number[1] not in known:
                logger.warning("there is no equation (%s)", number[1], location=docname)
                continue
            yield nodes.Text(text[place : number.start()])
            target = "" if docname == PAGE else app.builder.get_relative_uri(docname, PAGE)
            yield nodes.reference("", number[0], internal=True, refuri=f"{target}#eq-{number[1]}")
            place = number.end()
    yield nodes.Text(text[place:])


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer and the links."""
    app.add_html_math_renderer("mathml", (inline, None), (display, None))
    app.connect("doctree-read", collect)
    app.connect("env-merge-info", merge)
    app.connect("doctree-resolved", link)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
