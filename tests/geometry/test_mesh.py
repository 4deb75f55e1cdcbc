"""Meshes: vertex areas and spaces of sampled vertices against step-by-step computations."""

import numpy as np
import pytest
from scipy.spatial import ConvexHull

import ugw
from oracles.geometry import farthest_by_definition
from ugw.datasets import Mesh


@pytest.fixture
def egg():
    """A closed surface of random triangles."""
    points = np.random.default_rng(0).normal(size=(60, 3))
    points *= [1.0, 1.3, 0.7] / np.linalg.norm(points, axis=1, keepdims=True)
    hull = ConvexHull(points)
    return Mesh(points[hull.vertices], np.searchsorted(hull.vertices, hull.simplices)), hull


def sample_by_definition(mesh, count):
    """Sampled vertices, their distances and their weights, step by step from all distances."""
    paths = ugw.Space.from_mesh(mesh.vertices, mesh.faces).metric.dense().numpy()
    off = [sum((v - mesh.vertices.mean(axis=0)) ** 2) for v in mesh.vertices]
    chosen = farthest_by_definition(paths, off.index(max(off)), count)
    weights = [0.0] * count
    for i in range(len(paths)):
        near = [paths[i, k] for k in chosen]
        weights[near.index(min(near))] += mesh.areas[i] / mesh.areas.sum()
    return mesh.vertices[chosen], paths[np.ix_(chosen, chosen)], weights


def test_areas_are_those_of_the_surface(egg):
    mesh, hull = egg
    assert mesh.areas.sum() == pytest.approx(hull.area)
    slow = np.zeros(len(mesh.vertices))
    for a, b, c in mesh.faces:
        u, v = mesh.vertices[b] - mesh.vertices[a], mesh.vertices[c] - mesh.vertices[a]
        slow[[a, b, c]] += np.sqrt((u @ u) * (v @ v) - (u @ v) ** 2) / 6
    np.testing.assert_allclose(mesh.areas, slow, rtol=1e-12)


@pytest.mark.parametrize("count", [1, 2, 7, 60])
def test_sampled_vertices_are_farthest_points_weighted_by_the_nearest_area(egg, count):
    mesh, _ = egg
    space = mesh.space(points=count)
    points, distances, weights = sample_by_definition(mesh, count)
    np.testing.assert_array_equal(space.points, points)
    np.testing.assert_allclose(space.metric.dense(), distances, rtol=1e-12)
    np.testing.assert_allclose(space.weights, weights, rtol=1e-12)
    assert space.numpy  # results are returned as NumPy arrays


def test_all_vertices_have_their_shares_of_the_area(egg):
    mesh, _ = egg
    space = mesh.space()
    plain = ugw.Space.from_mesh(mesh.vertices, mesh.faces)
    np.testing.assert_array_equal(space.metric.dense(), plain.metric.dense())
    np.testing.assert_allclose(space.weights, mesh.areas / mesh.areas.sum())


@pytest.mark.parametrize("points", [0, 61, 2.5, True])
def test_bad_numbers_of_points_are_refused(egg, points):
    with pytest.raises(ugw.InputError, match=f"points must be .*got {points}"):
        egg[0].space(points=points)


def test_a_mesh_that_is_not_connected_is_refused():
    mesh = Mesh(np.random.default_rng(0).random((6, 3)), np.array([[0, 1, 2], [3, 4, 5]]))
    for points in (None, 2):
        with pytest.raises(ugw.InputError, match="connected, got 2 components"):
            mesh.space(points)
