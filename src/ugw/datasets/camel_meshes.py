"""Ten poses of a galloping camel, as triangle meshes."""

from __future__ import annotations

import os

import numpy as np

from ..errors import InputError
from ..geometry.mesh import Mesh
from .npz_files import check_digest, find_file, load_arrays

# Number of vertices of each pose, and number of faces, which all poses have.
VERTICES = (4999, 5001, 5002, 5001, 5001, 5002, 5001, 5001, 5001, 5000)
FACES = 10000
SHA256 = "b135fd3e492e5637c78047a2026b00c02e09cd74ae6c563ef3feffc93960f9d2"
FILE, FOLDER = "camel_gallop.npz", "shapes"
ORIGIN = (
    "The meshes are those of https://github.com/RobinMagnet/pyFM, examples/data/camel_gallop/camel-gallop-01.off to "
    "-10.off: save them as one .npz with vertices_1, ..., vertices_10 (float32) and faces_1, ..., faces_10 (from 0)"
)


def camels(path: str | os.PathLike[str] | None = None) -> list[Mesh]:
    """Return ten triangle meshes of about 5000 vertices, poses of a galloping camel in the order of time (from pyFM).

    Vertices of different meshes do not correspond. path: camel_gallop.npz or a folder that contains it; None searches
    the folder that the environment variable UGW_DATA names, then the cache folder. Shapes and a checksum are checked.

    >>> poses = camels()  # doctest: +SKIP
    >>> poses[0].vertices.shape, poses[0].space(points=80)  # doctest: +SKIP
    ((4999, 3), Space(n=80, mass=1, float64, points in R^3))
    """
    file_path = find_file(FILE, FOLDER, path, ORIGIN)
    numbers = range(1, len(VERTICES) + 1)
    vertex_names, face_names = [f"vertices_{i}" for i in numbers], [f"faces_{i}" for i in numbers]
    arrays = load_arrays(file_path, [*vertex_names, *face_names])
    shapes = [(n, 3) for n in VERTICES] + [(FACES, 3)] * len(VERTICES)
    for name, shape in zip(arrays, shapes, strict=True):
        kinds, type_name = ("f", "floats") if name in vertex_names else ("iu", "integers")
        array = arrays[name]
        if array.shape != shape or array.dtype.kind not in kinds:
            raise InputError(
                f"{name} must be {type_name} of shape {shape}, got {array.dtype} {array.shape} in {file_path}"
            )
    check_digest(file_path, arrays, SHA256)
    return [
        Mesh(arrays[vertices].astype(np.float64), arrays[faces].astype(np.int64))
        for vertices, faces in zip(vertex_names, face_names, strict=True)
    ]
