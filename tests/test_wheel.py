"""The wheel: its files, its requirements, and its use with the required packages only."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CORE = {"torch", "numpy", "scipy", "POT", "matplotlib", "networkx", "tqdm", "click"}
OPTIONAL = (
    "sklearn",
    "anndata",
    "joblib",
    "dask",
    "distributed",
    "ray",
    "plotly",
    "selenium",
    "sphinx",
    "triton",
    "pandas",
)
LAZY = ("matplotlib", "networkx", "ot", "tqdm", "click")  # core, and yet not needed by the names of `ugw`


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy: a build leaves files beside the sources."""
    pytest.importorskip("build")
    home = tmp_path_factory.mktemp("wheel")
    source = home / "source"
    source.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so"))
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(home), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(home.glob("*.whl"))


@pytest.fixture(scope="module")
def installed_folder(wheel, tmp_path_factory):
    """The wheel in a folder of its own."""
    folder = tmp_path_factory.mktemp("installed")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", folder, wheel]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return folder


def metadata(wheel):
    with zipfile.ZipFile(wheel) as file:
        name = next(name for name in file.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(file.read(name).decode())


def test_the_wheel_has_exactly_the_files_of_the_package(wheel):
    with zipfile.ZipFile(wheel) as file:
        packed = {name for name in file.namelist() if ".dist-info/" not in name}
        entry = file.read(next(name for name in file.namelist() if name.endswith("entry_points.txt"))).decode()
    files = (path for path in (ROOT / "src" / "ugw").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    compiled = {name for name in packed if name.endswith(".so")}  # none where there is no compiler
    assert len(compiled) <= 1
    assert packed - compiled == {path.relative_to(ROOT / "src").as_posix() for path in files if path.suffix != ".so"}
    assert "ugw/py.typed" in packed
    assert {"page.html", "page.css", "page.js", "scene.js"} <= {Path(name).name for name in packed}
    assert "ugw = ugw.cli:main" in entry


def test_the_wheel_requires_the_core_and_offers_extras(wheel):
    fields = metadata(wheel)
    requirements = [line for line in fields.get_all("Requires-Dist") if "extra ==" not in line]
    assert {re.match(r"[\w.-]+", line)[0] for line in requirements} == CORE
    assert {"report", "single-cell", "dask", "docs", "dev"} <= set(fields.get_all("Provides-Extra"))
    with open(ROOT / "pyproject.toml", "rb") as file:
        project = tomllib.load(file)["project"]
    assert fields["Version"] == project["version"]
    assert set(fields.get_all("Provides-Extra")) == set(project["optional-dependencies"])


def run(folder, code, *, without=()):
    """Run code on the installed wheel in a fresh interpreter where importing any of `without` fails."""
    block = f"""
import sys
class Absent:
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in {without!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent)
"""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"PYTHONPATH": str(folder)}
    command = [sys.executable, "-c", block + code]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=env, cwd=folder)


def test_with_the_core_alone_it_solves_draws_and_matches_files(installed_folder):
    code = f"""
import ugw, numpy as np
assert ugw.__file__.startswith({str(installed_folder)!r}), ugw.__file__
x = ugw.Space.from_points(np.random.default_rng(0).random((12, 2)))
ugw.solve(x, x, eps=0.1).check()
ugw.solve(x, x, rho=ugw.TV(0.5))  # POT
import matplotlib; matplotlib.use("Agg")
ugw.plots.matching(np.eye(12) / 12, x.points, x.points)
try:
    ugw.report.write(ugw.solve(x, x, eps=0.1), x, x, "page.html")
except ImportError as error:
    assert "ugw[report]" in str(error)
else:
    raise AssertionError("a report without plotly")
from ugw.cli import main
np.savetxt("a.csv", np.random.default_rng(1).random((9, 2)), delimiter=",")
main(["match", "a.csv", "a.csv", "--eps", "10%", "--init", "product", "-q"])
"""
    done = run(installed_folder, code, without=OPTIONAL)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert (installed_folder / "out" / "plan.npz").exists()


def test_a_report_from_the_wheel(installed_folder):
    pytest.importorskip("plotly")
    code = """
import ugw, numpy as np
x = ugw.Space.from_points(np.random.default_rng(0).random((12, 2)))
ugw.report.write(ugw.solve(x, x, eps=0.1), x, x, "page.html")
"""
    done = run(installed_folder, code)
    assert done.returncode == 0, done.stderr
    assert (installed_folder / "page.html").stat().st_size > 10**6


def test_importing_needs_no_more_than_torch_numpy_and_scipy(installed_folder):
    code = "import ugw; [getattr(ugw, name) for name in ugw._MODULES]; print(ugw.__version__)"
    done = run(installed_folder, code, without=(*LAZY, *OPTIONAL))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == metadata_version()


def metadata_version():
    with open(ROOT / "pyproject.toml", "rb") as file:
        return tomllib.load(file)["project"]["version"]


def test_importing_loads_little_beyond_torch():
    """The number of modules that the first use of a name imports: it determines the time, and does not vary."""
    code = """
import sys, torch
before = set(sys.modules)
import ugw
for name in ugw._MODULES:
    getattr(ugw, name)
new = set(sys.modules) - before
heavy = sorted(name for name in new if name.startswith("scipy.") and name.split(".")[1] in
               ("sparse", "spatial", "linalg", "optimize", "special", "stats", "interpolate"))
others = sorted({name.partition(".")[0] for name in new} - {"ugw", "scipy", "numpy"} - set(sys.stdlib_module_names))
others = [name for name in others if not name.startswith("_") and name != "cython_runtime"]
assert not heavy and not others, (heavy, others)
assert "__version__" not in vars(ugw)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_the_citation_names_the_paper_and_this_version():
    yaml = pytest.importorskip("yaml")
    with open(ROOT / "CITATION.cff", encoding="utf-8") as file:
        citation = yaml.safe_load(file)
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert citation["version"] == metadata_version()
    paper = citation["preferred-citation"]
    assert [author["family-names"] for author in paper["authors"]] == ["Séjourné", "Vialard", "Peyré"]
    bibtex = (ROOT / "README.md").read_text(encoding="utf-8").split("```bibtex")[1].split("```")[0]
    for field in (
        str(paper["year"]),
        f"{paper['start']}--{paper['end']}",
        f"{{{paper['volume']}}}",
        paper["collection-title"],
    ):
        assert field in bibtex
    assert paper["title"] in re.sub(r"[{}]", "", bibtex)
