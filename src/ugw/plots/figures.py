"""Pictures: matching lines, plan heat map, color transfer onto a graph, convergence curve."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .._utils.checks import check_whole_number
from ..errors import InputError
from ..geometry.landmarks import farthest_points
from ._drawing import (
    ACROSS,
    INK,
    LARGEST_DOT,
    PALE,
    PALETTE,
    as_array,
    as_colors,
    axes_for,
    carried,
    class_names,
    class_pair,
    coordinates,
    dot_area,
    equal_frame,
    history_curves,
    mass_shares,
    plan_of,
    quiet,
)

if TYPE_CHECKING:
    import networkx
    from matplotlib.axes import Axes

__all__ = ["aligned", "color_transfer", "colored_graph", "convergence", "layout", "matching", "plan"]

# -- matching lines ----------------------------------------------------------------------------------------


def matching(
    result: Any,
    points_x: Any,
    points_y: Any,
    *,
    weights: tuple[Any, Any] | None = None,
    labels: tuple[Any, Any] | None = None,
    lines: int = 80,
    ax: Axes | None = None,
) -> Axes:
    """Two clouds side by side, some points of each joined to where the plan sends the most of them.

    result: a Result or a plan (n, m); points_x: (n, 1 to 3); points_y: (m, 1 to 3). Two dimensions beside
    three are laid into the plane z = 0, and the second cloud is moved below or beside the first: no distance
    changes. `aligned` also turns it.

    The area of a dot is the mass that its point sends or receives, divided by its weight: `weights` is the
    pair ((n,), (m,)), equal weights where it is None. `lines` points, spread evenly over both clouds, each
    show their largest plan entry, the darker the larger. With `labels`, a pair of integers ((n,), (m,)),
    classes have colors and lines between different classes are red; without them the first cloud is
    colored along its longest direction and the plan carries the colors over to the second.

    >>> import numpy as np
    >>> points = np.random.default_rng(0).normal(size=(30, 2))
    >>> axes = matching(np.eye(30) / 30, points, points)
    """
    plan_ = plan_of(result)
    x, y = coordinates("points_x", points_x), coordinates("points_y", points_y)
    _check_joins(plan_, x, y)
    x, y = _beside(x, y)
    check_whole_number("lines", lines, minimum=0)
    ax = axes_for(ax, three_d=x.shape[1] == 3)
    classes = None if labels is None else class_pair(plan_, labels)
    pairs = _largest_pairs(plan_, x, y, lines)
    _draw_lines(ax, plan_, (x, y), pairs, classes)
    shares = mass_shares(plan_, weights)
    for cloud, colors, share in zip((x, y), _cloud_colors(plan_, x, classes), shares, strict=True):
        area = dot_area(len(x) + len(y)) * np.clip(share, 0.02, LARGEST_DOT)
        extra = {"depthshade": False} if cloud.shape[1] == 3 else {"zorder": 2}
        ax.scatter(*cloud.T, s=area, c=colors, linewidths=0.3, edgecolors="white", **extra)
    equal_frame(ax, np.concatenate([x, y]))
    return ax


def aligned(result: Any, points_x: Any, points_y: Any) -> np.ndarray:
    """The second points (m, k) turned and mirrored so that what the plan joins lies alike: an isometry.

    The plan knows distances only: its lines may cross for no other reason than how the clouds happen to lie.

    >>> import numpy as np
    >>> points = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
    >>> np.allclose(aligned(np.eye(3) / 3, points, points @ [[0, -1], [1, 0]]), points - points.mean(axis=0))
    True
    """
    plan_, x, y = plan_of(result), as_array("points_x", points_x), as_array("points_y", points_y)
    _check_joins(plan_, x, y)
    k = y.shape[1]
    x = np.pad(x[:, :k], ((0, 0), (0, max(0, k - x.shape[1]))))
    mass = max(plan_.sum(), np.finfo(float).tiny)
    x, y = x - plan_.sum(axis=1) @ x / mass, y - plan_.sum(axis=0) @ y / mass
    left, _, right = np.linalg.svd(y.T @ plan_.T @ x)
    return y @ (left @ right)


def _check_joins(plan_: np.ndarray, x: np.ndarray, y: np.ndarray) -> None:
    for name, points in (("points_x", x), ("points_y", y)):
        if points.ndim != 2:
            raise InputError(f"{name} must have one point per row, (n, d), got shape {points.shape}")
    if plan_.shape != (len(x), len(y)):
        raise InputError(f"a plan of shape {plan_.shape} cannot join {len(x)} points to {len(y)}")


def _beside(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both clouds in one R² or R³, centered on each other but for the axis along which y is moved below x."""
    d = max(2, x.shape[1], y.shape[1])
    x, y = (np.pad(cloud, ((0, 0), (0, d - cloud.shape[1]))) for cloud in (x, y))
    x, y = (cloud - (cloud.max(axis=0) + cloud.min(axis=0)) / 2 for cloud in (x, y))
    extent = np.maximum(np.ptp(x, axis=0), np.ptp(y, axis=0))
    # In space the last axis points up. In the plane, across the shorter extent the lines run in parallel.
    axis = 2 if d == 3 else int(np.argmin(extent))
    gap = (np.ptp(x[:, axis]) + np.ptp(y[:, axis])) / 2 + 0.45 * extent.max()
    shift = np.zeros(d)
    shift[axis] = gap if axis == 0 else -gap
    return x, y + shift


