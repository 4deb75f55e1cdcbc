"""A module imports only from its own package and from packages above it. What `import ugw` loads: test_wheel.py."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1] / "src" / "ugw"

# Top to bottom: a module imports only from its own package and from packages above it; "ugw" is the public API itself.
PACKAGES = [
    "errors",
    "_utils",
    "kernels",
    "geometry",
    "measures",
    "results",
    "problems",
    "solvers",
    "initializers",
    "api",
    "learning",
    "all_pairs",
    "estimators",
    "datasets",
    "plots",
    "report",
    "ugw",
    "experiments",
    "cli",
    "__main__",
]
ROOT_MODULES = {"__init__.py", "__main__.py", "errors.py"}


def layer_name(path: Path) -> str:
    """src/ugw/problems/linear.py -> problems.linear; a package's __init__.py -> the package."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "ugw"


MODULES = {layer_name(path): path for path in sorted(ROOT.rglob("*.py"))}


def imported_modules(source: str, package: str, modules: set[str]) -> Iterator[tuple[int, str]]:
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
        package_parts = ["ugw", *package.split(".")] if package else ["ugw"]
        above = package_parts[: len(package_parts) - node.level + 1]
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
    return list(imported_modules(path.read_text(encoding="utf-8"), package, set(MODULES)))


def package_of(name: str) -> str:
    """problems.partial.base -> problems."""
    return name.split(".")[0]


def test_root_holds_only_the_public_api_and_errors():
    assert {path.name for path in ROOT.glob("*.py")} == ROOT_MODULES


def test_every_package_has_a_layer():
    assert {package_of(name) for name in MODULES} == set(PACKAGES)
    assert len(PACKAGES) == len(set(PACKAGES))


@pytest.mark.parametrize("name", MODULES)
def test_imports_point_upward(name):
    place = {package: i for i, package in enumerate(PACKAGES)}
    wrong = [
        f"{MODULES[name].relative_to(ROOT.parent)}:{line} imports {target!r}, whose package stands below"
        for line, target in imports_of(name)
        if place[package_of(target)] > place[package_of(name)]
    ]
    assert not wrong, "\n".join(wrong)


def find_cycle(graph: dict[str, set[str]]) -> list[str]:
    """One import cycle of a graph of modules, as a list of names, or an empty list."""
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return []
        for target in sorted(graph.get(name, ())):
            if cycle := visit(target, [*path, name]):
                return cycle
        done.add(name)
        return []

    return next((cycle for name in sorted(graph) if (cycle := visit(name, []))), [])


def test_no_package_contains_an_import_cycle():
    graph = {name: {target for _, target in imports_of(name)} - {name} for name in MODULES if name != "ugw"}
    assert not find_cycle(graph)


@pytest.mark.parametrize(
    ("graph", "cycle"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b", "c"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b"}, "b": {"c"}, "c": {"b"}}, ["b", "c", "b"]),
    ],
)
def test_cycles_are_found(graph, cycle):
    assert find_cycle(graph) == cycle


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
def test_every_form_of_import_is_detected(source, package, expected):
    modules = {"ugw", "errors", "spaces", "problems", "problems.linear"}
    assert [name for _, name in imported_modules(source, package, modules)] == expected
