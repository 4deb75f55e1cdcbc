"""Tasks and folds of the positive-unlabeled experiment, and the numbers of the paper.

A task matches backpacks of Caltech, in one kind of features, to the images of a domain, in the same kind or another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..datasets.labeled import Domain
from ..errors import InputError

LETTERS = {"C": "caltech", "A": "amazon", "W": "webcam", "D": "dslr"}
METHODS = ("init", "pgw", "ugw", "ugw-2", "ugw-8")


@dataclass(frozen=True)
class Task:
    """Positives of the domain Caltech in features `source`, unlabeled images of a domain in features `target`.

    source, target: "surf", "decaf" or "mobilenet"; letter: the domain of the unlabeled images, a key of `LETTERS`;
    prior: the fraction of positives among the unlabeled images.

    >>> Task("surf", "decaf", "W", 0.1).name
    'surf-C:decaf-W:0.1'
    """

    source: str
    target: str
    letter: str
    prior: float

    @property
    def name(self) -> str:
        """The name of the task on the command line, such as surf-C:decaf-W:0.1."""
        return f"{self.source}-C:{self.target}-{self.letter}:{self.prior:g}"

    @property
    def file(self) -> str:
        """The name of the file in which `pu.run_all` stores the task's results, such as surf-C_decaf-W_0.1.json."""
        return self.name.replace(":", "_") + ".json"

    @property
    def keys(self) -> tuple[str, str]:
        """The keys of the positives' and the unlabeled images' domains in `office_caltech10`, such as surf_caltech."""
        return f"{self.source}_caltech", f"{self.target}_{LETTERS[self.letter]}"

    @property
    def has_one_space(self) -> bool:
        """Whether positives and unlabeled images have the same kind of features, so are points of one space."""
        return self.source == self.target

    @property
    def published(self) -> dict[str, tuple[float, float]]:
        """The paper's (accuracy, standard deviation) in percent by method; empty for a task that the paper lacks.

        Methods: "init" (initial plans), "pgw", "ugw", "ugw-2" and "ugw-8" (UGW with 2 and 8 parameters in all).
        """
        if self.name not in PUBLISHED:
            return {}
        return dict(zip(METHODS, zip(*PUBLISHED[self.name], strict=True), strict=True))


def _tasks_between(source: str, target: str) -> list[Task]:
    """Return the seven tasks between two kinds of features: four domains with prior 0.1, three with prior 0.2."""
    # DSLR has too few backpacks for the larger prior.
    return [Task(source, target, d, 0.1) for d in "CAWD"] + [Task(source, target, d, 0.2) for d in "CAW"]


# Accuracy and standard deviation for: init, PGW, UGW, UGW with 2 and with 8 parameters (arXiv 2009.04266v3, appendix).
PUBLISHED: Mapping[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "surf-C:surf-C:0.1": ((89.9, 84.9, 83.9, 81.8, 83.9), (2.05, 1.95, 2.93, 2.14, 2.94)),
    "surf-C:surf-A:0.1": ((81.8, 82.2, 83.5, 83.1, 83.3), (1.25, 1.89, 2.14, 2.29, 3.33)),
    "surf-C:surf-W:0.1": ((81.9, 81.3, 80.3, 80.1, 80.4), (1.33, 1.82, 0.73, 0.45, 0.82)),
    "surf-C:surf-D:0.1": ((80.0, 81.4, 83.2, 80.3, 83.2), (0.00, 1.69, 2.63, 0.73, 2.63)),
    "surf-C:surf-C:0.2": ((79.7, 75.7, 75.4, 67.5, 75.4), (2.98, 4.66, 5.07, 2.42, 5.07)),
    "surf-C:surf-A:0.2": ((65.6, 66.0, 76.4, 74.0, 73.0), (2.87, 3.29, 3.59, 2.15, 9.46)),
    "surf-C:surf-W:0.2": ((65.1, 64.3, 67.3, 63.8, 64.9), (1.95, 2.12, 9.22, 1.82, 7.61)),
    "surf-C:decaf-W:0.1": ((86.2, 88.6, 86.8, 87.4, 87.4), (1.89, 5.63, 3.97, 3.62, 3.62)),
    "surf-C:decaf-D:0.1": ((84.7, 91.1, 90.7, 89.3, 89.3), (1.93, 8.09, 7.09, 7.46, 7.46)),
    "surf-C:decaf-W:0.2": ((81.5, 88.4, 89.9, 88.8, 88.8), (2.75, 5.82, 3.33, 3.64, 3.64)),
}
# Tasks on the paper's features, as far as these are public.
TASKS = {task.name: task for target in ("surf", "decaf") for task in _tasks_between("surf", target) if task.published}
# The tasks with other deep features instead of DeCAF; the paper has no numbers for these.
SUBSTITUTES = {
    task.name: task
    for pair in (("mobilenet", "mobilenet"), ("surf", "mobilenet"), ("mobilenet", "surf"))
    for task in _tasks_between(*pair)
}


