"""Coordinates at which a report draws a space, and spaces that it refuses."""

import networkx
import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist

import ugw
from oracles.spaces import cloud
from ugw.report import View
from ugw.report.views import mds_positions

SQUARE = np.array([[0.0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]])
FACES = np.array([[0, 1, 2], [0, 2, 3]])


@pytest.mark.parametrize("d", [1, 2, 3])
def test_points_are_drawn_where_they_are(d):
    x = cloud(9, d)
    for points in (x, torch.from_numpy(x).requires_grad_()):
        places, note = View(ugw.Space.from_points(points)).positions_and_note
        assert np.array_equal(places, x)
        assert note == ""


def test_many_coordinates_are_reduced_to_three():
    flat = cloud(30, 3) @ cloud(3, 8, seed=1)  # three dimensions in eight
    places, note = View(ugw.Space.from_points(flat)).positions_and_note
    assert np.allclose(cdist(places, places), cdist(flat, flat))
    assert "8 principal coordinates" in note


@pytest.mark.parametrize("landmarks", [8, 1000])
def test_distances_are_unfolded_also_beyond_the_landmarks(landmarks):
    x = cloud(25, 3)
    far = cdist(x, x)
    places = mds_positions(ugw.Space.from_distances(far), landmarks)
    assert np.allclose(cdist(places, places), far)
    positions, note = View(ugw.Space.from_distances(far)).positions_and_note
    assert np.allclose(cdist(positions, positions), far)
    assert "scaling" in note


def test_distances_of_equal_points_and_similarities_have_places():
    for space in (
        ugw.Space.from_distances(np.zeros((4, 4))),
        ugw.Space.from_distances([[0.0]]),
        ugw.Space.from_matrix(-np.eye(5)),
    ):
        for landmarks in (2, 100):
            assert np.isfinite(mds_positions(space, landmarks)).all()


def test_a_graph_is_laid_out_with_its_edges_and_names():
    graph = networkx.Graph([("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")])
    view = View(ugw.Space.from_graph(graph), graph=graph)
    assert view.positions_and_note[0].shape == (4, 2)
    assert view.positions_and_note[0] is view.positions_and_note[0]  # laid out once
    assert view.labels == ["a", "b", "c", "d"]
    assert sorted(map(tuple, np.sort(view.edges, axis=1).tolist())) == [(0, 1), (0, 2), (1, 2), (2, 3)]
    assert View(view.space, labels=[1, 2, 3, 4]).labels == ["1", "2", "3", "4"]
    assert len(View(view.space).edges) == 0


def test_given_places_come_first():
    graph = networkx.path_graph(4)
    assert np.array_equal(View(ugw.Space.from_graph(graph), places=SQUARE, graph=graph).positions_and_note[0], SQUARE)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda s: View(SQUARE), "a report draws two spaces, got ndarray"),
        (lambda s: View(ugw.Space.stack([s, s, s])), "got a batch of 3: take an item"),
        (lambda s: View(s, places=SQUARE[:3]), "places must have a row for each of the 4 points, got 3"),
        (lambda s: View(s, places=np.ones((4, 5))), "places must have shape"),
        (lambda s: View(s, places=np.full((4, 2), np.nan)), "places must be finite"),
        (lambda s: View(s, graph=networkx.path_graph(5)), "a node for each of the 4 points, got 5"),
        (lambda s: View(s, graph="path"), "graph must be a networkx graph, got str"),
        (lambda s: View(s, labels=["a", "b"]), "labels must be a name for each of the 4 points, got 2"),
        (lambda s: View(s, labels="abcd"), "labels must be a name for each"),
        (lambda s: View(s, faces=FACES[:, :2]), "faces must be whole numbers of shape"),
        (lambda s: View(s, faces=FACES.astype(float)), "faces must be whole numbers of shape"),
        (lambda s: View(s, faces=FACES + 2), "faces must name vertices from 0 to 3, got 2 to 5"),
        (lambda s: View(s, faces=FACES - 1), "faces must name vertices from 0 to 3, got -1 to 2"),
        (lambda s: View(ugw.Space.from_distances(cdist(SQUARE, SQUARE)), faces=FACES), "faces need coordinates"),
    ],
)
def test_spaces_that_cannot_be_drawn_are_refused(make, message):
    with pytest.raises(ugw.InputError, match=message):
        make(ugw.Space.from_points(SQUARE))
