"""Positive-unlabeled learning: positives are matched to the unlabeled points; those that receive most are positive."""

from __future__ import annotations

import warnings
from dataclasses import replace
from numbers import Real
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from .._utils.checks import check_choice, describe_value
from .._utils.deprecation import renamed_arguments
from ..api.linear import solve_linear
from ..api.solve import solve
from ..errors import InputError
from ..geometry.space import Space
from ..initializers.names import INIT_NAMES
from ..measures.divergences import Mass
from ..results.projection import to_numpy
from ..results.result import Result
from ._common import (
    Candidate,
    as_space,
    best_candidate,
    clear_feature_names,
    is_grid,
    kept_fractions,
    nearest_indices,
    point_array,
    rescale,
    score_candidates,
    select_parameters,
)
from .config import ESTIMATOR_CONFIG


class PUClassifier(ClassifierMixin, BaseEstimator):
    """Classifier that finds the positives among unlabeled points, given some positives and the expected fraction.

    Positives are matched to the unlabeled set by unbalanced Gromov–Wasserstein; an unlabeled point is scored by the
    fraction of its weight that it receives. Exactly round(prior · n) of n unlabeled points are predicted positive:
    those with the highest scores; ties (up to rounding) are broken at random and not by the order of the rows, which
    may be sorted by class. Labeled positives stay positive.

    prior: the fraction of positives among the unlabeled points, in (0, 1); must be given.
    metric: a distance by name, "knn", or a function that makes a Space of points, such as `ugw.estimators.KNN(k=10)`.
    rho, eps: as for `ugw.solve`, in units of the scaled distances; eps="auto" is 0.005, or `ugw.relative(1e-2)` with
    scale=None, or 0 for `ugw.TV` and `ugw.Mass`. A *list* or an array of either are candidates: a fifth of the
    positives is hidden among the unlabeled points, and the pair that finds most of them is selected (`validation_`).
    init: "partial-w", exact partial transport of the points, in one feature space only; "flb"; another initial plan of
    `ugw.solve`; or "auto": partial-w in one feature space, flb across two. With lists of rho or eps `fit` takes a name
    only: with some positives hidden, a plan has another shape.
    scale: "max" or "mean" divides the distances by their largest or mean, in one feature space by one number for
    both sets; None leaves them. solver: as for `ugw.solve`. random_state: seeds the tie-breaking and the choice of
    the hidden positives; a number gives the same labels each time.

    `fit(X, y)` takes one feature space, y = 1 positive, 0 unlabeled (of any two labels the larger is positive);
    `fit_spaces(positives, unlabeled)` takes two, as points or Spaces. `labels_`, `scores_` and `result_` are those of
    the unlabeled points. `predict` and `decision_function` give a new point the value of its nearest fitted point.
    Points that coincide get one prediction: positive if one of them is.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([0.3 * rng.normal(size=(30, 2)), 2.0 * rng.normal(size=(30, 2))])
    >>> y = np.r_[np.ones(20, int), np.zeros(40, int)]  # 10 of the 40 unlabeled are like the positives
    >>> pu = PUClassifier(prior=0.25).fit(X, y)
    >>> int(pu.labels_.sum()), int(pu.labels_[:10].sum()) >= 8  # predicted positive, and of these correct at least 8
    (10, True)
    """

    def __init__(
        self,
        prior: float | None = None,
        *,
        metric: Any = "euclidean",
        rho: Any = 0.05,
        eps: Any = "auto",
        init: Any = "auto",
        scale: str | None = "max",
        solver: Any = None,
        random_state: Any = 0,
    ) -> None:
        """Store the options; `fit` checks them."""
        self.prior = prior
        self.metric = metric
        self.rho = rho
        self.eps = eps
        self.init = init
        self.scale = scale
        self.solver = solver
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        """Return the scikit-learn tags: binary labels only, and no accuracy that tests may require."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.poor_score = True  # a label 0 means unknown, not negative
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        """Predict the m unlabeled points of X: set `labels_` (m,), `scores_` (m,) and others; return self.

        Labels are values of y; a score is the mass that a point receives, divided by its weight. Also sets `result_`
        (from positives to unlabeled points), `classes_`, `rho_`, `eps_` and `validation_`, None without lists.
        X: (n, d), all points, in one feature space; y: (n,), 1 for a positive, 0 for unlabeled.
        """
        X, y = validate_data(self, to_numpy(X), to_numpy(y), dtype=np.float64, ensure_min_samples=2)
        check_classification_targets(y)
        self.classes_ = np.unique(y)
        if len(self.classes_) > 2:
            n = len(self.classes_)
            raise InputError(f"Only binary classification is supported. y must have two labels, got {n} classes")
        if len(self.classes_) < 2:
            raise InputError("y must have positives and unlabeled points, got one class")
        positive = y == self.classes_[1]
        sets = X[positive], X[~positive]
        select_parameters(self, self._score_by_hidden_positives(*sets) if is_grid(self.rho, self.eps) else None)
        unlabeled_decision = self._solve_and_label(*self._make_spaces(*sets, comparable=True), comparable=True)
        decision = np.empty(len(X))
        decision[~positive] = unlabeled_decision
        decision[positive] = max(unlabeled_decision.max(), 1.0)
        self._points: np.ndarray | None
        self._points, self._decision = _merge_duplicates(X, decision)
        return self

    @renamed_arguments(unlabelled="unlabeled")
    def fit_spaces(self, positives: Any, unlabeled: Any, *, known: Any = None) -> Self:
        """Predict unlabeled (m, e) from positives (n, d), points or Spaces: set `labels_` and others; return self.

        `labels_` (m,) are 1 or 0, `scores_` (m,) received mass / weight; `result_`, `rho_`, `eps_` and `validation_`,
        None without lists, are set too. known: (m,), 1 or 0 where the label of an unlabeled point is known and −1
        elsewhere. It serves only to score lists of `rho` and `eps`, by the fraction of these labels that are predicted
        correctly.

        Two batches of B Spaces of equal sizes are B problems, solved together: `labels_` and `scores_` are (B, m).
        Batches do not support `predict`, lists of `rho` and `eps`, and `scale`.

        >>> import numpy as np, ugw
        >>> x = ugw.Space.from_points(np.random.default_rng(0).random((2, 9, 2)))
        >>> y = ugw.Space.from_points(np.random.default_rng(1).random((2, 10, 3)))
        >>> PUClassifier(prior=0.2, scale=None).fit_spaces(x, y).labels_.sum(axis=1)
        array([2, 2])
        """
        clear_feature_names(self)
        if not isinstance(positives, Space):
            positives = check_array(to_numpy(positives), dtype=np.float64, input_name="positives")
        if not isinstance(unlabeled, Space):
            unlabeled = validate_data(self, to_numpy(unlabeled), dtype=np.float64)
        x, y = self._make_spaces(positives, unlabeled, comparable=False)
        self.classes_ = np.array([0, 1])
        select_parameters(self, self._score_by_known_labels(x, y, known) if is_grid(self.rho, self.eps) else None)
        self._decision = self._solve_and_label(x, y, comparable=False)
        self._points = None if y.batched else point_array(y)
        if self._points is not None:
            self.n_features_in_ = self._points.shape[1]
            self._points, self._decision = _merge_duplicates(self._points, self._decision)
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Return score − threshold, (k,), of the fitted point nearest to each point X (k, d), > 0 for a positive.

        The score is the fraction of its weight that a point receives; a positive given to `fit` has max(1, largest
        difference of an unlabeled point). X: in the space of the unlabeled points.
        """
        check_is_fitted(self)
        if self._points is None:
            raise InputError(
                "new points need a space with points, got one without or a batch: labels_ has the fitted ones"
            )
        X = validate_data(self, to_numpy(X), dtype=np.float64, reset=False)
        return self._decision[nearest_indices(self._points, X)]

    def predict(self, X: Any) -> np.ndarray:
        """Return the labels (k,), of `classes_`, of points X (k, d): each that of the nearest fitted point."""
        positive = self.decision_function(X) > 0
        return self.classes_[positive.astype(int)]

    # -- fitting -------------------------------------------------------------------------------------------

    def _make_spaces(self, positives: Any, unlabeled: Any, *, comparable: bool) -> tuple[Space, Space]:
        """Return the spaces of both sets (points, or Spaces unless `comparable`), with distances scaled by `scale`.

        comparable: both sets are points of one feature space, and their distances are divided by one number.
        """
        spaces = [as_space(points, self.metric, batches=not comparable) for points in (positives, unlabeled)]
        _check_batches(*spaces, batch_allowed=self.scale is None and not is_grid(self.rho, self.eps))
        x, y = rescale(spaces, self.scale, by_one_number=comparable)
        return x, y

    def _solve_and_label(self, x: Space, y: Space, *, comparable: bool) -> np.ndarray:
        """Solve at `rho_` and `eps_` between positives x and unlabeled y; set `result_`, `scores_` and `labels_`.

        Returns score − threshold of the points of y, (m,), or (B, m) for a batch. comparable: whether both spaces are
        point clouds in one R^d, so that their points can be compared directly.
        """
        prior = self._checked_prior()
        init = self._initial_plan(x, y, prior, comparable=comparable)
        self.result_ = solve(x, y, rho=self.rho_, eps=self.eps_, init=init, solver=self.solver)
        self.scores_ = _received_fractions(self.result_, y)
        labels, decision = self._label_points(self.result_, self.scores_, prior)
        self.labels_ = self.classes_[labels.astype(int)]
        if comparable and isinstance(init, np.ndarray):
            self._warn_if_far_from_positives(labels, init.sum(0), prior)
        return decision

    def _warn_if_far_from_positives(self, labels: np.ndarray, received: np.ndarray, prior: float) -> None:
        """Warn if fewer predicted positives than by chance are near the positives: UGW compares shapes only.

        labels: bool (m,), predicted positives; received: (m,), mass that each unlabeled point receives from the
        positives by partial transport.
        """
        shared = (labels & label_top_scores(received, prior, random_state=self.random_state)[0]).sum()
        if labels.sum() >= ESTIMATOR_CONFIG.min_positives_for_warning and shared < prior * labels.sum():
            warnings.warn(
                f"of {labels.sum()} points called positive {shared} are where the positives lie, fewer than by chance: "
                f"other points fit them in shape, at rho={self.rho_}; try a smaller rho, or lists of rho and eps",
                UserWarning,
                stacklevel=4,
            )

    def _label_points(self, result: Result, scores: np.ndarray, prior: float) -> tuple[np.ndarray, np.ndarray]:
        """Return which points are predicted positive, bool (m,), and score − threshold, (m,); (B, m) for a batch.

        These are the round(prior · m) points with the highest scores. Scores (m,) that differ by less than the rounding
        of the dtype of the result's plan are ties, broken at random.
        """
        rounding = ESTIMATOR_CONFIG.tie_rounding_units * torch.finfo(result.tensors.plan.dtype).eps
        tolerance = max(ESTIMATOR_CONFIG.tie_tolerance, rounding)
        return label_top_scores(scores, prior, tie_tolerance=tolerance, random_state=self.random_state)

    def _initial_plan(self, x: Space, y: Space, prior: float, *, comparable: bool) -> Any:
        """Return the initial plan between positives x and unlabeled y, (n, m), or its name in `ugw.solve`.

        comparable: whether both are points of one feature space; "auto" is then partial transport, otherwise "flb".
        Plans and names other than "auto" and "partial-w" are returned unchanged.
        """
        init = (
            ("partial-w" if comparable else "flb") if isinstance(self.init, str) and self.init == "auto" else self.init
        )
        if not isinstance(init, str):
            return init
        check_choice("init", init, (*INIT_NAMES, "partial-w"))
        return partial_transport_plan(x, y, prior) if init == "partial-w" else init

    def _checked_prior(self) -> float:
        """Return the option `prior` as a float; raise InputError unless it is a number in (0, 1)."""
        if not isinstance(self.prior, Real) or not 0 < float(self.prior) < 1:
            got = describe_value(self.prior)
            raise InputError(f"prior, the share of positives among the unlabeled, must be in (0, 1), got {got}")
        return float(self.prior)

    def _score_by_hidden_positives(self, positives: np.ndarray, unlabeled: np.ndarray) -> list[Candidate]:
        """Return (rho, eps, score, converged) of each pair of the lists rho and eps, as `Candidate`.

        h random rows, a fifth, of positives (n, d) are hidden among the unlabeled points (m, d) of the same feature
        space. A score is (number of these that are predicted positive + AUC/2) / (h + 1/2), in [0, 1], where AUC is the
        fraction of pairs in which a hidden positive receives a larger fraction of its weight than an unlabeled point.
        """
        count = max(1, round(ESTIMATOR_CONFIG.hidden_fraction * len(positives)))
        if len(positives) - count < 2:
            raise InputError(f"to choose rho and eps takes at least 3 positives, got {len(positives)}")
        if not isinstance(self.init, str):
            raise InputError(
                "init must be a name where fit selects rho or eps: it hides positives among the unlabeled, so that a "
                f"plan has another shape, got {type(self.init).__name__}"
            )
        order = check_random_state(self.random_state).permutation(len(positives))
        hidden, remaining = positives[order[:count]], positives[np.sort(order[count:])]
        x, y = self._make_spaces(remaining, np.vstack([unlabeled, hidden]), comparable=True)
        prior = (self._checked_prior() * len(unlabeled) + count) / (len(unlabeled) + count)

        def fraction_found(result: Result) -> float:
            """Return (hidden positives labeled positive + half the AUC of their scores) / (hidden positives + 1/2)."""
            scores = _received_fractions(result, y)
            labels, _ = self._label_points(result, scores, prior)
            rank = (scores[-count:, None] > scores[:-count]).mean()
            return float(labels[-count:].sum() + 0.5 * rank) / (count + 0.5)

        init = self._initial_plan(x, y, prior, comparable=True)
        candidates = score_candidates(self, x, y, init, fraction_found)
        chance = (count * prior + 0.25) / (count + 0.5)
        score = best_candidate(candidates).score
        if score < chance:
            warnings.warn(
                f"the best rho and eps find hidden positives worse than chance, score {score:.2g} below {chance:.2g}: "
                "negatives are taken for positives; try other values, a smaller rho for example",
                UserWarning,
                stacklevel=3,
            )
        return candidates

    def _score_by_known_labels(self, x: Space, y: Space, known: Any) -> list[Candidate]:
        """Return (rho, eps, score, converged) of each pair of the lists rho and eps, as `Candidate`.

        The score is the fraction of known labels that are predicted correctly. x, y: positives and unlabeled points;
        known: (m,), labels of the latter, 1 or 0, and −1 for unknown.
        """
        if known is None:
            raise InputError(
                "a list of rho or eps across two feature spaces must be judged by known=, labels of some unlabeled "
                "points, got none"
            )
        known = np.asarray(known)
        if known.shape != (y.n,) or not np.isin(known, (-1, 0, 1)).all() or not (known >= 0).any():
            raise InputError(f"known must be 1, 0 or −1 for each of {y.n} unlabeled points, and not −1 for all")
        prior = self._checked_prior()

        def accuracy(result: Result) -> float:
            """Return the fraction of known labels predicted correctly."""
            labels, _ = self._label_points(result, _received_fractions(result, y), prior)
            return float((labels == known)[known >= 0].mean())

        init = self._initial_plan(x, y, prior, comparable=False)
        return score_candidates(self, x, y, init, accuracy)


