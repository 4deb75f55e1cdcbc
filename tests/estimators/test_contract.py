"""scikit-learn's own checks of both estimators, and clones, pickles, pipelines and grid searches of them."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from oracles.estimators import mirrored_pair, pu_data
from ugw.estimators import KNN, Aligner, PUClassifier

ESTIMATORS = [PUClassifier(prior=0.3), Aligner()]
# Checks that cannot apply, with the reason. Both estimators are numpy-only, so that with SCIPY_ARRAY_API set (it is
# not by default, and scikit-learn then skips the check itself) arrays of other libraries are converted, not kept.
CANNOT_APPLY = {"check_array_api_input": "array API inputs become NumPy arrays"}


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=lambda _: CANNOT_APPLY)
def test_the_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", [*ESTIMATORS, Aligner(metric=KNN(k=5, bridge=True), rho=[0.1, 1.0], eps=[0.01])])
def test_clones_and_pickles_are_the_same(estimator):
    X, y = mirrored_pair() if isinstance(estimator, Aligner) else pu_data(24, 12)
    options = {"pairs": "rows"} if isinstance(estimator.rho, list) else {}
    fitted = clone(estimator).fit(X, y, **options)
    again = clone(fitted).fit(X, y, **options)
    back = pickle.loads(pickle.dumps(fitted))
    for other in (again, back):
        for name in ("transform", "predict", "decision_function"):
            if hasattr(fitted, name):
                np.testing.assert_array_equal(getattr(other, name)(X), getattr(fitted, name)(X))


def test_pipelines_and_searches():
    X, y = pu_data(24, 12)
    pipe = make_pipeline(StandardScaler(), PUClassifier(prior=0.3))
    search = GridSearchCV(pipe, {"puclassifier__rho": [0.01, 0.1]}, cv=StratifiedKFold(2, shuffle=True, random_state=0))
    assert search.fit(X, y).predict(X).shape == y.shape
    assert 0.0 <= search.score(X, y) <= 1.0
    X, Y = mirrored_pair()
    pipe = make_pipeline(StandardScaler(with_std=False), Aligner())
    search = GridSearchCV(pipe, {"aligner__eps": [0.05, 0.002]}, cv=KFold(2, shuffle=True, random_state=0))
    assert search.fit(X, Y).best_params_ == {"aligner__eps": 0.002}
    assert search.best_estimator_.score(X, Y) > 0.99
    assert list(pipe.fit(X, Y).get_feature_names_out()) == ["aligner0", "aligner1", "aligner2"]
    frame = Aligner().set_output(transform="pandas").fit_transform(pd.DataFrame(X, columns=list("uvw")), Y)
    assert list(frame.columns) == ["aligner0", "aligner1", "aligner2"]
    assert pipe.inverse_transform(Y).shape == X.shape
