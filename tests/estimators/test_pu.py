"""Positive-unlabeled learning: number of positives, ties, starts, two feature spaces, the choice of rho and eps."""

import warnings

import numpy as np
import ot
import pandas as pd
import pytest
import torch
from scipy.spatial.distance import cdist

import ugw
from oracles.estimators import pu_data
from ugw.estimators import KNN, PUClassifier
from ugw.estimators import pu as pu_module
from ugw.estimators.pu import label_top_scores, partial_transport_plan


@pytest.mark.parametrize("prior", [0.01, 0.1, 0.26, 0.5, 0.99])
def test_the_number_of_positive_labels_is_prior_times_n(prior):
    X, y = pu_data()
    pu = PUClassifier(prior=prior).fit(X, y)
    assert pu.labels_.sum() == round(prior * 40)
    np.testing.assert_array_equal(pu.predict(X[y == 0]), pu.labels_)
    assert pu.predict(X[y == 1]).all()
    np.testing.assert_array_equal(pu.decision_function(X) > 0, pu.predict(X) == 1)
    order = np.argsort(-pu.scores_, kind="stable")
    assert set(order[: pu.labels_.sum()]) == set(np.flatnonzero(pu.labels_))


def test_the_hidden_positives_are_found():
    X, y = pu_data()
    pu = PUClassifier(prior=0.25).fit(X, y)
    assert pu.labels_[:10].sum() >= 8
    np.testing.assert_allclose(pu.scores_, pu.result_.plan.sum(0) * 40)
    new = 0.1 * np.random.default_rng(5).normal(size=(20, 2))
    nearest = cdist(new, X).argmin(1)
    np.testing.assert_array_equal(pu.predict(new), pu.predict(X)[nearest])
    assert pu.score(X[y == 0], np.r_[np.ones(10), np.zeros(30)]) >= 0.9


def test_ties_are_broken_at_random():
    scores = np.array([0.5, 1.0, 1.0, 1.0, 0.5, 0.5])
    for prior, certain, possible in ((1 / 6, [], [1, 2, 3]), (3 / 6, [1, 2, 3], []), (4 / 6, [1, 2, 3], [0, 4, 5])):
        chosen, decision = label_top_scores(scores, prior)
        assert chosen.sum() == round(6 * prior)
        assert chosen[certain].all()
        assert set(np.flatnonzero(chosen)) <= {*certain, *possible}
        np.testing.assert_array_equal(decision > 0, chosen)
    constant, decision = label_top_scores(np.ones(10), 0.3)  # a collapsed plan still names three
    assert constant.sum() == (decision > 0).sum() == 3
    assert (np.sign(decision[~constant]) == -1).all()
    np.testing.assert_array_equal(label_top_scores(np.ones(10), 0.3)[0], constant)  # the same each time
    for count, prior in ((0, 0.01), (10, 0.99)):
        assert (
            label_top_scores(np.ones(10), prior)[0].sum()
            == (label_top_scores(np.ones(10), prior)[1] > 0).sum()
            == count
        )


def test_random_tie_breaking_does_not_depend_on_the_order():
    """Equal scores are labeled positive equally often at any position, so that rows sorted by class have no effect."""
    frequencies = np.mean([label_top_scores(np.ones(20), 0.25, random_state=seed)[0] for seed in range(400)], axis=0)
    assert abs(frequencies - 0.25).max() < 0.1
    mean_of_first = np.mean(
        [label_top_scores(np.ones(40), 0.25, random_state=seed)[0][:10].mean() for seed in range(100)]
    )
    assert mean_of_first == pytest.approx(0.25, abs=0.05)
    coincident = np.zeros((60, 2))
    labels = PUClassifier(prior=0.25).fit(coincident, np.r_[np.ones(20, int), np.zeros(40, int)]).labels_
    assert labels.sum() == 10
    assert 0 < labels[:10].sum() < 10


