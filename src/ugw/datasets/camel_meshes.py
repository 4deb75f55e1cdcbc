"""Ten poses of a galloping camel, as triangle meshes."""

from __future__ import annotations

import os

import numpy as np

from ..errors import InputError
from ..geometry.mesh import Mesh
from ._measured import check_digest, find_file, load_arrays

# Number of vertices of each pose, and number of faces of all.
VERTICES = (4999, 5001, 5002, 5001, 5001, 5002, 5001, 5001, 5001, 5000)
FACES = 10000
SHA256 = "b135fd3e492e5637c78047a2026b00c02e09cd74ae6c563ef3feffc93960f9d2"
FILE, FOLDER = "camel_gallop.npz", "shapes"
ORIGIN = (
    "The meshes are those of https://github.com/RobinMagnet/pyFM, examples/data/camel_gallop/camel-gallop-01.off to "
    "-10.off: save them as one .npz with vertices_1, ..., vertices_10 (float32) and faces_1, ..., faces_10 (from 0)"
)


def read(path: str | os.PathLike[str] | None) -> list[Mesh]:
    """Return the poses in the order of time. path: the file, or a folder that has it."""
    file_path = find_file(FILE, FOLDER, path, ORIGIN)
    numbers = range(1, len(VERTICES) + 1)
    vertex_names, face_names = [f"vertices_{i}" for i in numbers], [f"faces_{i}" for i in numbers]
    arrays = load_arrays(file_path, [*vertex_names, *face_names])
    shapes = [(n, 3) for n in VERTICES] + [(FACES, 3)] * len(VERTICES)
    for name, shape in zip(arrays, shapes, strict=True):
        kinds, what = ("f", "floats") if name in vertex_names else ("iu", "integers")
        array = arrays[name]
        if array.shape != shape or array.dtype.kind not in kinds:
            raise InputError(f"{name} must be {what} of shape {shape}, got {array.dtype} {array.shape} in {file_path}")
    check_digest(file_path, arrays, vertex_names, SHA256, face_names)
    return [
        Mesh(arrays[vertices].astype(np.float64), arrays[faces].astype(np.int64))
        for vertices, faces in zip(vertex_names, face_names, strict=True)
    ]
