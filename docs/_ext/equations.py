r"""Conversion of LaTeX formulas to MathML at build time, so that the site needs no network.

Sphinx would load MathJax from a server, and its other renderer needs LaTeX. A display equation may end with
\tag{4.2}; it gets the anchor #eq-4.2 of its page, and "eq. (4.2)" anywhere on the site is a link to it. Git hosts
render the same source. Not every system has a font for MathML, so the site includes one: a subset of
STIX Two Math (SIL Open Font License) from the package ziamath.
"""

from __future__ import annotations

import logging as plain
import re
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from docutils import nodes
from fontTools import subset
from fontTools.ttLib import TTFont
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging

TAG = re.compile(r"\\tag\{([^}]*)\}")
REFERENCE = re.compile(r"([Ee]qs?\. )((?:\(\d+\.\d+\)(?:, | and )?)+)")
NUMBER = re.compile(r"\((\d+\.\d+)\)")
# Function names are separated from what precedes and follows them, except from brackets and operators.
BEFORE = re.compile(r"(</(?:mi|mn|msub|msup|msubsup)>)(<m[io]>(?:log|exp)</m[io]>)")
AFTER = re.compile(r"(<m[io]>(?:log|exp|sign)</m[io]>)(?!<mo|</m)")
# Unicode ranges that formulas may use: letters, Greek, accents, operators, arrows, brackets, italics.
GLYPHS = "20-7e a0-ff 2b0-3ff 2000-209f 2100-214f 2190-22ff 2308-230b 27e8-27e9 1d434-1d467 1d6a4-1d71b"
logger = logging.getLogger(__name__)


def mathml(source: str, display: str) -> str:
    """Return the MathML of a formula. Git hosts use `aligned` for the environment that the converter calls `split`."""
    markup = convert(re.sub(r"(begin|end)\{aligned\}", r"\1{split}", source), display=display)
    markup = BEFORE.sub(r'\1<mspace width="0.17em" />\2', markup)
    markup = AFTER.sub(r'\1<mspace width="0.17em" />', markup)
    if "\\" in markup:  # a command that the converter does not know
        logger.warning("cannot draw %s in %s", re.findall(r"\\\w*", markup)[0], source)
    return re.sub(r"&(?![#\w]+;)", "&amp;", markup)


def inline(writer: Any, node: nodes.math) -> None:
    """Write an inline formula."""
    writer.body.append(mathml(node.astext(), "inline"))
    raise nodes.SkipNode


def display(writer: Any, node: nodes.math_block) -> None:
    """Write a display formula, with its number if it has one."""
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


def forget(app: Sphinx, env: Any, docname: str) -> None:
    """Remove the equations of a page that is read again."""
    env.ugw_equations = {tag: page for tag, page in getattr(env, "ugw_equations", {}).items() if page != docname}


def collect(app: Sphinx, doctree: nodes.document) -> None:
    """Record the page of each numbered equation."""
    pages, page = app.env.ugw_equations, app.env.docname
    for block in doctree.findall(nodes.math_block):
        for tag in TAG.findall(block.astext()):
            if tag in pages:
                logger.warning("equation (%s) is defined twice, first on %s", tag, pages[tag], location=block)
            pages[tag] = page


def merge(app: Sphinx, env: Any, docnames: list[str], other: Any) -> None:
    """Merge the equations that another build process has collected."""
    env.ugw_equations |= {tag: page for tag, page in other.ugw_equations.items() if page in docnames}


def link(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Replace "eq. (4.2)" by a link, and warn if there is no such equation."""
    known = app.env.ugw_equations
    for text in list(doctree.findall(nodes.Text)):
        if isinstance(text.parent, (nodes.literal, nodes.literal_block, nodes.reference, nodes.math, nodes.math_block)):
            continue
        if REFERENCE.search(text):
            text.parent.replace(text, list(link_nodes(app, str(text), docname, known)))


def link_nodes(app: Sphinx, text: str, docname: str, known: dict[str, str]) -> Any:
    """Yield the text and link nodes of a text with references to equations."""
    place = 0
    for reference in REFERENCE.finditer(text):
        for number in NUMBER.finditer(text, reference.start(2), reference.end(2)):
            if number[1] not in known:
                logger.warning("there is no equation (%s)", number[1], location=docname)
                continue
            yield nodes.Text(text[place : number.start()])
            page = known[number[1]]
            target = "" if docname == page else app.builder.get_relative_uri(docname, page)
            yield nodes.reference("", number[0], internal=True, refuri=f"{target}#eq-{number[1]}")
            place = number.end()
    yield nodes.Text(text[place:])


def font(app: Sphinx, exception: Exception | None) -> None:
    """Write the font of the site, with the glyphs that formulas use."""
    if exception or app.builder.format != "html":
        return
    with as_file(files("ziamath") / "fonts" / "STIXTwoMath-Regular.ttf") as path, TTFont(path) as face:
        plain.getLogger("fontTools").setLevel(plain.WARNING)
        options = subset.Options(layout_features=["ssty"])
        subsetter = subset.Subsetter(options)
        ends = [[int(end, 16) for end in part.split("-")] for part in GLYPHS.split()]
        subsetter.populate(unicodes=[code for first, last in ends for code in range(first, last + 1)])
        subsetter.subset(face)
        face.flavor = "woff"
        face.save(Path(app.outdir) / "_static" / "math.woff")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the math renderer and the handlers of equation links."""
    app.add_html_math_renderer("mathml", (inline, None), (display, None))
    app.connect("env-purge-doc", forget)
    app.connect("doctree-read", collect)
    app.connect("env-merge-info", merge)
    app.connect("doctree-resolved", link)
    app.connect("build-finished", font)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
