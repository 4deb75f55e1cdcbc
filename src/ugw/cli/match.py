"""The steps of `ugw match`: read two files, solve, and write the plan, a summary, a picture and a report."""

from __future__ import annotations

import json
import math
import time
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import ugw

from .._utils.checks import as_parameter, check_finite, check_nonnegative
from .._utils.output_folder import output_folder
from .._utils.threads import single_thread
from ..geometry.landmarks import evenly_spaced_indices
from ..plots import figures as plots
from ..plots.drawing import mds_coordinates, principal_coordinates
from ..plots.style import STYLE
from ..report.page import plotly_script, write
from ..report.views import View
from ..results.projection import divide_by_weights
from .config import MATCH_CONFIG
from .files import is_graph, read_array, read_graph

if TYPE_CHECKING:
    import networkx
    from matplotlib.figure import Figure

FILE_NAMES = ("plan.npz", "summary.json", "matching.png")
# Options on which the plan does not depend, left out of summary.json.
OUTPUT_OPTIONS = ("out", "report", "progress", "quiet")


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `ugw match`, as the command line gives them; `ugw match --help` describes them."""

    source: str
    target: str
    kind: str | None
    kind_source: str | None
    kind_target: str | None
    metric: str | None
    weights_source: str | None
    weights_target: str | None
    features_source: str | None
    features_target: str | None
    alpha: float | None
    rho: float | tuple[float, float]
    eps: str
    scale: str
    init: str
    tol: float
    max_iter: int
    out: str
    report: str | None
    progress: bool
    quiet: bool


@dataclass(frozen=True, eq=False)
class MatchInput:
    """One of the two inputs of `ugw match`.

    kind: "points", "distances" or "graph"; positions: (n, 1 to 3), where the n points are drawn; graph: for a graph.
    """

    file: str
    kind: str
    space: ugw.Space
    positions: np.ndarray
    graph: networkx.Graph | None = None

    def __str__(self) -> str:
        """Return file, kind, size and mass in one line."""
        return f"{self.file}: {self.kind}, n = {self.space.n}, mass {float(self.space.mass):.4g}"

    def view(self) -> View:
        """Return the View (space, file name, and for a graph positions and edges) by which a report draws the input."""
        return View(self.space, Path(self.file).name, None if self.graph is None else self.positions, self.graph)

    def summary_entry(self) -> dict[str, Any]:
        """Return the entry of summary.json: file, kind, size, mass, and the nodes of a graph in the plan's order."""
        entry = {"file": self.file, "kind": self.kind, "n": self.space.n, "mass": float(self.space.mass)}
        return entry if self.graph is None else entry | {"nodes": [str(node) for node in self.graph.nodes]}


def run(options: Options) -> tuple[ugw.Result, str]:
    """Run `ugw match`: read both inputs, solve, write all files; return the result and the lines to print, one text.

    The files are plan.npz, summary.json and matching.png in the folder --out, and the page --report if given.
    """
    page = _report_path(options)
    source, target = read_input(options, "source"), read_input(options, "target")
    _check_unused_options(options, source, target)
    with ExitStack() as stack:
        stage = stack.enter_context(output_folder(Path(options.out), names=FILE_NAMES))
        page_stage = page and stack.enter_context(output_folder(page.parent, names=(page.name,)))
        start = time.perf_counter()
        is_small = source.space.n * target.space.n <= MATCH_CONFIG.max_single_thread_entries
        with single_thread() if is_small else nullcontext():
            result = _solve(options, source, target)
        seconds = time.perf_counter() - start
        np.savez_compressed(stage / "plan.npz", **plan_arrays(result))  # type: ignore[arg-type]
        summary: dict[str, Any] = {"source": source.summary_entry(), "target": target.summary_entry()}
        plan_options = {name: value for name, value in vars(options).items() if name not in OUTPUT_OPTIONS}
        summary |= {"options": plan_options, **_result_entries(result), "seconds": seconds}
        text = json.dumps(_to_json(summary), indent=2, allow_nan=False, ensure_ascii=False)
        (stage / "summary.json").write_text(text + "\n", encoding="utf-8")
        rescale = options.scale != "none" or "graph" in (source.kind, target.kind)
        draw_matching(result, source, target, rescale=rescale).savefig(stage / "matching.png", dpi=160)
        if page and page_stage:
            facts = _report_facts(options) | {"seconds": round(seconds, 1)}
            write(result, source.view(), target.view(), page_stage / page.name, facts=facts)
    written = f"{', '.join(FILE_NAMES)} in {options.out}" + (f", and {page}" if page else "")
    rows = [("source", source), ("target", target), *result.rows(), ("seconds", f"{seconds:.1f}"), ("wrote", written)]
    return result, "\n".join(f"{name:<12} {text}" for name, text in rows)


def _report_path(options: Options) -> Path | None:
    """Return the path of the option --report, or None; raise InputError for another suffix or if plotly is missing."""
    if options.report is None:
        return None
    path = Path(options.report)
    if path.suffix.lower() not in (".html", ".htm"):
        raise ugw.InputError(f"--report must name a file that ends in .html, got {options.report!r}")
    try:
        plotly_script()
    except ImportError as error:
        raise ugw.InputError(str(error)) from error
    return path


