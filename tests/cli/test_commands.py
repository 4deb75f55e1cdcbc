"""`ugw match`, `ugw demo`, `python -m ugw`: files in, files out, one-line errors."""

import json
import os
import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest

import ugw
from oracles.command_line import match, run
from ugw.cli import commands as cli
from ugw.experiments import imbalanced

mpl.use("Agg")


def summary(folder="out"):
    with open(os.path.join(folder, "summary.json"), encoding="utf-8") as file:
        return json.load(file)


# -- what a match writes and prints ------------------------------------------------------------------------


def test_match_writes_the_plan_the_summary_and_the_picture(input_folder):
    done = match("a.csv", "b.npy", "--rho", "0.5")
    assert done.exit_code == 0
    assert done.stderr == ""
    assert sorted(path.name for path in (input_folder / "out").iterdir()) == [
        "matching.png",
        "plan.npz",
        "summary.json",
    ]
    with np.load("out/plan.npz", allow_pickle=False) as file:
        plan, p1, p2 = file["plan"], file["source_marginal"], file["target_marginal"]
    assert plan.shape == (8, 9)
    assert np.allclose(plan.sum(axis=1), p1)
    assert np.allclose(plan.sum(axis=0), p2)
    written = summary()
    assert written["converged"] is True
    assert written["status"] == "converged"
    assert written["value"] == pytest.approx(sum(written["terms"].values()))
    assert written["mass"] == pytest.approx(plan.sum())
    assert (written["source"]["n"], written["target"]["n"]) == (8, 9)
    assert len(written["history"]["objective"]) == written["n_iter"]
    assert f"{written['value']:.6g}"[:6] in done.stdout


def test_match_gives_the_result_of_ugw_solve(input_folder):
    match("a.csv", "b.npy", "--rho", "0.5,2", "--scale", "max", "--weights-source", "w8.csv")
    x = ugw.Space.from_points(np.loadtxt("a.csv", delimiter=",", skiprows=1), weights=np.arange(8.0))
    y = ugw.Space.from_points(np.load("b.npy"))
    r = ugw.solve(x.scaled("max"), y.scaled("max"), rho=(0.5, 2.0), eps=ugw.relative(0.1), init="product")
    assert summary()["value"] == pytest.approx(r.value, rel=1e-12)
    assert np.allclose(np.load("out/plan.npz")["plan"], r.plan, atol=1e-12)


@pytest.mark.parametrize("file", ["w8.csv", "row8.csv", "flat.npy"])
def test_weights_are_a_column_a_row_or_a_list(input_folder, file):
    np.save("flat.npy", np.arange(8.0))
    assert match("a.csv", "b.npy", "--weights-source", file).exit_code == 0
    assert summary()["source"]["mass"] == 28


def test_features_of_one_number_may_be_a_list(input_folder):
    np.save("flat8.npy", np.load("f8.npy")[:, 0])
    values = []
    for file in ("f8.npy", "flat8.npy"):
        match("a.csv", "b.npy", "--features-source", file, "--features-target", "f9.npy", "--alpha", "0.5")
        values.append(summary()["value"])
    assert values[0] == values[1]


def test_eps_auto_is_the_default_of_solve(input_folder):
    run("match", "a.csv", "b.npy", "--eps", "auto")
    x, y = (ugw.Space.from_points(np.load("two.npz")[key]) for key in "ab")
    r = ugw.solve(x, y)
    assert summary()["value"] == pytest.approx(r.value, rel=1e-12)
    assert summary()["options"]["eps"] == "auto"
    assert summary()["parameters"]["eps"] == pytest.approx(r.parameters["eps"])


def test_the_summary_has_the_parameters_of_the_solve(input_folder):
    match("a.csv", "b.npy", "--rho", "0.5,inf", "--tol", "1e-5")
    parameters = summary()["parameters"]
    assert parameters["rho"] == [0.5, "inf"]
    assert parameters["eps"] > 0
    assert (parameters["init"], parameters["solver"]["tol"]) == ("product", 1e-5)


def test_a_plain_eps_is_absolute(input_folder):
    run("match", "a.csv", "b.npy", "--eps", "0.05")
    x, y = (ugw.Space.from_points(np.load("two.npz")[key]) for key in "ab")
    assert summary()["value"] == pytest.approx(ugw.solve(x, y, eps=0.05).value, rel=1e-12)


@pytest.mark.parametrize(
    ("args", "kinds"),
    [
        (("two.npz:a", "two.npz:b"), ("points", "points")),
        (("a.csv", "far.npy", "--kind-target", "distances"), ("points", "distances")),
        (("far.npy", "far.npy", "--kind", "distances"), ("distances", "distances")),
        (("far.npy", "far.npy", "--kind", "distances", "--kind-source", "points"), ("points", "distances")),
        (("wide.npy", "a.csv", "--metric", "cityblock"), ("points", "points")),
        (("g.graphml", "h.gml"), ("graph", "graph")),
        (("g.graphml", "b.npy"), ("graph", "points")),
    ],
)
def test_every_kind_of_input_gives_a_picture(input_folder, args, kinds):
    done = match(*args)
    assert done.exit_code == 0, done.stderr
    assert (summary()["source"]["kind"], summary()["target"]["kind"]) == kinds
    assert (input_folder / "out" / "matching.png").read_bytes().startswith(b"\x89PNG")


