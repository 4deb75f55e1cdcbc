"""Positive-unlabeled learning: positives are matched into the unlabeled set; what receives most is positive."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from numbers import Real
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from .._utils.checks import check_choice
from ..api.linear import solve_linear
from ..api.solve import STARTS, solve
from ..errors import InputError
from ..geometry.space import Space
from ..measures.divergences import Mass
from ..results.result import Result
from ._common import (
    Candidate,
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

# The share of the positives that is hidden among the unlabeled to choose rho and eps.
SPIES = 0.2
# Points called positive that are enough to ask whether they lie where the positives do.
ENOUGH = 5
# Scores that differ by less than this share are equal, or by so many units of rounding of the plan. It is a share of
# the score, not of the largest one: entropic plans rank points by scores of any size.
TIES, ROUNDING = 1e-9, 8.0


class PUClassifier(ClassifierMixin, BaseEstimator):
    """Which of the unlabeled points are positive, given some that are, and how many to expect.

    Positives are matched to the unlabeled set by unbalanced Gromov–Wasserstein; an unlabeled point is scored by the
    share of its weight that the plan gives it. Exactly round(prior · n) of n unlabeled points are called positive:
    those of the highest scores; among equal scores (up to rounding) the lot decides, not the order of the rows, which
    may know the answer. Labeled positives stay positive.

    prior: the share of positives among the unlabeled points, in (0, 1); must be given.
    metric: a distance by name, "knn", or a function that makes a Space of points, such as `ugw.estimators.KNN(k=10)`.
    rho, eps: as for `ugw.solve`, in units of the scaled distances; eps="auto" is 0.005, or 0 for `ugw.TV`, `ugw.Mass`.
    A *list* or an array of either is a choice: a fifth of the positives is hidden among the unlabeled points, and the
    pair that finds most of them is kept (`validation_`).
    init: "partial-w", exact partial transport of the points, in one feature space only; "flb"; another start of
    `ugw.solve`; or "auto": partial-w in one feature space, flb across two.
    scale: "max" or "mean" divides the distances by their largest or mean, in one feature space by one number for
    both sets; None leaves them. solver: as for `ugw.solve`. random_state: seeds the lot, and the draw of the positives
    that are hidden; a number gives the same labels each time.

    `fit(X, y)` takes one feature space, y = 1 positive, 0 unlabeled (of any two labels the larger is positive);
    `fit_spaces(positives, unlabeled)` takes two, as points or Spaces. `labels_`, `scores_` and `result_` are those of
    the unlabeled points. `predict` and `decision_function` know fitted points; a new one is its nearest fitted one.
    Points that coincide are predicted alike: positive if one of them is.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([0.3 * rng.normal(size=(30, 2)), 2.0 * rng.normal(size=(30, 2))])
    >>> y = np.r_[np.ones(20, int), np.zeros(40, int)]  # 10 of the 40 unlabeled are like the positives
    >>> pu = PUClassifier(prior=0.25).fit(X, y)
    >>> int(pu.labels_.sum()), int(pu.labels_[:10].sum()) >= 8  # called positive, and rightly so
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
        self.prior = prior
        self.metric = metric
        self.rho = rho
        self.eps = eps
        self.init = init
        self.scale = scale
        self.solver = solver
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.poor_score = True  # a label 0 means unknown, not negative
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        """One feature space: X (n, d); y (n,), 1 for a positive, 0 for unlabeled."""
        X, y = validate_data(self, as_array(X), as_array(y), dtype=np.float64, ensure_min_samples=2)
        check_classification_targets(y)
        self.classes_ = np.unique(y)
        if len(self.classes_) > 2:
            raise InputError(
                f"Only binary classification is supported. y must have two labels, got {len(self.classes_)} classes"
            )
        if len(self.classes_) < 2:
            raise InputError("y must have positives and unlabeled points, got one class")
        positive = y == self.classes_[1]
        self._chosen = self._validated(X[positive], X[~positive]) if is_grid(self.rho, self.eps) else None
        found = self._match(*self._spaces(X[positive], X[~positive], together=True), together=True)
        decision = np.empty(len(X))
        decision[~positive], decision[positive] = found, max(found.max(), 1.0)
        self._points: np.ndarray | None
        self._points, self._decision = _distinct(X, decision)
        return self

    def fit_spaces(self, positives: Any, unlabeled: Any, *, known: Any = None) -> Self:
        """Two feature spaces: positives (n, d) and unlabeled (m, e) points, or Spaces.

        known: (m,), 1 or 0 where the label of an unlabeled point is known and −1 elsewhere. Only the choice among
        lists of `rho` and `eps` looks at it, by the share of these labels that come out right.

        Two batches of B Spaces of equal sizes are B problems, solved together: `labels_` and `scores_` are (B, m), the
        rest as for one, but for what needs points: `predict`, lists of `rho` and `eps`, and scales.

        >>> import numpy as np, ugw
        >>> x = ugw.Space.from_points(np.random.default_rng(0).random((2, 9, 2)))
        >>> y = ugw.Space.from_points(np.random.default_rng(1).random((2, 10, 3)))
        >>> PUClassifier(prior=0.2, scale=None).fit_spaces(x, y).labels_.sum(axis=1)
        array([2, 2])
        """
        forget_features(self)
        if not isinstance(positives, Space):
            positives = check_array(as_array(positives), dtype=np.float64, input_name="positives")
        if not isinstance(unlabeled, Space):
            unlabeled = validate_data(self, as_array(unlabeled), dtype=np.float64)
        x, y = self._spaces(positives, unlabeled, together=False)
        self.classes_ = np.array([0, 1])
        self._chosen = self._judged(x, y, known) if is_grid(self.rho, self.eps) else None
        self._points, self._decision = None, self._match(x, y, together=False)
        if y.point_tensor is not None and not y.batched:
            points = y.point_tensor.detach().cpu().double().numpy()
            self.n_features_in_ = points.shape[1]
            self._points, self._decision = _distinct(points, self._decision)
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Score less threshold (k,), positive where the prediction is; X (k, d), in the unlabeled points' space."""
        check_is_fitted(self)
        if self._points is None:
            raise InputError(
                "new points need a space with points, got one without or a batch: labels_ has the fitted ones"
            )
        X = validate_data(self, as_array(X), dtype=np.float64, reset=False)
        return self._decision[nearest(self._points, X)]

    def predict(self, X: Any) -> np.ndarray:
        """Labels (k,) of points X (k, d): that of the nearest fitted point."""
        positive = self.decision_function(X) > 0
        return self.classes_[positive.astype(int)]

    # -- fitting -------------------------------------------------------------------------------------------

    def _spaces(self, positives: Any, unlabeled: Any, *, together: bool) -> tuple[Space, Space]:
        made = [as_space(points, self.metric, batches=not together) for points in (positives, unlabeled)]
        _check_batches(*made, plain=self.scale is None and not is_grid(self.rho, self.eps))
        x, y = scaled(made, self.scale, together=together)
        return x, y

    def _match(self, x: Space, y: Space, *, together: bool) -> np.ndarray:
        """Solve, label, and return score less threshold (m,)."""
        prior = self._checked_prior()
        if self._chosen is None:
            rho, eps, self.validation_ = self.rho, entropy(self.rho, self.eps), None
        else:
            winner = best(self._chosen)
            rho, eps, self.validation_ = winner.rho, winner.eps, self._chosen
        self.rho_, self.eps_ = rho, eps
        start = self._start(x, y, prior, together=together)
        self.result_ = solve(x, y, rho=rho, eps=eps, init=start, solver=self.solver)
        self.scores_ = _received(self.result_, y)
        labels, decision = self._decide(self.result_, self.scores_, prior)
        self.labels_ = self.classes_[labels.astype(int)]
        if together and isinstance(start, np.ndarray):
            self._check_places(labels, start.sum(0), prior)
        return decision

    def _check_places(self, labels: np.ndarray, near: np.ndarray, prior: float) -> None:
        """UGW knows shapes only: warn where it leaves the points that transport of the positives leads to.

        labels: (m,) bools; near: (m,), what each unlabeled point receives at the start.
        """
        shared = (labels & decide(near, prior, random_state=self.random_state)[0]).sum()
        if labels.sum() >= ENOUGH and shared < prior * labels.sum():
            warnings.warn(
                f"of {labels.sum()} points called positive {shared} are where the positives lie, fewer than by chance: "
                f"other points fit them in shape, at rho={self.rho_}; try a smaller rho, or lists of rho and eps",
                UserWarning,
                stacklevel=4,
            )

    def _decide(self, result: Result, scores: np.ndarray, prior: float) -> tuple[np.ndarray, np.ndarray]:
        ties = max(TIES, ROUNDING * torch.finfo(result.tensors.plan.dtype).eps)
        return decide(scores, prior, ties=ties, random_state=self.random_state)

    def _start(self, x: Space, y: Space, prior: float, *, together: bool) -> Any:
        init = ("partial-w" if together else "flb") if isinstance(self.init, str) and self.init == "auto" else self.init
        if not isinstance(init, str):
            return init
        check_choice("init", init, (*STARTS, "partial-w"))
        return partial_start(x, y, prior) if init == "partial-w" else init

    def _checked_prior(self) -> float:
        if not isinstance(self.prior, Real) or not 0 < float(self.prior) < 1:
            raise InputError(
                f"prior, the share of positives among the unlabeled, must be in (0, 1), got {self.prior!r}"
            )
        return float(self.prior)

    def _validated(self, positives: np.ndarray, unlabeled: np.ndarray) -> list[Candidate]:
        """The candidates, scored by the share of hidden positives that they find."""
        count = max(1, round(SPIES * len(positives)))
        if len(positives) - count < 2:
            raise InputError(f"to choose rho and eps takes at least 3 positives, got {len(positives)}")
        order = check_random_state(self.random_state).permutation(len(positives))
        hidden, shown = positives[order[:count]], positives[np.sort(order[count:])]
        x, y = self._spaces(shown, np.vstack([unlabeled, hidden]), together=True)
        prior = (self._checked_prior() * len(unlabeled) + count) / (len(unlabeled) + count)

        def found(result: Result) -> float:
            # Half of a point for the rank, so that pairs which find equally many are told apart.
            scores = _received(result, y)
            labels, _ = self._decide(result, scores, prior)
            rank = (scores[-count:, None] > scores[:-count]).mean()
            return float(labels[-count:].sum() + 0.5 * rank) / (count + 0.5)

        init = self._start(x, y, prior, together=True)
        made = self._choose(x, y, init, found)
        chance = (count * prior + 0.25) / (count + 0.5)
        score = best(made).score
        if score < chance:
            warnings.warn(
                f"the best rho and eps find hidden positives worse than chance, score {score:.2g} below {chance:.2g}: "
                "negatives are taken for positives; try other values, a smaller rho for example",
                UserWarning,
                stacklevel=3,
            )
        return made

    def _choose(self, x: Space, y: Space, init: Any, score: Callable[[Result], float]) -> list[Candidate]:
        eps = entropy(self.rho, self.eps)
        return choose(x, y, rho=self.rho, eps=eps, init=init, solver=self.solver, score=score)

    def _judged(self, x: Space, y: Space, known: Any) -> list[Candidate]:
        """The candidates, scored by the known labels that come out right."""
        if known is None:
            raise InputError(
                "a list of rho or eps across two feature spaces must be judged by known=, labels of some unlabeled "
                "points, got none"
            )
        known = np.asarray(known)
        if known.shape != (y.n,) or not np.isin(known, (-1, 0, 1)).all() or not (known >= 0).any():
            raise InputError(f"known must be 1, 0 or −1 for each of {y.n} unlabeled points, and not −1 for all")
        prior = self._checked_prior()

        def right(result: Result) -> float:
            labels, _ = self._decide(result, _received(result, y), prior)
            return float((labels == known)[known >= 0].mean())

        init = self._start(x, y, prior, together=False)
        return self._choose(x, y, init, right)


