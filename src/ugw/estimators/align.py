"""Alignment of two sets of points that share no features, cells in two assays for example."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from .._utils.checks import dtype_name
from ..api.solve import solve
from ..errors import InputError
from ..geometry.space import Space
from ..results.lazy_plan import LazyPlan
from ..results.result import Result
from . import anndata_io as cells
from ._common import (
    as_array,
    as_space,
    best,
    choose,
    entropy,
    forget_features,
    is_grid,
    kept,
    nearest,
    scaled,
)
from .scores import foscttm


class Aligner(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Match X to Y by unbalanced Gromov–Wasserstein, and carry points and labels across by the plan.

    metric: a distance by name, "knn", or a function that makes a Space of points, such as `ugw.estimators.KNN(k=30)`;
    None is "euclidean", or "knn" for AnnData, where `obsp["distances"]` is reused.
    rho, eps: as for `ugw.solve`, in units of the scaled distances; float("inf") is balanced; eps="auto" is 0.005, or 0
    for `ugw.TV` and `ugw.Mass`. A *list* or an array of either is a choice, judged by `fit(..., pairs=)` or `labels=`
    and solved for as one batch (`validation_`).
    init, solver: as for `ugw.solve`. scale: "max" or "mean" divides each side's distances by their largest or mean.
    use_rep: which representation of an AnnData to take, a key of obsm or "X"; None is "X_pca" if there, else "X".

    After `fit`: `result_`, `plan_` (n, m), an array or a `LazyPlan` where it is too large to be stored, `mass_`, the
    shares of its weight that each point of X and of Y kept, and `embedding_` (n, e), X in the space of Y: each point
    the mean of its partners, NaN where it has none.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(20, 3)) * [3.0, 2.0, 1.0]
    >>> Y = X @ np.array([[0, 1, 0], [1, 0, 0], [0, 0, -1]])
    >>> aligner = Aligner(eps=1e-3).fit(X, Y)
    >>> round(aligner.score(X, Y), 3)  # 1 − FOSCTTM
    1.0
    >>> aligner.transfer_labels(np.arange(20))[0][:5]
    array([0, 1, 2, 3, 4])
    """

    def __init__(
        self,
        *,
        metric: Any = None,
        rho: Any = 1.0,
        eps: Any = "auto",
        init: Any = "auto",
        scale: str | None = "max",
        use_rep: str | None = None,
        solver: Any = None,
    ) -> None:
        self.metric = metric
        self.rho = rho
        self.eps = eps
        self.init = init
        self.scale = scale
        self.use_rep = use_rep
        self.solver = solver

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, Y: Any = None, *, pairs: Any = None, labels: Any = None) -> Self:
        """Align X (n, d) with Y (m, e) or (m,): arrays, Spaces or AnnData; their rows need not belong to each other.

        pairs: (k, 2) indices of rows that do belong together, or "rows" if row i of X is row i of Y; labels: (of X, of
        Y), arrays of n and m. Both are looked at only to choose among lists of `rho` and `eps`, by FOSCTTM or by the
        share of labels transferred right. For two AnnData `labels` may be a column of obs, which is also transferred:
        the one that has it gives, the other receives obs["ugw_" + labels]. A label that is missing (None, NaN) has
        no vote and is not judged.
        """
        if Y is None:
            raise InputError("Aligner requires y to be passed, but the target y is None")
        given, name = (X, Y), labels if isinstance(labels, str) else None
        if name is not None:
            labels = cells.labels_of(given, name)
        forget_features(self)
        x, y = self._side("X", X), self._side("Y", Y)
        _check_labels(labels, x, y)
        x, y = scaled((x, y), self.scale, together=False)
        self.rho_, self.eps_, self.validation_ = self.rho, entropy(self.rho, self.eps), None
        if is_grid(self.rho, self.eps):
            score = self._judge(x, y, pairs, labels)
            options = {"rho": self.rho, "eps": self.eps_, "init": self.init, "solver": self.solver}
            self.validation_ = choose(x, y, **options, score=score)
            self.rho_, self.eps_ = best(self.validation_).rho, best(self.validation_).eps
        self.result_ = solve(x, y, rho=self.rho_, eps=self.eps_, init=self.init, solver=self.solver)
        self.plan_ = _plan(self.result_)
        sums = (self.result_.tensors.plan.sum(2 - k, dtype=torch.float64)[0].cpu().numpy() for k in (0, 1))
        self.mass_ = tuple(kept(p, s.weight_tensor) for p, s in zip(sums, (x, y), strict=True))
        self._points = tuple(
            None if s.point_tensor is None else s.point_tensor.detach().cpu().double().numpy() for s in (x, y)
        )
        self.embedding_ = None if self._points[1] is None else project(self.plan_, self._points[1])
        if self._points[0] is not None:
            self.n_features_in_ = self._points[0].shape[1]
        self._n_features_out = 0 if self.embedding_ is None else self.embedding_.shape[1]
        self._tell(given, name, labels)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """X (k, d) in the space of Y, (k, e); a point that was not fitted goes where its nearest fitted one does."""
        return self._carried(0, "X", X)

    def inverse_transform(self, Y: Any) -> np.ndarray:
        """Y (k, e) in the space of X, (k, d)."""
        return self._carried(1, "Y", Y)

    def transfer_labels(self, labels: Any, *, back: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Labels (n,) of X for the points of Y, by the mass that each label sends them, and the share that won, (m,).

        back: labels (m,) of Y for the points of X. Points that receive nothing have the share 0 and the label that is
        most frequent; equal votes go to the smaller label.
        """
        check_is_fitted(self)
        plan = self.plan_.T if back else self.plan_
        labels = np.asarray(labels)
        if labels.shape != plan.shape[:1]:
            raise InputError(f"labels must have shape ({len(plan)},), got {labels.shape}")
        return transferred(plan, labels)

    def score(self, X: Any, y: Any) -> float:
        """1 − FOSCTTM of X carried to Y, here called y, row by row: 1 is perfect, 0.5 is chance."""
        return 1.0 - foscttm(self.transform(X), self._points_of("Y", y))

    # -- parts ---------------------------------------------------------------------------------------------

    def _points_of(self, name: str, given: Any, *, fitting: bool = False) -> np.ndarray:
        if cells.is_cells(given):
            given = cells.representation(given, self.use_rep)
        given = as_array(given)
        if name == "X":
            return validate_data(self, given, dtype=np.float64, reset=fitting, ensure_min_samples=2 if fitting else 1)
        return _columns(check_array(given, dtype=np.float64, ensure_2d=False, input_name="Y"))

    def _side(self, name: str, given: Any) -> Space:
        if isinstance(given, Space):
            return as_space(given, None)
        points = self._points_of(name, given, fitting=True)
        if cells.is_cells(given):
            return cells.space_of(given, points, self.metric)
        return as_space(points, "euclidean" if self.metric is None else self.metric)

    def _judge(self, x: Space, y: Space, pairs: Any, labels: Any) -> Any:
        """What scores a candidate: FOSCTTM of known pairs, or the labels that are transferred right."""
        if pairs is None and labels is None:
            raise InputError("a list of rho or eps must be judged by fit(..., pairs=) or labels=, got neither")
        if pairs is not None:
            rows = np.tile(np.arange(min(x.n, y.n))[:, None], 2) if isinstance(pairs, str) else np.asarray(pairs)
            if isinstance(pairs, str) and (pairs != "rows" or x.n != y.n):
                raise InputError(f'pairs must be indices (k, 2), or "rows" for sides of one length, got {pairs!r}')
            if rows.ndim != 2 or rows.shape[1] != 2 or rows.dtype.kind not in "iu":
                raise InputError(f"pairs must be indices of shape (k, 2), got {rows.dtype} of shape {rows.shape}")
            if (rows < 0).any() or (rows >= (x.n, y.n)).any():
                raise InputError(f"pairs must be rows of X, up to {x.n - 1}, and of Y, up to {y.n - 1}, got others")
            if y.point_tensor is None:
                raise InputError("pairs= needs points in Y, got a Space without: give labels=")
            target = y.point_tensor.detach().cpu().double().numpy()
            return lambda r: 1.0 - foscttm(project(_plan(r), target)[rows[:, 0]], target[rows[:, 1]])
        if labels[0] is None or labels[1] is None:
            raise InputError("labels= must be there on both sides to choose by them, got one side only")
        of_x, of_y = np.asarray(labels[0]), np.asarray(labels[1])
        judged = ~missing(of_y)
        return lambda r: float((transferred(_plan(r), of_x)[0] == of_y)[judged].mean())

    def _carried(self, side: int, name: str, given: Any) -> np.ndarray:
        check_is_fitted(self)
        plan = self.plan_.T if side else self.plan_
        target, fitted = self._points[1 - side], self._points[side]
        if target is None:
            raise InputError(f"the space of {'XY'[1 - side]} has no points to carry to: the plan is plan_")
        carried = self.embedding_ if side == 0 else project(plan, target)
        if isinstance(given, Space):
            if given.n != len(plan):
                raise InputError(f"a Space must be the fitted one, of {len(plan)} points, got {given.n}")
            return carried  # type: ignore[return-value]
        points = self._points_of(name, given)
        if fitted is None or points.shape[1] != fitted.shape[1]:
            where = "no points were fitted" if fitted is None else f"the fitted ones lie in R^{fitted.shape[1]}"
            raise InputError(f"{name} must be like the fitted points, got R^{points.shape[1]}, and {where}")
        return carried[nearest(fitted, points)]  # type: ignore[index]

    def _tell(self, given: tuple[Any, Any], name: str | None, labels: Any) -> None:
        """Write to the AnnData what was found for them."""
        for side, one in enumerate(given):
            if cells.is_cells(one):
                points = (self.embedding_, self._points[1])[side]
                cells.write(one, points, self.mass_[side])
            if name is not None and labels[side] is not None:
                there = transferred(self.plan_.T if side else self.plan_, labels[side])
                given[1 - side].obs[cells.PREFIX + name] = there[0]


def project(plan: Any, points: np.ndarray) -> np.ndarray:
    """Barycentric projection: for each row of a plan (n, m) the mean of the points (m, d), NaN where it is empty.

    >>> project(np.array([[0.1, 0.3], [0.0, 0.0]]), np.array([[0.0], [4.0]]))
    array([[ 3.],
           [nan]])
    """
    if isinstance(plan, LazyPlan):
        with np.errstate(invalid="ignore"):
            return _times(plan, points) / _times(plan, np.ones((len(points), 1)))
    largest = plan.max(axis=1, keepdims=True)
    law = np.divide(plan, largest, out=np.full_like(plan, np.nan), where=largest > 0)  # lest tiny masses underflow
    return law @ points / law.sum(axis=1, keepdims=True)


def transferred(plan: Any, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each column of a plan (n, m) the label (n,) that sends it most mass, and its share of what it receives.

    >>> transferred(np.array([[0.3, 0.0], [0.1, 0.0]]), np.array(["a", "b"]))
    (array(['a', 'a'], dtype='<U1'), array([0.75, 0.  ]))
    """
    there = ~missing(labels)
    if not there.any():
        raise InputError("labels must be there for some points, got none")
    names, index, counts = np.unique(labels[there], return_inverse=True, return_counts=True)
    voters = np.zeros((len(labels), len(names)))
    voters[there] = np.eye(len(names))[index]
    votes = _times(plan.T, voters).T
    total = votes.sum(axis=0)
    winner = np.where(total > 0, votes.argmax(axis=0), counts.argmax())
    share = votes.max(axis=0) / np.where(total > 0, total, 1.0)
    return names[winner], share


def missing(labels: np.ndarray) -> np.ndarray:
    """Which labels (n,) are None or NaN, as bools (n,).

    >>> missing(np.array(["a", None, float("nan")], dtype=object))
    array([False,  True,  True])
    """
    return np.array([label is None or label != label for label in labels.tolist()], dtype=bool)


def _check_labels(labels: Any, x: Space, y: Space) -> None:
    """Refuse labels that do not belong to the points; one side may have none."""
    if labels is None:
        return
    if isinstance(labels, Space) or len(labels) != 2:
        raise InputError("labels must be a pair, (of X, of Y), or for two AnnData the name of a column")
    got = [None if one is None else np.shape(one) for one in labels]
    if any(shape not in (None, (space.n,)) for shape, space in zip(got, (x, y), strict=True)):
        raise InputError(f"labels must have shapes ({x.n},) and ({y.n},), got {got[0]} and {got[1]}")


def _plan(result: Result) -> Any:
    """The plan (n, m) as an array in float64, or lazy."""
    plan = result.plan
    if isinstance(plan, LazyPlan):
        return plan
    return np.asarray(plan if isinstance(plan, np.ndarray) else plan.detach().cpu(), dtype=np.float64)


def _times(plan: Any, matrix: np.ndarray) -> np.ndarray:
    """A plan (n, m), stored or not, times a matrix (m, k). Returns (n, k)."""
    if not isinstance(plan, LazyPlan):
        return plan @ matrix
    return as_array(plan.apply(matrix.astype(dtype_name(plan.dtype)))).astype(np.float64)


def _columns(points: np.ndarray) -> np.ndarray:
    return points[:, None] if points.ndim == 1 else points
