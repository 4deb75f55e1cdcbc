"""Alignment of two sets of points that share no features, for example cells in two assays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from .._utils.checks import as_list, describe_value
from ..api.solve import solve
from ..errors import InputError
from ..geometry.space import Space
from ..results.lazy_plan import LazyPlan
from ..results.projection import apply_plan, barycentric_projection, to_numpy
from ..results.result import Result
from . import anndata_io
from ._common import (
    as_space,
    clear_feature_names,
    is_grid,
    kept_fractions,
    nearest_indices,
    point_array,
    rescale,
    score_candidates,
    select_parameters,
)
from .scores import foscttm


class Aligner(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Match X with Y by unbalanced Gromov–Wasserstein, and transfer points and labels by the plan.

    metric: a distance by name, "knn", or a function that makes a Space of points, such as `ugw.estimators.KNN(k=30)`;
    None is "euclidean", or "knn" for AnnData, with the graph `obsp["distances"]` if it exists.
    rho, eps: as for `ugw.solve`, in units of the scaled distances; float("inf") is balanced; eps="auto" is 0.005, or
    `ugw.relative(1e-2)` with scale=None, or 0 for `ugw.TV` and `ugw.Mass`. A *list* or an array of either are
    candidates, solved as one batch and scored by `fit(..., pairs=)` or `labels=` (`validation_`).
    init, solver: as for `ugw.solve`. scale: "max" or "mean" divides each side's distances by their largest or mean;
    None leaves them.
    use_rep: which representation of an AnnData to take, a key of obsm or "X"; None is "X_pca" if there, else "X".

    After `fit`: `result_`, `plan_` (n, m), an array, or a `LazyPlan` if it is too large to store; `mass_`, the fraction
    of its weight that each point of X and of Y keeps; and `embedding_` (n, e), X in the space of Y: the weighted mean
    of the matches of each point, NaN for a point without matches.

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
        """Store the options; `fit` checks them."""
        self.metric = metric
        self.rho = rho
        self.eps = eps
        self.init = init
        self.scale = scale
        self.use_rep = use_rep
        self.solver = solver

    def __sklearn_tags__(self) -> Any:
        """Return the scikit-learn tags: the target is required and may have several columns."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, Y: Any = None, *, pairs: Any = None, labels: Any = None) -> Self:
        """Solve UGW between X (n, d) and Y (m, e) or (m,), set the attributes below, and return self.

        `result_`; `plan_` (n, m), not normalized, a `LazyPlan` if too large to store; `mass_`, for X (n,) and for Y
        (m,) the fraction of its weight that each point sends or receives; `embedding_` (n, e), X in the space of Y,
        None if Y has no points; `rho_`, `eps_`; `validation_`, scores of the candidates, None without lists.
        X, Y: arrays, Spaces, or AnnData, which get obs["ugw_mass"], `mass_`, and obsm["X_ugw"], their points in the
        space of Y; row i of X need not match row i of Y.
        pairs: (k, 2) indices of matching rows, or "rows" if row i of X matches row i of Y; labels: (of X, of Y), arrays
        (n,) and (m,). Both serve only to score lists of `rho` and `eps`, by FOSCTTM or by the fraction of labels that
        are transferred correctly. For two AnnData `labels` may be the name of a column of obs; obs["ugw_" +
        labels] of each is set to labels transferred from the opposite one, if that has the column. Missing labels
        (None, NaN) are not transferred and not scored.
        """
        if Y is None:
            raise InputError("Aligner requires y to be passed, but the target y is None")
        sides, label_name = (X, Y), labels if isinstance(labels, str) else None
        if label_name is not None:
            labels = anndata_io.read_labels(sides, label_name)
        clear_feature_names(self)
        x, y = self._make_space("X", X), self._make_space("Y", Y)
        _check_labels(labels, x, y)
        x, y = rescale((x, y), self.scale, by_one_number=False)
        candidates = None
        if is_grid(self.rho, self.eps):
            candidates = score_candidates(self, x, y, self.init, _make_score(x, y, pairs, labels))
        select_parameters(self, candidates)
        self.result_ = solve(x, y, rho=self.rho_, eps=self.eps_, init=self.init, solver=self.solver)
        self.plan_ = _plan_array(self.result_)
        marginals = (self.result_.tensors.plan.sum(2 - k, dtype=torch.float64)[0].cpu().numpy() for k in (0, 1))
        self.mass_ = tuple(kept_fractions(p, s.weight_tensor) for p, s in zip(marginals, (x, y), strict=True))
        self._points = point_array(x), point_array(y)
        self.embedding_ = None if self._points[1] is None else barycentric_projection(self.plan_, self._points[1])
        if self._points[0] is not None:
            self.n_features_in_ = self._points[0].shape[1]
        self._n_features_out = 0 if self.embedding_ is None else self.embedding_.shape[1]
        self._write_anndata(sides, label_name, labels)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Return points X (k, d), or the fitted Space for all its points, projected to the space of Y, (k, e).

        A point given to `fit` becomes its row of `embedding_`, the mean of the points of Y weighted by its row of
        `plan_`, NaN if that is 0; a new point gets the projection of the nearest point given to `fit`. Raises
        InputError if Y has no points.
        """
        return self._project_side(0, "X", X)

    def inverse_transform(self, Y: Any) -> np.ndarray:
        """Return points Y (k, e), or the fitted Space for all its points, projected to the space of X, (k, d).

        A point given to `fit` becomes the mean of the points of X weighted by its column of `plan_`, NaN if that is 0;
        a new point gets the projection of the nearest point given to `fit`. Raises InputError if X has no points.
        """
        return self._project_side(1, "Y", Y)

    def transfer_labels(self, labels: Any, *, back: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Return for each point of Y the label from which it receives the most mass, (m,), and its fraction, (m,).

        labels: (n,), of the points of X; those that are None or NaN do not count. The fraction is that of the mass
        received from all labeled points. back: the same from labels (m,) of Y to the points of X, (n,) each. Points
        that receive nothing get the most frequent label and the fraction 0; of labels with equal mass the smaller one
        is taken.
        """
        check_is_fitted(self)
        plan = self.plan_.T if back else self.plan_
        labels = np.asarray(labels)
        if labels.shape != plan.shape[:1]:
            raise InputError(f"labels must have shape ({len(plan)},), got {labels.shape}")
        return vote_labels(plan, labels)

    def score(self, X: Any, y: Any) -> float:
        """Return 1 − FOSCTTM of X projected to the space of Y, row i of X matching row i of y; 1 is perfect.

        FOSCTTM is the mean fraction of samples closer than the true match; a row without projection counts as 1.
        """
        return 1.0 - foscttm(self.transform(X), self._read_points("Y", y))

    # -- parts ---------------------------------------------------------------------------------------------

    def _read_points(self, name: str, data: Any, *, fitting: bool = False) -> np.ndarray:
        """Return the points (n, d), finite float64, of an array or an AnnData; for "Y" an array (n,) becomes (n, 1).

        name: "X" or "Y", which side; fitting: whether `fit` calls, which for "X" stores the number of features; later
        "X" must have this number. Points of an AnnData are its X or an entry of obsm, see `use_rep`.
        """
        if anndata_io.is_anndata(data):
            data = anndata_io.read_points(data, self.use_rep)
        data = to_numpy(data)
        if name == "X":
            return validate_data(self, data, dtype=np.float64, reset=fitting, ensure_min_samples=2 if fitting else 1)
        points = check_array(data, dtype=np.float64, ensure_2d=False, input_name="Y")
        return points[:, None] if points.ndim == 1 else points

    def _make_space(self, name: str, data: Any) -> Space:
        """Return the space of an array, a Space or an AnnData, not scaled yet. name: "X" or "Y", which side."""
        if isinstance(data, Space):
            return as_space(data, None)
        points = self._read_points(name, data, fitting=True)
        if anndata_io.is_anndata(data):
            return anndata_io.make_space(data, points, self.metric)
        return as_space(points, "euclidean" if self.metric is None else self.metric)

    def _project_side(self, side: int, name: str, data: Any) -> np.ndarray:
        """Return points (k, ·) of one side, 0 for X and 1 for Y, projected to the space of the opposite side, (k, ·).

        A fitted point becomes the mean of the opposite points weighted by the plan, NaN if it has no mass there; a new
        point gets the projection of the nearest fitted one. Raises InputError if the opposite side has no points, or
        if `data` are points and their own side has none. side: that of `data`, an array or an AnnData, or the
        fitted Space for all its points; name: "X" or "Y", for errors.
        """
        check_is_fitted(self)
        plan = self.plan_.T if side else self.plan_
        target, fitted = self._points[1 - side], self._points[side]
        if target is None:
            raise InputError(f"the space of {'XY'[1 - side]} has no points to carry to: the plan is plan_")
        projected = self.embedding_ if side == 0 else barycentric_projection(plan, target)
        if isinstance(data, Space):
            if data.n != len(plan):
                raise InputError(f"a Space must be the fitted one, of {len(plan)} points, got {data.n}")
            return projected  # type: ignore[return-value]
        points = self._read_points(name, data)
        if fitted is None or points.shape[1] != fitted.shape[1]:
            reason = "no points were fitted" if fitted is None else f"the fitted ones lie in R^{fitted.shape[1]}"
            raise InputError(f"{name} must be like the fitted points, got R^{points.shape[1]}, and {reason}")
        return projected[nearest_indices(fitted, points)]  # type: ignore[index]

    def _write_anndata(self, sides: tuple[Any, Any], label_name: str | None, labels: Any) -> None:
        """Write points in the space of Y, matched fractions and transferred labels into X and Y, if they are AnnData.

        Keys: obsm["X_ugw"], obs["ugw_mass"], obs["ugw_" + label_name]. sides: (X, Y); label_name: column of obs to
        transfer to the opposite side, or None; labels: its values on each side, None if missing.
        """
        for side, data in enumerate(sides):
            if anndata_io.is_anndata(data):
                points = (self.embedding_, self._points[1])[side]
                anndata_io.write_result(data, points, self.mass_[side])
            if label_name is not None and labels[side] is not None:
                transferred, _ = vote_labels(self.plan_.T if side else self.plan_, labels[side])
                sides[1 - side].obs[anndata_io.LABEL_PREFIX + label_name] = transferred


