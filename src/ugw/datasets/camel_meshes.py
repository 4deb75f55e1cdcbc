"""Ten poses of a galloping camel, as triangle meshes.

The file is read where it lies; nothing is downloaded and nothing is unpickled.
"""

from __future__ import annotations

import os

import numpy as np

from ..errors import InputError
from ..geometry.mesh import Mesh
from ._measured import check_digest, find, load

# Vertices of each pose; all have so many faces.
VERTICES = (4999, 5001, 5002, 5001, 5001, 5002, 5001, 5001, 5001, 5000)
FACES = 10000
SHA256 = "b135fd3e492e5637c78047a2026b00c02e09cd74ae6c563ef3feffc93960f9d2"
FILE, FOLDER = "camel_gallop.npz", "shapes"
ORIGIN = (
    "The meshes are those of https://github.com/RobinMagnet/pyFM, examples/data/camel_gallop/camel-gallop-01.off to "
    "-10.off: save them as one .npz with vertices_1, ..., vertices_10 (float32) and faces_1, ..., faces_10 (from 0)"
)


def read(path: str | os.PathLike[str] | None) -> list[Mesh]:
    """The poses in the order of time, checked. path: the file, or a folder that has it."""
    found = find(FILE, FOLDER, path, ORIGIN)
    numbers = range(1, len(VERTICES) + 1)
    places, corners = [f"vertices_{i}" for i in numbers], [f"faces_{i}" for i in numbers]
    arrays = load(found, [*places, *corners])
    shapes = [(n, 3) for n in VERTICES] + [(FACES, 3)] * len(VERTICES)
    for name, shape in zip(arrays, shapes, strict=True):
        kinds, what = ("f", "floats") if name in places else ("iu", "integers")
        got = arrays[name]
        if got.shape != shape or got.dtype.kind not in kinds:
            raise InputError(f"{name} must be {what} of shape {shape}, got {got.dtype} {got.shape} in {found}")
    check_digest(found, arrays, places, SHA256, corners)
    return [
        Mesh(arrays[place].astype(np.float64), arrays[corner].astype(np.int64))
        for place, corner in zip(places, corners, strict=True)
    ]