def partial_transport_plan(x: Space, y: Space, prior: float) -> np.ndarray:
    """Return the exact partial transport plan (n, m) from positives x, scaled to mass `prior`, to y, scaled to mass 1.

    All of x is transported; the cost is the Euclidean distance between points.

    >>> x, y = Space.from_points([[0.0]]), Space.from_points([[5.0], [0.1]])
    >>> partial_transport_plan(x, y, 0.5)
    array([[0. , 0.5]])
    """
    if x.point_tensor is None or y.point_tensor is None or x.point_tensor.shape[1] != y.point_tensor.shape[1]:
        raise InputError('init="partial-w" needs points of one dimension on both sides: take init="flb"')
    source, target = (
        replace(space, weight_tensor=mass * space.weight_tensor / space.weight_tensor.sum(-1))
        for space, mass in ((x, prior), (y, 1.0))
    )
    return solve_linear(source, target, cost="euclidean", rho=Mass(min(prior, float(source.mass)))).plan


def _check_batches(x: Space, y: Space, *, batch_allowed: bool) -> None:
    """Raise InputError if x or y is a batch, unless both are batches of equal length and batches are allowed.

    All weights of y must then be positive. batch_allowed: whether the estimator has one rho, one eps and scale=None.
    """
    if not x.batched and not y.batched:
        return
    if not (x.batched and y.batched and x.weight_tensor.shape[0] == y.weight_tensor.shape[0]):
        raise InputError("a batch of problems needs as many spaces on both sides, got a batch beside another or none")
    if not batch_allowed:
        raise InputError("a batch of problems needs scale=None and one rho and eps, got a scale or lists")
    if not bool((y.weight_tensor > 0).all()):
        raise InputError("a batch of problems needs unlabeled spaces of one size, with positive weights, got others")


