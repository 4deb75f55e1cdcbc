"""Pictures: positions and sizes of dots, lines and colors."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import networkx
import numpy as np
import pytest
import torch
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from mpl_toolkits.mplot3d.art3d import Line3DCollection

import ugw
from oracles.spaces import cloud, pair
from ugw import InputError, plots
from ugw.plots.style import STYLE

mpl.use("Agg")


@pytest.fixture
def ax():
    """Axes in the plane."""
    return Figure().add_subplot()


@pytest.fixture
def ax3():
    """Axes in space."""
    return Figure().add_subplot(projection="3d")


class OtherDevice(torch.Tensor):
    """A tensor on another device: as with a CUDA tensor, NumPy cannot read it before `.cpu()`."""

    def __array__(self, *args, **kwargs):
        raise TypeError("can't convert cuda:0 device type tensor to numpy")

    numpy = __array__

    def cpu(self):
        return self.as_subclass(torch.Tensor)


@pytest.fixture(params=["numpy", "torch", "other device"])
def convert(request):
    """A function that converts arrays to each kind that a Result or a user may hold."""
    kinds = {
        "numpy": np.asarray,
        "torch": torch.as_tensor,
        "other device": lambda v: torch.as_tensor(v).as_subclass(OtherDevice),
    }
    return lambda values: kinds[request.param](np.asarray(values))


@pytest.fixture(scope="module", params=[np.float64, torch.float64], ids=["numpy", "torch"])
def solution(request):
    x, y = pair(12, 15, dims=(2, 2), dtype=request.param)
    return ugw.solve(x, y, rho=0.5, eps=0.05), x, y


def find_lines(ax):
    """Return the collection of lines of a picture."""
    return next(c for c in ax.collections if isinstance(c, LineCollection | Line3DCollection))


def find_dots(ax):
    """Return the collections of dots of a picture."""
    return [c for c in ax.collections if not isinstance(c, LineCollection | Line3DCollection)]


# -- matching ----------------------------------------------------------------------------------------------


def test_matching_returns_the_given_axes_or_new_ones(ax, solution):
    result, x, y = solution
    assert plots.matching(result, x.points, y.points, ax=ax) is ax
    axes = plots.matching(result, x.points, y.points)
    assert axes.name == "rectilinear"
    plt.close(axes.figure)


def test_clouds_do_not_overlap_and_keep_their_shape(ax, convert):
    x, y = cloud(9, 2), cloud(9, 2, seed=1)
    plots.matching(convert(np.eye(9) / 9), convert(x), convert(y), ax=ax)
    offsets = [np.asarray(dots.get_offsets()) for dots in find_dots(ax)]
    for points, colors in zip((x, y), offsets, strict=True):
        assert np.allclose(colors - colors[0], points - points[0])  # moved, not turned or scaled
    is_separate = [
        offsets[0][:, k].min() > offsets[1][:, k].max() or offsets[1][:, k].min() > offsets[0][:, k].max()
        for k in (0, 1)
    ]
    assert any(is_separate)


def test_a_plane_cloud_beside_one_in_space_lies_in_a_plane_below(ax3, convert):
    plots.matching(convert(np.eye(8) / 8), convert(cloud(8, 3)), convert(cloud(8, 2)), ax=ax3)
    _, _, x = find_dots(ax3)[0]._offsets3d
    _, _, y = find_dots(ax3)[1]._offsets3d
    assert np.ptp(y) == 0
    assert np.max(y) < np.min(x)


def test_lines_join_each_point_to_its_largest_entry(ax, convert):
    plan = np.full((5, 5), 1e-3)
    order = [3, 0, 4, 1, 2]
    plan[np.arange(5), order] = 0.2
    plots.matching(convert(plan), convert(cloud(5, 2)), convert(cloud(5, 2, seed=1)), lines=100, ax=ax)
    x, y = (np.asarray(dots.get_offsets()) for dots in find_dots(ax))
    segments = {tuple(np.round(segment, 9).ravel()) for segment in find_lines(ax).get_segments()}
    assert segments == {tuple(np.round([x[i], y[j]], 9).ravel()) for i, j in enumerate(order)}


def drawn_pairs(ax):
    """Return the set of index pairs (i, j) that lines join."""
    x, y = (np.asarray(dots.get_offsets()) for dots in find_dots(ax))
    ends = np.array(find_lines(ax).get_segments())
    rows, cols = (np.linalg.norm(ends[:, k, None] - points, axis=2).argmin(1) for k, points in ((0, x), (1, y)))
    return set(zip(rows.tolist(), cols.tolist(), strict=True))


def test_the_transposed_plan_draws_the_same_pairs():
    plan, x, y = np.random.default_rng(0).random((20, 30)), cloud(20, 2), cloud(30, 2, seed=1)
    pairs = drawn_pairs(plots.matching(plan, x, y, lines=16, ax=Figure().add_subplot()))
    transposed = drawn_pairs(plots.matching(plan.T, y, x, lines=16, ax=Figure().add_subplot()))
    assert 0 < len(pairs) <= 16
    assert pairs == {(i, j) for j, i in transposed}


def test_dot_areas_are_mass_over_weight(ax, convert):
    weights = np.array([0.1, 0.2, 0.3, 0.4])
    plan = np.diag(weights * [1.0, 0.5, 1.0, 0.25])
    plots.matching(
        convert(plan), convert(cloud(4, 2)), convert(cloud(4, 2)), weights=(convert(weights), convert(weights)), ax=ax
    )
    for dots in find_dots(ax):
        areas = dots.get_sizes()
        assert areas / areas[0] == pytest.approx([1, 0.5, 1, 0.25])


def test_lines_between_classes_are_red(ax, convert):
    plan = np.array([[0.4, 0.0], [0.1, 0.5]])
    plots.matching(
        convert(plan), convert(cloud(2, 2)), convert(cloud(2, 2)), labels=(convert([0, 1]), convert([0, 0])), ax=ax
    )
    red = mpl.colors.to_rgb("#B2182B")
    colors = [tuple(color[:3]) == pytest.approx(red) for color in find_lines(ax).get_colors()]
    assert colors == [False, True]


def test_without_labels_the_plan_transfers_the_colors(ax, convert):
    order = np.array([2, 0, 1])
    plan = np.zeros((3, 3))
    plan[np.arange(3), order] = 1 / 3
    plots.matching(convert(plan), convert(cloud(3, 2)), convert(cloud(3, 2, seed=1)), ax=ax)
    first, second = (dots.get_facecolors()[:, :3] for dots in find_dots(ax))
    assert np.allclose(second[order], first)


def test_a_plan_without_mass_draws_no_lines(ax, convert):
    plots.matching(convert(np.zeros((3, 4))), convert(cloud(3, 2)), convert(cloud(4, 2)), ax=ax)
    assert not any(isinstance(c, LineCollection) for c in ax.collections)


def test_points_on_a_line_are_drawn_beside_a_plane(ax, convert):
    plots.matching(convert(np.eye(4) / 4), convert(cloud(4, 1)), convert(cloud(4, 2)), ax=ax)
    assert len(find_dots(ax)) == 2


def test_tensors_with_gradients_are_drawn(ax):
    points = torch.as_tensor(cloud(4, 2)).requires_grad_()
    colors = torch.arange(4.0).requires_grad_()
    plots.matching(torch.eye(4).requires_grad_(), points, points, ax=ax)
    plots.color_transfer(torch.eye(4), colors, networkx.path_graph(4), pos=points, ax=ax)
    assert len(find_dots(ax)) == 3


def test_zero_lines_draws_none(ax, convert):
    plots.matching(convert(np.eye(4) / 4), convert(cloud(4, 2)), convert(cloud(4, 2)), lines=0, ax=ax)
    assert not any(isinstance(c, LineCollection) for c in ax.collections)


def test_aligned_is_an_isometry_that_undoes_a_rotation(convert):
    x = cloud(10, 2) - cloud(10, 2).mean(axis=0)
    rotated = x @ np.array([[0.6, -0.8], [-0.8, -0.6]]) + [5.0, 2.0]  # a reflection and a shift
    order = np.random.default_rng(0).permutation(10)
    plan = np.zeros((10, 10))
    plan[order, np.arange(10)] = 0.1
    assert np.allclose(plots.align_points(convert(plan), convert(x), convert(rotated[order])), x[order])
    flat = cloud(10, 2, seed=1)
    back = plots.align_points(convert(plan), convert(cloud(10, 3)), convert(flat))
    assert np.allclose(np.linalg.norm(back - back[0], axis=1), np.linalg.norm(flat - flat[0], axis=1))


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda ax, _: plots.matching(np.eye(3), cloud(3, 2), cloud(4, 2), ax=ax), "cannot join 3 points to 4"),
        (lambda ax, _: plots.matching(np.eye(3), cloud(3, 4), cloud(3, 2), ax=ax), "points_x must have shape"),
        (lambda ax, _: plots.matching(np.ones((2, 3, 3)), cloud(3, 2), cloud(3, 2), ax=ax), r"result\[i\]"),
        (lambda ax, _: plots.matching(np.eye(3), cloud(3, 3), cloud(3, 2), ax=ax), 'projection="3d"'),
        (lambda _, ax3: plots.matching(np.eye(3), cloud(3, 2), cloud(3, 2), ax=ax3), "got 3-D axes"),
        (
            lambda ax, _: plots.matching(np.eye(3), cloud(3, 2), cloud(3, 2), labels=([0, 1], [0, 1, 1]), ax=ax),
            r"labels\[0\]",
        ),
        (
            lambda ax, _: plots.matching(np.eye(3), cloud(3, 2), cloud(3, 2), weights=([1], None), ax=ax),
            r"weights\[0\]",
        ),
        (lambda ax, _: plots.color_transfer(np.eye(3), [1.0, 2.0], networkx.path_graph(3), ax=ax), "colors must"),
        (lambda ax, _: plots.colored_graph(networkx.path_graph(3), np.ones((3, 2)), ax=ax), r"\(n, 3\)"),
        (lambda ax, _: plots.colored_graph(networkx.path_graph(3), np.ones(4), ax=ax), "3 rows"),
        (lambda ax, _: plots.colored_graph(networkx.path_graph(3), np.ones(3), pos=cloud(3, 3), ax=ax), r"\(3, 2\)"),
        (lambda ax, _: plots.colored_graph(networkx.path_graph(3), np.ones(3), shares=[1.0], ax=ax), "shares must"),
        (lambda ax, _: plots.colored_graph("abc", np.ones(3), ax=ax), "networkx graph, got str"),
        (lambda ax, _: plots.layout(None), "networkx graph, got NoneType"),
        (lambda ax, _: plots.colored_graph(networkx.path_graph(2), ["a", "b"], ax=ax), "colors must be an array"),
        (lambda ax, _: plots.color_transfer(np.eye(2), 1.0, networkx.path_graph(2), ax=ax), "colors must have"),
        (lambda ax, _: plots.color_transfer(np.eye(2), [1.0, np.nan], networkx.path_graph(2), ax=ax), "colors.*nan"),
        (lambda ax, _: plots.matching(np.eye(3), np.full((3, 2), np.nan), cloud(3, 2), ax=ax), "points_x.*finite"),
        (lambda ax, _: plots.matching(np.eye(3), cloud(3, 2), np.full((3, 2), np.inf), ax=ax), "points_y.*finite"),
        (lambda ax, _: plots.matching(np.eye(3), cloud(3, 2), cloud(3, 2), lines=-3, ax=ax), "lines must .*got -3"),
        (lambda ax, _: plots.matching(np.eye(3), cloud(3, 2), cloud(3, 2), lines=2.5, ax=ax), "lines must"),
        (lambda ax, _: plots.matching(np.eye(3), cloud(3, 2), cloud(3, 2), labels=[0, 1, 2], ax=ax), "labels.*pair"),
        (lambda ax, _: plots.matching(np.eye(3), cloud(3, 2), cloud(3, 2), weights=3.0, ax=ax), "weights.*pair"),
        (
            lambda ax, _: plots.matching(np.eye(3), ugw.Space.from_distances(np.zeros((3, 3))), cloud(3, 2), ax=ax),
            "points_x must be points .* got a Space without points",
        ),
        (lambda *_: plots.align_points(np.eye(3), np.full((3, 2), np.nan), cloud(3, 2)), "points_x.*finite"),
        (lambda *_: plots.align_points(np.eye(3), cloud(3, 2), cloud(4, 2)), "cannot join 3 points to 4"),
        (lambda *_: plots.align_points(np.eye(3), np.ones(3), cloud(3, 2)), "points_x must have one point per row"),
        (lambda ax, _: plots.plan("abc", ax=ax), "the plan must be an array of numbers, got str"),
        (lambda ax, _: plots.plan(None, ax=ax), "the plan must"),
        (lambda ax, _: plots.plan(np.full((2, 2), np.nan), ax=ax), "the plan must be finite"),
        (
            lambda ax, _: plots.plan(np.eye(2), labels=([0, 1], [0, 2]), names=("ab", ["a", "b"]), ax=ax),
            r"names\[0\] .*classes \[0, 1\], got 'ab'",
        ),
        (
            lambda ax, _: plots.plan(np.eye(2), labels=([0, 1], [0, 2]), names=(["a", "b"], ["a", "b"]), ax=ax),
            r"names\[1\] .*classes \[0, 2\]",
        ),
        (lambda ax, _: plots.plan(np.eye(2), labels=([0, 1], [[0], [0, 1]]), ax=ax), r"labels\[1\] must be integers"),
        (lambda ax, _: plots.convergence("abc", ax=ax), "convergence draws a Result, got str"),
    ],
)
def test_invalid_input_is_refused(draw, message, ax, ax3):
    with pytest.raises(InputError, match=message):
        draw(ax, ax3)


# -- plan --------------------------------------------------------------------------------------------------


def test_plan_is_sorted_by_class(ax, convert):
    plan = np.arange(6.0).reshape(2, 3)
    plots.plan(convert(plan), labels=(convert([1, 0]), convert([0, 1, 0])), names=(("a", "b"), ("c", "d")), ax=ax)
    assert np.array_equal(ax.images[0].get_array(), plan[[1, 0]][:, [0, 2, 1]])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b"]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["c", "d"]


def test_vmax_sets_the_end_of_the_scale(ax, convert):
    plots.plan(convert(np.eye(3) / 3), vmax=0.7, ax=ax)
    assert ax.images[0].get_clim() == (0, 0.7)


def test_a_plan_without_mass_can_be_drawn(ax, convert):
    assert plots.plan(convert(np.zeros((3, 3))), ax=ax) is ax


# -- graphs ------------------------------------------------------------------------------------------------


def test_colors_are_averaged_by_the_plan(ax, convert):
    colors = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    plan = np.array([[0.3, 0.1, 0.0], [0.1, 0.3, 0.0]])
    plots.color_transfer(convert(plan), convert(colors), networkx.path_graph(3), ax=ax)
    node_colors = find_dots(ax)[0].get_facecolors()[:, :3]
    assert np.allclose(node_colors[:2], [[0.75, 0, 0.25], [0.25, 0, 0.75]])
    assert node_colors[2] == pytest.approx(mpl.colors.to_rgb(STYLE.pale))  # nothing arrives there


def test_node_areas_follow_the_mass_received(ax, convert):
    plan = np.diag([0.2, 0.1, 0.0])
    plots.color_transfer(
        convert(plan), convert(np.arange(3.0)), networkx.path_graph(3), weights=convert([0.2, 0.2, 0.2]), ax=ax
    )
    areas = find_dots(ax)[0].get_sizes()
    assert areas[1] / areas[0] == pytest.approx(0.5)
    assert areas[2] < 0.1 * areas[0]


def test_edges_join_their_nodes_in_the_graphs_own_order(ax, convert):
    graph = networkx.Graph([("b", "a"), ("b", "c")])
    place = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])  # b, a, c
    plots.colored_graph(graph, convert(np.arange(3.0)), shares=convert(np.ones(3)), pos=convert(place), ax=ax)
    segments = {tuple(map(tuple, segment)) for segment in find_lines(ax).get_segments()}
    assert segments == {((0, 0), (1, 0)), ((0, 0), (0, 1))}


def test_layout_uses_position_attributes_and_is_deterministic():
    with_pos, with_xy = networkx.path_graph(3), networkx.path_graph(3)
    for k in range(3):
        with_pos.nodes[k]["pos"] = (k, 2 * k)
        with_xy.nodes[k].update(x=k, y=2 * k)
    for graph in (with_pos, with_xy):
        assert np.array_equal(plots.layout(graph), [[0, 0], [1, 2], [2, 4]])
    other = networkx.cycle_graph(9)
    networkx.set_node_attributes(other, {k: {"pos": "noun", "x": "left", "y": np.nan} for k in other})
    for graph in (networkx.cycle_graph(9), networkx.cycle_graph(160), other):
        assert np.array_equal(plots.layout(graph), plots.layout(graph))


# -- convergence -------------------------------------------------------------------------------------------


def test_convergence_draws_the_history(ax, solution):
    result, *_ = solution
    plots.convergence(result, ax=ax)
    curves = {line.get_label(): line.get_ydata() for line in ax.get_lines()}
    assert ax.get_yscale() == "log"
    assert np.array_equal(curves["plan change"], result.history.change)
    assert curves.pop("_start of the solve") is not None
    distance = np.abs(result.history.objective - float(result.value))[:-1] / float(result.value)
    assert np.allclose(curves["|objective − final|"], distance[distance > 0])
    assert len(curves) == 3
    assert ax.get_title(loc="left").startswith("converged after")


@pytest.mark.parametrize(("init", "has_mark"), [("auto", True), ("product", False)])
def test_convergence_marks_where_the_solve_begins_after_a_search(ax, solution, init, has_mark):
    _, x, y = solution
    result = ugw.solve(x, y, rho=0.5, eps=0.05, init=init)
    plots.convergence(result, ax=ax)
    marks = [line.get_xdata() for line in ax.get_lines() if line.get_label() == "_start of the solve"]
    texts = [text.get_text() for text in ax.texts]
    assert (result.n_iter_search > 0) == has_mark
    assert marks == ([[0, 0]] if has_mark else [])
    assert texts == ([f"the solve begins, after a search of {result.n_iter_search} steps"] if has_mark else [])
    change = next(line for line in ax.get_lines() if line.get_label() == "plan change")
    assert change.get_xdata()[0] == 1  # the steps of the search are not drawn
    assert "_start of the solve" not in [text.get_text() for text in ax.get_legend().get_texts()]


def test_convergence_of_a_barycenter(ax, solution):
    _, x, y = solution
    barycenter = ugw.barycenter([x, y], n=4, eps=0.1)
    plots.convergence(barycenter, ax=ax)
    curves = {line.get_label(): line.get_ydata() for line in ax.get_lines()}
    assert np.array_equal(curves["distance change"], barycenter.history.change)
    assert ax.get_title(loc="left").startswith(f"converged after {barycenter.n_iter} steps")


def test_the_title_says_that_a_solve_did_not_converge(ax, solution):
    _, x, y = solution
    with pytest.warns(ugw.ConvergenceWarning):
        result = ugw.solve(x, y, rho=0.5, eps=0.05, solver=ugw.AlternateMin(max_iter=1))
    plots.convergence(result, ax=ax)
    assert ax.get_title(loc="left").startswith("NOT converged (max iter) after 1 steps")


PICTURES = {
    "matching": lambda r, x, y, ax: plots.matching(r, x.points, y.points, ax=ax),
    "plan": lambda r, x, y, ax: plots.plan(r, ax=ax),
    "color_transfer": lambda r, x, y, ax: plots.color_transfer(r, x.points[:, 0], networkx.path_graph(y.n), ax=ax),
    "colored_graph": lambda r, x, y, ax: plots.colored_graph(networkx.path_graph(y.n), r.marginals[1], ax=ax),
    "convergence": lambda r, x, y, ax: plots.convergence(r, ax=ax),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_changes_only_the_given_axes(solution, name):
    settings, figures = dict(mpl.rcParams), plt.get_fignums()
    ax = Figure().add_subplot()
    assert PICTURES[name](*solution, ax) is ax
    assert dict(mpl.rcParams) == settings
    assert plt.get_fignums() == figures


@pytest.mark.parametrize("name", PICTURES)
def test_without_axes_a_picture_is_a_new_figure_that_pyplot_shows(solution, name):
    settings, figures = dict(mpl.rcParams), plt.get_fignums()
    axes = PICTURES[name](*solution, None)
    assert plt.gcf() is axes.figure
    assert dict(mpl.rcParams) == settings
    plt.close(axes.figure)
    assert plt.get_fignums() == figures


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", PICTURES)
def test_results_on_a_cuda_device_are_drawn(name):
    x, y = (ugw.Space.from_points(torch.as_tensor(cloud(n, 2)).cuda()) for n in (8, 9))
    result = ugw.solve(x, y, rho=0.5, eps=0.1)
    assert result.plan.is_cuda
    ax = Figure().add_subplot()
    assert PICTURES[name](result, x, y, ax) is ax


@pytest.mark.parametrize(
    ("old", "new", "arguments"),
    [
        ("colour_transfer", "color_transfer", (np.eye(3) / 3, np.arange(3.0), networkx.path_graph(3))),
        ("coloured_graph", "colored_graph", (networkx.path_graph(3), np.arange(3.0))),
    ],
)
def test_british_names_still_work_with_a_warning(ax, old, new, arguments):
    with pytest.warns(DeprecationWarning, match=f"ugw.plots.{old} is deprecated: use ugw.plots.{new}") as caught:
        function = getattr(plots, old)
    assert caught[0].filename == __file__
    assert function is getattr(plots, new)
    assert function(*arguments, ax=ax) is ax
    with pytest.raises(AttributeError, match="has no attribute 'colourful'"):
        _ = plots.colourful


def test_the_old_name_of_align_points_still_works_with_a_warning():
    with pytest.warns(DeprecationWarning, match="ugw.plots.aligned is deprecated: use ugw.plots.align_points"):
        assert plots.aligned is plots.align_points


def test_british_arguments_still_work_with_a_warning(ax):
    graph = networkx.path_graph(3)
    with pytest.warns(DeprecationWarning, match="colours=.* is deprecated: use colors"):
        plots.colored_graph(graph, colours=np.arange(3.0), ax=ax)
    with pytest.warns(DeprecationWarning, match="colours=.* is deprecated: use colors"):
        plots.color_transfer(np.eye(3) / 3, colours=np.arange(3.0), graph=graph, ax=ax)


def test_spaces_stand_for_their_points():
    points = cloud(4, 2)
    space = ugw.Space.from_points(points)
    offsets = [plots.matching(np.eye(4) / 4, x, x).collections[-1].get_offsets() for x in (points, space)]
    np.testing.assert_array_equal(*offsets)
