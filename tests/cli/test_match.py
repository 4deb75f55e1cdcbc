"""`ugw match --report`, from files to the page; and plans too large to be stored."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import ugw
from oracles.command_line import match
from oracles.thresholds import changed_thresholds
from ugw.cli.config import MATCH_CONFIG


@pytest.mark.parametrize(
    "args", [("a.csv", "b.npy"), ("g.graphml", "h.gml"), ("far.npy", "wide.npy", "--kind-source", "distances")]
)
def test_a_report_is_written_on_request_with_the_same_plan(input_folder, args):
    pytest.importorskip("plotly")
    done = match(*args, "--report", "made/page.html", "--rho", "0.5,inf", "--scale", "max")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines()[-1].endswith(f"in out, and {Path('made/page.html')}")
    assert [path.name for path in (input_folder / "made").iterdir()] == ["page.html"]
    assert len(list((input_folder / "out").iterdir())) == 3
    text = (input_folder / "made" / "page.html").read_text(encoding="utf-8")
    data = json.loads(text.split('<script id="data" type="application/json">')[1].split("</script>")[0])
    plan = np.load("out/plan.npz")["plan"]
    assert [side["n"] for side in data["sides"]] == list(plan.shape)
    assert data["names"] == list(args[:2])
    for row, partners, masses in zip(plan, data["sides"][0]["partners"], data["sides"][0]["masses"], strict=True):
        assert masses == pytest.approx([row[data["sides"][1]["index"][j]] for j in partners], rel=1e-5)
    for fact in ("<th>rho</th><td>0.5, inf</td>", "<td>10% of the mean distortion</td>", "<th>scale</th><td>max</td>"):
        assert fact in text


@changed_thresholds(MATCH_CONFIG, max_drawn_points=5)
def test_a_plan_that_is_not_stored(input_folder, monkeypatch):
    original = ugw.solve
    inner = ugw.Sinkhorn(method="streaming")
    monkeypatch.setattr(
        ugw, "solve", lambda *args, **options: original(*args, **options | {"solver": ugw.AlternateMin(inner=inner)})
    )
    np.save("more.npy", np.random.default_rng(1).random((14, 3)))
    done = match("b.npy", "more.npy", "--metric", "sqeuclidean", "--report", "page.html")
    assert done.exit_code == 0, done.stderr
    monkeypatch.undo()
    x, y = (
        ugw.Space.from_points(np.load(file), metric="sqeuclidean")
        for file in (input_folder / "b.npy", input_folder / "more.npy")
    )
    plan = original(x, y, eps=ugw.relative(0.1), init="product").plan
    with np.load(input_folder / "out" / "plan.npz", allow_pickle=False) as file:
        assert sorted(file) == ["masses", "partners", "source_marginal", "target_marginal"]
        assert np.allclose(file["masses"], -np.sort(-plan, axis=1)[:, :10], atol=1e-6)
        assert np.allclose(np.take_along_axis(plan, file["partners"], 1), file["masses"], atol=1e-6)
        assert np.allclose(file["target_marginal"], plan.sum(axis=0), atol=1e-6)
    assert (input_folder / "page.html").exists()
    assert (input_folder / "out" / "matching.png").exists()


def test_without_plotly_a_report_is_refused_before_the_work(input_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    monkeypatch.setattr(ugw, "solve", lambda *_, **__: pytest.fail("solved first"))
    done = match("a.csv", "b.npy", "--report", "page.html")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "Error: a report needs plotly: pip install 'ugw[report]'\n"
    assert not (input_folder / "out").exists()


def test_a_failure_after_the_report_writes_no_files(input_folder, monkeypatch):
    pytest.importorskip("plotly")

    def fail(*args, **kwargs):
        ugw.report.write(*args, **kwargs)
        raise OSError(28, "No space left")

    monkeypatch.setattr("ugw.cli.match.write", fail)
    done = match("a.csv", "b.npy", "--report", "made/page.html")
    assert done.exit_code == 2
    assert "No space left" in done.stderr
    assert not (input_folder / "out").exists()
    assert not (input_folder / "made").exists()