def partial_start(x: Space, y: Space, prior: float) -> np.ndarray:
    """Exact partial transport of positives, with mass `prior`, into unlabeled points of mass 1; Euclidean cost.

    Returns the plan (n, m).

    >>> x, y = Space.from_points([[0.0]]), Space.from_points([[5.0], [0.1]])
    >>> partial_start(x, y, 0.5)
    array([[0. , 0.5]])
    """
    if x.point_tensor is None or y.point_tensor is None or x.point_tensor.shape[1] != y.point_tensor.shape[1]:
        raise InputError('init="partial-w" needs points of one dimension on both sides: take init="flb"')
    light, law = (
        replace(space, weight_tensor=share * space.weight_tensor / space.weight_tensor.sum(-1))
        for space, share in ((x, prior), (y, 1.0))
    )
    return solve_linear(light, law, cost="euclidean", rho=Mass(min(prior, float(light.mass)))).plan


def _check_batches(x: Space, y: Space, *, plain: bool) -> None:
    """Batches are for both sides, of full spaces, with one rho and eps and no scale."""
    if not x.batched and not y.batched:
        return
    if not (x.batched and y.batched and x.weight_tensor.shape[0] == y.weight_tensor.shape[0]):
        raise InputError("a batch of problems needs as many spaces on both sides, got a batch beside another or none")
    if not plain:
        raise InputError("a batch of problems needs scale=None and one rho and eps, got a scale or lists")
    if not bool((y.weight_tensor > 0).all()):
        raise InputError("a batch of problems needs unlabeled spaces of one size, with positive weights, got others")


