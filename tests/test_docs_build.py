"""Extensions of the documentation site: formulas, docstrings, sections of the gallery, external resources."""

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

pytest.importorskip("sphinx")
EXTENSIONS = Path(__file__).resolve().parents[1] / "docs" / "_ext"


@pytest.fixture
def extension(monkeypatch):
    monkeypatch.syspath_prepend(str(EXTENSIONS))

    def load(name):
        sys.modules.pop(name, None)
        return importlib.import_module(name)

    return load


def test_every_formula_becomes_mathml(extension):
    pytest.importorskip("latex2mathml")
    equations = extension("equations")
    pages = EXTENSIONS.parent.glob("*.md")
    formulas = [part for page in pages for part in page.read_text(encoding="utf-8").split("$$")[1::2]]
    assert len(formulas) > 30
    for formula in formulas:
        markup = equations.mathml(equations.TAG.sub("", formula).strip(), "block")
        ElementTree.fromstring(markup)  # well formed
        assert "\\" not in markup, formula
        assert ("<mtable" in markup) == ("aligned" in formula)


def test_references_to_equations_become_links(extension):
    equations = extension("equations")
    app = SimpleNamespace(builder=SimpleNamespace(get_relative_uri=lambda here, there: f"../{there}.html"))
    known = {"1.2": "mathematics", "9.1": "learning"}
    parts = list(equations.link_nodes(app, "by eqs. (1.2) and (9.1), not (1.2)", "learning", known))
    assert "".join(part.astext() for part in parts) == "by eqs. (1.2) and (9.1), not (1.2)"
    assert [part["refuri"] for part in parts if hasattr(part, "attributes")] == [
        "../mathematics.html#eq-1.2",
        "#eq-9.1",
    ]


def test_docstrings_become_text_lists_and_literal_blocks(extension):
    docstrings = extension("docstrings")
    lines = [
        "A |name_| with a * and `solve`, see docs/partial.md.",
        "",
        "    F = p * q | a",
        "",
        "rho: a price, as for `solve(x)`,",
        "also a pair.",
        "other: not a parameter.",
        "",
        ">>> 2 * 2",
        "4",
    ]
    assert list(docstrings.rewrite_lines(lines, {"rho"})) == [
        r"A \|name\_\| with a \* and :py:obj:`solve <ugw.solve>`, see :doc:`/partial`.",
        "",
        "::",
        "",
        "    F = p * q | a",
        "",
        "",
        "- **rho**: a price, as for :py:obj:`solve(x) <ugw.solve>`,",
        "  also a pair.",
        "  other: not a parameter.",
        "",
        ">>> 2 * 2",
        "4",
    ]


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ('<script src="https://cdn.example.org/x.js"></script>', True),
        ('<link rel="stylesheet" href="//example.org/x.css" />', True),
        ('<img alt="" src="_images/x.png"/> <a href="https://example.org">a link is read, not loaded</a>', False),
    ],
)
def test_external_resources_of_a_page_are_detected(extension, page, expected):
    assert bool(extension("offline").LOADED.search(page)) == expected


def test_the_gallery_has_headings_between_its_cards(extension):
    gallery = extension("gallery")
    card = (
        '.. raw:: html\n\n    <div class="sphx-glr-thumbcontainer" tooltip="x">\n\n.. only:: html\n\n'
        "  .. image:: /gallery/images/thumb/sphx_glr_{}_thumb.png\n    :alt:\n\n"
    )
    text = ["start\n\n" + "".join(card.format(name) for name in ("moons", "graphs", "effect_of_eps", "unheard_of"))]
    gallery.sections(None, "gallery/index", text)
    places = [
        text[0].index(part)
        for part in ("First steps\n-", "moons", "graphs", "Choosing parameters", "effect_of_eps", "More\n-", "unheard")
    ]
    assert places == sorted(places)
    assert sorted(["unheard_of.py", "effect_of_eps.py", "moons.py"], key=gallery.place) == [
        "moons.py",
        "effect_of_eps.py",
        "unheard_of.py",
    ]


def test_the_sections_name_examples_that_exist(extension):
    names = {path.stem for path in (EXTENSIONS.parents[1] / "examples").glob("*.py")}
    assert not set(extension("gallery").ORDER) - names