def parse_tasks(names: str | None) -> list[Task]:
    """Return the tasks of positive-unlabeled learning with these names, separated by commas, in order, each once.

    The name "paper" (or None for all names) stands for the paper's tasks, "substitute" for those with MobileNet
    features instead of DeCAF. Raises InputError for other names.

    >>> [task.prior for task in parse_tasks("surf-C:surf-W:0.1,surf-C:surf-W:0.2")]
    [0.1, 0.2]
    """
    all_tasks = TASKS | SUBSTITUTES
    selected: dict[str, Task] = {}
    for name in map(str.strip, ("paper" if names is None else names).split(",")):
        if name in ("paper", "substitute"):
            selected |= TASKS if name == "paper" else SUBSTITUTES
        elif name in all_tasks:
            selected[name] = all_tasks[name]
        else:
            raise InputError(
                f"got the task {name!r}, expected paper, substitute or FROM:TO:PRIOR, as surf-C:decaf-W:0.1; "
                f"of the paper's: {', '.join(TASKS)}; with mobilenet in the place of decaf any domain"
            )
    return list(selected.values())


@dataclass(frozen=True, eq=False)
class Fold:
    """Positives (n, d), unlabeled points (m, e) in random order, and `truth`, bool (m,): which of them are positive."""

    positives: np.ndarray
    unlabeled: np.ndarray
    truth: np.ndarray


def draw_fold(task: Task, domains: Mapping[str, Domain], *, size: int, seed: int) -> Fold:
    """Return the random draw of a seed: `size` positives, `size` unlabeled images, a bool mask of positives in these.

    Positives are backpacks of the source domain. Unlabeled images are of the target domain; round(prior·size) of them
    are backpacks, none of which is among the positives. Features are `Domain.reduced`, each scaled to [0, 1] over its
    domain. The paper's code draws the same images; their order is random here, so that ties of scores favor no class.
    domains: by key, as from `office_caltech10`.
    """
    from sklearn.model_selection import train_test_split

    source, target = (domains[key] for key in task.keys)
    n_hidden = round(task.prior * size)
    positives, rest = train_test_split(
        _scale_to_unit_box(source)[source.labels == 0], train_size=size, random_state=seed
    )
    points = _scale_to_unit_box(target)
    pool = rest if task.keys[0] == task.keys[1] else points[target.labels == 0]
    backpacks, _ = train_test_split(pool, train_size=n_hidden, random_state=seed)
    others, _ = train_test_split(points[target.labels != 0], train_size=size - n_hidden, random_state=seed)
    order = np.random.default_rng(seed).permutation(size)
    return Fold(positives, np.vstack([backpacks, others])[order], (np.arange(size) < n_hidden)[order])


def _scale_to_unit_box(domain: Domain) -> np.ndarray:
    """Return the reduced features (n, d) of a domain, each scaled to [0, 1] over the n images; 0 if constant."""
    low, high = domain.reduced.min(axis=0), domain.reduced.max(axis=0)
    return (domain.reduced - low) / np.where(high > low, high - low, 1.0)
