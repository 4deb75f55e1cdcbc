"""Estimators with scikit-learn's contract: positive-unlabeled learning and alignment. They need scikit-learn.

>>> import numpy as np, ugw
>>> points = np.random.default_rng(0).random((20, 3))
>>> ugw.estimators.Aligner(rho=1.0).fit(points, points[:, :2]).transform(points).shape
(20, 2)
"""

try:
    import sklearn  # noqa: F401
except ImportError as error:
    raise ImportError("ugw.estimators needs scikit-learn: pip install 'ugw[estimators]'") from error

from ._common import KNN, Candidate
from .align import Aligner
from .pu import PUClassifier
from .scores import foscttm, label_transfer_accuracy

__all__ = ["KNN", "Aligner", "Candidate", "PUClassifier", "foscttm", "label_transfer_accuracy"]
