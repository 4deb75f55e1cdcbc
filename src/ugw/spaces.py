"""Spaces: a metric, weights of any total mass, and optionally features; one, or a ragged batch of them."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ._check import (
    as_tensor,
    check_finite,
    check_ndim,
    check_nonnegative,
    check_square,
    check_symmetric,
    check_zero_diagonal,
    short,
)
from .distances import graph_distances, knn_distances, mesh_distances, point_distances
from .embedded import Embedded
from .errors import InputError
from .metrics import Dense, Metric


@dataclass(frozen=True, eq=False)
class Space:
    """A metric measure space (D, a): symmetric D, (..., n, n), and weights a ≥ 0, (..., n), of any mass.

    Made by one of the constructors `from_points`, `from_distances`, `from_graph`, `from_knn`, `from_mesh`,
    `from_matrix`, which check their input, or by `stack` from other spaces. They take NumPy arrays or torch
    tensors, in float32 or float64, and do not copy them unless they must. Weights default to 1/n each. A
    leading dimension of the data is a batch of spaces; parts without it are shared by all items.

    >>> import numpy as np
    >>> from ugw.spaces import Space
    >>> Space.from_points(np.random.rand(200, 3), weights=np.full(200, 0.01))
    Space(n=200, mass=2, float64, points in R^3)
    """

    metric: Metric  # (n, n) or (B, n, n)
    weights: Tensor  # (n,) or (B, n)
    features: Tensor | None = None  # (..., n, d)
    points: Tensor | None = None  # (..., n, d) coordinates, for pictures and linear starts; never scaled
    sizes: tuple[int, ...] | None = None  # size of each batch item without its padding; None for one space
    numpy: bool = False  # made of NumPy arrays, so results are given back as NumPy arrays

    @classmethod
    def from_points(cls, points: Any, *, weights: Any = None, metric: str = "euclidean", features: Any = None) -> Space:
        """Distances between points, (n, d) or (B, n, d).

        `metric` is "euclidean", "sqeuclidean", or another name that scipy.spatial.distance.cdist knows. The
        first two keep the graph of points that require gradients; the others are computed on the CPU.

        >>> Space.from_points([[0, 0], [3, 4]]).metric.dense()[0, 1].item()
        5.0
        """
        coordinates = _points("points", points)
        made = _squared(coordinates) if metric == "sqeuclidean" else Dense(point_distances(coordinates, metric))
        return _assemble(made, weights, features, points=coordinates, numpy=not isinstance(points, Tensor))

    @classmethod
    def from_distances(cls, distances: Any, *, weights: Any = None, features: Any = None) -> Space:
        """Given distances, (n, n) or (B, n, n), ≥ 0, and up to rounding symmetric with a zero diagonal.

        >>> Space.from_distances([[0, 1], [1, 0]], weights=[0.25, 0.5])
        Space(n=2, mass=0.75, float64)
        """
        matrix = _symmetric("distances", distances)
        check_nonnegative("distances", matrix)
        check_zero_diagonal("distances", matrix)
        return _assemble(Dense(matrix), weights, features, numpy=not isinstance(distances, Tensor))

    @classmethod
    def from_matrix(cls, matrix: Any, *, weights: Any = None, features: Any = None) -> Space:
        """Any symmetric matrix instead of distances, (n, n) or (B, n, n): an adjacency, a heat kernel.

        Entries may be negative and the diagonal may be anything.

        >>> Space.from_matrix([[1.0, -0.5], [-0.5, 1.0]])
        Space(n=2, mass=1, float64)
        """
        checked = _symmetric("matrix", matrix)
        return _assemble(Dense(checked), weights, features, numpy=not isinstance(matrix, Tensor))

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
        return _assemble(Dense(matrix), weights, features, numpy=True)

    @classmethod
    def from_knn(cls, points: Any, *, k: int = 15, weights: Any = None, features: Any = None) -> Space:
        """Shortest-path distances in the graph that joins each point to its k nearest. points: (n, d).

        Edges have Euclidean length, and are there when either end is among the k nearest of the other. The
        graph must be connected. Gradients do not pass.

        >>> Space.from_knn([[0, 0], [0, 3], [4, 3]], k=1).metric.dense()[0]
        tensor([0., 3., 7.], dtype=torch.float64)
        """
        coordinates = _points("points", points, batch=False)
        matrix = knn_distances(coordinates, k)
        return _assemble(Dense(matrix), weights, features, points=coordinates, numpy=not isinstance(points, Tensor))

    @classmethod
    def from_mesh(cls, vertices: Any, faces: Any, *, weights: Any = None, features: Any = None) -> Space:
        """Shortest paths along the edges of a triangle mesh. vertices: (n, d), faces: (F, 3) vertex indices.

        Weights default to 1/n each, whatever the areas of the faces. Gradients do not pass.

        >>> Space.from_mesh([[0, 0, 0], [1, 0, 0], [1, 1, 0], [2, 1, 0]], [[0, 1, 2], [1, 2, 3]])
        Space(n=4, mass=1, float64, points in R^3)
        """
        coordinates = _points("vertices", vertices, batch=False)
        matrix = mesh_distances(coordinates, faces)
        numpy = not isinstance(vertices, Tensor)
        return _assemble(Dense(matrix), weights, features, points=coordinates, numpy=numpy)

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
        features = [space.features for space in spaces if space.features is not None]
        points = [space.points for space in spaces if space.points is not None]
        keep_points = len(points) == len(spaces) and len({p.shape[-1] for p in points}) == 1
        return Space(
            metric=_stack_metrics([space.metric for space in spaces], n),
            weights=torch.stack([_pad(space.weights, n) for space in spaces]),
            features=_stack_rows(features, n) if features else None,
            points=_stack_rows(points, n) if keep_points else None,
            sizes=tuple(space.n for space in spaces),
            numpy=all(space.numpy for space in spaces),
        )

    @property
    def n(self) -> int:
        """The number of points, padding included."""
        return self.weights.shape[-1]

    @property
    def mass(self) -> Tensor:
        """Total mass, () or (B,)."""
        return self.weights.sum(-1)

    @property
    def batched(self) -> bool:
        """Whether this is a batch of spaces."""
        return self.weights.ndim == 2

    @property
    def dtype(self) -> torch.dtype:
        """float32 or float64, the same for all parts."""
        return self.weights.dtype

    @property
    def device(self) -> torch.device:
        """The device of all parts."""
        return self.weights.device

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
            weights=self.weights[i, :n],
            features=None if self.features is None else self.features[i, :n],
            points=None if self.points is None else self.points[i, :n],
            sizes=None,
        )

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
            weights=self.weights[index],
            features=None if self.features is None else self.features[index],
            points=None if self.points is None else self.points[index],
            sizes=tuple(self.sizes[i] for i in index.tolist()),
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
            law = self.weights / self.mass[..., None]  # normalised first: the square of a mass may overflow
            size = (law * self.metric.apply(law[..., None])[..., 0]).sum(-1)
        else:
            raise InputError(f'scaled must be given "max" or "mean", got {how!r}')
        check_nonnegative("the mean of the matrix, to scale by it,", size)
        usable = size >= torch.finfo(self.dtype).tiny  # 1 / s overflows below it
        return replace(self, metric=self.metric.scale(1 / torch.where(usable, size, 1)))

    def to(self, target: torch.device | torch.dtype | str) -> Space:
        """The same space on another device ("cuda") or in another dtype ("float32" or torch.float64, say).

        >>> Space.from_points([[0], [1]]).to(torch.float32)
        Space(n=2, mass=1, float32, points in R^1)
        """
        place = _dtype_or_device(target)
        return replace(
            self,
            metric=self.metric.to(place),
            weights=self.weights.to(place),
            features=None if self.features is None else self.features.to(place),
            points=None if self.points is None else self.points.to(place),
        )

    def __repr__(self) -> str:
        if self.sizes is None:
            parts = [f"n={self.n}", f"mass={self.mass.item():.4g}"]
        else:
            low, high = self.mass.aminmax()
            parts = [f"batch of {len(self)}", f"n ≤ {self.n}", f"mass {low.item():.4g} to {high.item():.4g}"]
        parts.append(short(self.dtype))
        if self.device.type != "cpu":
            parts.append(str(self.device))
        for name, rows in (("points", self.points), ("features", self.features)):
            if rows is not None:
                parts.append(f"{name} in R^{rows.shape[-1]}")
        return f"Space({', '.join(parts)})"


def _points(name: str, points: Any, *, batch: bool = True) -> Tensor:
    """Checked coordinates, (n, d), or (B, n, d) where a batch is taken."""
    tensor = as_tensor(name, points)
    expected = "(n, d) or (B, n, d)" if batch else "(n, d); for a batch use Space.stack"
    check_ndim(name, tensor, (2, 3) if batch else (2,), expected)
    check_finite(name, tensor)
    return tensor


def _symmetric(name: str, matrix: Any) -> Tensor:
    """A checked symmetric matrix, (n, n) or (B, n, n)."""
    tensor = as_tensor(name, matrix)
    check_square(name, tensor)
    check_finite(name, tensor)
    check_symmetric(name, tensor)
    return tensor


def _squared(points: Tensor) -> Embedded:
    """Squared Euclidean distances of points (n, d) or (B, n, d), whose mean does not matter and is best at 0."""
    made = Embedded(points - points.detach().mean(-2, keepdim=True), points.new_ones(points.shape[-1]))
    check_finite("sqeuclidean distances between the points", 4.0 * made.norms)
    return made


def _assemble(metric: Metric, weights: Any, features: Any, *, points: Tensor | None = None, numpy: bool) -> Space:
    """Check weights and features against a checked metric, and give every part but it the batch dimension."""
    n, like = metric.n, torch.empty(0, dtype=metric.dtype, device=metric.device)
    if isinstance(metric, Dense):
        check_finite("distances", metric.matrix)  # finite coordinates and edges may still add up to an overflow
    numpy = numpy and not isinstance(weights, Tensor) and not isinstance(features, Tensor)
    weights = like.new_full((n,), 1 / n) if weights is None else _weights(weights, like, n)
    features = None if features is None else _features(features, like, n)
    sizes = {name: len(part) for name, part, ndim in (("weights", weights, 1), ("features", features, 2))
             if part is not None and part.ndim > ndim}  # fmt: skip
    sizes |= {"distances": metric.shape[0]} if metric.batched else {}
    if len(set(sizes.values())) > 1:
        raise InputError(f"batch sizes must be equal, got {', '.join(f'{k} {v}' for k, v in sizes.items())}")
    batch = tuple(set(sizes.values()))  # () or (B,)
    return Space(
        metric=metric,
        weights=weights.expand(*batch, n),
        features=None if features is None else features.expand(*batch, *features.shape[-2:]),
        points=None if points is None else points.expand(*batch, *points.shape[-2:]),
        sizes=(n,) * batch[0] if batch else None,
        numpy=numpy,
    )


def _weights(weights: Any, like: Tensor, n: int) -> Tensor:
    """Checked weights, (n,) or (B, n)."""
    tensor = as_tensor("weights", weights, like=like)
    check_ndim("weights", tensor, (1, 2), f"({n},) or (B, {n})")
    if tensor.shape[-1] != n:
        raise InputError(f"weights must have shape (..., {n}), got {tuple(tensor.shape)}")
    check_finite("weights", tensor)
    check_nonnegative("weights", tensor)
    mass = tensor.detach().sum(-1)
    check_finite("total mass of the weights", mass)
    if mass.amin() == 0:
        place = f" in batch item {mass.argmin().item()}" if mass.ndim else ""
        raise InputError(f"weights must have positive total mass, got all zero{place}")
    return tensor


def _features(features: Any, like: Tensor, n: int) -> Tensor:
    """Checked features, (n, d) or (B, n, d)."""
    tensor = as_tensor("features", features, like=like)
    check_ndim("features", tensor, (2, 3), f"({n}, d) or (B, {n}, d)")
    if tensor.shape[-2] != n:
        raise InputError(f"features must have shape (..., {n}, d), got {tuple(tensor.shape)}")
    check_finite("features", tensor)
    return tensor


def _dtype_or_device(target: Any) -> torch.dtype | torch.device:
    """What `Space.to` was asked for, if there is such a thing here."""
    target = {"float32": torch.float32, "float64": torch.float64}.get(str(target), target)
    if isinstance(target, torch.dtype):
        if target not in (torch.float32, torch.float64):
            raise InputError(f"a space is float32 or float64, got {short(target)}")
        return target
    try:
        return torch.empty(0, device=torch.device(target)).device
    except (RuntimeError, TypeError, AssertionError, ImportError) as error:  # no such name, or not on this machine
        said = str(error).strip().split("\n")[0]
        raise InputError(f"to() must be given float32, float64 or a device, got {target!r} ({said})") from None


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
        ("dtypes", {short(space.dtype) for space in spaces}),
        ("devices", {str(space.device) for space in spaces}),
        ("widths of features", {"none" if s.features is None else str(s.features.shape[-1]) for s in spaces}),
    ):
        if len(values) > 1:
            raise InputError(f"stacked spaces must agree, got {what} {', '.join(sorted(values))}")
    return spaces


def _pad(tensor: Tensor, *sizes: int) -> Tensor:
    """Zeros after the entries, to the given sizes."""
    amounts = [(0, size - have) for size, have in zip(sizes, tensor.shape, strict=True)]
    return torch.nn.functional.pad(tensor, [amount for pair in reversed(amounts) for amount in pair])


def _stack_metrics(metrics: Sequence[Metric], n: int) -> Metric:
    """One metric for a batch, embedded if all are, in one R^r."""
    embedded = [m for m in metrics if isinstance(m, Embedded)]
    if len(embedded) == len(metrics) and len({tuple(m.signs.tolist()) for m in embedded}) == 1:
        # Padding stands where the first point does: it makes no distance longer.
        points = [torch.cat([m.points, m.points[:1].expand(n - m.n, -1)]) for m in embedded]
        return Embedded(torch.stack(points), embedded[0].signs, max(m.error for m in embedded))
    return Dense(torch.stack([_pad(m.dense(), n, n) for m in metrics]))


def _stack_rows(tensors: Sequence[Tensor], n: int) -> Tensor:
    """(n_i, d) each, to (B, n, d)."""
    return torch.stack([_pad(tensor, n, tensor.shape[-1]) for tensor in tensors])