def _make_score(x: Space, y: Space, pairs: Any, labels: Any) -> Callable[[Result], float]:
    """Return the function that returns the score of a result between x and y, higher is better.

    The score is 1 − FOSCTTM of the known pairs, whose points in X are projected to Y, or if `pairs` is None the
    fraction of the known labels of Y that the plan transfers correctly from X. pairs: known matches; labels: classes of
    the points of X and of Y. Raises InputError if both are None.
    """
    if pairs is None and labels is None:
        raise InputError("a list of rho or eps must be judged by fit(..., pairs=) or labels=, got neither")
    if pairs is not None:
        rows = _read_pairs(pairs, x.n, y.n)
        target = point_array(y)
        if target is None:
            raise InputError("pairs= needs points in Y, got a Space without: give labels=")

        def projection_score(result: Result) -> float:
            """Return 1 − FOSCTTM of the projected points of X and their partners."""
            return 1.0 - foscttm(barycentric_projection(_plan_array(result), target)[rows[:, 0]], target[rows[:, 1]])

        return projection_score
    if labels[0] is None or labels[1] is None:
        raise InputError("labels= must be there on both sides to choose by them, got one side only")
    source_labels, target_labels = np.asarray(labels[0]), np.asarray(labels[1])
    is_known = ~is_missing(target_labels)

    def transfer_accuracy(result: Result) -> float:
        """Return the fraction of the known labels of Y that the plan transfers correctly."""
        transferred, _ = vote_labels(_plan_array(result), source_labels)
        return float((transferred == target_labels)[is_known].mean())

    return transfer_accuracy


