"""Documentation: equation numbers, links, printed output of code blocks, and completeness of the API page."""

import contextlib
import inspect
import io
import re
from pathlib import Path

import numpy as np
import pytest

import ugw

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
CODE = sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")])
LAZY = [name for name in ugw.__all__ if inspect.ismodule(getattr(ugw, name))]  # plots, datasets, …

# -- equations ---------------------------------------------------------------------------------------------


def tags(text):
    """Return the numbers of the equations that a text defines."""
    return re.findall(r"\\tag\{(\d+\.\d+)\}", text)


def references(text):
    """Return the numbers in references such as "eq. (1.2)" or "Eqs. (4.1), (4.2) and (4.3)", also across lines."""
    groups = re.findall(r"\b[Ee]qs?\.\s((?:\(\d+\.\d+\)(?:, |,?\s(?:and\s)?)?)+)", text)
    return [number for group in groups for number in re.findall(r"\d+\.\d+", group)]


KNOWN = {tag: page.name for page in PAGES for tag in tags(page.read_text(encoding="utf-8"))}


def test_references_are_read_in_all_their_forms():
    assert references("see eq. (1.2), and Eqs. (4.1), (4.2) and (4.3); not (5.1)") == ["1.2", "4.1", "4.2", "4.3"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_equations_are_numbered_in_order(page):
    numbers = [tuple(map(int, tag.split("."))) for tag in tags(page.read_text(encoding="utf-8"))]
    for before, after in zip([(0, 0), *numbers], numbers, strict=False):
        follows = after == (before[0], before[1] + 1)
        assert follows or (after[1] == 1 and after[0] > before[0]), f"({after[0]}.{after[1]}) comes after {before}"


def test_no_equation_is_numbered_twice():
    numbers = [tag for page in PAGES for tag in tags(page.read_text(encoding="utf-8"))]
    assert len(numbers) == len(set(numbers))
    assert len(numbers) > 30


def test_equations_that_are_named_exist():
    missing = [
        f"{path.relative_to(ROOT)}: ({number})"
        for path in [*CODE, *PAGES]
        if path != Path(__file__).resolve()
        for number in references(path.read_text(encoding="utf-8"))
        if number not in KNOWN
    ]
    assert not missing


def test_the_code_refers_to_most_equations():
    used = {number for path in CODE for number in references(path.read_text(encoding="utf-8"))}
    assert len(used & set(KNOWN)) > 0.8 * len(KNOWN)


# -- pages and links ---------------------------------------------------------------------------------------


def test_pages_and_sections_that_the_code_names_exist():
    for path in CODE:
        for page, section in re.findall(r'docs/(\w+)\.md(?:, "([^"]+)")?', path.read_text(encoding="utf-8")):
            target = DOCS / f"{page}.md"
            assert target.exists(), f"{path.name} names docs/{page}.md"
            headings = re.findall(r"^#+ (?:\d+\. )?(.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert not section or section in headings, f"{path.name} names {section!r} of docs/{page}.md"


def slug(heading):
    """Return the anchor of a heading, as Git hosts and the site build it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda page: page.stem)
def test_links_point_to_existing_files_and_headings(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"\w+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = page if not file else (page.parent / file).resolve()
        is_generated = DOCS / "gallery" in target.parents or DOCS / "api" in target.parents  # by the build
        assert is_generated or target.exists(), link
        if anchor and target.suffix == ".md" and target.exists():
            headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in [slug(heading) for heading in headings], link


# -- pages that run ----------------------------------------------------------------------------------------


PAGES_WITH_CODE = [page.stem for page in PAGES if "```python\n" in page.read_text(encoding="utf-8")]
REQUIRED = {
    "choosing": ("sklearn",),
    "coming_from": ("ot", "unbalancedgw"),
    "many_spaces": ("joblib",),
    "report": ("plotly",),
}


@pytest.mark.parametrize("name", PAGES_WITH_CODE)
def test_python_blocks_print_the_text_blocks(name, tmp_path, monkeypatch):
    """The python blocks of a page run in order and in one scope; a text block is their output since the last one."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    for package in REQUIRED.get(name, ()):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    printed, scope = io.StringIO(), {}
    text = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    for kind, block in re.findall(r"^```(python|text)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        if kind == "python":
            with contextlib.redirect_stdout(printed):
                exec(block, scope)
            continue
        assert printed.getvalue() == block
        printed = io.StringIO()
    assert not printed.getvalue(), "output that the page does not show"
    pyplot.close("all")


# -- numbers on pages --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("page", "sizes"), [("large", [3000, 10_000]), ("performance", [1000, 2000, 3000])])
def test_predicted_memory_on_pages_is_that_of_estimate(page, sizes):
    text = " ".join((DOCS / f"{page}.md").read_text(encoding="utf-8").split())
    sentence = next(s for s in re.split(r"\. (?=[A-Z])|; ", text) if "float64" in s and "GiB at n =" in s)
    claims = re.findall(r"([\d.]+) GiB at n = (\d+(?: \d{3})?)", sentence)
    assert [int(n.replace(" ", "")) for _, n in claims] == sizes
    stored = ugw.AlternateMin(inner=ugw.Sinkhorn(method="stabilized"))
    for (amount, _), n in zip(claims, sizes, strict=True):
        x = ugw.Space.from_points(np.zeros((n, 3)), metric="sqeuclidean")
        estimate = ugw.estimate(x, x, solver=stored)
        assert estimate.path == "stored"
        assert f"{estimate.bytes / 2**30:.{len(amount.partition('.')[2])}f}" == amount


# -- reference ---------------------------------------------------------------------------------------------

PUBLIC = [*ugw.__all__, *(f"{module}.{name}" for module in LAZY for name in getattr(ugw, module).__all__)]


def public_object(name):
    """Return the public object with a dotted name."""
    result = ugw
    for part in name.split("."):
        result = getattr(result, part)
    return result


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_an_example_that_runs(name):
    assert ">>> " in (inspect.getdoc(public_object(name)) or ""), f"ugw.{name}: its docstring needs an example"


def test_the_api_page_has_every_public_name_once():
    names = re.findall(r"^   ([\w.]+)$", (DOCS / "api.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(names) == len(set(names))
    assert not set(PUBLIC) - set(names), "names that docs/api.md does not list"
    assert not set(names) - set(PUBLIC), "names in docs/api.md that are not public"
