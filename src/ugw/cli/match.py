"""The work of `ugw match`: two files become spaces, then a plan, a summary, a picture, and a report on request."""

from __future__ import annotations

import json
import math
import time
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import ugw

from .._utils.checks import as_positive, check_finite, check_nonnegative
from .._utils.output_folder import output_folder
from .._utils.threads import single_thread
from ..geometry.landmarks import evenly_spaced_indices
from ..plots import figures as plots
from ..plots._drawing import divide_by_weights, mds_coordinates, principal_coordinates
from ..plots.style import STYLE
from ..report.page import plotly_script, write
from ..report.views import View
from .files import is_graph, read_array, read_graph

if TYPE_CHECKING:
    import networkx
    from matplotlib.figure import Figure

WRITTEN = ("plan.npz", "summary.json", "matching.png")
PARTNERS = 10  # of each point that plan.npz has where the plan is not stored
DRAWN = 1000  # points a side in the picture of such a plan
SMALL = 250_000  # entries of a plan up to which one thread is as fast as several


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the command line said, option by option."""

    source: str
    target: str
    kind: str | None = None
    kind_source: str | None = None
    kind_target: str | None = None
    metric: str | None = None
    weights_source: str | None = None
    weights_target: str | None = None
    features_source: str | None = None
    features_target: str | None = None
    alpha: float | None = None
    rho: float | tuple[float, float] = 1.0
    eps: str = "1%"
    scale: str = "none"
    init: str = "auto"
    tol: float = 1e-6
    max_iter: int = 1000
    out: str = "out"
    report: str | None = None
    progress: bool = False
    quiet: bool = False


@dataclass(frozen=True, eq=False)
class Side:
    """One of the two inputs. places: (n, 1 to 3), where to draw its points."""

    file: str
    kind: str
    space: ugw.Space
    places: np.ndarray
    graph: networkx.Graph | None = None

    def __str__(self) -> str:
        return f"{self.file}: {self.kind}, n = {self.space.n}, mass {float(self.space.mass):.4g}"

    def view(self) -> View:
        """How the report draws it; the layout of a graph is computed already."""
        return View(self.space, Path(self.file).name, None if self.graph is None else self.places, self.graph)

    def record(self) -> dict[str, Any]:
        """What summary.json says about it; nodes in the order of the plan."""
        said = {"file": self.file, "kind": self.kind, "n": self.space.n, "mass": float(self.space.mass)}
        return said if self.graph is None else said | {"nodes": [str(node) for node in self.graph.nodes]}


def run(options: Options) -> tuple[ugw.Result, str]:
    """Read, solve, write the files; the result and the lines to print."""
    page = _report_path(options)
    source, target = read_side(options, "source"), read_side(options, "target")
    _check_used(options, source, target)
    with ExitStack() as stack:
        stage = stack.enter_context(output_folder(Path(options.out), names=WRITTEN))
        shelf = page and stack.enter_context(output_folder(page.parent, names=(page.name,)))
        start = time.perf_counter()
        with single_thread() if source.space.n * target.space.n <= SMALL else nullcontext():
            result = _solve(options, source, target)
        seconds = time.perf_counter() - start
        np.savez_compressed(stage / "plan.npz", **plan_arrays(result))  # type: ignore[arg-type]
        summary = {"source": source.record(), "target": target.record(), "options": _asked(options)}
        summary |= _numbers(result) | {"seconds": seconds}
        text = json.dumps(_plain(summary), indent=2, allow_nan=False, ensure_ascii=False)
        (stage / "summary.json").write_text(text + "\n", encoding="utf-8")
        unit = options.scale != "none" or "graph" in (source.kind, target.kind)
        picture(result, source, target, unit=unit).savefig(stage / "matching.png", dpi=160)
        if page and shelf:
            facts = _facts(options) | {"seconds": round(seconds, 1)}
            write(result, source.view(), target.view(), shelf / page.name, facts=facts)
    wrote = f"{', '.join(WRITTEN)} in {options.out}" + (f", and {page}" if page else "")
    lines = [f"{'source':<12} {source}", f"{'target':<12} {target}", result.summary()]
    lines += [
        f"{'seconds':<12} {seconds:.1f}",
        f"{'wrote':<12} {wrote}",
    ]
    return result, "\n".join(lines)


def _report_path(options: Options) -> Path | None:
    """Where the report goes; whether it can be written is found out before the work."""
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


# -- the two sides -----------------------------------------------------------------------------------------


def read_side(options: Options, side: str) -> Side:
    """The space of "source" or "target", with its weights, features and scale."""
    file, own_kind = getattr(options, side), getattr(options, f"kind_{side}")
    graph = read_graph(file) if is_graph(file) else None
    if graph is not None and own_kind is not None:
        raise ugw.InputError(f"{file}: a graph is neither points nor distances, got --kind-{side} {own_kind}")
    array = _read_table(file) if graph is None else np.empty(0)
    kind = "graph" if graph is not None else own_kind or options.kind or _guess(file, array)
    n = len(array) if graph is None else graph.number_of_nodes()
    weights, features = getattr(options, f"weights_{side}"), getattr(options, f"features_{side}")
    extra: dict[str, Any] = {
        "weights": None if weights is None else _read_weights(weights, n),
        "features": None if features is None else _read_features(features, n),
    }
    try:
        if kind == "graph":
            space, places = ugw.Space.from_graph(graph, **extra), plots.layout(graph)
        elif kind == "distances":
            space = ugw.Space.from_distances(array, **extra)
            places = mds_coordinates(array)
        else:
            space = ugw.Space.from_points(array, metric=options.metric or "euclidean", **extra)
            places = array if array.shape[1] <= 3 else principal_coordinates(array)
        space = space if options.scale == "none" else space.scaled(options.scale)
    except ugw.InputError as error:
        raise ugw.InputError(f"{file}: {error}") from None
    return Side(file, kind, space, places, graph)


def _read_table(file: str) -> np.ndarray:
    """Rows of numbers, (n, d). The library would take a third dimension as a batch; a match is of one pair."""
    array = read_array(file)
    if array.ndim not in (1, 2):
        raise ugw.InputError(f"{file}: expected rows of numbers, shape (n, d) or (n,), got {array.shape}")
    return array.reshape(len(array), -1)


def _read_features(file: str, n: int) -> np.ndarray:
    """Checked features, (n, d), of n points."""
    array = _read_table(file)
    if len(array) != n:
        raise ugw.InputError(f"{file}: expected a row of features for each of the {n} points, got {len(array)} rows")
    check_finite(f"{file}: features", torch.from_numpy(array))
    return array


def _read_weights(file: str, n: int) -> np.ndarray:
    """Checked weights, (n,), of n points; a file may hold them in one column or one row."""
    array = read_array(file)
    if array.shape not in ((n,), (n, 1), (1, n)):
        raise ugw.InputError(f"{file}: expected {n} weights, one for each point, got shape {array.shape}")
    weights = torch.from_numpy(array.reshape(n))
    check_finite(f"{file}: weights", weights)
    check_nonnegative(f"{file}: weights", weights)
    as_positive(f"{file}: total mass of the weights", weights.sum(), allow_inf=False)
    return weights.numpy()


def _guess(file: str, array: np.ndarray) -> str:
    """Points, unless the shape could be that of distances too; or the error that asks."""
    if array.shape[0] == array.shape[1]:
        size = f"{array.shape[0]} × {array.shape[1]}"
        raise ugw.InputError(f"{file}: a square array ({size}) may hold points or distances: say which with --kind")
    return "points"


def _check_used(options: Options, source: Side, target: Side) -> None:
    """Refuse what the command line asked for and nothing would use, and half of a fused problem."""
    kinds = (source.kind, target.kind)
    if options.kind is not None and kinds == ("graph", "graph"):
        raise ugw.InputError(f"--kind {options.kind} is for arrays, got two graphs")
    if options.metric is not None and "points" not in kinds:
        raise ugw.InputError(f"--metric {options.metric} is for points, got {kinds[0]} and {kinds[1]}")
    parts = (options.alpha, options.features_source, options.features_target)
    if any(part is None for part in parts) and any(part is not None for part in parts):
        raise ugw.InputError("--alpha, --features-source and --features-target go together, got only some of them")


# -- the answer --------------------------------------------------------------------------------------------


def _solve(options: Options, source: Side, target: Side) -> ugw.Result:
    share = options.eps.endswith("%")
    number = float(options.eps.removesuffix("%"))
    return ugw.solve(
        source.space,
        target.space,
        rho=options.rho,
        eps=ugw.relative(number / 100) if share else number,
        fused=None if options.alpha is None else ugw.Fused(options.alpha),
        init=options.init,
        solver=ugw.AlternateMin(tol=options.tol, max_iter=options.max_iter, progress=options.progress),
    )


def plan_arrays(result: ugw.Result) -> dict[str, np.ndarray]:
    """What plan.npz has: the plan, or of one that is not stored the largest entries of each row; the marginals."""
    sums = dict(zip(("source_marginal", "target_marginal"), result.marginals, strict=True))
    if result.path == "stored":
        return {"plan": result.plan} | sums
    masses, partners = result.plan.top(min(PARTNERS, result.plan.shape[1]))
    return {"partners": partners, "masses": masses} | sums


def _numbers(result: ugw.Result) -> dict[str, Any]:
    """What summary.json says about the result."""
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
        "history": {name: getattr(history, name) for name in ("objective", "change", "residual", "mass")},
    }


def _facts(options: Options) -> dict[str, Any]:
    """What the report says about the problem."""
    eps = f"{options.eps} of the mean distortion" if options.eps.endswith("%") else float(options.eps)
    extra = {"metric": options.metric, "alpha": options.alpha, "scale": options.scale, "init": options.init}
    said = {name: value for name, value in extra.items() if value not in (None, "none", "auto")}
    return {"rho": options.rho, "eps": eps} | said


def _asked(options: Options) -> dict[str, Any]:
    """The options that decide the numbers."""
    return {name: said for name, said in asdict(options).items() if name not in ("out", "report", "progress", "quiet")}


def _plain(value: Any) -> Any:
    """Lists, words and finite numbers, as JSON has them; inf and nan become words."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def picture(result: ugw.Result, source: Side, target: Side, *, unit: bool) -> Figure:
    """Two graphs: colors carried over. Otherwise matching lines, each side at unit size where `unit`."""
    from matplotlib.figure import Figure

    made = Figure(figsize=(7.0, 4.2), layout="constrained")
    ended = "" if result.converged else ", NOT CONVERGED"
    title = f"{Path(source.file).name} → {Path(target.file).name}"
    made.suptitle(f"{title}\nvalue {result.value:.4g}, mass {result.mass:.3g}{ended}", fontsize=10, color=STYLE.ink)
    weights = [side.space.weights for side in (source, target)]
    if source.graph is not None and target.graph is not None:
        left, right = made.subplots(1, 2)
        colors = principal_coordinates(source.places)[:, 0]
        shares = np.divide(result.marginals[0], weights[0], out=np.zeros(source.space.n), where=weights[0] > 0)
        plots.colored_graph(source.graph, colors, shares=shares, pos=source.places, ax=left)
        plots.color_transfer(result, colors, target.graph, pos=target.places, weights=weights[1], ax=right)
        return made
    x, y = (side.places / _size(side.places) if unit else side.places for side in (source, target))
    plan = result.plan
    if result.path != "stored":
        kept = [evenly_spaced_indices(len(places), DRAWN).numpy() for places in (x, y)]
        plan, (x, y) = plan.rows(kept[0])[:, kept[1]], (x[kept[0]], y[kept[1]])
        # Weights that leave each point its share of mass, though only a part of its partners is drawn.
        shares = [divide_by_weights(sums, w)[k] for sums, w, k in zip(result.marginals, weights, kept, strict=True)]
        weights = [divide_by_weights(plan.sum(axis=1 - k), share) for k, share in enumerate(shares)]
    ax = made.add_subplot(projection="3d" if 3 in (x.shape[1], y.shape[1]) else None)
    plots.matching(plan, x, plots.aligned(plan, x, y), weights=(weights[0], weights[1]), ax=ax)
    return made


def _size(places: np.ndarray) -> float:
    return float(np.ptp(places, axis=0).max()) or 1.0
