"""Number of functions and files that one solve visits, and the size of the package.

    OMP_NUM_THREADS=1 python -m benchmarks.visited_functions

Counts the distinct functions and files of the package that one dense `ugw.solve` enters, 100 against 100 points in
float64 on the CPU, after a warm-up: with the default start and with init="product". Also counts the modules, methods,
constants, docstrings and lines of the package. Classes are identified by name, in any module.
"""

import ast
import importlib
import re
import sys
import warnings
from functools import cached_property
from pathlib import Path
from types import FunctionType

import numpy as np
import torch

import ugw

PACKAGE = Path(ugw.__file__).resolve().parent
POINTS = 100
# Code objects that are parts of a function, not functions of their own.
INNER = ("<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>", "<module>")
METHODS = (FunctionType, property, classmethod, staticmethod, cached_property)
CONSTANT = re.compile(r"_*[A-Z][A-Z0-9_]*")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


# -- one solve ---------------------------------------------------------------------------------------------------------


def record_functions(call):
    """Return the functions of the package that a call enters, as (file, line, name), and the number of entries."""
    root, functions, calls = str(PACKAGE), set(), 0

    def record_call(frame, event, _):
        nonlocal calls
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(root) and code.co_name not in INNER:
            functions.add((code.co_filename, code.co_firstlineno, code.co_qualname))
            calls += 1

    sys.setprofile(record_call)
    try:
        call()
    finally:
        sys.setprofile(None)
    return functions, calls


def rows_of_solve():
    """Return two rows of the table per initialization."""
    rng = np.random.default_rng(0)
    x, y = (ugw.Space.from_points(rng.random((POINTS, dim))) for dim in (3, 2))
    rows = []
    for start in ("auto", "product"):

        def call(start=start):
            ugw.solve(x, y, rho=0.1, eps=1e-2, init=start)

        call()
        functions, calls = record_functions(call)
        rows.append((f'functions visited, init="{start}"', len(functions)))
        rows.append((f'files visited, init="{start}"', len({file for file, *_ in functions})))
        rows.append((f'calls, init="{start}"', calls))
    return rows


# -- the package -------------------------------------------------------------------------------------------------------


def parse_modules():
    """Return the file and the syntax tree of every module of the package."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}


def module_of(path):
    """Return the import name of a file."""
    parts = [PACKAGE.name, *path.relative_to(PACKAGE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def classes(trees, name):
    """Return the top-level classes of that name in all modules."""
    kinds = []
    for path, tree in trees.items():
        if any(isinstance(node, ast.ClassDef) and node.name == name for node in tree.body):
            kinds.append(getattr(importlib.import_module(module_of(path)), name))
    return kinds


def methods(kind, *, inherited):
    """Return the names of methods and properties of a class that the package defines, without double underscores."""
    bases = [base for base in kind.__mro__ if base.__module__.split(".")[0] == PACKAGE.name]
    return {
        name
        for base in (bases if inherited else [kind])
        for name, value in vars(base).items()
        if isinstance(value, METHODS) and not (name.startswith("__") and name.endswith("__"))
    }


def is_numeric(node):
    """Is the node a number, an arithmetic expression of numbers, or a tuple of these?"""
    match node:
        case ast.Constant(value=value):
            return isinstance(value, int | float | complex) and not isinstance(value, bool)
        case ast.UnaryOp(operand=operand):
            return is_numeric(operand)
        case ast.BinOp(left=left, right=right):
            return is_numeric(left) and is_numeric(right)
        case ast.Tuple(elts=parts):
            return bool(parts) and all(is_numeric(part) for part in parts)
    return False


def constants(tree):
    """Return the names of module-level numeric constants; each name of a tuple assignment counts."""
    names = []
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for target in targets:
            is_unpacked = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
            pairs = zip(target.elts, node.value.elts, strict=False) if is_unpacked else [(target, node.value)]
            names += [
                name.id
                for name, value in pairs
                if isinstance(name, ast.Name) and CONSTANT.fullmatch(name.id) and is_numeric(value)
            ]
    return names


def rows_of_package():
    """Return the rows about the size of the package."""
    trees = parse_modules()
    rows = [
        (f"modules directly in {PACKAGE.name}", sum(path.parent == PACKAGE for path in trees)),
        ("modules in total", len(trees)),
    ]
    for name in ("Problem", "UGW"):
        for kind in classes(trees, name):
            label = f"{kind.__module__}.{name}"
            rows.append((f"methods of {label}", len(methods(kind, inherited=True))))
            rows.append((f"methods of {label}, own", len(methods(kind, inherited=False))))
    functions = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, FUNCTIONS)]
    undocumented = [node for node in functions if ast.get_docstring(node) is None]
    return [
        *rows,
        ("numeric constants of modules", sum(len(constants(tree)) for tree in trees.values())),
        ("functions", len(functions)),
        ("functions without docstring", len(undocumented)),
        ("source lines", sum(len(path.read_text(encoding="utf-8").splitlines()) for path in trees)),
    ]


def main():
    """Print the table."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for name, count in [*rows_of_solve(), *rows_of_package()]:
        print(f"{name:<52} {count:>7}")


if __name__ == "__main__":
    main()
