"""Spaces: a metric, weights of any total mass, and optionally features; one, or a ragged batch of them."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .._utils.checks import (
    as_tensor,
    check_finite,
    check_nonnegative,
    check_zero_diagonal,
    dtype_name,
)
from ..errors import InputError
from .construct import (
    compressed,
    coordinates_of,
    dtype_or_device,
    features_of,
    metric_of_points,
    pad,
    stack_metrics,
    stack_rows,
    symmetric,
    weights_of,
)
from .graph_distances import graph_distances, knn_distances, mesh_distances
from .low_rank import LowRankMetric
from .metric import DenseMetric, Metric


@dataclass(frozen=True, eq=False)
class Space:
    """A metric measure space (D, a): symmetric D, (..., n, n), and weights a ≥ 0, (..., n), of any mass.

    Made by one of the constructors `from_points`, `from_distances`, `from_graph`, `from_knn`, `from_mesh`,
    `from_matrix`, which check their input, or by `stack` from other spaces. They take NumPy arrays or torch
    tensors, in float32 or float64, and do not copy them unless they must. Weights default to 1/n each. A
    leading dimension of the data is a batch of spaces; parts without it are shared by all items.

    >>> import numpy as np
    >>> from ugw.geometry.space import Space
    >>> Space.from_points(np.random.rand(200, 3), weights=np.full(200, 0.01))
    Space(n=200, mass=2, float64, points in R^3)
    """

    metric: Metric  # (n, n) or (B, n, n)
    weight_tensor: Tensor  # (n,) or (B, n)
    feature_tensor: Tensor | None = None  # (..., n, d)
    point_tensor: Tensor | None = None  # (..., n, d) coordinates, for pictures and linear starts; never scaled
    sizes: tuple[int, ...] | None = None  # size of each batch item without its padding; None for one space
    numpy: bool = False  # made of NumPy arrays, so results are given back as NumPy arrays

    @classmethod
    def from_points(
        cls,
        points: Any,
        *,
        weights: Any = None,
        metric: str = "euclidean",
        features: Any = None,
        tol: float | None = None,
        max_rank: int = 128,
    ) -> Space:
        """Distances between points, (n, d) or (B, n, d).

        `metric` is "euclidean", "sqeuclidean", or another name that scipy.spatial.distance.cdist knows. The
        first two keep the graph of points that require gradients; the others are computed on the CPU. Distances are
        stored, (n, n); those of "sqeuclidean" are not, being of rank d + 2. With `tol`, a share of the largest
        distance, neither are others: they are then of low rank, at most `max_rank` columns, and that far off at most,
        as `compressed` says. Their `metric.error` is the largest error that was seen.

        >>> Space.from_points([[0, 0], [3, 4]]).metric.dense()[0, 1].item()
        5.0
        """
        coordinates = coordinates_of("points", points)
        made = metric_of_points(coordinates, metric, tol, max_rank)
        return _assemble(made, weights, features, points=coordinates, numpy=not isinstance(points, Tensor))

    @classmethod
    def from_distances(cls, distances: Any, *, weights: Any = None, features: Any = None) -> Space:
        """Given distances, (n, n) or (B, n, n), ≥ 0, and up to rounding symmetric with a zero diagonal.

        >>> Space.from_distances([[0, 1], [1, 0]], weights=[0.25, 0.5])
        Space(n=2, mass=0.75, float64)
        """
        matrix = symmetric("distances", distances)
        check_nonnegative("distances", matrix)
        check_zero_diagonal("distances", matrix)
        return _assemble(DenseMetric(matrix), weights, features, numpy=not isinstance(distances, Tensor))

    @classmethod
    def from_matrix(cls, matrix: Any, *, weights: Any = None, features: Any = None) -> Space:
        """Any symmetric matrix instead of distances, (n, n) or (B, n, n): an adjacency, a heat kernel.

        Entries may be negative and the diagonal may be anything.

        >>> Space.from_matrix([[1.0, -0.5], [-0.5, 1.0]])
        Space(n=2, mass=1, float64)
        """
        checked = symmetric("matrix", matrix)
        return _assemble(DenseMetric(checked), weights, features, numpy=not isinstance(matrix, Tensor))

    @classmethod
    def from_graph(
        cls, graph: Any, *, weights: Any = None, features: Any = None, edge_weight: str | None = "weight"
    ) -> Space:
        """Shortest-path distances in a connected undirected graph with edges of nonnegative length.

        `graph` is a networkx graph, its points the nodes in its order, the lengths in the edge attribute
        `edge_weight` (1 for `edge_weight=None`, or when no edge has the default one); of parallel edges the
        shortest counts. Or it is a symmetric scipy.sparse adjacency: every stored entry is an edge, also a
        stored zero, as in scipy.sparse.csgraph. A graph has no device: the space takes device and dtype of
        `weights`, else of `features`, if these are arrays.

        >>> import networkx
        >>> Space.from_graph(networkx.path_graph(4)).metric.dense()[0]
        tensor([0., 1., 2., 3.], dtype=torch.float64)
        """
        matrix = graph_distances(graph, edge_weight)
        for name, given in (("features", features), ("weights", weights)):
            if hasattr(given, "dtype"):  # plain lists have none
                matrix = matrix.to(as_tensor(name, given))
        return _assemble(DenseMetric(matrix), weights, features, numpy=True)

    @classmethod
    def from_knn(cls, points: Any, *, k: int = 15, weights: Any = None, features: Any = None) -> Space:
        """Shortest-path distances in the graph that joins each point to its k nearest. points: (n, d).

        Edges have Euclidean length, and are there when either end is among the k nearest of the other. The
        graph must be connected. Gradients do not pass.

        >>> Space.from_knn([[0, 0], [0, 3], [4, 3]], k=1).metric.dense()[0]
        tensor([0., 3., 7.], dtype=torch.float64)
        """
        coordinates = coordinates_of("points", points, batch=False)
        matrix = knn_distances(coordinates, k)
        return _assemble(
            DenseMetric(matrix), weights, features, points=coordinates, numpy=not isinstance(points, Tensor)
        )

    @classmethod
    def from_mesh(cls, vertices: Any, faces: Any, *, weights: Any = None, features: Any = None) -> Space:
        """Shortest paths along the edges of a triangle mesh. vertices: (n, d), faces: (F, 3) vertex indices.

        Weights default to 1/n each, whatever the areas of the faces. Gradients do not pass.

        >>> Space.from_mesh([[0, 0, 0], [1, 0, 0], [1, 1, 0], [2, 1, 0]], [[0, 1, 2], [1, 2, 3]])
        Space(n=4, mass=1, float64, points in R^3)
        """
        coordinates = coordinates_of("vertices", vertices, batch=False)
        matrix = mesh_distances(coordinates, faces)
        numpy = not isinstance(vertices, Tensor)
        return _assemble(DenseMetric(matrix), weights, features, points=coordinates, numpy=numpy)

    @staticmethod
    def stack(spaces: Sequence[Space]) -> Space:
        """One batch of spaces of any sizes, padded with points of weight zero and distance zero.

        Features must be on all or none and of equal width; points are kept if all have them in the same R^d.

        >>> pair, triple = Space.from_points([[0], [1]]), Space.from_points([[0], [1], [5]])
        >>> Space.stack([pair, triple])
        Space(batch of 2, n ≤ 3, mass 1 to 1, float64, points in R^1)
        """
        spaces = _check_stackable(spaces)
        n = max(space.n for space in spaces)
        features = [space.feature_tensor for space in spaces if space.feature_tensor is not None]
        points = [space.point_tensor for space in spaces if space.point_tensor is not None]
        keep_points = len(points) == len(spaces) and len({p.shape[-1] for p in points}) == 1
        return Space(
            metric=stack_metrics([space.metric for space in spaces], n),
            weight_tensor=torch.stack([pad(space.weight_tensor, n) for space in spaces]),
            feature_tensor=stack_rows(features, n) if features else None,
            point_tensor=stack_rows(points, n) if keep_points else None,
            sizes=tuple(space.n for space in spaces),
            numpy=all(space.numpy for space in spaces),
        )

    @property
    def n(self) -> int:
        """The number of points, padding included."""
        return self.weight_tensor.shape[-1]

    @property
    def weights(self) -> Any:
        """Weights of the points, (n,) or (B, n): a NumPy array if the space was made of arrays, else a tensor."""
        return self._to_user(self.weight_tensor)

    @property
    def features(self) -> Any:
        """Features of the points, (..., n, d), as an array or a tensor like `weights`; None without features."""
        return self._to_user(self.feature_tensor)

    @property
    def points(self) -> Any:
        """Coordinates of the points, (..., n, d), as an array or a tensor like `weights`; None if unknown."""
        return self._to_user(self.point_tensor)

    @property
    def mass(self) -> Any:
        """Total mass: a float or an array (B,), or for a space of tensors a tensor, () or (B,)."""
        mass = self._to_user(self.weight_tensor.sum(-1))
        return mass.item() if self.numpy and mass.ndim == 0 else mass

    def _to_user(self, tensor: Tensor | None) -> Any:
        """Return a copy as a NumPy array if the space was made of arrays, else the tensor itself."""
        return tensor.detach().cpu().numpy().copy() if self.numpy and tensor is not None else tensor

    @property
    def batched(self) -> bool:
        """Whether this is a batch of spaces."""
        return self.weight_tensor.ndim == 2

    @property
    def dtype(self) -> torch.dtype:
        """float32 or float64, the same for all parts."""
        return self.weight_tensor.dtype

    @property
    def device(self) -> torch.device:
        """The device of all parts."""
        return self.weight_tensor.device

    def __len__(self) -> int:
        if self.sizes is None:
            raise InputError("len() counts batch items, got one space, expected a batch; n counts points")
        return len(self.sizes)

    def __bool__(self) -> bool:
        return True  # otherwise Python would ask __len__

    def __getitem__(self, i: int) -> Space:
        if self.sizes is None:
            raise InputError(f"space[{i!r}] must index a batch, got one space, expected Space.stack(...)")
        i = operator.index(i)
        if not -len(self.sizes) <= i < len(self.sizes):
            raise IndexError(f"batch item {i} of {len(self.sizes)}")  # IndexError is what ends a for loop
        n = self.sizes[i]
        return replace(
            self,
            metric=self.metric.item(i, n),
            weight_tensor=self.weight_tensor[i, :n],
            feature_tensor=None if self.feature_tensor is None else self.feature_tensor[i, :n],
            point_tensor=None if self.point_tensor is None else self.point_tensor[i, :n],
            sizes=None,
        )

    @property
    def has_equal_sizes(self) -> bool:
        """Do all items of the batch have equally many points? True for one space."""
        return self.sizes is None or len(set(self.sizes)) <= 1

    def take(self, index: Tensor) -> Space:
        """Some items of a batch, padding kept; one space is shared by all items, and stays itself.

        index: (k,) integers or (B,) bools.

        >>> batch = Space.from_points(torch.zeros(3, 5, 2))
        >>> batch.take(torch.tensor([0, 2]))
        Space(batch of 2, n ≤ 5, mass 1 to 1, float32, points in R^2)
        """
        if self.sizes is None:
            return self
        index = index.nonzero().squeeze(-1) if index.dtype == torch.bool else index
        return replace(
            self,
            metric=self.metric.take(index),
            weight_tensor=self.weight_tensor[index],
            feature_tensor=None if self.feature_tensor is None else self.feature_tensor[index],
            point_tensor=None if self.point_tensor is None else self.point_tensor[index],
            # A GPU would wait for a look at the index.
            sizes=self.sizes[:1] * len(index) if self.has_equal_sizes else tuple(self.sizes[i] for i in index.tolist()),
        )

    def scaled(self, how: str = "max") -> Space:
        """Distances divided by s: "max", s = max |D_ij| over all points, or "mean", s = aᵀ D a / m(a)².

        Each batch item has its own s. An item with s = 0 (one point, identical points) stays as it is. Only
        the metric changes: `points` and `features` do not.

        >>> Space.from_points([[0.0], [4.0]]).scaled("mean").metric.dense()[0, 1].item()
        2.0
        """
        if how == "max":
            low, high = self.metric.extremes()
            size = torch.maximum(high, -low)
        elif how == "mean":
            # Normalized first: the square of a mass may overflow.
            law = self.weight_tensor / self.weight_tensor.sum(-1, keepdim=True)
            size = (law * self.metric.apply(law[..., None])[..., 0]).sum(-1)
        else:
            raise InputError(f'scaled must be given "max" or "mean", got {how!r}')
        check_nonnegative("the mean of the matrix, to scale by it,", size)
        usable = size >= torch.finfo(self.dtype).tiny  # 1 / s overflows below it
        return replace(self, metric=self.metric.scale(1 / torch.where(usable, size, 1)))

    def compressed(self, tol: float = 1e-2, *, max_rank: int = 128) -> Space:
        """The same space with distances of low rank, each off by at most `tol` times the largest, as far as seen.

        Products then cost O(n·r) and large plans need not be stored. Any distances will do (the diagonal must be 0),
        smooth ones with few columns; a kink at 0 is rounded off, so the errors are those of short distances and the
        root of the mean square is a sixth of the largest. Euclidean distances of 1000 uniform points need this rank:

        ===  ===  ===  ===
        tol   5%   2%   1%
        ===  ===  ===  ===
        R^1    8   22   44
        R^2   44  249  644
        R^3  151  926    —
        ===  ===  ===  ===

        Where `max_rank` is not enough an InputError says which rank or `tol` would do. `metric.error` is the largest
        error seen: of all pairs up to n = 2048, else of 4 million pairs or more. Gradients do not pass. Each item of
        a batch is compressed by itself, and zero columns make their ranks equal.

        >>> import networkx
        >>> Space.from_graph(networkx.path_graph(40)).compressed(tol=0.1)
        Space(n=40, mass=1, float64, distances of rank 4 within 2.9)
        """
        return replace(self, metric=compressed(self.metric, self.sizes, tol=tol, max_rank=max_rank))

    def to(self, target: torch.device | torch.dtype | str) -> Space:
        """The same space on another device ("cuda") or in another dtype ("float32" or torch.float64, say).

        >>> Space.from_points([[0], [1]]).to(torch.float32)
        Space(n=2, mass=1, float32, points in R^1)
        """
        place = dtype_or_device(target)
        return replace(
            self,
            metric=self.metric.to(place),
            weight_tensor=self.weight_tensor.to(place),
            feature_tensor=None if self.feature_tensor is None else self.feature_tensor.to(place),
            point_tensor=None if self.point_tensor is None else self.point_tensor.to(place),
        )

    def detach(self) -> Space:
        """The same space without autograd graphs.

        >>> Space.from_points(torch.ones(2, 1, requires_grad=True)).detach().metric.dense().requires_grad
        False
        """
        return replace(
            self,
            metric=self.metric.detach(),
            weight_tensor=self.weight_tensor.detach(),
            feature_tensor=None if self.feature_tensor is None else self.feature_tensor.detach(),
            point_tensor=None if self.point_tensor is None else self.point_tensor.detach(),
        )

    def __repr__(self) -> str:
        if self.sizes is None:
            parts = [f"n={self.n}", f"mass={float(self.mass):.4g}"]
        else:
            low, high = self.weight_tensor.sum(-1).aminmax()
            parts = [f"batch of {len(self)}", f"n ≤ {self.n}", f"mass {low.item():.4g} to {high.item():.4g}"]
        parts.append(dtype_name(self.dtype))
        if self.device.type != "cpu":
            parts.append(str(self.device))
        if isinstance(self.metric, LowRankMetric) and self.metric.error:
            parts.append(f"distances of rank {self.metric.points.shape[-1]} within {self.metric.error:.2g}")
        for name, rows in (("points", self.point_tensor), ("features", self.feature_tensor)):
            if rows is not None:
                parts.append(f"{name} in R^{rows.shape[-1]}")
        return f"Space({', '.join(parts)})"


def _assemble(metric: Metric, weights: Any, features: Any, *, points: Tensor | None = None, numpy: bool) -> Space:
    """Check weights and features against a checked metric, and give every part but it the batch dimension."""
    n, like = metric.n, torch.empty(0, dtype=metric.dtype, device=metric.device)
    if isinstance(metric, DenseMetric):
        check_finite("distances", metric.matrix)  # finite coordinates and edges may still add up to an overflow
    numpy = numpy and not isinstance(weights, Tensor) and not isinstance(features, Tensor)
    weights = like.new_full((n,), 1 / n) if weights is None else weights_of(weights, like, n)
    features = None if features is None else features_of(features, like, n)
    plain = (("weights", weights, 1), ("features", features, 2))
    sizes = {"distances": metric.shape[0]} if metric.batched else {}
    sizes |= {name: len(part) for name, part, ndim in plain if part is not None and part.ndim > ndim}
    if len(set(sizes.values())) > 1:
        raise InputError(f"batch sizes must be equal, got {', '.join(f'{k} {v}' for k, v in sizes.items())}")
    batch = tuple(set(sizes.values()))  # () or (B,)
    return Space(
        metric=metric,
        weight_tensor=weights.expand(*batch, n),
        feature_tensor=None if features is None else features.expand(*batch, *features.shape[-2:]),
        point_tensor=None if points is None else points.expand(*batch, *points.shape[-2:]),
        sizes=(n,) * batch[0] if batch else None,
        numpy=numpy,
    )


def _check_stackable(spaces: Any) -> list[Space]:
    """The spaces in a list, if they can be one batch."""
    if isinstance(spaces, Space) or not isinstance(spaces, Iterable):
        raise InputError(f"Space.stack must be given a list of spaces, got {type(spaces).__name__}")
    spaces = list(spaces)
    if not spaces:
        raise InputError("Space.stack needs at least one space, got none")
    for i, space in enumerate(spaces):
        if not isinstance(space, Space):
            kind = type(space).__name__
            raise InputError(f"item {i} must be a Space, got {kind}; Space.from_points makes one")
        if space.batched:
            raise InputError(f"item {i} must be one space, got a batch of {len(space)}")
    for what, values in (
        ("dtypes", {dtype_name(space.dtype) for space in spaces}),
        ("devices", {str(space.device) for space in spaces}),
        (
            "widths of features",
            {"none" if s.feature_tensor is None else str(s.feature_tensor.shape[-1]) for s in spaces},
        ),
    ):
        if len(values) > 1:
            raise InputError(f"stacked spaces must agree, got {what} {', '.join(sorted(values))}")
    return spaces
