"""How the spaces of a report are drawn: their places, edges, faces and names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..errors import InputError
from ..geometry.mds import landmark_mds
from ..geometry.space import Space
from ..plots._drawing import as_array, coordinates, principal_coordinates, to_numpy
from ..plots.figures import layout, node_count

if TYPE_CHECKING:
    import networkx

UPRIGHT = [0, 2, 1]  # the widest coordinate from left to right, the second up, the third away


@dataclass(frozen=True, eq=False)
class View:
    """A space and how a report draws it.

    name: what to call it; places: (n, 1 to 3), where its points are; graph: its networkx graph, n nodes in the order of
    the space; faces: (F, 3) vertex indices of a triangle mesh; labels: a name for each point.

    Without `places`, a graph is laid out as a graph, and points are drawn where the space has them, those of more than
    three coordinates in their first three principal ones. A space that knows only distances is drawn by classical
    multidimensional scaling.

    >>> import networkx, ugw
    >>> ring = networkx.cycle_graph(5)
    >>> View(ugw.Space.from_graph(ring), name="ring", graph=ring).labels
    ['0', '1', '2', '3', '4']
    """

    space: Space
    name: str = ""
    places: Any = None
    graph: networkx.Graph | None = None
    faces: Any = None
    labels: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.space, Space):
            raise InputError(f"a report draws two spaces, got {type(self.space).__name__}; Space.from_points makes one")
        if self.space.batched:
            raise InputError(f"a report draws single spaces, got a batch of {len(self.space)}: take an item, space[i]")
        n = self.space.n
        if self.places is not None and len(coordinates("places", self.places)) != n:
            raise InputError(f"places must have a row for each of the {n} points, got {len(self.places)}")
        nodes = n if self.graph is None else node_count(self.graph)
        if nodes != n:
            raise InputError(f"graph must have a node for each of the {n} points, got {nodes}")
        labels = self.labels
        if labels is None and self.graph is not None:
            labels = [str(node) for node in self.graph.nodes]
        if labels is not None and (isinstance(labels, str) or len(labels) != n):
            raise InputError(f"labels must be a name for each of the {n} points, got {len(labels)}")
        object.__setattr__(self, "labels", None if labels is None else [str(label) for label in labels])
        if self.faces is not None:
            object.__setattr__(self, "faces", self._checked_faces())

    def _checked_faces(self) -> np.ndarray:
        faces, n = np.asarray(to_numpy(self.faces)), self.space.n
        if faces.ndim != 2 or faces.shape[1] != 3 or faces.dtype.kind not in "iu":
            raise InputError(f"faces must be whole numbers of shape (F, 3), got {faces.dtype} of shape {faces.shape}")
        if faces.size and not (faces.min() >= 0 and faces.max() < n):
            raise InputError(f"faces must name vertices from 0 to {n - 1}, got {faces.min()} to {faces.max()}")
        if self.places is None and self.space.point_tensor is None:
            raise InputError("faces need coordinates: give places, or a space that has points")
        return faces

    @property
    def edges(self) -> np.ndarray:
        """The ends of the graph's edges, (E, 2); none without a graph."""
        if self.graph is None:
            return np.empty((0, 2), dtype=int)
        number = {node: k for k, node in enumerate(self.graph.nodes)}
        ends = [(number[u], number[v]) for u, v in self.graph.edges() if u != v]
        return np.array(ends, dtype=int).reshape(-1, 2)

    @cached_property
    def located(self) -> tuple[np.ndarray, str]:
        """Where all points are drawn, (n, 1 to 3), and how that was found: "" where it was given."""
        if self.places is not None:
            return coordinates("places", self.places), ""
        if self.graph is not None:
            return layout(self.graph), "laid out as a graph"
        if self.space.point_tensor is not None:
            points = as_array("points", self.space.points)
            width = points.shape[1]
            if width <= 3:
                return points, ""
            return principal_coordinates(points, 3)[
                :, UPRIGHT
            ], f"drawn in the first 3 of {width} principal coordinates"
        return scaled_down(self.space)[:, UPRIGHT], "placed by multidimensional scaling of its distances"


def scaled_down(space: Space, landmarks: int = 1000) -> np.ndarray:
    """Places (n, 3) from distances alone: classical scaling of even landmarks, the others put where it says.

    >>> square = Space.from_points([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    >>> places = scaled_down(square, landmarks=3)
    >>> bool(np.isclose(np.linalg.norm(places[3] - places[0]), 2**0.5))
    True
    """
    index = torch.from_numpy(even(space.n, landmarks)).to(space.device)
    return as_array("places", landmark_mds(space.metric, index, 3))


def even(n: int, count: int) -> np.ndarray:
    """`count` of n indices at even steps, all of them if there are no more.

    >>> even(10, 4).tolist(), even(3, 4).tolist()
    ([0, 3, 6, 9], [0, 1, 2])
    """
    return np.arange(n) if n <= count else np.linspace(0, n - 1, count).round().astype(int)
