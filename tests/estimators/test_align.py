"""Alignment: projections, labels, and the choice of rho and eps."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.spatial.distance import cdist
from sklearn.neighbors import kneighbors_graph

import ugw
from oracles.errors import assert_refused
from oracles.estimators import mirrored_pair
from ugw.estimators import KNN, Aligner, foscttm, label_transfer_accuracy
from ugw.estimators.align import vote_labels
from ugw.results.lazy_plan import LazyPlan


def test_a_copy_is_matched_and_points_are_projected_in_both_directions():
    X, Y = mirrored_pair()
    aligner = Aligner(eps=1e-4).fit(X, Y)
    np.testing.assert_allclose(aligner.transform(X), Y, atol=0.05)
    np.testing.assert_allclose(aligner.inverse_transform(Y), X, atol=0.05)
    np.testing.assert_array_equal(aligner.transform(X), aligner.embedding_)
    np.testing.assert_allclose(aligner.embedding_, aligner.plan_ @ Y / aligner.plan_.sum(1, keepdims=True), rtol=1e-12)
    near = X[[3, 7]] + 1e-6
    np.testing.assert_array_equal(aligner.transform(near), aligner.embedding_[[3, 7]])
    assert aligner.score(X, Y) == 1.0
    assert aligner.score(X[:5], Y[:5]) == 1.0
    np.testing.assert_allclose(aligner.mass_[0], aligner.result_.plan.sum(1) * 24)
    np.testing.assert_allclose(aligner.mass_[1], aligner.result_.plan.sum(0) * 24)


def test_the_plan_is_that_of_solve_on_scaled_spaces():
    X, Y = mirrored_pair()
    for scale in ("max", "mean", None):
        spaces = [ugw.Space.from_points(P) for P in (X, Y[:, :2])]
        spaces = spaces if scale is None else [s.scaled(scale) for s in spaces]
        expected = ugw.solve(*spaces, rho=0.3, eps=0.02).plan
        np.testing.assert_allclose(Aligner(rho=0.3, eps=0.02, scale=scale).fit(X, Y[:, :2]).plan_, expected, atol=1e-12)
    line = Aligner(rho=ugw.TV(0.1)).fit(X, Y[:, 1])  # one feature may come as (m,)
    assert line.eps_ == 0.0
    assert line.transform(X).shape == (24, 1)


def test_points_without_partners_are_nan_and_count_as_wrong():
    X, Y = mirrored_pair()
    far = np.vstack([X, [[40.0, 40.0, 40.0]]])
    aligner = Aligner(rho=ugw.Mass(0.9), eps="auto", scale=None).fit(far, Y)
    lost = np.isnan(aligner.embedding_).any(1)
    assert lost[-1]
    assert lost.sum() < 5
    assert aligner.mass_[0][-1] == 0.0
    assert foscttm(aligner.embedding_[:24], Y) >= lost[:24].mean()
    labels = np.arange(24) % 3
    assert label_transfer_accuracy(aligner.embedding_[:24], labels, Y, labels, k=1) <= 1 - lost[:24].mean()


def test_spaces_without_points_have_plans_and_labels_only():
    X, Y = mirrored_pair()
    spaces = [ugw.Space.from_distances(cdist(P, P)) for P in (X, Y)]
    aligner = Aligner(eps=1e-4).fit(*spaces)
    np.testing.assert_allclose(aligner.plan_, Aligner(eps=1e-4).fit(X, Y).plan_, atol=1e-7)
    assert aligner.embedding_ is None
    assert aligner.transfer_labels(np.arange(24))[0].tolist() == list(range(24))
    with pytest.raises(ugw.InputError, match="no points"):
        aligner.transform(spaces[0])
    spaces = [ugw.Space.from_points(P) for P in (X, Y)]
    whole = Aligner(eps=1e-4).fit(*spaces)
    np.testing.assert_allclose(whole.transform(spaces[0]), Y, atol=0.05)
    np.testing.assert_allclose(whole.inverse_transform(spaces[1]), X, atol=0.05)


def test_lazy_plans_give_the_same_results():
    X, Y = mirrored_pair()
    results = []
    for method in ("stabilized", "streaming"):
        solver = ugw.AlternateMin(tol=1e-8, inner=ugw.Sinkhorn(method=method))
        aligner = Aligner(metric="sqeuclidean", eps=1e-2, solver=solver).fit(X, Y)
        labels = aligner.transfer_labels(np.arange(24) % 3), aligner.transfer_labels(np.arange(24) % 3, back=True)
        results.append((aligner.transform(X), aligner.inverse_transform(Y), *aligner.mass_, *labels[0], *labels[1]))
    assert isinstance(aligner.plan_, LazyPlan)
    for stored, lazy in zip(*results, strict=True):
        np.testing.assert_allclose(lazy, stored, atol=1e-4)
    spaces = (ugw.Space.from_points(torch.tensor(P, dtype=torch.float32), metric="sqeuclidean") for P in (X, Y))
    light = Aligner(eps=1e-2, solver=ugw.AlternateMin(inner=ugw.Sinkhorn(method="streaming"))).fit(*spaces)
    np.testing.assert_allclose(light.embedding_, results[0][0], atol=0.05)


def test_a_new_fit_clears_the_feature_names_of_the_last():
    X, Y = mirrored_pair()
    aligner = Aligner().fit(pd.DataFrame(X, columns=list("uvw")), Y)
    aligner.fit(ugw.Space.from_points(X[:, :2]), Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert aligner.transform(X[:, :2]).shape == (24, 3)
    aligner.fit(X, ugw.Space.from_distances(cdist(Y, Y)))
    assert list(aligner.get_feature_names_out()) == []
    leaf = torch.tensor(X, requires_grad=True)
    np.testing.assert_array_equal(
        Aligner().fit(leaf, torch.tensor(Y)).transform(leaf), Aligner().fit(X, Y).transform(X)
    )


def test_points_without_weight_keep_no_mass():
    X, Y = mirrored_pair()
    aligner = Aligner().fit(ugw.Space.from_points(X, weights=np.where(np.arange(24) < 2, 0.0, 1 / 22)), Y)
    assert (aligner.mass_[0][:2] == 0).all()
    assert np.isnan(aligner.embedding_[:2]).all()
    assert not np.isnan(aligner.embedding_[2:]).any()


# --- labels and scores ---


def test_labels_are_transferred_by_the_largest_mass():
    plan = np.array([[0.1, 0.2, 0.0], [0.15, 0.1, 0.0], [0.1, 0.1, 0.0]])
    labels, share = vote_labels(plan, np.array(["b", "a", "b"]))
    assert labels.tolist() == ["b", "b", "b"]  # nothing arrives at the last: the most frequent label, share 0
    np.testing.assert_allclose(share, [0.2 / 0.35, 0.75, 0.0])
    assert vote_labels(np.array([[0.1], [0.1]]), np.array(["b", "a"]))[0].tolist() == ["a"]  # equal votes
    X, Y = mirrored_pair()
    aligner = Aligner(eps=1e-3).fit(X, Y)
    names = np.array(["x", "y", "z"])[np.arange(24) % 3]
    for back in (False, True):
        transferred, share = aligner.transfer_labels(names, back=back)
        assert transferred.tolist() == names.tolist()
        assert share.min() > 0.5
    with pytest.raises(ugw.InputError, match="labels must have shape"):
        aligner.transfer_labels(names[:5])


def test_missing_labels_have_no_vote():
    plan = np.array([[0.1, 0.2, 0.0], [0.15, 0.1, 0.0], [0.1, 0.1, 0.3]])
    for gap in (None, np.nan):
        labels, share = vote_labels(plan, np.array(["b", "a", gap], dtype=object))
        assert labels.tolist()[:2] == ["a", "b"]
        np.testing.assert_allclose(share, [0.15 / 0.25, 0.2 / 0.3, 0.0])
    with pytest.raises(ugw.InputError, match="got none"):
        vote_labels(plan, np.array([None] * 3))
    X, Y = mirrored_pair()
    names = np.where(np.arange(24) % 2, np.arange(24) // 4, np.nan)
    aligner = Aligner(eps=[0.2, 0.002]).fit(X, Y, labels=(np.arange(24) // 4, names))
    assert aligner.validation_[1].score == 1.0  # where nothing is known nothing is wrong


# --- the choice of rho and eps ---


@pytest.mark.parametrize("selection", ["rows", "pairs", "labels"])
def test_lists_of_parameters_are_selected_by_pairs_or_labels(selection):
    X, Y = mirrored_pair()
    names = np.arange(24) // 4
    known = {
        "rows": {"pairs": "rows"},
        "pairs": {"pairs": np.tile(np.arange(8)[:, None], 2)},
        "labels": {"labels": (names, names)},
    }[selection]
    aligner = Aligner(rho=[0.1, (1.0, 2.0)], eps=np.array([0.2, 0.002])).fit(X, Y, **known)
    assert [(c.rho, c.eps) for c in aligner.validation_] == [
        (0.1, 0.2),
        (0.1, 0.002),
        ((1.0, 2.0), 0.2),
        ((1.0, 2.0), 0.002),
    ]
    assert aligner.eps_ == 0.002
    for c in aligner.validation_:
        alone = Aligner(rho=c.rho, eps=c.eps).fit(X, Y)
        if selection == "labels":
            expected = (alone.transfer_labels(names)[0] == names).mean()
        else:
            rows = slice(None) if selection == "rows" else slice(8)
            expected = 1 - foscttm(alone.embedding_[rows], Y[rows])
        assert c.score == pytest.approx(expected, abs=1e-6)
        assert c.converged


def test_the_first_of_the_best_candidates_wins():
    aligner = Aligner(eps=[0.05, 1e-3, 1e-4]).fit(*mirrored_pair(), pairs="rows")
    assert [c.score == 1.0 for c in aligner.validation_] == [False, True, True]
    assert aligner.eps_ == 1e-3


@pytest.mark.parametrize("eps", ["auto", [ugw.relative(0.1), ugw.relative(0.01)]], ids=["auto", "list"])
def test_candidates_with_a_relative_eps_have_the_score_of_their_own_fit(eps):
    X, Y = mirrored_pair()
    aligner = Aligner(rho=[0.1, 1.0], eps=eps, scale=None).fit(X, Y, pairs="rows")
    shares = [0.01] * 2 if eps == "auto" else [0.1, 0.01] * 2
    assert [c.eps.share.item() for c in aligner.validation_] == shares
    for c in aligner.validation_:
        alone = Aligner(rho=c.rho, eps=c.eps, scale=None).fit(X, Y)
        assert c.score == pytest.approx(1 - foscttm(alone.embedding_, Y), abs=1e-6)


def test_default_eps_without_scale_does_not_depend_on_the_units():
    X, Y = mirrored_pair()
    plans = [Aligner(rho=unit**2, scale=None).fit(unit * X, unit * Y).plan_ for unit in (1.0, 1e3)]
    np.testing.assert_allclose(plans[1], plans[0], atol=1e-6)


def test_invalid_arguments_are_refused():
    X, Y = mirrored_pair()
    choice = Aligner(rho=[0.1, 1.0])
    for options, message in (
        ({}, "got neither"),
        ({"pairs": "row"}, "pairs must be"),
        ({"pairs": [0, 1]}, "pairs must be"),
        ({"pairs": [[0.5, 1.0]]}, "pairs must be"),
        ({"pairs": [[0, 0], [99, 1]]}, "up to 23"),
        ({"pairs": [[0, 0], [-1, 1]]}, "up to 23"),
        ({"labels": "stage"}, "AnnData on both sides"),
        ({"labels": [np.arange(24)] * 3}, "must be a pair"),
        ({"labels": (np.arange(3), np.arange(24))}, "labels must have shapes"),
    ):
        with pytest.raises(ugw.InputError, match=message):
            choice.fit(X, Y, **options)
    with pytest.raises(ugw.InputError, match="labels must have shapes"):  # also where there is nothing to choose
        Aligner().fit(X, Y, labels=(np.arange(24), np.arange(3)))
    with pytest.raises(ugw.InputError, match="requires y"):
        Aligner().fit(X)
    with pytest.raises(ugw.InputError, match="scale must be 'max', 'mean' or None, got 'sum'"):
        Aligner(scale="sum").fit(X, Y)
    with pytest.raises(ugw.InputError, match=r"must make a ugw\.Space"):
        Aligner(metric=lambda points: points).fit(X, Y)
    with pytest.raises(ugw.InputError, match="got a batch"):
        Aligner().fit(ugw.Space.from_points(np.stack([X, X])), Y)
    fitted = Aligner().fit(X, Y)
    with pytest.raises(ugw.InputError, match="like the fitted points"):
        fitted.inverse_transform(Y[:, :2])
    with pytest.raises(ugw.InputError, match="fitted one"):
        fitted.transform(ugw.Space.from_points(X[:3]))


# --- nearest neighbors ---


def test_knn_and_hop_distances_equal_their_definitions():
    X, _ = mirrored_pair(40)
    lengths = KNN(k=6)(X).distances
    np.testing.assert_allclose(lengths, ugw.Space.from_knn(X, k=6).metric.dense(), rtol=1e-10)
    hops = KNN(k=6, hops=True)(X).distances
    graph = kneighbors_graph(X, 6, mode="connectivity")
    assert set(np.unique(hops)) <= set(range(40))
    np.testing.assert_array_equal((hops == 1), (graph + graph.T).toarray() > 0)
    other = KNN(k=6, metric="correlation")(X).distances
    assert not np.allclose(other, lengths)
    assert KNN(k=100)(X[:4]).n == 4  # no more neighbors than there are


def test_parts_of_a_graph_are_refused_or_bridged():
    X = np.vstack([mirrored_pair(10)[0], mirrored_pair(10, seed=1)[0] + 100.0])
    with pytest.raises(ugw.InputError, match=r"got 2 components .*take k larger than 4"):
        KNN(k=4)(X)
    distances = KNN(k=4, bridge=True)(X).distances
    inside = max(distances[:10, :10].max(), distances[10:, 10:].max())
    assert (distances[:10, 10:] == inside).all()


def test_invalid_neighbors_and_labels_are_refused():
    X, Y = mirrored_pair()
    for metric in ("foo", 3, np.ones(2), "haversine"):
        assert_refused(KNN(k=3, metric=metric), X, match="KNN metric must be a distance that scikit-learn knows")
    for points in (np.full((5, 2), np.nan), np.ones(5), np.zeros((0, 2)), "abc", None):
        assert_refused(KNN(k=3), points, match="points must")
    for name in ("hops", "bridge"):
        assert_refused(KNN, **{name: "x"}, match=f"KNN {name} must be True or False, got 'x'")
    for labels in (5, np.array(5), [1, 2, 3], 1.5):
        assert_refused(Aligner().fit, X, Y, labels=labels, match="labels must be a pair")
    assert_refused(Aligner(metric=np.ones(3)).fit, X, Y, match="metric must be")