def test_nodes_are_named_in_the_order_of_the_plan(input_folder):
    match("g.graphml", "h.gml")
    assert summary()["source"]["nodes"] == [str(k) for k in range(7)]


def test_hard_marginals_are_words_in_json_and_kept_in_the_plan(input_folder):
    match("a.csv", "b.npy", "--rho", "inf")
    assert summary()["options"]["rho"] == "inf"
    assert np.allclose(np.load("out/plan.npz")["source_marginal"], 1 / 8, atol=1e-6)
    match("a.csv", "b.npy", "--rho", "1,inf")
    assert summary()["options"]["rho"] == [1.0, "inf"]
    assert np.allclose(np.load("out/plan.npz")["target_marginal"], 1 / 9, atol=1e-6)


def test_features_make_it_fused(input_folder):
    done = match("a.csv", "b.npy", "--features-source", "f8.npy", "--features-target", "f9.npy", "--alpha", "0.5")
    assert done.exit_code == 0, done.stderr
    assert summary()["terms"]["linear"] > 0


def test_quiet_prints_nothing_and_progress_prints_a_bar(input_folder):
    assert match("a.csv", "b.npy", "--quiet").output == ""
    assert "step" in match("a.csv", "b.npy", "--progress").stderr


def test_a_run_that_does_not_converge_says_so_everywhere(input_folder):
    done = match("a.csv", "b.npy", "--max-iter", "1")
    assert done.exit_code == 0
    assert done.stderr.startswith("Warning: not converged: ")
    assert done.stderr.count("\n") == 1
    assert summary()["converged"] is False
    assert summary()["status"] == "max_iter"


# -- errors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("a.csv", "missing.npy"), "missing.npy: no such file"),
        (("a.csv", "two.npz"), "two.npz: several arrays (a, b), say which"),
        (
            ("a.csv", "far.npy"),
            "far.npy: a square array (9 × 9) may hold points or distances: say which with --kind",
        ),
        (("a.csv", "b.npy", "--kind", "distances"), "a.csv: distances must be square"),
        (("a.csv", "directed.graphml"), "directed.graphml: graph must be undirected"),
        (("a.csv", "parts.edgelist"), "parts.edgelist: the graph must be connected, got 2 components"),
        (("a.csv", "b.npy", "--rho", "0"), "rho must be positive"),
        (("a.csv", "b.npy", "--rho", "nan"), "rho must be positive"),
        (("a.csv", "b.npy", "--rho", "1,2,3"), "Invalid value for '--rho'"),
        (("a.csv", "b.npy", "--eps", "x%"), "Invalid value for '--eps'"),
        (("a.csv", "b.npy", "--eps", "-1%"), "Invalid value for '--eps'"),
        (("a.csv", "b.npy", "--eps=-1"), "eps must be"),
        (("a.csv", "b.npy", "--metric", "nosuch"), "nosuch"),
        (("a.csv", "b.npy", "--weights-source", "f9.npy"), "f9.npy: expected 8 weights, one for each point, got"),
        (("a.csv", "b.npy", "--weights-source", "square.npy"), "square.npy: expected 8 weights"),
        (("a.csv", "b.npy", "--weights-source", "pair.npy"), "pair.npy: expected 8 weights"),
        (("a.csv", "b.npy", "--weights-target", "w8.csv"), "w8.csv: expected 9 weights"),
        (("g.graphml", "b.npy", "--weights-source", "w8.csv"), "w8.csv: expected 7 weights"),
        (("a.csv", "b.npy", "--weights-source", "minus.csv"), "minus.csv: weights must be nonnegative, got -1"),
        (("a.csv", "b.npy", "--weights-source", "nan.csv"), "nan.csv: weights must be finite, got nan at index 7"),
        (("a.csv", "b.npy", "--weights-source", "zero.npy"), "zero.npy: total mass of the weights must be positive"),
        (("batch.npy", "b.npy"), "batch.npy: expected rows of numbers, shape (n, d) or (n,), got (2, 8, 3)"),
        (("batch.npy", "b.npy", "--kind", "points"), "batch.npy: expected rows of numbers"),
        (("a.csv", "batch.npy", "--kind-target", "points"), "batch.npy: expected rows of numbers"),
        (("cube.npy", "b.npy", "--kind-source", "distances"), "cube.npy: expected rows of numbers"),
        (("number.npy", "b.npy"), "number.npy: expected rows of numbers"),
        (
            ("a.csv", "b.npy", "--features-source", "batch.npy", "--features-target", "f9.npy", "--alpha", "1"),
            "batch.npy: expected rows of numbers",
        ),
        (
            ("a.csv", "b.npy", "--features-source", "f9.npy", "--features-target", "f9.npy", "--alpha", "1"),
            "f9.npy: expected a row of features for each of the 8 points, got 9 rows",
        ),
        (
            ("a.csv", "b.npy", "--features-source", "nan.csv", "--features-target", "f9.npy", "--alpha", "1"),
            "nan.csv: features must be finite",
        ),
        (("a.csv", "b.npy", "--out", ""), "Invalid value for '--out': expected the name of a folder, got ''"),
        (("a.csv", "b.npy", "--out", "taken"), f"cannot write to {Path('taken', 'plan.npz')}: Is a directory"),
        (("a.csv", "b.npy", "--alpha", "1"), "go together"),
        (("a.csv", "b.npy", "--report", "page.pdf"), "--report must name a file that ends in .html, got 'page.pdf'"),
        (("a.csv", "b.npy", "--report", "a.csv/page.html"), "cannot write to a.csv"),
        (("a.csv", "b.npy", "--report", "folder.html"), "cannot write to folder.html: Is a directory"),
        (("a.csv", "b.npy", "--init", "linear"), 'init="linear" needs points of one dimension'),
        (("a.csv", "b.npy", "--init", "nosuch"), "Invalid value for '--init'"),
        (("a.csv", "b.npy", "--tol", "7"), "tol must be"),
        (("a.csv", "b.npy", "--out", "a.csv"), "cannot write to a.csv"),
        (("a.csv", "b.npy", "--nosuch"), "No such option"),
        (("a.csv",), "Missing argument 'TARGET'"),
        (("g.graphml", "h.gml", "--metric", "cosine"), "--metric cosine is for points"),
        (("g.graphml", "h.gml", "--kind", "points"), "--kind points is for arrays"),
        (
            ("g.graphml", "b.npy", "--kind-source", "points"),
            "g.graphml: a graph is neither points nor distances",
        ),
    ],
)
def test_errors_are_one_line_with_exit_code_2_and_write_no_files(input_folder, args, message):
    before = sorted(input_folder.rglob("*"))
    done = run("match", *args)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.startswith("Error: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert sorted(input_folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "Interrupted: nothing was written"),
        (MemoryError(), 2, "not enough memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), 2, "not enough memory"),
        (OSError(28, "No space left on device"), 2, "No space left on device"),
    ],
)
def test_a_run_cut_short_leaves_the_old_results(input_folder, monkeypatch, error, code, message):
    def fail(*args, **kwargs):
        raise error

    before = {name: b"old" for name in ("matching.png", "plan.npz", "summary.json")}
    (input_folder / "out").mkdir()
    for name, old in before.items():
        (input_folder / "out" / name).write_bytes(old)
    monkeypatch.setattr("ugw.cli.match.draw_matching", fail)
    done = match("a.csv", "b.npy")
    assert done.exit_code == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert {path.name: path.read_bytes() for path in (input_folder / "out").iterdir()} == before