def test_scores_equal_up_to_rounding_are_ties():
    """Scores of exact transport: the first ones are exact, the others differ by rounding."""
    scores = np.r_[np.ones(10), np.full(10, 1.0 - 1e-14), np.zeros(20)]
    frequencies = np.mean([label_top_scores(scores, 0.25, random_state=seed)[0] for seed in range(100)], axis=0)
    assert abs(frequencies[:10].mean() - frequencies[10:20].mean()) < 0.1
    assert not frequencies[20:].any()
    small = 10.0 ** -np.arange(20)  # an entropic plan ranks by scores of any size
    assert label_top_scores(small, 0.75)[0].tolist() == [True] * 15 + [False] * 5
    light = np.r_[np.ones(10), np.full(10, 1.0 - 1e-7), np.zeros(20)]
    draws = [label_top_scores(light, 0.25, tie_tolerance=1e-6, random_state=seed)[0] for seed in range(100)]
    assert abs(np.mean(draws, axis=0)[:10].mean() - 0.5) < 0.1
    x, y = (ugw.Space.from_points(np.random.default_rng(k).random((n, 2)).astype("f")) for k, n in ((0, 9), (1, 30)))
    pu = PUClassifier(prior=0.2, rho=ugw.Mass(0.5), scale=None)  # 15 of 30 receive all they can
    draws = [PUClassifier(**pu.get_params() | {"random_state": seed}).fit_spaces(x, y) for seed in range(12)]
    full = draws[0].scores_ > 0.5
    assert full.sum() == 15
    assert len({tuple(one.labels_) for one in draws}) > 6
    assert not any(one.labels_[~full].any() for one in draws)


def test_coinciding_points_get_one_prediction():
    X, y = pu_data()
    twice, of_both = np.vstack([X, X[:20]]), np.r_[y, np.zeros(20, int)]  # each positive also comes unlabeled
    pu = PUClassifier(prior=0.2).fit(twice, of_both)
    assert pu.labels_.sum() == 12
    assert pu.predict(twice[of_both == 1]).all()
    assert pu.predict(twice[-20:]).all()
    flip = np.random.default_rng(0).permutation(60)
    other = PUClassifier(prior=0.2).fit(twice[flip], of_both[flip])
    assert other.predict(X[:20]).all()


def test_points_without_weight_receive_no_mass():
    X, y = pu_data()
    weights = np.where(np.arange(40) < 5, 0.0, 1 / 35)
    spaces = ugw.Space.from_points(X[y == 1]), ugw.Space.from_points(X[y == 0], weights=weights)
    pu = PUClassifier(prior=0.25).fit_spaces(*spaces)
    assert (pu.scores_[:5] == 0).all()
    assert pu.labels_.sum() == 10
    assert not pu.labels_[:5].any()
    assert np.isfinite(pu.decision_function(X[y == 0])).all()


