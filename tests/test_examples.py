"""Examples have the same form, run, draw one figure, and say where to get missing data."""

import os
import warnings
from pathlib import Path

import numpy as np
import pytest

import ugw

FOLDER = Path(__file__).resolve().parents[1] / "examples"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
real = pytest.mark.skipif(not os.environ.get("UGW_DATA"), reason="UGW_DATA does not name the folder with the data")


def run(name: str, **changed: str) -> dict:
    """Run an example with some constants changed and return its variables. The next run closes its figures."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.close("all")
    source = (FOLDER / f"{name}.py").read_text(encoding="utf-8").splitlines()
    for constant, value in changed.items():
        at = next(k for k, line in enumerate(source) if line.startswith(f"{constant} = "))
        source[at] = f"{constant} = {value}"
    namespace = {"__name__": name}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ugw.ConvergenceWarning)  # two steps are not enough, and are not meant to be
        warnings.filterwarnings("ignore", message=".*non-interactive")
        exec(compile("\n".join(source), str(FOLDER / f"{name}.py"), "exec"), namespace)
    assert len(pyplot.get_fignums()) == 1
    return namespace


@pytest.mark.parametrize("name", NAMES)
def test_examples_are_short_and_have_titles(name):
    source = (FOLDER / f"{name}.py").read_text(encoding="utf-8").splitlines()
    assert len(source) <= 80
    title = source[0].removeprefix('"""')
    assert source[1] == "=" * len(title)
    assert "# %%" in source
    assert source[-1] == "plt.show()"


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("debiased_flow", {"STEPS": "2"}),
        ("fit_with_outliers", {"STEPS": "2"}),
        ("train_generator", {"STEPS": "2"}),
        ("barycenters", {"ROUNDS": "2"}),
    ],
)
def test_an_example_runs(name, changed, capsys):
    run(name, **changed)
    assert capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "origin"),
    [("single_cell_benchmark", "rsinghlab/SCOT"), ("align_anndata", "rsinghlab/SCOT"), ("camels", "pyFM")],
)
def test_examples_without_data_say_where_to_get_them(name, origin, monkeypatch, tmp_path, capsys):
    if name == "align_anndata":
        pytest.importorskip("anndata")
    monkeypatch.delenv("UGW_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    run(name)
    assert origin in capsys.readouterr().out


def test_outliers_mislead_balanced_gw_only():
    results = run("graph_families", **{"SEED, OUTLIERS": "0, (0, 4)"})
    unbalanced, balanced = results["accuracy"].values()
    assert unbalanced[0] > 0.7 < unbalanced[1]
    assert balanced[0] > 0.7
    assert balanced[1] < 0.5
    assert (np.array(results["confusion"])[:, 2] >= 4).all()  # of the last, balanced GW: trees, whatever they are


@real
def test_unbalanced_is_more_accurate_without_a_cell_type(capsys):
    results = run("single_cell_benchmark", NEIGHBORS='{"scgem": 35}')["results"]["scgem"]
    for removed in ("BJ", "d24T+", "iPSc"):
        (off, near, votes, kept), (soft_off, soft_near, soft_votes, soft_kept) = results[removed].values()
        assert soft_off < off - 0.02
        assert soft_near > near + 0.05
        assert soft_votes > votes + 0.1
        assert soft_kept < 0.7 < kept
    docs = (FOLDER.parent / "docs" / "estimators.md").read_text(encoding="utf-8")
    printed = [line for line in capsys.readouterr().out.splitlines() if "balanced" in line]
    assert len(printed) == 14
    table = docs[docs.index("scgem, k = 35") :].splitlines()[2:16]
    for line, expected in zip(
        printed, table, strict=True
    ):  # the table is what the example prints, but for a rank or two
        assert line.split()[:2] == expected.split()[:2]
        np.testing.assert_allclose(
            *([float(v) for v in text.split()[2:]] for text in (line, expected)), rtol=0.0, atol=0.0011
        )


@real
def test_anndata_example_writes_its_results(capsys):
    pytest.importorskip("anndata")
    run("align_anndata")
    output = capsys.readouterr().out
    for name in ("ugw_stage", "ugw_mass", "X_ugw"):
        assert name in output


@real
def test_camel_distances_have_one_row_per_pose(capsys):
    namespace = run("camels", POINTS="30")  # enough to run; the order of time needs more
    assert namespace["distances"].shape == (10, 10)
    assert sorted(namespace["angular_order"]) == list(range(10))
    assert "rank correlation" in capsys.readouterr().out
