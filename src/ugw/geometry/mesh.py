"""Triangle meshes and the spaces of their vertices."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy
import torch
from torch import Tensor

from .._utils.checks import check_whole_number
from ..errors import InputError
from .graph_distances import check_connected, mesh_edges, undirected_graph
from .landmarks import farthest_points
from .space import Space


@dataclass(frozen=True, eq=False)
class Mesh:
    """A connected triangle mesh. vertices: (n, 3); faces: (F, 3) vertex indices.

    >>> square = Mesh(np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]]), np.array([[0, 1, 2], [0, 2, 3]]))
    >>> square.areas
    array([0.33333333, 0.16666667, 0.33333333, 0.16666667])
    >>> square.space(points=2)
    Space(n=2, mass=1, float64, points in R^3)
    """

    vertices: np.ndarray
    faces: np.ndarray

    @property
    def areas(self) -> np.ndarray:
        """The area of each vertex, (n,): a third of the area of every triangle at this vertex."""
        a, b, c = (self.vertices[self.faces[:, k]].astype(np.float64) for k in range(3))
        area = np.linalg.norm(np.cross(b - a, c - a), axis=1) / 2
        return np.bincount(self.faces.ravel(), np.repeat(area / 3, 3), minlength=len(self.vertices))

    def space(self, points: int | None = None) -> Space:
        """Return the space of the vertices with shortest-path distances along edges, weighted by area, with mass 1.

        points: the number of vertices to keep, None for all. They are chosen by farthest-point sampling, beginning
        with the vertex farthest from the mean, and the weight of each is the share of the area of the vertices nearest
        to it; only distances to these points are computed. Paths along edges are a few percent longer than paths across
        faces on a fine mesh.
        """
        n, weights = len(self.vertices), self.areas / self.areas.sum()
        vertices = np.asarray(self.vertices, dtype=np.float64)
        if points is None:
            return Space.from_mesh(vertices, self.faces, weights=weights)
        points = check_whole_number("points", points, minimum=1)
        if points > n:
            raise InputError(f"points must be at most {n}, as many as vertices, got {points}")
        graph = undirected_graph(n, *mesh_edges(vertices, self.faces))
        check_connected(graph, "one of all vertices")
        chosen, paths = _sample_vertices(
            graph, int(np.linalg.norm(vertices - vertices.mean(axis=0), axis=1).argmax()), points
        )
        cluster_weights = np.bincount(paths.argmin(axis=0), weights, minlength=points)
        distances = paths[:, chosen]
        space = Space.from_distances(np.minimum(distances, distances.T), weights=cluster_weights)
        return replace(space, point_tensor=torch.from_numpy(vertices[chosen]))


def _sample_vertices(graph: scipy.sparse.csr_array, first: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices (count,) of vertices far from each other, and the path lengths (count, n) from them to all.

    The vertices are `first` and then, each time, the one with the longest shortest path to those already chosen.
    """
    paths: list[np.ndarray] = []

    def column(index: Tensor) -> Tensor:
        """Return the path lengths (1, n) from the vertex `index`, (1,), to all, and append them to `paths`."""
        paths.append(scipy.sparse.csgraph.dijkstra(graph, indices=int(index)))
        return torch.from_numpy(paths[-1])[None]

    chosen = farthest_points(column, torch.tensor([first]), count)
    return chosen[0].numpy(), np.stack(paths)