# -- the rest ----------------------------------------------------------------------------------------------


def test_demo_prints_a_table_and_writes_the_picture(input_folder, monkeypatch):
    whole = imbalanced.run
    monkeypatch.setattr(imbalanced, "run", lambda report: whole(n=20, eps=0.02, shares=(0.3,), report=report))
    done = run("demo", "--out", "made/here")
    assert done.exit_code == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == [
        "target",
        "0.3",
        "0.3",
        "kept:",
        "wrote",
    ]
    assert [path.name for path in (input_folder / "made" / "here").iterdir()] == ["imbalanced.png"]


@pytest.mark.parametrize("args", [(), ("match",)])
def test_a_command_without_arguments_shows_its_help(args):
    done = run(*args)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == run(*args, "--help").stdout
    assert done.stderr.startswith("Usage: ")
    assert done.stderr.count("\n") > 5
    assert "Error" not in done.stderr


def test_demo_refuses_a_folder_without_a_name_or_with_a_subfolder_of_the_name_of_a_file(input_folder):
    (input_folder / "out" / "imbalanced.png").mkdir(parents=True)
    for out, message in (("", "expected the name of a folder"), ("out", "imbalanced.png: Is a directory")):
        done = run("demo", "--out", out)
        assert (done.exit_code, done.stdout) == (2, "")
        assert message in done.stderr


def test_help_shows_examples_and_every_option():
    for args in (("--help",), ("match", "--help"), ("demo", "-h")):
        assert "Usage:" in run(*args).stdout
    text = run("match", "--help").output
    assert "Examples:" in text
    for option in cli.match.params:
        assert option.human_readable_name in text.lower() or option.opts[0] in text


def test_python_dash_m_ugw_runs_the_command(input_folder):
    done = subprocess.run(
        [sys.executable, "-m", "ugw", "match", "a.csv", "far.npy"],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": str(Path(ugw.__file__).parents[1])},  # also where it is not installed
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: far.npy: a square array")
    assert done.stderr.count("\n") == 1


def test_version():
    assert run("--version").output == f"ugw, version {ugw.__version__}\n"
