"""Estimators with scikit-learn's contract: positive-unlabelled learning and alignment. They need scikit-learn."""

try:
    import sklearn  # noqa: F401
except ImportError as error:
    raise ImportError("ugw.estimators needs scikit-learn: pip install 'ugw[estimators]'") from error

from ._shared import KNN, Candidate
from .align import Aligner
from .pu import PUClassifier
from .scores import foscttm, label_transfer_accuracy

__all__ = ["KNN", "Aligner", "Candidate", "PUClassifier", "foscttm", "label_transfer_accuracy"]
