"""The page of a report: its numbers are the plan's, it holds all it needs, and names in it are only names."""

import json
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import networkx
import numpy as np
import pytest
import torch

import ugw
from oracles.errors import assert_refused
from oracles.plans import STREAMING
from oracles.spaces import pair
from ugw.report import View, write
from ugw.report.config import REPORT_CONFIG
from ugw.report.page import plotly_script

EVIL = "</script><script>alert('x')</script><img src=x onerror=alert(1)>&amp;\"' $title \u2028"


class Parts(HTMLParser):
    """Tags, the contents of script elements by id, and the text outside of them."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self.text, self._inside = [], {}, "", None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._inside = dict(attrs).get("id", f"{tag} {len(self.scripts)}")
            self.scripts[self._inside] = ""

    def handle_endtag(self, tag):
        if tag in ("script", "style"):
            self._inside = None

    def handle_data(self, data):
        if self._inside is None:
            self.text += data
        else:
            self.scripts[self._inside] += data


def read(path):
    parts = Parts(path.read_text(encoding="utf-8"))
    return parts, json.loads(parts.scripts["data"])


@pytest.fixture(scope="module")
def solution():
    x, y = pair(12, 15, dims=(2, 2))
    return ugw.solve(x, y, rho=0.5, eps=0.02, init="product"), x, y


@pytest.fixture
def page(tmp_path):
    return tmp_path / "report.html"


def check_matches(data, plan, weights):
    """Each drawn point's matches are the largest entries of its row or column."""
    for k, (side, other, rows) in enumerate(zip(data["sides"], data["sides"][::-1], (plan, plan.T), strict=True)):
        assert side["mass"] == pytest.approx(rows.sum(axis=1)[side["index"]], rel=1e-5)
        for point, partners, masses in zip(
            side["index"][: side["drawn"]], side["partners"], side["masses"], strict=True
        ):
            row = rows[point]
            assert masses == pytest.approx([row[other["index"][j]] for j in partners], rel=1e-5)
            if row.sum() >= REPORT_CONFIG.min_kept_fraction * weights[k][point]:
                assert masses == pytest.approx(-np.sort(-row)[: len(masses)], rel=1e-5)
                assert 1 <= len(masses) <= REPORT_CONFIG.matches_per_point
    pairs = data["pairs"]
    ends = zip(pairs["i"], pairs["j"], pairs["mass"], strict=True)
    for i, j, mass in ends:
        assert mass == pytest.approx(plan[data["sides"][0]["index"][i], data["sides"][1]["index"][j]], rel=1e-5)


def test_the_numbers_are_those_of_the_plan(solution, page):
    result, x, y = solution
    write(result, x, y, page, facts={"rho": 0.5, "eps": 0.02})
    parts, data = read(page)
    check_matches(data, result.plan, (x.weights, y.weights))
    assert [(side["n"], side["drawn"]) for side in data["sides"]] == [(12, 12), (15, 15)]
    assert data["sides"][0]["share"] == pytest.approx(result.marginals[0] / x.weights, rel=1e-5)
    assert data["mass"] == pytest.approx(result.mass)
    assert data["flat"]
    table = dict(re.findall(r"<th>(.*?)</th><td>(.*?)</td>", page.read_text(encoding="utf-8")))
    assert float(table["value"]) == pytest.approx(result.value, rel=1e-7)
    assert float(table["mass"]) == pytest.approx(result.mass, rel=1e-5)
    for name, value in result.terms.as_dict().items():
        assert float(table[name.replace("_", " ")]) == pytest.approx(value, rel=1e-5)
    assert (table["points"], table["rho"], table["eps"], table["steps"]) == (
        "12 × 15",
        "0.5",
        "0.02",
        str(result.n_iter),
    )
    assert table["status"].startswith("converged")
    for curve, expected in zip(data["curves"][1:], (result.history.change, result.history.residual), strict=True):
        assert curve["size"] == pytest.approx(expected[np.array(curve["step"]) - 1], rel=1e-5)
    assert "banner" not in {attributes.get("class", "").split(" ")[0] for _, attributes in parts.tags}


def test_colors_are_transferred_by_the_plan(solution, page):
    result, x, y = solution
    rgb = np.random.default_rng(1).random((12, 3))
    write(result, x, y, page, colors=rgb)
    _, data = read(page)
    for side, expected in zip(data["sides"], (rgb, result.transport(rgb)), strict=True):
        colors = [[int(c[k : k + 2], 16) for k in (1, 3, 5)] for c in side["color"]]
        assert np.allclose(colors, 255 * expected[side["index"]], atol=0.51)
    with pytest.warns(DeprecationWarning, match="colours=.* is deprecated: use colors"):
        write(result, x, y, page, colours=np.arange(12))
    first, last = (read(page)[1]["sides"][0]["color"][k] for k in (0, 11))
    assert (first, last) == ("#4477dd", "#d9486e")


def test_the_same_input_writes_the_same_bytes(solution, page):
    write(*solution, page)
    before = page.read_bytes()
    write(*solution, page)
    assert page.read_bytes() == before