# -- inputs ------------------------------------------------------------------------------------------------


def read_input(options: Options, side: str) -> MatchInput:
    """Return the input of one side, "source" or "target": file name, kind, space, positions to draw, and graph or None.

    The space has the weights and features in the files that the options name, and distances divided as --scale says.
    """
    file, own_kind = getattr(options, side), getattr(options, f"kind_{side}")
    graph = read_graph(file) if is_graph(file) else None
    if graph is not None and own_kind is not None:
        raise ugw.InputError(f"{file}: a graph is neither points nor distances, got --kind-{side} {own_kind}")
    array = _read_table(file) if graph is None else np.empty(0)
    kind = "graph" if graph is not None else own_kind or options.kind or _guess_kind(file, array)
    n = len(array) if graph is None else graph.number_of_nodes()
    weights, features = getattr(options, f"weights_{side}"), getattr(options, f"features_{side}")
    extra: dict[str, Any] = {
        "weights": None if weights is None else _read_weights(weights, n),
        "features": None if features is None else _read_features(features, n),
    }
    try:
        if kind == "graph":
            space, positions = ugw.Space.from_graph(graph, **extra), plots.layout(graph)
        elif kind == "distances":
            space, positions = ugw.Space.from_distances(array, **extra), mds_coordinates(array)
        else:
            space = ugw.Space.from_points(array, metric=options.metric or "euclidean", **extra)
            positions = array if array.shape[1] <= 3 else principal_coordinates(array)
        space = space if options.scale == "none" else space.scaled(options.scale)
    except ugw.InputError as error:
        raise ugw.InputError(f"{file}: {error}") from None
    return MatchInput(file, kind, space, positions, graph)


def _read_table(file: str) -> np.ndarray:
    """Return the array (n, d) of a file, (n, 1) for an array (n,); raise InputError for three or more dimensions."""
    array = read_array(file)
    if array.ndim not in (1, 2):
        raise ugw.InputError(f"{file}: expected rows of numbers, shape (n, d) or (n,), got {array.shape}")
    return array.reshape(len(array), -1)


def _read_features(file: str, n: int) -> np.ndarray:
    """Return the features (n, d) in a file; raise InputError unless there are n rows of finite numbers."""
    array = _read_table(file)
    if len(array) != n:
        raise ugw.InputError(f"{file}: expected a row of features for each of the {n} points, got {len(array)} rows")
    check_finite(f"{file}: features", torch.from_numpy(array))
    return array


def _read_weights(file: str, n: int) -> np.ndarray:
    """Return the weights (n,) in a file, one column or one row; raise unless there are n, ≥ 0, with a positive sum."""
    array = read_array(file)
    if array.shape not in ((n,), (n, 1), (1, n)):
        raise ugw.InputError(f"{file}: expected {n} weights, one for each point, got shape {array.shape}")
    weights = torch.from_numpy(array.reshape(n))
    check_finite(f"{file}: weights", weights)
    check_nonnegative(f"{file}: weights", weights)
    as_parameter(f"{file}: total mass of the weights", weights.sum())
    return weights.numpy()


def _guess_kind(file: str, array: np.ndarray) -> str:
    """Return "points" for the array of a file; raise InputError if it is square, so that it could be distances."""
    if array.shape[0] == array.shape[1]:
        size = f"{len(array)} × {len(array)}"
        raise ugw.InputError(f"{file}: a square array ({size}) may hold points or distances: say which with --kind")
    return "points"


def _check_unused_options(options: Options, source: MatchInput, target: MatchInput) -> None:
    """Raise InputError for options that have no effect on these inputs, and for only some of the fused options.

    These are `--kind` with two graphs and `--metric` without points; `--alpha`, `--features-source` and
    `--features-target` go together.
    """
    kinds = (source.kind, target.kind)
    if options.kind is not None and kinds == ("graph", "graph"):
        raise ugw.InputError(f"--kind {options.kind} is for arrays, got two graphs")
    if options.metric is not None and "points" not in kinds:
        raise ugw.InputError(f"--metric {options.metric} is for points, got {kinds[0]} and {kinds[1]}")
    parts = (options.alpha, options.features_source, options.features_target)
    if any(part is None for part in parts) and any(part is not None for part in parts):
        raise ugw.InputError("--alpha, --features-source and --features-target go together, got only some of them")


# -- results -----------------------------------------------------------------------------------------------


def read_eps(text: str) -> Any:
    """Return eps for `ugw.solve` from the text of --eps: a float, "auto", or for "P%" `ugw.relative(P/100)`.

    >>> read_eps("0.5"), read_eps("auto")
    (0.5, 'auto')
    """
    if text == "auto":
        return text
    if text.endswith("%"):
        return ugw.relative(float(text.removesuffix("%")) / 100)
    return float(text)


