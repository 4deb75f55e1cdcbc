"""Small data in the shape of the positive-unlabeled experiment's."""

import numpy as np
import pytest

from ugw import datasets


@pytest.fixture(scope="module")
def domains():
    """Domains of the shape of the real ones: a row's first coordinate is a number of its own."""
    by_name = {}
    for k, (name, width) in enumerate(
        {"surf_caltech": 3, "surf_amazon": 3, "decaf_webcam": 5, "decaf_caltech": 5}.items()
    ):
        rng = np.random.default_rng(k)
        labels = np.repeat(np.arange(3), (45, 40, 40))
        points = rng.normal(size=(125, width)) * (0.2 + labels[:, None])
        points[:, 0] = rng.permutation(125)
        by_name[name] = datasets.Domain(points, labels, ("backpack", "bike", "mug"), reduced=points)
    return by_name
