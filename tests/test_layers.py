"""Imports point upward only, and `import ugw` loads nothing that it does not need."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1] / "src" / "ugw"

# Top to bottom: a module imports only from modules that stand above it. A package's name stands for its
# __init__.py, and "ugw" for the front door itself. A new module goes in as high as its own imports allow.
TABLE = """
    errors  _version  _threads  _atomic  _check  _options  _batch  _precision  _recording
    kernels.torch_ops  kernels.entries  kernels.trail  kernels.streaming  kernels.triton_ops  kernels.triton_small  kernels.triton_medium  kernels.triton_entries  kernels.triton_trail  kernels
    bilinear  streamed  lazy_plan
    distances  metrics  embedded  embed  factorise  cones  smooth  pairs  pairing  _parts  spaces  representatives
    divergences  exact
    records  result  conic_result
    problems.linear  problems.coupling  problems.problem  problems.capped  problems.unbalanced  problems.streamed  problems.conic  problems.partial
    problems.partial_gw  problems.partial_w  problems.wasserstein  problems
    solvers.loop  solvers.watch  solvers.solver  solvers.recordings  solvers.replay  solvers.recorded  solvers.sinkhorn  solvers.anderson  solvers.context  solvers.alternate
    solvers.frank_wolfe  solvers.programs  solvers
    init  coarse  multilevel  multistart
    parameters  first_plans  capped  memory  ways  calibrate  api  linear  certify
    multipliers  envelope  values  debias  implicit  loss  barycenters
    many.methods  many.tiles  many.parcel  many.blocks  many.workers  many.checkpoint  many.table  many.spaces
    many.job  many.pairwise  many
    estimators._shared  estimators.scores  estimators.cells  estimators.pu  estimators.align  estimators
    _drawing  plots  _measured  coassays  office  meshes  camels  graph_data  datasets  _files
    report.views  report.matches  report.stage  report.contents  report.page  report
    ugw
    experiments._shared  experiments.imbalanced  experiments.outliers  experiments.graphs  experiments.graphs_partial
    experiments.eps_rho  experiments.cgw_local  experiments.cgw_ratio  experiments.tightness
    experiments.pu_tasks  experiments.pu_table  experiments.pu  experiments.pu_beyond  experiments
    _match  cli  __main__
"""
LAYERS = TABLE.split()

OPTIONAL = (
    "matplotlib",
    "networkx",
    "ot",
    "sklearn",
    "tqdm",
    "click",
    "joblib",
    "dask",
    "ray",
    "pandas",
    "triton",
    "anndata",
    "plotly",
)


def layer_name(path: Path) -> str:
    """src/ugw/problems/linear.py -> problems.linear; a package's __init__.py -> the package."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "ugw"


MODULES = {layer_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def imported(source: str, package: str, modules: set[str]) -> Iterator[tuple[int, str]]:
    """(line, module of this library) for every import in the source, wherever it stands in the file.

    package: what a leading dot means there, "" for files in src/ugw itself.
    """
    for node in ast.walk(ast.parse(source)):
        for dotted in dotted_names(node, package):
            if dotted.split(".")[0] == "ugw":
                yield node.lineno, known_module(dotted, modules)


def dotted_names(node: ast.AST, package: str) -> list[str]:
    """What an import statement names, spelled in full: `from . import errors` -> ugw.errors."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = node.module or ""
    if node.level:
        here = ["ugw", *package.split(".")] if package else ["ugw"]
        above = here[: len(here) - node.level + 1]
        base = ".".join([*above, base] if base else above)
    return [f"{base}.{alias.name}" for alias in node.names]


def known_module(dotted: str, modules: set[str]) -> str:
    """The longest prefix that is a module: ugw.spaces.Space -> spaces, ugw.solve -> ugw."""
    parts = dotted.split(".")[1:]
    while parts and ".".join(parts) not in modules:
        parts.pop()
    return ".".join(parts) or "ugw"


def imports_of(name: str) -> list[tuple[int, str]]:
    path = MODULES[name]
    package = "" if path.parent == ROOT else ".".join(path.parent.relative_to(ROOT).parts)
    return list(imported(path.read_text(encoding="utf-8"), package, set(MODULES)))


@pytest.mark.parametrize("name", MODULES)
def test_module_has_a_layer(name):
    assert name in LAYERS, (
        f"{MODULES[name].relative_to(ROOT.parent)} has no layer yet: add {name!r} to TABLE at the top of "
        f"{Path(__file__).name}, below every module that it imports and above every module that imports it"
    )


@pytest.mark.parametrize("name", [name for name in MODULES if name in LAYERS])
def test_imports_point_upward(name):
    place = {layer: i for i, layer in enumerate(LAYERS)}
    wrong = [
        f"{MODULES[name].relative_to(ROOT.parent)}:{line} imports {target!r}, which stands below {name!r}"
        for line, target in imports_of(name)
        if place.get(target, -1) >= place[name]  # a target without a layer is the other test's finding
    ]
    assert not wrong, "\n".join(wrong)


def test_layers_are_named_once():
    assert len(LAYERS) == len(set(LAYERS))


@pytest.mark.parametrize(
    ("source", "package", "expected"),
    [
        ("import ugw.spaces", "", ["spaces"]),
        ("import ugw", "", ["ugw"]),
        ("from ugw import solve", "", ["ugw"]),
        ("from ugw import errors, spaces as s", "", ["errors", "spaces"]),
        ("from ugw.spaces import Space", "", ["spaces"]),
        ("from ugw.problems import linear, UGW", "", ["problems.linear", "problems"]),
        ("from . import errors", "", ["errors"]),
        ("from .problems.linear import LinearProblem", "", ["problems.linear"]),
        ("from . import linear", "problems", ["problems.linear"]),
        ("from .. import errors", "problems", ["errors"]),
        ("from ..spaces import Space", "problems", ["spaces"]),
        ("def f():\n    from ugw.spaces import Space", "", ["spaces"]),
        ("if TYPE_CHECKING:\n    import ugw.spaces", "", ["spaces"]),
        ("import numpy, ugwish\nfrom scipy import sparse\nfrom ugwish.errors import x", "", []),
    ],
)
def test_every_way_to_import_is_seen(source, package, expected):
    modules = {"ugw", "errors", "spaces", "problems", "problems.linear"}
    assert [name for _, name in imported(source, package, modules)] == expected


def run_without(blocked: tuple[str, ...], code: str) -> None:
    """Run the code in a fresh interpreter where importing any of `blocked` fails."""
    block = f"import sys; sys.modules.update(dict.fromkeys({blocked!r}))\n"
    done = subprocess.run(
        [sys.executable, "-c", block + code], capture_output=True, text=True, env=os.environ, timeout=300
    )
    assert done.returncode == 0, done.stderr


def test_import_needs_only_torch_numpy_scipy():
    run_without(OPTIONAL, "import ugw")


def test_import_loads_nothing_optional():
    # Compared with what torch and scipy load by themselves, which is not ours to decide.
    code = f"""
import sys, numpy, scipy.sparse, scipy.spatial, torch
before = set(sys.modules)
import ugw
loaded = sorted({{name.partition(".")[0] for name in set(sys.modules) - before}} & set({OPTIONAL!r}))
assert not loaded, f"import ugw also imports {{loaded}}: import them where they are used"
"""
    run_without((), code)
