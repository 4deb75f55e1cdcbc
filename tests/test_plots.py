"""Pictures draw what they say: where dots are, how large, which lines, which colours."""

import matplotlib as mpl
import networkx
import numpy as np
import pytest
import torch
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from mpl_toolkits.mplot3d.art3d import Line3DCollection

import ugw
from ugw import InputError, plots
from ugw._drawing import PALE, flattened, unfolded

mpl.use("Agg")


@pytest.fixture
def ax():
    return Figure().add_subplot()


@pytest.fixture
def ax3():
    return Figure().add_subplot(projection="3d")


@pytest.fixture(scope="module")
def solved():
    rng = np.random.default_rng(0)
    x, y = ugw.Space.from_points(rng.random((12, 2))), ugw.Space.from_points(rng.random((15, 2)))
    return ugw.solve(x, y, rho=0.5, eps=0.05), x, y


def cloud(n, d, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def lines_of(ax):
    return next(c for c in ax.collections if isinstance(c, LineCollection | Line3DCollection))


def dots_of(ax):
    return [c for c in ax.collections if not isinstance(c, LineCollection | Line3DCollection)]


# -- matching ----------------------------------------------------------------------------------------------


def test_matching_returns_the_axes_it_was_given_and_makes_some_otherwise(ax, solved):
    result, x, y = solved
    assert plots.matching(result, x.points, y.points, ax=ax) is ax
    made = plots.matching(result, x.points, y.points)
    assert made.name == "rectilinear"
    mpl.pyplot.close(made.figure)


def test_clouds_do_not_overlap_and_keep_their_shape(ax):
    x, y = cloud(9, 2), cloud(9, 2, seed=1)
    plots.matching(np.eye(9) / 9, x, y, ax=ax)
    drawn = [np.asarray(dots.get_offsets()) for dots in dots_of(ax)]
    for points, seen in zip((x, y), drawn, strict=True):
        assert np.allclose(seen - seen[0], points - points[0])  # moved, not turned or scaled
    apart = [drawn[0][:, k].min() > drawn[1][:, k].max() or drawn[1][:, k].min() > drawn[0][:, k].max() for k in (0, 1)]
    assert any(apart)


def test_a_plane_cloud_beside_one_in_space_lies_in_a_plane_below(ax3):
    plots.matching(np.eye(8) / 8, cloud(8, 3), cloud(8, 2), ax=ax3)
    _, _, x = dots_of(ax3)[0]._offsets3d
    _, _, y = dots_of(ax3)[1]._offsets3d
    assert np.ptp(y) == 0
    assert np.max(y) < np.min(x)


def test_lines_join_the_largest_entries(ax):
    plan = np.full((5, 5), 1e-3)
    order = [3, 0, 4, 1, 2]
    plan[np.arange(5), order] = 0.2
    plots.matching(plan, cloud(5, 2), cloud(5, 2, seed=1), lines=100, ax=ax)
    x, y = (np.asarray(dots.get_offsets()) for dots in dots_of(ax))
    segments = {tuple(np.round(segment, 9).ravel()) for segment in lines_of(ax).get_segments()}
    assert segments == {tuple(np.round([x[i], y[j]], 9).ravel()) for i, j in enumerate(order)}


def test_the_transposed_plan_draws_the_same_pairs():
    plan, x, y = np.random.default_rng(0).random((20, 30)), cloud(20, 2), cloud(30, 2, seed=1)
    pairs = plots._largest_pairs(plan, x, y, 16)
    back = plots._largest_pairs(plan.T, y, x, 16)
    assert len(pairs) <= 16
    assert {tuple(p) for p in pairs} == {tuple(p[::-1]) for p in back}


def test_dot_areas_are_mass_over_weight(ax):
    weights = np.array([0.1, 0.2, 0.3, 0.4])
    plan = np.diag(weights * [1.0, 0.5, 1.0, 0.25])
    plots.matching(plan, cloud(4, 2), cloud(4, 2), weights=(weights, weights), ax=ax)
    for dots in dots_of(ax):
        areas = dots.get_sizes()
        assert areas / areas[0] == pytest.approx([1, 0.5, 1, 0.25])


def test_lines_between_classes_are_red(ax):
    plan = np.array([[0.4, 0.0], [0.1, 0.5]])
    plots.matching(plan, cloud(2, 2), cloud(2, 2), labels=([0, 1], [0, 0]), ax=ax)
    red = mpl.colors.to_rgb("#B2182B")
    colours = [tuple(colour[:3]) == pytest.approx(red) for colour in lines_of(ax).get_colors()]
    assert colours == [False, True]


def test_without_labels_the_plan_carries_the_colours_over(ax):
    order = np.array([2, 0, 1])
    plan = np.zeros((3, 3))
    plan[np.arange(3), order] = 1 / 3
    plots.matching(plan, cloud(3, 2), cloud(3, 2, seed=1), ax=ax)
    first, second = (dots.get_facecolors()[:, :3] for dots in dots_of(ax))
    assert np.allclose(second[order], first)


def test_a_plan_without_mass_draws_no_lines(ax):
    plots.matching(np.zeros((3, 4)), cloud(3, 2), cloud(4, 2), ax=ax)
    assert not any(isinstance(c, LineCollection) for c in ax.collections)


def test_tensors_and_lines_of_points_are_drawn(ax):
    plots.matching(torch.eye(4) / 4, torch.rand(4, 1), torch.rand(4, 2), ax=ax)
    assert len(dots_of(ax)) == 2


def test_aligned_is_an_isometry_that_undoes_a_turn():
    x = cloud(10, 2) - cloud(10, 2).mean(axis=0)
    turned = x @ np.array([[0.6, -0.8], [-0.8, -0.6]]) + [5.0, 2.0]  # a reflection and a shift
    order = np.random.default_rng(0).permutation(10)
    plan = np.zeros((10, 10))
    plan[order, np.arange(10)] = 0.1
    assert np.allclose(plots.aligned(plan, x, turned[order]), x[order])
    flat = cloud(10, 2, seed=1)
    back = plots.aligned(plan, cloud(10, 3), flat)
    assert np.allclose(np.linalg.norm(back - back[0], axis=1), np.linalg.norm(flat - flat[0], axis=1))


@pytest.mark.parametrize(
    ("draw", "said"),
    [
        (
            lambda ax, _: plots.matching(np.eye(3), cloud(3, 2), cloud(4, 2), ax=ax),
            "cannot join 3 points to 4",
        ),
        (
            lambda ax, _: plots.matching(np.eye(3), cloud(3, 4), cloud(3, 2), ax=ax),
            "points_x must have shape",
        ),
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
        (
            lambda ax, _: plots.colour_transfer(np.eye(3), [1.0, 2.0], networkx.path_graph(3), ax=ax),
            "colours must",
        ),
        (lambda ax, _: plots.coloured_graph(networkx.path_graph(3), np.ones((3, 2)), ax=ax), r"\(n, 3\)"),
        (lambda ax, _: plots.coloured_graph(networkx.path_graph(3), np.ones(4), ax=ax), "3 rows"),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw, said, ax, ax3):
    with pytest.raises(InputError, match=said):
        draw(ax, ax3)


def test_distances_of_plane_points_unfold_to_them():
    x = cloud(12, 2)
    far = np.linalg.norm(x[:, None] - x, axis=2)
    back = unfolded(far)
    assert np.allclose(np.linalg.norm(back[:, None] - back, axis=2), far)
    for n in (1, 2, 3):  # where there is nothing to unfold
        assert unfolded(np.zeros((n, n))).shape == (n, 2)
    assert flattened(cloud(1, 7)).shape == (1, 2)


# -- plan --------------------------------------------------------------------------------------------------


def test_plan_is_sorted_by_class(ax):
    plan = np.arange(6.0).reshape(2, 3)
    plots.plan(plan, labels=([1, 0], [0, 1, 0]), names=(("a", "b"), ("c", "d")), ax=ax)
    assert np.array_equal(ax.images[0].get_array(), plan[[1, 0]][:, [0, 2, 1]])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b"]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["c", "d"]


def test_plans_share_a_scale_on_demand(ax):
    plots.plan(np.eye(3) / 3, vmax=0.7, ax=ax)
    assert ax.images[0].get_clim() == (0, 0.7)


def test_a_plan_without_mass_has_a_picture(ax):
    assert plots.plan(np.zeros((3, 3)), ax=ax) is ax


# -- graphs ------------------------------------------------------------------------------------------------


def test_colours_are_averaged_by_the_plan(ax):
    colours = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    plan = np.array([[0.3, 0.1, 0.0], [0.1, 0.3, 0.0]])
    plots.colour_transfer(plan, colours, networkx.path_graph(3), ax=ax)
    seen = dots_of(ax)[0].get_facecolors()[:, :3]
    assert np.allclose(seen[:2], [[0.75, 0, 0.25], [0.25, 0, 0.75]])
    assert seen[2] == pytest.approx(mpl.colors.to_rgb(PALE))  # nothing arrives there


def test_node_areas_follow_the_mass_received(ax):
    plan = np.diag([0.2, 0.1, 0.0])
    plots.colour_transfer(plan, np.arange(3.0), networkx.path_graph(3), weights=[0.2, 0.2, 0.2], ax=ax)
    areas = dots_of(ax)[0].get_sizes()
    assert areas[1] / areas[0] == pytest.approx(0.5)
    assert areas[2] < 0.1 * areas[0]


def test_edges_join_their_nodes_in_the_graphs_own_order(ax):
    graph = networkx.Graph([("b", "a"), ("b", "c")])
    place = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])  # b, a, c
    plots.coloured_graph(graph, np.arange(3.0), pos=place, ax=ax)
    segments = {tuple(map(tuple, segment)) for segment in lines_of(ax).get_segments()}
    assert segments == {((0, 0), (1, 0)), ((0, 0), (0, 1))}


def test_layout_takes_places_from_attributes_and_else_never_changes():
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


def test_convergence_shows_the_history(ax, solved):
    result, *_ = solved
    plots.convergence(result, ax=ax)
    curves = {line.get_label(): line.get_ydata() for line in ax.get_lines()}
    assert ax.get_yscale() == "log"
    assert np.array_equal(curves["plan change"], result.history.change)
    assert len(curves) == 3
    assert ax.get_title(loc="left").startswith("converged after")


def test_convergence_says_when_there_was_none(ax, solved):
    _, x, y = solved
    with pytest.warns(ugw.ConvergenceWarning):
        result = ugw.solve(x, y, rho=0.5, eps=0.05, solver=ugw.AlternateMin(max_iter=1))
    plots.convergence(result, ax=ax)
    assert ax.get_title(loc="left").startswith("NOT converged (max iter) after 1 steps")


def test_nothing_global_is_changed(solved):
    result, x, y = solved
    before = dict(mpl.rcParams)
    plots.matching(result, x.points, y.points, ax=Figure().add_subplot())
    plots.plan(result, ax=Figure().add_subplot())
    plots.convergence(result, ax=Figure().add_subplot())
    assert dict(mpl.rcParams) == before