def _read_pairs(pairs: Any, n: int, m: int) -> np.ndarray:
    """Return pairs of rows of X (n rows) and Y (m rows) as indices (k, 2), checked; "rows" stands for all (i, i)."""
    rows = np.tile(np.arange(min(n, m))[:, None], 2) if isinstance(pairs, str) else np.asarray(pairs)
    if isinstance(pairs, str) and (pairs != "rows" or n != m):
        raise InputError(
            f'pairs must be indices (k, 2), or "rows" for sides of one length, got {describe_value(pairs)}'
        )
    if rows.ndim != 2 or rows.shape[1] != 2 or rows.dtype.kind not in "iu":
        raise InputError(f"pairs must be indices of shape (k, 2), got {rows.dtype} of shape {rows.shape}")
    if (rows < 0).any() or (rows >= (n, m)).any():
        raise InputError(f"pairs must be rows of X, up to {n - 1}, and of Y, up to {m - 1}, got others")
    return rows


def vote_labels(plan: Any, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return for each column of a plan (n, m) the label whose rows send it the most mass, (m,), and its fraction, (m,).

    The fraction is relative to the mass that the column receives from all rows with a label. labels: (n,) of the rows;
    rows whose label is missing do not vote. A column without votes gets the most frequent label and the fraction 0; of
    labels with equal mass the smaller one is taken.

    >>> vote_labels(np.array([[0.3, 0.0], [0.1, 0.0]]), np.array(["a", "b"]))
    (array(['a', 'a'], dtype='<U1'), array([0.75, 0.  ]))
    """
    is_known = ~is_missing(labels)
    if not is_known.any():
        raise InputError("labels must be there for some points, got none")
    names, index, counts = np.unique(labels[is_known], return_inverse=True, return_counts=True)
    one_hot = np.zeros((len(labels), len(names)))
    one_hot[is_known] = np.eye(len(names))[index]
    votes = apply_plan(plan.T, one_hot).T
    total = votes.sum(axis=0)
    winner = np.where(total > 0, votes.argmax(axis=0), counts.argmax())
    fraction = votes.max(axis=0) / np.where(total > 0, total, 1.0)
    return names[winner], fraction


def is_missing(labels: np.ndarray) -> np.ndarray:
    """Return which labels (n,) are None or NaN, as booleans (n,).

    >>> is_missing(np.array(["a", None, float("nan")], dtype=object))
    array([False,  True,  True])
    """
    return np.array([label is None or label != label for label in labels.tolist()], dtype=bool)


def _check_labels(labels: Any, x: Space, y: Space) -> None:
    """Raise InputError unless labels are None or a pair of arrays (x.n,) and (y.n,), each of which may be None."""
    if labels is None:
        return
    expected = "a pair, (of X, of Y), or for two AnnData the name of a column"
    if isinstance(labels, Space) or len(as_list("labels", labels, expected)) != 2:
        raise InputError(f"labels must be {expected}, got {describe_value(labels)}")
    shapes = [None if side is None else np.shape(side) for side in labels]
    if any(shape not in (None, (space.n,)) for shape, space in zip(shapes, (x, y), strict=True)):
        raise InputError(f"labels must have shapes ({x.n},) and ({y.n},), got {shapes[0]} and {shapes[1]}")


def _plan_array(result: Result) -> Any:
    """Return the plan (n, m) of a result as a float64 NumPy array; a LazyPlan is returned unchanged."""
    plan = result.plan
    return plan if isinstance(plan, LazyPlan) else np.asarray(to_numpy(plan), dtype=np.float64)
