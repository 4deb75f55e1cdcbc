"""Points with class labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..geometry.space import Space


@dataclass(frozen=True, eq=False)
class Labeled:
    """Points with class labels. points: (n, d); labels: (n,) integers, the class of each point as index of `names`.

    >>> import numpy as np
    >>> Labeled(np.zeros((3, 2)), np.array([0, 1, 1]), ("ellipse", "square")).counts
    {'ellipse': 1, 'square': 2}
    """

    points: np.ndarray
    labels: np.ndarray
    names: tuple[str, ...]

    @property
    def counts(self) -> dict[str, int]:
        """The number of points of each class, 0 for a class without points, by the name of the class."""
        sizes = np.bincount(self.labels, minlength=len(self.names))
        return dict(zip(self.names, sizes.tolist(), strict=True))

    def space(self) -> Space:
        """Return the space of the points with Euclidean distances and weights 1/n."""
        return Space.from_points(self.points)


@dataclass(frozen=True, eq=False)
class Domain(Labeled):
    """Images of a domain: features `points` (n, d), classes, and `reduced` (n, k), the paper's reduced features.

    >>> import numpy as np
    >>> Domain(np.zeros((4, 2)), np.zeros(4, int), ("mug",), reduced=np.zeros((4, 1))).reduced.shape
    (4, 1)
    """

    reduced: np.ndarray
