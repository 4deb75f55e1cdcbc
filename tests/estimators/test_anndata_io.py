"""AnnData as input and output of an Aligner."""

import warnings

import anndata
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.neighbors import kneighbors_graph

import ugw
from oracles.estimators import mirrored_pair
from ugw.estimators import KNN, Aligner


def make_anndata(points, labels=None, **obsm):
    data = anndata.AnnData(X=points)
    if labels is not None:
        data.obs["cell_type"] = labels
    for name, value in obsm.items():
        data.obsm[name] = value
    return data


def test_anndata_representations_are_read_and_results_are_written():
    X, Y = mirrored_pair(30)
    names = np.array(["a", "b", "c"])[np.arange(30) % 3]
    one, two = make_anndata(np.zeros((30, 1)), names, X_pca=X), make_anndata(Y)
    metric = KNN(k=8)
    aligner = Aligner(metric=metric, eps=2e-3).fit(one, two, labels="cell_type")
    plain = Aligner(metric=metric, eps=2e-3).fit(X, Y)
    np.testing.assert_allclose(aligner.plan_, plain.plan_, atol=1e-12)
    np.testing.assert_array_equal(one.obsm["X_ugw"], aligner.embedding_)
    np.testing.assert_array_equal(two.obsm["X_ugw"], Y)
    np.testing.assert_allclose(one.obs["ugw_mass"], aligner.mass_[0])
    np.testing.assert_allclose(two.obs["ugw_mass"], aligner.mass_[1])
    assert two.obs["ugw_cell_type"].tolist() == plain.transfer_labels(names)[0].tolist()
    assert "ugw_cell_type" not in one.obs
    np.testing.assert_array_equal(aligner.transform(one), aligner.embedding_)
    assert aligner.score(one, two) == pytest.approx(plain.score(X, Y))


def test_anndata_distances_are_reused():
    X, Y = mirrored_pair(30)
    one, two = make_anndata(X), make_anndata(scipy.sparse.csr_matrix(Y))
    default = Aligner(eps=5e-3).fit(one, two).plan_
    np.testing.assert_allclose(default, Aligner(metric="knn", eps=5e-3).fit(X, Y).plan_, atol=1e-12)
    for data, points in ((one, X), (two, Y)):
        data.obsp["distances"] = kneighbors_graph(points, 6, mode="distance")
    reused = Aligner(eps=5e-3).fit(one, two).plan_
    np.testing.assert_allclose(reused, Aligner(metric=KNN(k=6), eps=5e-3).fit(X, Y).plan_, atol=1e-12)
    assert not np.allclose(reused, default)
    euclidean = Aligner(metric="euclidean", eps=5e-3).fit(one, two).plan_
    np.testing.assert_allclose(euclidean, Aligner(eps=5e-3).fit(X, Y).plan_, atol=1e-12)


def test_anndata_labels_select_parameters_and_missing_keys_are_named():
    X, Y = mirrored_pair(30)
    names = np.arange(30) // 10
    one, two = make_anndata(X, names, X_other=X[:, :2]), make_anndata(Y, names)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        aligner = Aligner(eps=[0.1, 5e-3]).fit(one, two, labels="cell_type")
    assert len(aligner.validation_) == 2
    assert one.obs["ugw_cell_type"].shape == two.obs["ugw_cell_type"].shape
    assert Aligner(use_rep="X_other").fit(one, make_anndata(Y, X_other=Y)).n_features_in_ == 2
    for use_rep, message in (("X_umap", "obsm has 'X_other'"),):
        with pytest.raises(ugw.InputError, match=message):
            Aligner(use_rep=use_rep).fit(one, two)
    pair = make_anndata(X), make_anndata(Y)
    with pytest.raises(ugw.InputError, match="column of obs"):
        Aligner().fit(*pair, labels="nonsense")
    assert not any([*data.obs.columns, *data.obsm] for data in pair)  # refused before anything is written
    chosen = Aligner(eps=[0.1, 5e-3]).fit(*pair, labels=(names, names))
    assert chosen.eps_ == 5e-3
    assert "ugw_mass" in pair[0].obs


def test_cells_without_a_type_transfer_no_label():
    X, Y = mirrored_pair(30)
    kinds = pd.Categorical(np.where(np.arange(30) < 20, np.array(["a", "b"])[np.arange(30) % 2], None))
    one, two = make_anndata(X, kinds), make_anndata(Y)
    Aligner(metric="euclidean", eps=1e-3).fit(one, two, labels="cell_type")
    assert set(two.obs["ugw_cell_type"]) == {"a", "b"}
    assert (two.obs["ugw_cell_type"].to_numpy()[:20] == kinds[:20]).all()