def _largest_pairs(plan_: np.ndarray, x: np.ndarray, y: np.ndarray, lines: int) -> np.ndarray:
    """Index pairs (k, 2), k ≤ lines: the largest entry of some rows and of some columns, without duplicates.

    Rows and columns are treated alike, so that the transposed plan draws the same lines.
    """
    rows = _spread(x, lines - lines // 2)
    columns = _spread(y, lines // 2)
    from_rows = np.stack([rows, plan_[rows].argmax(axis=1)], axis=1)
    from_columns = np.stack([plan_[:, columns].argmax(axis=0), columns], axis=1)
    pairs = np.unique(np.concatenate([from_rows, from_columns]), axis=0)
    return pairs[plan_[pairs[:, 0], pairs[:, 1]] > 0]


def _spread(points: np.ndarray, count: int) -> np.ndarray:
    """`count` indices of points far from each other: each next one is the farthest from those before."""
    places = torch.from_numpy(np.asarray(points, dtype=np.float64))

    def column(index: torch.Tensor) -> torch.Tensor:
        """Return the squared distances (1, n) of all points to one."""
        return (places - places[index]).square().sum(dim=1)[None]

    return farthest_points(column, torch.tensor([0]), min(count, len(points)))[0].numpy()


def _draw_lines(
    ax: Axes,
    plan_: np.ndarray,
    clouds: tuple[np.ndarray, np.ndarray],
    pairs: np.ndarray,
    labels: tuple[np.ndarray, np.ndarray] | None,
) -> None:
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_rgb
    from mpl_toolkits.mplot3d.art3d import Line3DCollection

    if len(pairs) == 0:
        return
    i, j = pairs.T
    entry = plan_[i, j] / plan_[i, j].max()
    colors = np.empty((len(pairs), 4))
    colors[:, :3] = to_rgb(INK)
    colors[:, 3] = 0.1 + 0.65 * np.sqrt(entry)
    if labels is not None:
        colors[labels[0][i] != labels[1][j], :3] = to_rgb(ACROSS)
    segments = np.stack([clouds[0][i], clouds[1][j]], axis=1)
    if segments.shape[2] == 3:
        ax.add_collection(Line3DCollection(segments, colors=colors, linewidths=0.7))
    else:
        ax.add_collection(LineCollection(segments, colors=colors, linewidths=0.7, zorder=1))


def _cloud_colors(
    plan_: np.ndarray, x: np.ndarray, labels: tuple[np.ndarray, np.ndarray] | None
) -> tuple[np.ndarray, np.ndarray]:
    """Colors (n, 3) and (m, 3): by class, or along the first cloud and carried over by the plan."""
    from matplotlib.colors import to_rgb

    if labels is None:
        values = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)[0][:, 0]
        colors_x = as_colors(values)
        return colors_x, carried(plan_, colors_x)
    table = np.array([to_rgb(color) for color in PALETTE])
    return table[labels[0] % len(PALETTE)], table[labels[1] % len(PALETTE)]


# -- plan heat map -----------------------------------------------------------------------------------------


def plan(
    result: Any,
    *,
    labels: tuple[Any, Any] | None = None,
    names: tuple[Sequence[str], Sequence[str]] | None = None,
    vmax: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Heat map of a plan (n, m), rows the first space.

    With `labels`, a pair of integers ((n,), (m,)), rows and columns are sorted by class and classes are set
    apart by lines; `names` are what to write beside them. The color is the square root of an entry, so that
    small ones show; `vmax` ends the scale, for several plans on one.

    >>> import numpy as np
    >>> axes = plan(np.eye(4) / 4, labels=([0, 0, 1, 1], [0, 1, 1, 1]))
    """
    from matplotlib.colors import PowerNorm

    plan_ = plan_of(result)
    classes = None if labels is None else class_pair(plan_, labels)
    written = None if names is None or classes is None else class_names(classes, names)
    ax = axes_for(ax, three_d=False)
    if classes is not None:
        plan_ = plan_[np.ix_(*(np.argsort(side, kind="stable") for side in classes))]
    top = vmax or float(np.quantile(plan_[plan_ > 0], 0.995)) if (plan_ > 0).any() else 1.0
    image = ax.imshow(plan_, cmap="Blues", norm=PowerNorm(0.5, vmin=0, vmax=top), aspect="auto")
    bar = ax.figure.colorbar(image, ax=ax, fraction=0.045, pad=0.03, ticks=[0, top / 4, top])
    bar.ax.set_yticklabels(["0", f"{top / 4:.2g}", f"{top:.2g}"], fontsize=8, color=INK)
    bar.outline.set_visible(False)
    bar.ax.set_title("mass", fontsize=8, color=INK)
    ax.set_xlabel("target", fontsize=9, color=INK)
    ax.set_ylabel("source", fontsize=9, color=INK)
    quiet(ax)
    if classes is not None:
        _class_ticks(ax, classes, written)
    return ax


def _class_ticks(ax: Axes, classes: tuple[np.ndarray, np.ndarray], names: list[list[str]] | None) -> None:
    """A line between classes and one tick in the middle of each."""
    for k, (axis, rule) in enumerate(((ax.yaxis, ax.axhline), (ax.xaxis, ax.axvline))):
        present, counts = np.unique(classes[k], return_counts=True)
        ends = np.cumsum(counts)
        for end in ends[:-1]:
            rule(end - 0.5, color=INK, linewidth=0.6)
        axis.set_ticks(ends - counts / 2 - 0.5)
        axis.set_ticklabels([str(c) for c in present] if names is None else names[k])
    ax.tick_params(axis="y", labelrotation=90)
    for label in ax.get_yticklabels():
        label.set_verticalalignment("center")


# -- colors on graphs -------------------------------------------------------------------------------------


def color_transfer(
    result: Any,
    colors: Any,
    graph: networkx.Graph,
    *,
    pos: Any = None,
    weights: Any = None,
    ax: Axes | None = None,
) -> Axes:
    """The second graph in the colors of the first: node j gets the mean of c_i with weights plan_ij.

    colors: (n,) numbers or (n, 3) RGB in [0, 1], one for each node of the *first* graph; `graph`: the
    second, its m nodes in its own order; `pos`: (m, 2), see `layout`. The area of a node is the mass that it
    receives divided by its weight, (m,), equal weights where None. Nodes that receive nothing are pale.

    >>> import networkx, numpy as np
    >>> axes = color_transfer(np.eye(5) / 5, np.arange(5.0), networkx.path_graph(5))
    """
    plan_ = plan_of(result)
    share = mass_shares(plan_, None if weights is None else (None, weights))[1]
    given = as_array("colors", colors)
    if given.shape[:1] != plan_.shape[:1]:
        raise InputError(f"colors must have one row for each of the {len(plan_)} source nodes, got {given.shape}")
    return colored_graph(graph, carried(plan_, as_colors(given)), shares=share, pos=pos, ax=ax)


def colored_graph(
    graph: networkx.Graph, colors: Any, *, shares: Any = None, pos: Any = None, ax: Axes | None = None
) -> Axes:
    """A graph with colored nodes. colors: (n,) or (n, 3); shares: (n,) relative areas; pos: (n, 2).

    >>> import networkx, numpy as np
    >>> axes = colored_graph(networkx.path_graph(5), np.arange(5.0))
    """
    from matplotlib.collections import LineCollection

    n = node_count(graph)
    place = layout(graph) if pos is None else as_array("pos", pos)
    rgb = as_colors(as_array("colors", colors))
    if place.shape != (n, 2) or len(rgb) != n:
        raise InputError(
            f"pos must have shape ({n}, 2) and colors {n} rows, one per node, got {place.shape} and {len(rgb)}"
        )
    share = np.ones(n) if shares is None else as_array("shares", shares)
    if share.shape != (n,):
        raise InputError(f"shares must have shape ({n},), got {share.shape}")
    ax = axes_for(ax, three_d=False)
    number = {node: k for k, node in enumerate(graph.nodes)}
    ends = np.array([(number[u], number[v]) for u, v in graph.edges()], dtype=int).reshape(-1, 2)
    ax.add_collection(LineCollection(place[ends], colors=PALE, linewidths=0.8, zorder=1))
    area = 1.5 * dot_area(n) * np.clip(share, 0.06, LARGEST_DOT)
    ax.scatter(*place.T, s=area, c=rgb, linewidths=0.4, edgecolors="white", zorder=2)
    equal_frame(ax, place)
    return ax


def node_count(graph: Any) -> int:
    """The nodes of a networkx graph; an InputError for anything else."""
    import networkx

    if not isinstance(graph, networkx.Graph):
        raise InputError(f"graph must be a networkx graph, got {type(graph).__name__}")
    return graph.number_of_nodes()


def layout(graph: networkx.Graph) -> np.ndarray:
    """Places (n, 2) for the nodes: their attributes `pos`, or `x` and `y`, or computed, always alike.

    >>> import networkx
    >>> layout(networkx.path_graph(3)).shape
    (3, 2)
    """
    import networkx

    node_count(graph)
    data = [graph.nodes[node] for node in graph.nodes]
    for pick in (lambda d: d["pos"], lambda d: (d["x"], d["y"])):
        with suppress(KeyError, TypeError, ValueError):  # attributes of that name may mean something else
            places = np.array([pick(d) for d in data], dtype=float)
            if places.shape == (len(data), 2) and np.isfinite(places).all():
                return places
    # Path lengths become distances in the drawing up to the size where that takes seconds; springs beyond.
    small = len(data) <= 150
    found = networkx.kamada_kawai_layout(graph) if small else networkx.spring_layout(graph, seed=0)
    return np.array([found[node] for node in graph.nodes])


# -- convergence curve -------------------------------------------------------------------------------------


def convergence(result: Any, *, ax: Axes | None = None) -> Axes:
    """How the solve went, on a logarithmic scale over the outer steps.

    The distance of the objective from its last value, relative to that; the relative change of the plan; the
    residual of the inner solver. Straight lines are linear convergence. With hard marginals the objective may
    come from below, since early plans do not keep them yet.

    >>> import numpy as np, ugw
    >>> space = ugw.Space.from_points(np.random.default_rng(0).normal(size=(20, 2)))
    >>> axes = convergence(ugw.solve(space, space))
    """
    curves = history_curves(result)
    ax = axes_for(ax, three_d=False)
    styles = (("-", "o"), ("-", "s"), ("--", None))
    for (name, step, values), (style, marker), color in zip(curves, styles, PALETTE, strict=False):
        dots = {"marker": marker, "markersize": 3.5, "markevery": max(1, len(values) // 12)}
        ax.plot(step, values, style, linewidth=1.4, color=color, label=name, **dots)
    ax.set_yscale("log")
    ax.set_xlabel("outer step", fontsize=9, color=INK)
    ax.set_ylabel("relative size", fontsize=9, color=INK)
    word = "converged" if result.converged else f"NOT converged ({result.status.name.lower().replace('_', ' ')})"
    title = f"{word} after {result.n_iter} steps, value {float(result.value):.4g}"
    ax.set_title(title, fontsize=9, color=INK, loc="left")
    ax.grid(axis="y", color=PALE, linewidth=0.5)
    ax.legend(frameon=False, fontsize=8, labelcolor=INK)
    quiet(ax)
    ax.spines[["top", "right"]].set_visible(False)
    return ax
