"""Pictures of a solve: matching lines, heat map of the plan, color transfer to a graph, convergence curves."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .._utils.checks import check_whole_number
from .._utils.deprecation import renamed_arguments
from ..errors import InputError
from ..geometry.landmarks import farthest_points
from .drawing import (
    aligning_rotation,
    as_array,
    as_colors,
    convergence_curves,
    dot_area,
    drawable_points,
    kept_fractions,
    make_axes,
    plan_array,
    point_array,
    principal_coordinates,
    read_class_names,
    read_labels,
    set_equal_frame,
    set_labels,
    set_thin_frame,
    transfer_colors,
)
from .style import STYLE

if TYPE_CHECKING:
    import networkx
    from matplotlib.axes import Axes

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
    """Draw two clouds side by side, with lines from some points of both to the point that shares most mass with them.

    result: a Result or a plan (n, m); points_x: (n, 1 to 3); points_y: (m, 1 to 3), or Spaces with such points. If one
    cloud has three dimensions, the other is drawn in the plane z = 0. The second cloud is moved below or beside the
    first; no distance changes. `align_points` also rotates it. Returns the axes.

    The area of a dot is the mass that its point sends or receives, divided by its weight: `weights` is the pair ((n,),
    (m,)), equal weights for None. `lines` points, spread evenly over both clouds, each show their largest plan entry,
    darker for larger entries. With `labels`, a pair of integers ((n,), (m,)), classes have colors and lines between
    different classes are red; without them the first cloud is colored along its longest direction and the plan
    transfers the colors to the second.

    >>> import numpy as np
    >>> points = np.random.default_rng(0).normal(size=(30, 2))
    >>> axes = matching(np.eye(30) / 30, points, points)
    """
    coupling = plan_array(result)
    x, y = drawable_points("points_x", points_x), drawable_points("points_y", points_y)
    _check_sizes(coupling, x, y)
    x, y = _place_side_by_side(x, y)
    lines = check_whole_number("lines", lines, minimum=0)
    ax = make_axes(ax, three_d=x.shape[1] == 3)
    classes = None if labels is None else read_labels(coupling, labels)
    pairs = _select_lines(coupling, x, y, lines)
    _draw_lines(ax, coupling, (x, y), pairs, classes)
    fractions = kept_fractions(coupling, weights)
    for cloud, colors, fraction in zip((x, y), _cloud_colors(coupling, x, classes), fractions, strict=True):
        area = dot_area(len(x) + len(y)) * np.clip(fraction, STYLE.min_dot_scale, STYLE.max_dot_scale)
        order = {"depthshade": False} if cloud.shape[1] == 3 else {"zorder": 2}
        ax.scatter(*cloud.T, s=area, c=colors, linewidths=0.3, edgecolors="white", **order)
    set_equal_frame(ax, np.concatenate([x, y]))
    return ax


def align_points(result: Any, points_x: Any, points_y: Any) -> np.ndarray:
    """Return the second points (m, k) centered and rotated or reflected so that they best match the first by the plan.

    Their mean under the plan is moved to 0. `matching` draws fewer crossing lines with them, because the plan depends
    on distances only and not on how the clouds are oriented. points_x: (n, d), of which the first k coordinates count,
    zeros if d < k; points_y: (m, k), or Spaces.

    >>> import numpy as np
    >>> points = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
    >>> np.allclose(align_points(np.eye(3) / 3, points, points @ [[0, -1], [1, 0]]), points - points.mean(axis=0))
    True
    """
    coupling, x, y = plan_array(result), point_array("points_x", points_x), point_array("points_y", points_y)
    _check_sizes(coupling, x, y)
    k = y.shape[1]
    x = np.pad(x[:, :k], ((0, 0), (0, max(0, k - x.shape[1]))))
    mean = coupling.sum(axis=0) @ y / max(coupling.sum(), np.finfo(float).tiny)
    return (y - mean) @ aligning_rotation(coupling, x, y)


def _check_sizes(coupling: np.ndarray, x: np.ndarray, y: np.ndarray) -> None:
    """Raise InputError unless x and y are matrices with one row for each row and column of the plan (n, m)."""
    for name, points in (("points_x", x), ("points_y", y)):
        if points.ndim != 2:
            raise InputError(f"{name} must have one point per row, (n, d), got shape {points.shape}")
    if coupling.shape != (len(x), len(y)):
        raise InputError(f"a plan of shape {coupling.shape} cannot join {len(x)} points to {len(y)}")


def _place_side_by_side(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return both clouds, (n, d) and (m, d), padded to d = 2 or 3 and moved so that they do not overlap.

    Their bounding boxes are centered at 0, then y is moved to the right or down by half of both extents and a gap.
    """
    d = max(2, x.shape[1], y.shape[1])
    x, y = (np.pad(cloud, ((0, 0), (0, d - cloud.shape[1]))) for cloud in (x, y))
    x, y = (cloud - (cloud.max(axis=0) + cloud.min(axis=0)) / 2 for cloud in (x, y))
    extent = np.maximum(np.ptp(x, axis=0), np.ptp(y, axis=0))
    # In R³ the last axis points up. In R² the lines are most parallel when they cross the shorter extent.
    axis = 2 if d == 3 else int(np.argmin(extent))
    gap = (np.ptp(x[:, axis]) + np.ptp(y[:, axis])) / 2 + STYLE.cloud_gap * extent.max()
    shift = np.zeros(d)
    shift[axis] = gap if axis == 0 else -gap
    return x, y + shift