def _received(result: Result, y: Space) -> np.ndarray:
    """The share of its weight that each point of the second space receives, 0 without weight, (m,) or (B, m)."""
    received = result.tensors.plan.sum(1, dtype=torch.float64).cpu().numpy()
    return kept(received if result.batched else received[0], y.weight_tensor)


def _distinct(points: np.ndarray, decision: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points (n, d) without repetition, each with the largest of its decisions (n,)."""
    rows, index = np.unique(points, axis=0, return_inverse=True)
    largest = np.full(len(rows), -np.inf)
    np.maximum.at(largest, index.reshape(-1), decision)
    return rows, largest


def decide(
    scores: np.ndarray, prior: float, *, ties: float = TIES, random_state: Any = 0
) -> tuple[np.ndarray, np.ndarray]:
    """The round(prior · m) highest scores as bools (m,), and score less threshold (m,); by lot among equals.

    ties: the share by which equals may differ from the last one in. Scores of a batch (B, m) are decided row by row,
    each as if it were alone.

    The threshold is half-way between the last one in and the first one out; a tie there is told apart by the sign of
    the smallest positive number.

    >>> decide(np.array([0.1, 0.7, 0.7, 0.7]), 0.5)[0].sum()
    np.int64(2)
    """
    if scores.ndim == 2:
        rows = [decide(row, prior, ties=ties, random_state=random_state) for row in scores]
        return np.stack([chosen for chosen, _ in rows]), np.stack([decision for _, decision in rows])
    count = round(prior * len(scores))
    edge = np.sort(scores)[::-1][count - 1] if count else np.inf
    equal = abs(scores - edge) <= ties * abs(edge)
    chosen = (scores > edge) & ~equal
    drawn = check_random_state(random_state).permutation(np.flatnonzero(equal))
    chosen[drawn[: count - chosen.sum()]] = True
    inside, outside = scores[chosen].min(initial=np.inf), scores[~chosen].max(initial=-np.inf)
    threshold = outside if not count else inside if count == len(scores) else 0.5 * (inside + outside)
    least = np.finfo(np.float64).tiny
    decision = scores - threshold
    return chosen, np.where(chosen, np.maximum(decision, least), np.minimum(decision, -least))