def test_a_new_fit_clears_the_feature_names_of_the_last():
    X, y = pu_data()
    pu = PUClassifier(prior=0.25).fit(pd.DataFrame(X, columns=["u", "v"]), y)
    assert pu.feature_names_in_.tolist() == ["u", "v"]
    wide = np.c_[X, X]
    pu.fit_spaces(ugw.Space.from_points(X[y == 1]), ugw.Space.from_points(wide[y == 0]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(pu.predict(wide[y == 0]), pu.labels_)
    leaf = torch.tensor(X, requires_grad=True)
    np.testing.assert_array_equal(
        PUClassifier(prior=0.25).fit(leaf, torch.tensor(y)).predict(leaf), PUClassifier(prior=0.25).fit(X, y).predict(X)
    )


def test_labels_of_any_kind():
    X, y = pu_data()
    base = PUClassifier(prior=0.25).fit(X, y)
    for low, high in ((-1, 1), ("no", "yes"), (False, True)):
        other = PUClassifier(prior=0.25).fit(X, np.where(y == 1, high, low))
        np.testing.assert_array_equal(other.labels_ == high, base.labels_ == 1)


def test_the_partial_initial_plan_equals_that_of_pot():
    X, y = pu_data()
    plan = partial_transport_plan(ugw.Space.from_points(X[y == 1]), ugw.Space.from_points(X[y == 0]), 0.25)
    cost = cdist(X[y == 1], X[y == 0])
    theirs = ot.partial.partial_wasserstein(np.full(20, 0.25 / 20), np.full(40, 1 / 40), cost, m=0.25)
    assert (plan * cost).sum() == pytest.approx((theirs * cost).sum(), rel=1e-10)
    np.testing.assert_allclose(plan.sum(1), 0.25 / 20, atol=1e-14)
    options = {"prior": 0.25, "scale": None, "eps": 5e-3}  # small: the solution depends on the start
    pu, from_plan, other = (PUClassifier(**options, init=init).fit(X, y) for init in ("auto", plan, "flb"))
    np.testing.assert_allclose(pu.result_.plan, from_plan.result_.plan, atol=1e-12)
    assert not np.allclose(pu.result_.plan, other.result_.plan)


def test_one_scale_in_one_feature_space_and_two_in_two():
    X, y = pu_data()
    one = PUClassifier(prior=0.25, init="flb").fit(X, y)
    largest = max(cdist(P, P).max() for P in (X[y == 1], X[y == 0]))
    same = PUClassifier(prior=0.25, init="flb", scale=None, eps=5e-3).fit(X / largest, y)
    np.testing.assert_allclose(one.result_.plan, same.result_.plan, atol=1e-9)
    two = PUClassifier(prior=0.25).fit_spaces(X[y == 1], 7.0 * X[y == 0])
    spaces = [ugw.Space.from_points(P).scaled("max") for P in (X[y == 1], X[y == 0])]
    np.testing.assert_allclose(two.result_.plan, ugw.solve(*spaces, rho=0.05, eps=0.005, init="flb").plan, atol=1e-7)


def test_two_feature_spaces():
    X, y = pu_data()
    extended = np.c_[X, X[:, 0] ** 2]
    pu = PUClassifier(prior=0.25, scale=None).fit_spaces(X[y == 1], extended[y == 0])
    assert pu.labels_.sum() == 10
    assert pu.predict(extended[y == 0]).tolist() == pu.labels_.tolist()
    spaces = [ugw.Space.from_points(P) for P in (X[y == 1], extended[y == 0])]
    np.testing.assert_array_equal(PUClassifier(prior=0.25, scale=None).fit_spaces(*spaces).labels_, pu.labels_)
    distance_spaces = [ugw.Space.from_distances(s.distances) for s in spaces]
    fitted = PUClassifier(prior=0.25, scale=None).fit_spaces(*distance_spaces)
    np.testing.assert_array_equal(fitted.labels_, pu.labels_)
    with pytest.raises(ugw.InputError, match="without"):
        fitted.predict(extended)
    knn = PUClassifier(prior=0.25, metric=KNN(k=5, bridge=True)).fit_spaces(X[y == 1], extended[y == 0])
    assert knn.labels_.sum() == 10


def test_a_batch_of_spaces_is_solved_item_by_item():
    rng = np.random.default_rng(2)
    points = rng.random((3, 8, 2)), rng.random((3, 10, 3))
    x, y = (ugw.Space.from_points(p) for p in points)
    for prior, eps, rho in ((0.3, 0.01, (0.05, 0.1)), (0.2, 0.0, ugw.Mass(0.2))):
        pu = PUClassifier(prior=prior, eps=eps, rho=rho, init="flb", scale=None)
        labels, scores = pu.fit_spaces(x, y).labels_, pu.scores_
        assert labels.sum(axis=1).tolist() == [round(prior * 10)] * 3
        for i in range(3):
            pu.fit_spaces(points[0][i], points[1][i])
            np.testing.assert_allclose(pu.scores_, scores[i], atol=1e-5)
            np.testing.assert_array_equal(pu.labels_, labels[i])
    batch = PUClassifier(prior=0.3, scale=None).fit_spaces(x, y)
    for do, message in (
        (lambda: batch.predict(points[1][0]), "or a batch"),
        (lambda: PUClassifier(prior=0.3).fit_spaces(x, y), "scale=None"),
        (lambda: PUClassifier(prior=0.3, scale=None, rho=[0.1, 1.0]).fit_spaces(x, y), "one rho"),
        (lambda: PUClassifier(prior=0.3, scale=None).fit_spaces(x, y[0]), "on both sides"),
    ):
        with pytest.raises(ugw.InputError, match=message):
            do()


def test_lists_of_parameters_are_selected_by_hidden_positives():
    X, y = pu_data(seed=1)
    grid = PUClassifier(prior=0.25, rho=[1e-3, 0.05, (0.05, 0.5)], eps=[0.005, 0.05]).fit(X, y)
    assert [(c.rho, c.eps) for c in grid.validation_] == [
        (r, e) for r in (1e-3, 0.05, (0.05, 0.5)) for e in (0.005, 0.05)
    ]
    assert max(c.score for c in grid.validation_) == next(
        c.score for c in grid.validation_ if (c.rho, c.eps) == (grid.rho_, grid.eps_)
    )
    assert len({c.score for c in grid.validation_}) > 2
    alone = PUClassifier(prior=0.25, rho=grid.rho_, eps=grid.eps_).fit(X, y)
    np.testing.assert_allclose(alone.result_.plan, grid.result_.plan, atol=1e-12)
    assert alone.validation_ is None


def test_hidden_positives_are_among_those_to_find(monkeypatch):
    """20 positives, of which 4 are hidden among 40 points with 10 positives: 14 of 44."""
    X, y = pu_data()
    requests = []
    monkeypatch.setattr(
        pu_module,
        "label_top_scores",
        lambda s, prior, **rest: (requests.append((len(s), prior)), label_top_scores(s, prior, **rest))[1],
    )
    PUClassifier(prior=0.25, rho=[0.05, 0.1]).fit(X, y)
    assert requests[:2] == [(44, pytest.approx(14 / 44))] * 2
    assert requests[2] == (40, 0.25)


def test_predicted_points_far_from_the_positives_give_a_warning():
    """Two clusters of one shape, the positives are the smaller one: at a large rho the larger one receives more mass."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(50, 3)), rng.normal([6.0, 0.0, 0.0], size=(60, 3))])
    y, truth = np.r_[np.ones(30, int), np.zeros(80, int)], np.arange(80) < 20
    with pytest.warns(UserWarning, match="of 20 points called positive 0 are where the positives lie"):
        wrong = PUClassifier(prior=0.25, rho=0.1).fit(X, y)
    assert not wrong.labels_[truth].any()
    with pytest.warns(UserWarning, match="worse than chance, score"):
        PUClassifier(prior=0.25, rho=np.array([0.1, 1.0])).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        right = PUClassifier(prior=0.25, rho=np.array([0.003, 0.1, 1.0])).fit(X, y)
    assert isinstance(right.rho_, float)
    assert right.labels_[truth].mean() > 0.9


def test_default_eps_is_zero_for_partial_problems():
    X, y = pu_data()
    assert PUClassifier(prior=0.25).fit(X, y).eps_ == 0.005
    assert PUClassifier(prior=0.25, rho=ugw.Mass(0.25)).fit(X, y).eps_ == 0.0
    assert PUClassifier(prior=0.25, rho=[0.05, 0.1]).fit(X, y).eps_ == 0.005
    assert PUClassifier(prior=0.25, rho=ugw.Mass(0.25), scale=None).fit(X, y).eps_ == 0.0


@pytest.mark.parametrize("rho", [0.1, [0.1, 0.3]], ids=["one", "list"])
def test_default_eps_without_scale_is_that_of_solve_in_any_units(rho):
    X, y = pu_data()
    values = []
    for unit in (1.0, 1e3):
        rhos = [unit**2 * r for r in rho] if isinstance(rho, list) else unit**2 * rho
        pu = PUClassifier(prior=0.25, rho=rhos, scale=None, init="flb").fit(unit * X, y)
        spaces = [ugw.Space.from_points(unit * X[y == label]) for label in (1, 0)]
        assert pu.result_.parameters["eps"] == ugw.solve(*spaces, rho=pu.rho_).parameters["eps"]
        assert repr(pu.eps_) == "relative(0.01)"
        values.append(pu.result_.plan)
    np.testing.assert_allclose(values[1], values[0], atol=1e-6)


def test_lists_across_spaces_are_selected_by_known_labels():
    X, y = pu_data()
    truth = np.r_[np.ones(10, int), np.zeros(30, int)]
    known = np.where(np.arange(40) % 2, truth, -1)
    pu = PUClassifier(prior=0.25, rho=[0.02, 0.3], eps=[0.005]).fit_spaces(X[y == 1], X[y == 0], known=known)
    for candidate in pu.validation_:
        alone = PUClassifier(prior=0.25, rho=candidate.rho, eps=candidate.eps).fit_spaces(X[y == 1], X[y == 0])
        assert candidate.score == pytest.approx((alone.labels_ == truth)[known >= 0].mean())
    with pytest.raises(ugw.InputError, match="known="):
        PUClassifier(prior=0.25, rho=[0.02, 0.3]).fit_spaces(X[y == 1], X[y == 0])
    with pytest.raises(ugw.InputError, match="1, 0 or −1"):
        PUClassifier(prior=0.25, rho=[0.02, 0.3]).fit_spaces(X[y == 1], X[y == 0], known=known + 1)


def test_invalid_arguments_are_refused():
    X, y = pu_data()
    for prior in (None, 0.0, 1.0, "half"):
        with pytest.raises(ugw.InputError, match="prior"):
            PUClassifier(prior=prior).fit(X, y)
    with pytest.raises(ugw.InputError, match="one class"):
        PUClassifier(prior=0.5).fit(X, np.ones(len(X), int))
    with pytest.raises(ugw.InputError, match="Only binary"):
        PUClassifier(prior=0.5).fit(X, np.arange(len(X)) % 3)
    with pytest.raises(ugw.InputError, match="init must be one of"):
        PUClassifier(prior=0.5, init="nonsense").fit(X, y)
    with pytest.raises(ugw.InputError, match="one dimension"):
        PUClassifier(prior=0.5, init="partial-w").fit_spaces(X[y == 1], X[y == 0][:, :1])
    with pytest.raises(ugw.InputError, match="at least 3 positives"):
        PUClassifier(prior=0.5, rho=[0.1, 1.0]).fit(X[-42:], y[-42:] + np.r_[1, 1, np.zeros(40, int)])
    with pytest.raises(ugw.InputError, match="must not be empty"):
        PUClassifier(prior=0.5, rho=[]).fit(X, y)
    for lists in ({"rho": [ugw.TV(1.0)]}, {"eps": [0.1, ugw.relative(0.1)]}, {"eps": [ugw.relative(np.ones(2))]}):
        with pytest.raises(ugw.InputError, match="candidates must be numbers"):
            PUClassifier(prior=0.5, **lists).fit(X, y)


def test_a_plan_is_refused_where_some_positives_are_hidden():
    X, y = pu_data()
    plan = np.full((20, 40), 1 / 800)
    options = {"prior": 0.25, "init": plan, "rho": [0.05, 0.1]}
    with pytest.raises(ugw.InputError, match=r"init must be a name where fit selects rho or eps.*got ndarray$"):
        PUClassifier(**options).fit(X, y)
    known = np.where(np.arange(40) < 10, 1, 0)
    assert PUClassifier(**options).fit_spaces(X[y == 1], X[y == 0], known=known).rho_ in (0.05, 0.1)  # none is hidden


def test_the_british_argument_of_fit_spaces_still_works_with_a_warning():
    X, y = pu_data()
    expected = PUClassifier(prior=0.25).fit_spaces(X[y == 1], X[y == 0]).labels_
    with pytest.warns(DeprecationWarning, match="unlabelled=.* is deprecated: use unlabeled="):
        old = PUClassifier(prior=0.25).fit_spaces(X[y == 1], unlabelled=X[y == 0])
    np.testing.assert_array_equal(old.labels_, expected)
