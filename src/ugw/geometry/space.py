"""Metric measure spaces: a metric, weights of any total mass and optional features; one space or a ragged batch."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .._utils.checks import (
    as_list,
    as_tensor,
    check_choice,
    check_nonnegative,
    check_zero_diagonal,
    describe_value,
    dtype_name,
)
from ..errors import InputError
from .construct import (
    as_item_indices,
    as_points,
    as_symmetric_matrix,
    compress_metric,
    metric_from_points,
    read_dtype_or_device,
    read_weights_and_features,
)
from .graph_distances import graph_distances, knn_distances, mesh_distances
from .low_rank import LowRankMetric
from .metric import DenseMetric, Metric
from .stack import check_all_equal, pad_with_zeros, stack_metrics, stack_padded_rows


@dataclass(frozen=True, eq=False)
class Space:
    """A metric measure space (D, a): symmetric D, (..., n, n), and weights a ≥ 0, (..., n), of any mass.

    Use a constructor, `from_points`, `from_distances`, `from_graph`, `from_knn`, `from_mesh` or `from_matrix`, which
    checks its input, or `stack` for a batch of spaces. Constructors take NumPy arrays or torch tensors, in float32 or
    float64, and copy them only if necessary. Weights default to 1/n each. A leading dimension of the data is a batch
    of spaces; arrays without it are shared by all items.

    >>> import numpy as np, ugw
    >>> ugw.Space.from_points(np.random.rand(200, 3), weights=np.full(200, 0.01))
    Space(n=200, mass=2, float64, points in R^3)
    """

    metric: Metric  # (n, n) or (B, n, n)
    weight_tensor: Tensor  # (n,) or (B, n)
    feature_tensor: Tensor | None = None  # (..., n, d)
    point_tensor: Tensor | None = None  # (..., n, d) coordinates, for plots and linear starts; never scaled
    sizes: tuple[int, ...] | None = None  # size of each batch item without its padding; None for one space
    numpy: bool = False  # made of NumPy arrays: results are returned as NumPy arrays

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
        """Return the space of points (n, d) or (B, n, d) with the distances of a metric.

        `metric` is "euclidean", "sqeuclidean", or another name that scipy.spatial.distance.cdist knows. The first two
        are differentiable in the points; the others are computed on the CPU. Distances are stored, (n, n), except
        those of "sqeuclidean", which have rank d + 2. With `tol`, other distances are not stored either, but
        approximated with at most `max_rank` columns and with errors of at most `tol` times the largest distance, as by
        `compressed`, or InputError is raised; `metric.error` is the largest absolute error measured. Without `tol`,
        `max_rank` has no effect. weights: (n,) or (B, n), 1/n each if None; features: (n, k) or (B, n, k), for
        `ugw.Fused`.

        >>> Space.from_points([[0, 0], [3, 4]]).distances[0, 1].item()
        5.0
        """
        coordinates = as_points("points", points)
        point_metric = metric_from_points(coordinates, metric, tol, max_rank)
        return _assemble(point_metric, weights, features, points=coordinates, numpy=not isinstance(points, Tensor))

    @classmethod
    def from_distances(cls, distances: Any, *, weights: Any = None, features: Any = None) -> Space:
        """Return the space of given distances (n, n) or (B, n, n), ≥ 0, symmetric with a zero diagonal up to rounding.

        weights: (n,) or (B, n), 1/n each if None; features: (n, k) or (B, n, k), or None.

        >>> Space.from_distances([[0, 1], [1, 0]], weights=[0.25, 0.5])
        Space(n=2, mass=0.75, float64)
        """
        matrix = as_symmetric_matrix("distances", distances)
        check_nonnegative("distances", matrix)
        check_zero_diagonal("distances", matrix)
        return _assemble(DenseMetric(matrix), weights, features, numpy=not isinstance(distances, Tensor))

    @classmethod
    def from_matrix(cls, matrix: Any, *, weights: Any = None, features: Any = None) -> Space:
        """Return the space of any symmetric matrix (n, n) or (B, n, n) in place of distances: adjacency, heat kernel.

        Entries may be negative and the diagonal may be anything. Weights are 1/n each if None.

        >>> Space.from_matrix([[1.0, -0.5], [-0.5, 1.0]])
        Space(n=2, mass=1, float64)
        """
        checked = as_symmetric_matrix("matrix", matrix)
        return _assemble(DenseMetric(checked), weights, features, numpy=not isinstance(matrix, Tensor))

    @classmethod
    def from_graph(
        cls, graph: Any, *, weights: Any = None, features: Any = None, edge_weight: str | None = "weight"
    ) -> Space:
        """Return the space of the nodes of a connected undirected graph with shortest-path distances.

        `graph` is a networkx graph with nonnegative edge lengths in the attribute `edge_weight` (1 for
        `edge_weight=None`, or if no edge has the default attribute); of parallel edges the shortest counts. Or it is a
        symmetric scipy.sparse adjacency matrix: every stored entry is an edge, also a stored zero, as in
        scipy.sparse.csgraph. Device and dtype of the space are those of `weights`, else of `features`, if these are
        arrays. Weights are 1/n each if None.

        >>> import networkx
        >>> Space.from_graph(networkx.path_graph(4)).distances[0]
        array([0., 1., 2., 3.])
        """
        matrix = graph_distances(graph, edge_weight)
        for name, array in (("features", features), ("weights", weights)):
            if hasattr(array, "dtype"):  # lists have none
                matrix = matrix.to(as_tensor(name, array))
        return _assemble(DenseMetric(matrix), weights, features, numpy=True)

    @classmethod
    def from_knn(cls, points: Any, *, k: int = 15, weights: Any = None, features: Any = None) -> Space:
        """Return the space of points (n, d) with shortest-path distances in the graph of their k nearest neighbors.

        Two points are joined by an edge of Euclidean length if either is among the k nearest of the other. The graph
        must be connected. Weights are 1/n each if None. Not differentiable.

        >>> Space.from_knn([[0, 0], [0, 3], [4, 3]], k=1).distances[0]
        array([0., 3., 7.])
        """
        coordinates = as_points("points", points, batch=False)
        matrix = knn_distances(coordinates, k)
        numpy = not isinstance(points, Tensor)
        return _assemble(DenseMetric(matrix), weights, features, points=coordinates, numpy=numpy)

    @classmethod
    def from_mesh(cls, vertices: Any, faces: Any, *, weights: Any = None, features: Any = None) -> Space:
        """Return the space of the vertices (n, d) of a triangle mesh with shortest-path distances along its edges.

        faces: (F, 3) vertex indices. Weights default to 1/n each, whatever the areas of the faces. Not differentiable.

        >>> Space.from_mesh([[0, 0, 0], [1, 0, 0], [1, 1, 0], [2, 1, 0]], [[0, 1, 2], [1, 2, 3]])
        Space(n=4, mass=1, float64, points in R^3)
        """
        coordinates = as_points("vertices", vertices, batch=False)
        matrix = mesh_distances(coordinates, faces)
        numpy = not isinstance(vertices, Tensor)
        return _assemble(DenseMetric(matrix), weights, features, points=coordinates, numpy=numpy)

    @staticmethod
    def stack(spaces: Sequence[Space]) -> Space:
        """Return one batch of spaces of any sizes, padded with points of weight zero.

        These have distance zero to all points, or coincide with the first point if the distances of all spaces are of
        low rank. Dtypes and devices must be equal; results are NumPy arrays if all spaces were made of arrays.
        All spaces or none must have features, of equal dimension; points are kept if all have them in the same R^d.

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
            weight_tensor=torch.stack([pad_with_zeros(space.weight_tensor, n) for space in spaces]),
            feature_tensor=stack_padded_rows(features, n) if features else None,
            point_tensor=stack_padded_rows(points, n) if keep_points else None,
            sizes=tuple(space.n for space in spaces),
            numpy=all(space.numpy for space in spaces),
        )

    @property
    def n(self) -> int:
        """The number of points, padding included."""
        return self.weight_tensor.shape[-1]

    @property
    def weights(self) -> Any:
        """Weights, (n,) or (B, n), 0 in padding: a NumPy array if the space was made of arrays, else a tensor."""
        return self._to_user(self.weight_tensor)

    @property
    def distances(self) -> Any:
        """The matrix of distances or similarities, (n, n) or (B, n, n), as an array or a tensor like `weights`.

        Low-rank distances are computed from their factors at each access.
        """
        return self._to_user(self.metric.dense())

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
        """Return the tensor copied to a NumPy array if the space was made of arrays, else unchanged; None for None."""
        return tensor.detach().cpu().numpy().copy() if self.numpy and tensor is not None else tensor

    @property
    def batched(self) -> bool:
        """Whether this is a batch of spaces."""
        return self.weight_tensor.ndim == 2

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of metric, weights, features and points: float32 or float64."""
        return self.weight_tensor.dtype

    @property
    def device(self) -> torch.device:
        """The device of metric, weights, features and points."""
        return self.weight_tensor.device

    def __len__(self) -> int:
        """Return the number of batch items; one space raises InputError."""
        if self.sizes is None:
            raise InputError("len() counts batch items, got one space, expected a batch; n counts points")
        return len(self.sizes)

    def __bool__(self) -> bool:
        """Return True; without this method Python would call __len__, which one space does not have."""
        return True

    def __getitem__(self, i: int) -> Space:
        """Return batch item i, from the end if i < 0, as one space without its padding; InputError for one space."""
        if self.sizes is None:
            raise InputError(f"space[{describe_value(i)}] must index a batch, got one space, expected Space.stack(...)")
        i = operator.index(i)
        if not -len(self.sizes) <= i < len(self.sizes):
            raise IndexError(f"batch item {i} of {len(self.sizes)}")  # IndexError is what ends a for loop
        n = self.sizes[i]
        return self._with_tensors(lambda tensor: tensor[i, :n], metric=self.metric.item(i, n), sizes=None)

    def _with_tensors(self, change: Callable[[Tensor], Tensor], **fields: Any) -> Space:
        """Return the space with `change` applied to weights, features, points, and other `fields` (metric) replaced."""
        features, points = self.feature_tensor, self.point_tensor
        return replace(
            self,
            weight_tensor=change(self.weight_tensor),
            feature_tensor=None if features is None else change(features),
            point_tensor=None if points is None else change(points),
            **fields,
        )

    @property
    def has_equal_sizes(self) -> bool:
        """Whether all items of the batch have the same number of points; True for one space."""
        return self.sizes is None or len(set(self.sizes)) <= 1

    def take(self, index: Any) -> Space:
        """Return the batch of the items `index`, (k,) integers or (B,) bools, with the same padding.

        index: a list, an array or a tensor that selects at least one item; −1 is the last one. Raises InputError for
        one space, which has no items; a subset of its points is a new space, made of these points and weights.

        >>> batch = Space.from_points(torch.zeros(3, 5, 2))
        >>> batch.take([0, 2])
        Space(batch of 2, n ≤ 5, mass 1 to 1, float32, points in R^2)
        """
        if self.sizes is None:
            raise InputError(
                f"take must be called on a batch, got one space and the index {describe_value(index)}; a subset of its "
                "points is a new space: Space.from_points(points[index], weights=weights[index])"
            )
        return self.select_items(as_item_indices(index, len(self.sizes), self.device))

    def select_items(self, index: Tensor) -> Space:
        """Return the batch of the items `index`, a tensor (k,) of integers or (B,) of bools; `index` is not checked.

        One space without a batch dimension is shared by all items: it is returned unchanged.
        """
        if self.sizes is None:
            return self
        index = index.nonzero().squeeze(-1) if index.dtype == torch.bool else index
        # Reading the index would synchronize a GPU, so it is read only where sizes differ.
        sizes = self.sizes[:1] * len(index) if self.has_equal_sizes else tuple(self.sizes[i] for i in index.tolist())
        return self._with_tensors(lambda tensor: tensor[index], metric=self.metric.take(index), sizes=sizes)

    def scaled(self, how: str = "max") -> Space:
        """Return the space with distances divided by s = max |D_ij| ("max") or s = aᵀ D a / m(a)² ("mean").

        Each batch item has its own s. An item with s = 0 (one point, identical points) is left unchanged; s < 0 raises
        InputError. Only the metric is scaled: `points` and `features` are not.

        >>> Space.from_points([[0.0], [4.0]]).scaled("mean").distances[0, 1].item()
        2.0
        """
        check_choice("how", how, ("max", "mean"))
        if how == "max":
            low, high = self.metric.extremes()
            size = torch.maximum(high, -low)
        else:
            # Normalized first: the square of a mass may overflow.
            unit_weights = self.weight_tensor / self.weight_tensor.sum(-1, keepdim=True)
            size = (unit_weights * self.metric.apply(unit_weights[..., None])[..., 0]).sum(-1)
        check_nonnegative("the mean of the matrix, to scale by it,", size)
        is_invertible = size >= torch.finfo(self.dtype).tiny  # below, 1 / s overflows
        return replace(self, metric=self.metric.scale(1 / torch.where(is_invertible, size, 1)))

    def compressed(self, tol: float = 1e-2, *, max_rank: int = 128) -> Space:
        """Return the space with low-rank distances whose errors are at most `tol` times the largest distance.

        Products then take O(n·r) time and large plans need not be stored. Any distances with a zero diagonal can be
        compressed; smooth ones need few columns. The largest errors are those of short distances, where a kink at 0 is
        smoothed; the root mean square error is 4 to 8 times smaller. Ranks for Euclidean distances of 1000 uniform
        points:

        ===  ===  ===  ===
        tol   5%   2%   1%
        ===  ===  ===  ===
        R^1    8   22   44
        R^2   44  249  644
        R^3  151  926    —
        ===  ===  ===  ===

        If `max_rank` is too small, an InputError names a sufficient rank or `tol`. `metric.error` is the largest
        absolute error measured, which `tol` limits: on all pairs up to n = 2048, else on 4 million pairs or more. Not
        differentiable. Each item of a batch is compressed separately, and zero columns make their ranks equal.

        >>> import networkx
        >>> Space.from_graph(networkx.path_graph(40)).compressed(tol=0.1)
        Space(n=40, mass=1, float64, distances of rank 4 within 2.9)
        """
        return replace(self, metric=compress_metric(self.metric, self.sizes, tol=tol, max_rank=max_rank))

    def to(self, target: torch.device | torch.dtype | str) -> Space:
        """Return the space on another device, such as "cuda", or in another dtype, such as "float32" or torch.float64.

        >>> Space.from_points([[0], [1]]).to(torch.float32)
        Space(n=2, mass=1, float32, points in R^1)
        """
        place = read_dtype_or_device(target)
        return self._with_tensors(lambda tensor: tensor.to(place), metric=self.metric.to(place))

    def detach(self) -> Space:
        """Return the space without autograd graphs.

        >>> Space.from_points(torch.ones(2, 1, requires_grad=True)).detach().distances.requires_grad
        False
        """
        return self._with_tensors(Tensor.detach, metric=self.metric.detach())

    def __repr__(self) -> str:
        """Return one line: number of points, mass, dtype, and, where there are any, device other than the CPU, rank and
        error of approximated distances, dimensions of points and features. A batch: items, largest n, range of masses.
        """
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
    """Return the space of a metric after checking weights and features; all get the batch dimension that one has.

    points: coordinates to keep, (..., n, d); numpy: is it a space of arrays, unless weights or features are tensors?
    """
    numpy = numpy and not isinstance(weights, Tensor) and not isinstance(features, Tensor)
    weights, features, batch = read_weights_and_features(metric, weights, features)
    return Space(
        metric=metric,
        weight_tensor=weights.expand(*batch, metric.n),
        feature_tensor=None if features is None else features.expand(*batch, *features.shape[-2:]),
        point_tensor=None if points is None else points.expand(*batch, *points.shape[-2:]),
        sizes=(metric.n,) * batch[0] if batch else None,
        numpy=numpy,
    )


def _check_stackable(spaces: Any) -> list[Space]:
    """Return `spaces` as a list; raise InputError unless all are single spaces of one dtype, device, feature width."""
    if isinstance(spaces, Space):
        raise InputError("Space.stack must be given a list of spaces, got Space")
    spaces = as_list("Space.stack", spaces, "given a list of spaces")
    if not spaces:
        raise InputError("Space.stack needs at least one space, got none")
    for i, space in enumerate(spaces):
        if not isinstance(space, Space):
            kind = type(space).__name__
            raise InputError(f"item {i} must be a Space, got {kind}; Space.from_points makes one")
        if space.batched:
            raise InputError(f"item {i} must be one space, got a batch of {len(space)}")
    widths = ("none" if space.feature_tensor is None else str(space.feature_tensor.shape[-1]) for space in spaces)
    check_all_equal("dtypes", (dtype_name(space.dtype) for space in spaces))
    check_all_equal("devices", (str(space.device) for space in spaces))
    check_all_equal("widths of features", widths)
    return spaces