def _select_lines(coupling: np.ndarray, x: np.ndarray, y: np.ndarray, lines: int) -> np.ndarray:
    """Return the index pairs (i, j) of the matching lines to draw, (k, 2) with k ≤ lines.

    They are the largest plan entries of some rows and some columns, whose points x (n, d) and y (m, d) are spread over
    the clouds. Rows and columns are treated equally, so that the transposed plan has the same lines.
    """
    rows = _spread_indices(x, lines - lines // 2)
    columns = _spread_indices(y, lines // 2)
    from_rows = np.stack([rows, coupling[rows].argmax(axis=1)], axis=1)
    from_columns = np.stack([coupling[:, columns].argmax(axis=0), columns], axis=1)
    pairs = np.unique(np.concatenate([from_rows, from_columns]), axis=0)
    return pairs[coupling[pairs[:, 0], pairs[:, 1]] > 0]


def _spread_indices(points: np.ndarray, count: int) -> np.ndarray:
    """Return the indices of `count` (at most n) points (n, d) far from each other, by farthest-point sampling."""
    positions = torch.from_numpy(np.asarray(points, dtype=np.float64))

    def column(index: torch.Tensor) -> torch.Tensor:
        """Return the squared distances (1, n) of all points to the point at `index` (1,)."""
        return (positions - positions[index]).square().sum(dim=1)[None]

    return farthest_points(column, torch.tensor([0]), min(count, len(points)))[0].numpy()


def _draw_lines(
    ax: Axes,
    coupling: np.ndarray,
    clouds: tuple[np.ndarray, np.ndarray],
    pairs: np.ndarray,
    labels: tuple[np.ndarray, np.ndarray] | None,
) -> None:
    """Draw matching lines for index pairs (k, 2), darker for larger plan entries, red between different labels."""
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_rgb
    from mpl_toolkits.mplot3d.art3d import Line3DCollection

    if len(pairs) == 0:
        return
    i, j = pairs.T
    entry = coupling[i, j] / coupling[i, j].max()
    colors = np.empty((len(pairs), 4))
    colors[:, :3] = to_rgb(STYLE.ink)
    colors[:, 3] = STYLE.min_line_opacity + STYLE.line_opacity_range * np.sqrt(entry)
    if labels is not None:
        colors[labels[0][i] != labels[1][j], :3] = to_rgb(STYLE.mismatch)
    segments = np.stack([clouds[0][i], clouds[1][j]], axis=1)
    if segments.shape[2] == 3:
        ax.add_collection(Line3DCollection(segments, colors=colors, linewidths=0.7))
    else:
        ax.add_collection(LineCollection(segments, colors=colors, linewidths=0.7, zorder=1))


def _cloud_colors(
    coupling: np.ndarray, x: np.ndarray, labels: tuple[np.ndarray, np.ndarray] | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return RGB colors (n, 3) and (m, 3) of both clouds: by class, or without labels along the first cloud x (n, d).

    In the latter case the plan transfers the colors to the second cloud.
    """
    from matplotlib.colors import to_rgb

    if labels is None:
        colors_x = as_colors(principal_coordinates(x, 1)[:, 0])
        return colors_x, transfer_colors(coupling, colors_x)
    table = np.array([to_rgb(color) for color in STYLE.palette])
    return table[labels[0] % len(table)], table[labels[1] % len(table)]


# -- plan heat map -----------------------------------------------------------------------------------------


def plan(
    result: Any,
    *,
    labels: tuple[Any, Any] | None = None,
    names: tuple[Sequence[str], Sequence[str]] | None = None,
    vmax: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a heat map of a plan (n, m), with the first space in rows, and return its axes.

    With `labels`, a pair of integers ((n,), (m,)), rows and columns are sorted by class, with lines between classes and
    `names` beside them. The color is the square root of an entry, so that small ones are visible. `vmax` is the end of
    the color scale, by default the 99.5% quantile of the positive entries; give it to draw several plans alike.

    >>> import numpy as np
    >>> axes = plan(np.eye(4) / 4, labels=([0, 0, 1, 1], [0, 1, 1, 1]))
    """
    from matplotlib.colors import PowerNorm

    coupling = plan_array(result)
    classes = None if labels is None else read_labels(coupling, labels)
    name_lists = None if names is None or classes is None else read_class_names(classes, names)
    ax = make_axes(ax, three_d=False)
    if classes is not None:
        coupling = coupling[np.ix_(*(np.argsort(side, kind="stable") for side in classes))]
    entries = coupling[coupling > 0]
    largest = (vmax or float(np.quantile(entries, STYLE.plan_scale_quantile))) if len(entries) else 1.0
    image = ax.imshow(coupling, cmap=STYLE.plan_colormap, norm=PowerNorm(0.5, vmin=0, vmax=largest), aspect="auto")
    bar = ax.figure.colorbar(image, ax=ax, fraction=0.045, pad=0.03, ticks=[0, largest / 4, largest])
    small = {"fontsize": STYLE.small_font_size, "color": STYLE.ink}
    bar.ax.set_yticklabels(["0", f"{largest / 4:.2g}", f"{largest:.2g}"], **small)
    bar.outline.set_visible(False)
    bar.ax.set_title("mass", **small)
    set_labels(ax, "target", "source")
    set_thin_frame(ax)
    if classes is not None:
        _draw_class_ticks(ax, classes, name_lists)
    return ax


def _draw_class_ticks(ax: Axes, classes: tuple[np.ndarray, np.ndarray], names: list[list[str]] | None) -> None:
    """Draw lines between classes into the heat map of a plan sorted by class, and a tick with a name for each class.

    classes: class numbers of rows (n,) and columns (m,); names: as from `read_class_names`, the numbers for None.
    """
    for k, (axis, draw_line) in enumerate(((ax.yaxis, ax.axhline), (ax.xaxis, ax.axvline))):
        values, counts = np.unique(classes[k], return_counts=True)
        ends = np.cumsum(counts)
        for end in ends[:-1]:
            draw_line(end - 0.5, color=STYLE.ink, linewidth=0.6)
        axis.set_ticks(ends - counts / 2 - 0.5)
        axis.set_ticklabels([str(c) for c in values] if names is None else names[k])
    ax.tick_params(axis="y", labelrotation=90)
    for label in ax.get_yticklabels():
        label.set_verticalalignment("center")


# -- colors on graphs -------------------------------------------------------------------------------------


@renamed_arguments(colours="colors")
def color_transfer(
    result: Any,
    colors: Any,
    graph: networkx.Graph,
    *,
    pos: Any = None,
    weights: Any = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the second graph in the colors c of the first, and return the axes: node j gets the mean of c_i by plan_ij.

    colors: (n,) numbers or (n, 3) RGB in [0, 1], one for each node of the *first* graph; `graph`: the
    second, its m nodes in its own order; `pos`: (m, 2), positions of its nodes. The area of a node is the mass that it
    receives divided by its weight, (m,), equal weights for None. Nodes that receive nothing are light gray.

    >>> import networkx, numpy as np
    >>> axes = color_transfer(np.eye(5) / 5, np.arange(5.0), networkx.path_graph(5))
    """
    coupling = plan_array(result)
    fractions = kept_fractions(coupling, None if weights is None else (None, weights))[1]
    source_colors = as_array("colors", colors)
    if source_colors.shape[:1] != coupling.shape[:1]:
        n, shape = len(coupling), source_colors.shape
        raise InputError(f"colors must have one row for each of the {n} source nodes, got {shape}")
    return colored_graph(graph, transfer_colors(coupling, as_colors(source_colors)), shares=fractions, pos=pos, ax=ax)


@renamed_arguments(colours="colors")
def colored_graph(
    graph: networkx.Graph, colors: Any, *, shares: Any = None, pos: Any = None, ax: Axes | None = None
) -> Axes:
    """Draw a graph with colored nodes, and return the axes.

    colors: (n,) numbers or (n, 3) RGB; shares: (n,), relative areas of the nodes, equal for None; pos: (n, 2), `layout`
    for None.

    >>> import networkx, numpy as np
    >>> axes = colored_graph(networkx.path_graph(5), np.arange(5.0))
    """
    from matplotlib.collections import LineCollection

    n = node_count(graph)
    positions = layout(graph) if pos is None else as_array("pos", pos)
    rgb = as_colors(as_array("colors", colors))
    if positions.shape != (n, 2) or len(rgb) != n:
        raise InputError(
            f"pos must have shape ({n}, 2) and colors {n} rows, one per node, got {positions.shape} and {len(rgb)}"
        )
    scale = np.ones(n) if shares is None else as_array("shares", shares)
    if scale.shape != (n,):
        raise InputError(f"shares must have shape ({n},), got {scale.shape}")
    ax = make_axes(ax, three_d=False)
    ax.add_collection(LineCollection(positions[edge_indices(graph)], colors=STYLE.pale, linewidths=0.8, zorder=1))
    area = STYLE.node_scale * dot_area(n) * np.clip(scale, STYLE.min_node_scale, STYLE.max_dot_scale)
    ax.scatter(*positions.T, s=area, c=rgb, linewidths=0.4, edgecolors="white", zorder=2)
    set_equal_frame(ax, positions)
    return ax


def edge_indices(graph: networkx.Graph) -> np.ndarray:
    """Return the indices (E, 2), in the order of `graph.nodes`, of both ends of each of the E edges."""
    index = {node: k for k, node in enumerate(graph.nodes)}
    return np.array([(index[u], index[v]) for u, v in graph.edges()], dtype=int).reshape(-1, 2)


def node_count(graph: Any) -> int:
    """Return the number of nodes of a networkx graph; raise InputError for anything else."""
    import networkx

    if not isinstance(graph, networkx.Graph):
        raise InputError(f"graph must be a networkx graph, got {type(graph).__name__}")
    return graph.number_of_nodes()


def layout(graph: networkx.Graph) -> np.ndarray:
    """Return positions (n, 2) of the nodes: their attributes `pos`, or `x` and `y`, or a deterministic layout.

    That is by path lengths (Kamada–Kawai) up to 150 nodes, and by springs for more.

    >>> import networkx
    >>> layout(networkx.path_graph(3)).shape
    (3, 2)
    """
    import networkx

    node_count(graph)
    data = [graph.nodes[node] for node in graph.nodes]
    for read_position in (lambda d: d["pos"], lambda d: (d["x"], d["y"])):
        with suppress(KeyError, TypeError, ValueError):  # attributes of these names may have another meaning
            positions = np.array([read_position(d) for d in data], dtype=float)
            if positions.shape == (len(data), 2) and np.isfinite(positions).all():
                return positions
    if len(data) <= STYLE.max_path_layout_nodes:
        position_of = networkx.kamada_kawai_layout(graph)
    else:
        position_of = networkx.spring_layout(graph, seed=0)
    return np.array([position_of[node] for node in graph.nodes])


# -- convergence curve -------------------------------------------------------------------------------------


def convergence(result: Any, *, ax: Axes | None = None) -> Axes:
    """Draw the convergence of a Result or a Barycenter over outer steps on a logarithmic scale, and return the axes.

    Curves are the relative distance of the objective from its final value, the relative change of the plan, and the
    residual of the inner solver. Straight lines are linear convergence. With hard marginals the objective may increase,
    since early plans violate them. The curves begin with the first step from the initial plan. Where candidates for
    this plan have made steps, a vertical line before it says how many; these steps are not drawn.

    >>> import numpy as np, ugw
    >>> space = ugw.Space.from_points(np.random.default_rng(0).normal(size=(20, 2)))
    >>> axes = convergence(ugw.solve(space, space))
    """
    curves = convergence_curves(result)
    ax = make_axes(ax, three_d=False)
    styles = (("-", "o"), ("-", "s"), ("--", None))
    for (name, step, values), (style, marker), color in zip(curves, styles, STYLE.palette, strict=False):
        markers = {"marker": marker, "markersize": 3.5, "markevery": max(1, len(values) // 12)}
        ax.plot(step, values, style, linewidth=1.4, color=color, label=name, **markers)
    ax.set_yscale("log")
    set_labels(ax, "outer step", "relative size")
    outcome = "converged" if result.converged else f"NOT converged ({result.status.name.lower().replace('_', ' ')})"
    title = f"{outcome} after {result.n_iter} steps, value {float(result.value):.4g}"
    ax.set_title(title, fontsize=STYLE.font_size, color=STYLE.ink, loc="left")
    ax.grid(axis="y", color=STYLE.pale, linewidth=0.5)
    n_search = getattr(result, "n_iter_search", None)  # a Barycenter has none
    if n_search:
        _mark_start(ax, n_search)
    ax.legend(frameon=False, fontsize=STYLE.small_font_size, labelcolor=STYLE.ink)
    set_thin_frame(ax)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _mark_start(ax: Axes, n_search: int) -> None:
    """Draw a vertical line at step 0, with the number of search steps (of candidates for the initial plan) as text."""
    ax.axvline(0, color=STYLE.ink, linewidth=0.8, linestyle=":", label="_start of the solve")
    ax.annotate(
        f"the solve begins, after a search of {n_search} steps",
        (0, 0.02),
        xycoords=("data", "axes fraction"),
        xytext=(3, 0),
        textcoords="offset points",
        fontsize=STYLE.small_font_size,
        color=STYLE.ink,
    )