def _solve(options: Options, source: MatchInput, target: MatchInput) -> ugw.Result:
    """Return the result of `ugw.solve` between both inputs with these options."""
    return ugw.solve(
        source.space,
        target.space,
        rho=options.rho,
        eps=read_eps(options.eps),
        fused=None if options.alpha is None else ugw.Fused(options.alpha),
        init=options.init,
        solver=ugw.AlternateMin(tol=options.tol, max_iter=options.max_iter, progress=options.progress),
    )


def plan_arrays(result: ugw.Result) -> dict[str, np.ndarray]:
    """Return the arrays of plan.npz: "plan" (n, m), its row sums "source_marginal", column sums "target_marginal".

    The plan is not normalized. For one too large to store, "masses" and "partners", (n, k), replace "plan": the k = 10
    (at most m) largest entries of each row, and their columns.
    """
    marginals = dict(zip(("source_marginal", "target_marginal"), result.marginals, strict=True))
    if result.path == "stored":
        return {"plan": result.plan} | marginals
    masses, partners = result.plan.top(min(MATCH_CONFIG.n_partners, result.plan.shape[1]))
    return {"partners": partners, "masses": masses} | marginals


def _result_entries(result: ugw.Result) -> dict[str, Any]:
    """Return the entries of summary.json about the result, by name.

    value, terms, mass, marginal_error, converged, status (lower-case name), message, n_iter, n_iter_search, backend,
    parameters, and history: a dict of objective, change, residual and mass by step.
    """
    history = result.history
    return {
        "value": result.value,
        "terms": result.terms.as_dict(),
        "mass": result.mass,
        "marginal_error": result.marginal_error,
        "converged": result.converged,
        "status": result.status.name.lower(),
        "message": result.message,
        "n_iter": result.n_iter,
        "n_iter_search": result.n_iter_search,
        "backend": result.backend,
        "parameters": result.parameters,
        "history": {name: getattr(history, name) for name in ("objective", "change", "residual", "mass")},
    }


def _report_facts(options: Options) -> dict[str, Any]:
    """Return the options that the report shows, by name: rho and eps; metric, alpha, scale and init if changed.

    Values are as given, but eps is a number, "auto", or for a percentage a text that says of what.
    """
    eps = f"{options.eps} of the mean distortion" if options.eps.endswith("%") else read_eps(options.eps)
    extra = {"metric": options.metric, "alpha": options.alpha, "scale": options.scale, "init": options.init}
    changed = {name: value for name, value in extra.items() if value not in (None, "none", "auto")}
    return {"rho": options.rho, "eps": eps} | changed


def _to_json(value: Any) -> Any:
    """Return a value as JSON types, recursively: arrays and tuples as lists, inf and nan as strings."""
    if isinstance(value, dict):
        return {key: _to_json(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_to_json(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def draw_matching(result: ugw.Result, source: MatchInput, target: MatchInput, *, rescale: bool) -> Figure:
    """Return a matplotlib Figure of the plan, not yet saved, for matching.png.

    It shows two graphs side by side, with colors that the plan transfers from the source to the target; any other
    inputs in one panel at their `positions`, with lines between matched points, at the same size if `rescale`.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.2), layout="constrained")
    warning = "" if result.converged else ", NOT CONVERGED"
    title = f"{Path(source.file).name} → {Path(target.file).name}"
    figure.suptitle(f"{title}\nvalue {result.value:.4g}, mass {result.mass:.3g}{warning}", fontsize=10, color=STYLE.ink)
    weights = [side.space.weights for side in (source, target)]
    if source.graph is not None and target.graph is not None:
        left, right = figure.subplots(1, 2)
        colors = principal_coordinates(source.positions)[:, 0]
        source_fractions = divide_by_weights(result.marginals[0], weights[0])
        plots.colored_graph(source.graph, colors, shares=source_fractions, pos=source.positions, ax=left)
        plots.color_transfer(result, colors, target.graph, pos=target.positions, weights=weights[1], ax=right)
        return figure
    x, y = source.positions, target.positions
    if rescale:  # by the largest extent over all axes, unless all points coincide
        x, y = (positions / (float(np.ptp(positions, axis=0).max()) or 1.0) for positions in (x, y))
    plan = result.plan
    if result.path != "stored":
        limit = MATCH_CONFIG.max_drawn_points
        drawn = [evenly_spaced_indices(len(positions), limit, with_ends=True).numpy() for positions in (x, y)]
        plan, (x, y) = plan.rows(drawn[0])[:, drawn[1]], (x[drawn[0]], y[drawn[1]])
        # Weights with which each point keeps its fraction of mass, although only some of its partners are drawn.
        fractions = [divide_by_weights(p, w)[k] for p, w, k in zip(result.marginals, weights, drawn, strict=True)]
        weights = [divide_by_weights(plan.sum(axis=1 - k), fraction) for k, fraction in enumerate(fractions)]
    ax = figure.add_subplot(projection="3d" if 3 in (x.shape[1], y.shape[1]) else None)
    plots.matching(plan, x, plots.align_points(plan, x, y), weights=(weights[0], weights[1]), ax=ax)
    return figure
