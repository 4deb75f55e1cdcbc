"""How a report draws a space: positions, edges, faces and names of its points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from .._utils.deprecation import renamed_attribute
from ..errors import InputError
from ..geometry.landmarks import evenly_spaced_indices
from ..geometry.mds import landmark_mds
from ..geometry.space import Space
from ..plots.drawing import as_array, drawable_points, principal_coordinates
from ..plots.figures import edge_indices, layout, node_count
from ..results.projection import to_numpy
from .config import REPORT_CONFIG

if TYPE_CHECKING:
    import networkx

# Order of principal coordinates in the scene: the first from left to right, the second up, the third to the back.
AXIS_ORDER = [0, 2, 1]


@dataclass(frozen=True, eq=False)
class View:
    """A space and how a report draws it.

    name: its name in the page; places: (n, 1 to 3), positions of its points; graph: its networkx graph, n nodes in the
    order of the space; faces: (F, 3) vertex indices of a triangle mesh; labels: a name for each point.

    Without `places`, positions are those of a graph layout, or the points of the space, in their first three principal
    coordinates if they have more than three. A space that has only distances is drawn by classical multidimensional
    scaling.

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
        """Raise InputError for invalid fields; without labels take the names of the graph's nodes, if there is one."""
        if not isinstance(self.space, Space):
            raise InputError(f"a report draws two spaces, got {type(self.space).__name__}; Space.from_points makes one")
        if self.space.batched:
            raise InputError(f"a report draws single spaces, got a batch of {len(self.space)}: take an item, space[i]")
        n = self.space.n
        if self.places is not None and len(drawable_points("places", self.places)) != n:
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
        """Return `faces` as an array (F, 3); raise InputError unless they are indices of points with coordinates."""
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
        """Indices (E, 2) of both ends of each edge of the graph, without loops; empty without a graph."""
        if self.graph is None:
            return np.empty((0, 2), dtype=int)
        ends = edge_indices(self.graph)
        return ends[ends[:, 0] != ends[:, 1]]

    @cached_property
    def positions_and_note(self) -> tuple[np.ndarray, str]:
        """Positions (n, 1 to 3) of all points, and a note on how they were computed, "" for given coordinates."""
        if self.places is not None:
            return drawable_points("places", self.places), ""
        if self.graph is not None:
            return layout(self.graph), "laid out as a graph"
        if self.space.point_tensor is not None:
            points = as_array("points", self.space.points)
            if points.shape[1] <= 3:
                return points, ""
            explanation = f"drawn in the first 3 of {points.shape[1]} principal coordinates"
            return principal_coordinates(points, 3)[:, AXIS_ORDER], explanation
        return mds_positions(self.space)[:, AXIS_ORDER], "placed by multidimensional scaling of its distances"

    located = renamed_attribute("View", "located", "positions_and_note")


def mds_positions(space: Space, landmarks: int = REPORT_CONFIG.max_mds_landmarks) -> np.ndarray:
    """Return positions (n, 3) of the points of a space from distances alone, by landmark multidimensional scaling.

    landmarks: maximum number of points that are scaled; the others are placed by their distances to these.

    >>> square = Space.from_points([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    >>> positions = mds_positions(square, landmarks=3)
    >>> bool(np.isclose(np.linalg.norm(positions[3] - positions[0]), 2**0.5))
    True
    """
    index = evenly_spaced_indices(space.n, landmarks, space.device, with_ends=True)
    return as_array("positions", landmark_mds(space.metric, index, 3))
