"""Small tasks of the positive-unlabeled experiment, for the data of experiments/conftest.py."""

from ugw.experiments import pu
from ugw.experiments.pu_tasks import Task

SMALL = pu.Protocol(size=20, folds=2, log_rhos=(-5, -8))
SAME, CROSS = Task("surf", "surf", "A", 0.1), Task("surf", "decaf", "W", 0.1)