def test_the_page_loads_nothing_from_a_network(solution, page):
    write(*solution, page)
    parts, _ = read(page)
    assert not [(tag, attributes) for tag, attributes in parts.tags if {"src", "href"} & set(attributes)]
    ours = parts.text + "".join(text for text in parts.scripts.values() if text != plotly_script())
    assert plotly_script() in parts.scripts.values()
    assert not re.findall(r"https?:|url\(|@import|fetch\(|XMLHttp", ours)
    policy = next(
        attributes["content"]
        for tag, attributes in parts.tags
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'")


def test_names_are_only_names(solution, page):
    result, x, y = solution
    plain, _ = read_written_page(write, result, x, y, page)
    odd = [EVIL, "\ud800 half a sign"]
    named, data = read_written_page(
        write, result, View(x, odd[0], labels=[EVIL] * 12), View(y, odd[1]), page, facts={EVIL: EVIL, "rho": np.inf}
    )
    rows = [tag for tag, _ in named.tags].count("tr") - [tag for tag, _ in plain.tags].count("tr")
    assert rows == 2
    assert {tag for tag, _ in named.tags} == {tag for tag, _ in plain.tags}
    assert len(named.scripts) == len(plain.scripts)
    assert named.text.count(EVIL) == 4  # title, heading, a fact and its name
    assert data["names"] == odd
    assert set(data["sides"][0]["labels"]) == {EVIL}
    assert not [attributes for _, attributes in named.tags if "onerror" in attributes]


def read_written_page(make, *args, **kwargs):
    path = next(arg for arg in args if hasattr(arg, "read_text"))
    make(*args, **kwargs)
    return read(path)


def test_many_points_are_thinned_and_the_page_says_so(page):
    x, y = pair(90, 70, dims=(3, 3))
    result = ugw.solve(x, y, rho=0.5, eps=0.05, init="product")
    parts, data = read_written_page(write, result, x, y, page, limit=20)
    check_matches(data, result.plan, (x.weights, y.weights))
    assert [side["drawn"] for side in data["sides"]] == [20, 20]
    assert "20 of 90 points are drawn" in parts.text
    assert "20 of 70 points are drawn" in parts.text
    indices = data["sides"][0]["index"][:20]  # 20 of 90 at even steps, the first and the last among them
    assert (indices[0], indices[-1]) == (0, 89)
    steps = np.diff(indices)
    assert steps.min() >= 4
    assert steps.max() <= 5
    assert len(data["pairs"]["i"]) <= REPORT_CONFIG.max_lines
    x_at, y_at = (np.array(side["at"]).T for side in data["sides"])  # ends of matches are there, though not drawn
    assert len(x_at) == len(data["sides"][0]["index"]) > 20
    assert max(data["pairs"]["j"]) < len(y_at)


def test_a_plan_that_is_not_stored_stays_so(page, monkeypatch):
    x, y = pair(40, 30, dims=(3, 3), metric="sqeuclidean")
    result = ugw.solve(x, y, rho=0.5, eps=0.05, solver=STREAMING)
    plan = result.plan.dense()
    monkeypatch.setattr(type(result.plan), "dense", lambda *_, **__: pytest.fail("made the whole plan"))
    parts, data = read_written_page(write, result, x, y, page)
    check_matches(data, plan, (x.weights, y.weights))
    assert "streaming" in parts.text


def test_graphs_have_edges_and_meshes_have_faces(page):
    ring, path = networkx.cycle_graph(8), networkx.path_graph(7)
    x, y = ugw.Space.from_graph(ring), ugw.Space.from_graph(path)
    result = ugw.solve(x, y, eps=0.1, init="product")
    parts, data = read_written_page(write, result, View(x, "ring", graph=ring), View(y, "path", graph=path), page)
    assert data["sides"][0]["edges"] == [list(map(int, edge)) for edge in ring.edges]
    assert data["sides"][1]["labels"] == list("0123456")
    assert "ring: laid out as a graph." in parts.text
    vertices = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
    faces = np.array([[0, 1, 2], [0, 1, 3], [0, 2, 3], [1, 2, 3]])
    z = ugw.Space.from_mesh(vertices, faces)
    result = ugw.solve(z, x, eps=0.1, init="product")
    _, data = read_written_page(write, result, View(z, faces=faces), View(x, graph=ring), page, limit=2)
    surface = data["sides"][0]["surface"]
    assert np.array_equal(np.array(surface["faces"]).T, faces)
    assert len(surface["at"][0]) == len(surface["share"]) == len(surface["color"]) == 4
    assert surface["nearest"][0] == 0  # vertices 0 and 3 are drawn
    assert surface["nearest"][3] == 1
    assert not data["flat"]


@pytest.mark.parametrize(
    ("status", "level"),
    [
        (ugw.Status.MAX_ITER, "warning"),
        (ugw.Status.ALTERNATING, "warning"),
        (ugw.Status.STOPPED, "warning"),
        (ugw.Status.PRECISION, "grave"),
        (ugw.Status.COLLAPSED, "grave"),
        (ugw.Status.NON_FINITE, "grave"),
    ],
)
def test_an_unconverged_solve_is_reported_with_advice(solution, page, status, level):
    result, x, y = solution
    failed = replace(result, tensors=replace(result.tensors, status=torch.tensor([int(status)])))
    parts, data = read_written_page(write, failed, x, y, page)
    assert ("p", {"class": f"banner {level}", "role": "alert"}) in parts.tags
    assert f"Not converged ({status.name.lower().replace('_', ' ')})." in parts.text
    assert status.message in parts.text
    assert data["converged"] is False


def test_a_plan_without_mass(solution, page):
    result, x, y = solution
    empty = replace(result, tensors=replace(result.tensors, plan=torch.zeros_like(result.tensors.plan)))
    _, data = read_written_page(write, empty, x, y, page)
    assert data["pairs"] == {"i": [], "j": [], "mass": [], "first": 0}
    assert not any(side["partners"][0] for side in data["sides"])


@pytest.mark.parametrize("d", [1, 2, 3, 5])
def test_one_point_each(page, d):
    x = ugw.Space.from_points(np.ones((1, d)))
    result = ugw.solve(x, x, eps=0.1)
    _, data = read_written_page(write, result, x, x, page)
    assert data["pairs"]["mass"] == pytest.approx([result.mass])
    assert np.isfinite(data["sides"][0]["at"]).all()


def test_tensors_and_conic_results(page):
    x, y = (ugw.Space.from_points(torch.rand(k, 2, generator=torch.Generator().manual_seed(0))) for k in (6, 5))
    result = ugw.solve(x, y, rho=1.0, eps=0.1, init="product")
    _, data = read_written_page(write, result, x, y, page)
    check_matches(data, result.plan.double().numpy(), (x.weights, y.weights))
    x, y = pair(6, 5, dims=(2, 2))
    conic = ugw.solve_conic(x, y, rho=1.0)
    parts, data = read_written_page(write, conic, x, y, page)
    check_matches(data, conic.plan, (x.weights, y.weights))
    assert "distance" in parts.text


# -- refused inputs ---------------------------------------------------------------------------------------


def test_batches_and_other_spaces_are_refused(solution, page):
    result, x, y = solution
    xs, ys = ugw.Space.stack([x, x]), ugw.Space.stack([y, y])
    batch = ugw.solve(xs, ys, rho=0.5, eps=0.1, init="product")
    for args, message in (
        ((batch, xs, ys), r"a report is of one solve, got a batch of 2: take an item, result\[i\]"),
        ((batch[0], xs, ys), r"got a batch of 2: take an item, space\[i\]"),
        ((result, y, x), "the spaces must be those of the plan, 12 × 15, got 15 × 12"),
        ((result.plan, x, y), "a report is of a Result, got ndarray"),
        ((result, "x", y), "a report draws two spaces, got str"),
    ):
        with pytest.raises(ugw.InputError, match=message):
            write(*args, page)
    for extra, message in (
        ({"limit": 0}, "limit must be a whole number"),
        ({"colors": np.ones(7)}, r"colors must have shape \(12,\) or \(12, 3\), got \(7,\)"),
        ({"colors": ["red"] * 12}, "colors must be an array of numbers"),
    ):
        with pytest.raises(ugw.InputError, match=message):
            write(result, x, y, page, **extra)
    assert list(page.parent.iterdir()) == []
    write(batch[1], x, y, page)
    assert page.exists()


def test_a_failure_leaves_the_old_page(solution, page):
    class Unprintable:
        def __str__(self):
            raise ZeroDivisionError

    page.write_text("old")
    with pytest.raises(ZeroDivisionError):
        write(*solution, page, facts={"rho": Unprintable()})
    assert [path.name for path in page.parent.iterdir()] == ["report.html"]
    assert page.read_text() == "old"


def test_a_place_that_cannot_be_written_to_is_named(solution, page):
    page.mkdir()
    with pytest.raises(ugw.InputError, match=r"cannot write to .*report.html: Is a directory"):
        write(*solution, page)


def test_folders_are_made(solution, tmp_path):
    write(*solution, tmp_path / "a" / "b" / "page.html")
    assert (tmp_path / "a" / "b" / "page.html").stat().st_size > 10**6


def test_without_plotly_the_extra_is_named(solution, page, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(ImportError, match=r"a report needs plotly: pip install 'ugw\[report\]'"):
        write(*solution, page)
    assert list(page.parent.iterdir()) == []


def test_the_documentation_runs_as_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).resolve().parents[2] / "docs" / "report.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    exec(code, {})
    parts, data = read(tmp_path / "report.html")
    assert "two moons, rotated, with outliers" in parts.text
    assert [side["n"] for side in data["sides"]] == [150, 170]


def test_paths_and_facts_of_another_kind_are_refused(solution, page):
    for path in (None, 3, ""):
        assert_refused(write, *solution, path, match="path must be the path of a file")
    for facts in ([1], "rho", 3):
        assert_refused(write, *solution, page, facts=facts, match="facts must be a dictionary")
    assert not page.exists()