def _received_fractions(result: Result, y: Space) -> np.ndarray:
    """Return received mass / weight, (m,) or (B, m), of the points of y in a result; 0 for weight 0."""
    received = result.tensors.plan.sum(1, dtype=torch.float64).cpu().numpy()
    return kept_fractions(received if result.batched else received[0], y.weight_tensor)


def _merge_duplicates(points: np.ndarray, decision: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the k distinct points of points (n, d), (k, d), and for each the largest of its decision values, (k,).

    decision: (n,), the value of each of the n points.
    """
    rows, index = np.unique(points, axis=0, return_inverse=True)
    largest = np.full(len(rows), -np.inf)
    np.maximum.at(largest, index.reshape(-1), decision)
    return rows, largest


def label_top_scores(
    scores: np.ndarray, prior: float, *, tie_tolerance: float = ESTIMATOR_CONFIG.tie_tolerance, random_state: Any = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return which of the scores (m,) are the round(prior · m) highest, bool (m,), and score − threshold, (m,).

    Scores within `tie_tolerance`·|s| of the last selected one, s, are ties, broken at random. The threshold is halfway
    between the lowest selected and the highest rejected score, or the one of both that exists; a difference that is 0
    or has the wrong sign becomes the smallest normal number, positive if selected, else negative. Rows of scores (B, m)
    are treated separately.

    >>> label_top_scores(np.array([0.1, 0.7, 0.7, 0.7]), 0.5)[0].sum()
    np.int64(2)
    """
    if scores.ndim == 2:
        rows = [label_top_scores(row, prior, tie_tolerance=tie_tolerance, random_state=random_state) for row in scores]
        return np.stack([chosen for chosen, _ in rows]), np.stack([decision for _, decision in rows])
    count = round(prior * len(scores))
    last_score = np.sort(scores)[::-1][count - 1] if count else np.inf
    is_tie = abs(scores - last_score) <= tie_tolerance * abs(last_score)
    chosen = (scores > last_score) & ~is_tie
    drawn = check_random_state(random_state).permutation(np.flatnonzero(is_tie))
    chosen[drawn[: count - chosen.sum()]] = True
    lowest_in, highest_out = scores[chosen].min(initial=np.inf), scores[~chosen].max(initial=-np.inf)
    threshold = highest_out if not count else lowest_in if count == len(scores) else 0.5 * (lowest_in + highest_out)
    smallest = np.finfo(np.float64).tiny
    decision = scores - threshold
    return chosen, np.where(chosen, np.maximum(decision, smallest), np.minimum(decision, -smallest))
