"""Office-Caltech10: ten classes of objects in four domains, with SURF, DeCAF6 and MobileNet features."""

from __future__ import annotations

import os
from collections.abc import Iterable

from ..errors import InputError
from .labeled import Domain
from .npz_files import find_file, load_labeled_arrays

CLASSES = (
    "backpack", "bike", "calculator", "headphones", "keyboard", "laptop", "monitor", "mouse", "mug", "projector",
)  # fmt: skip
# Images of each class in each domain.
COUNTS = {
    "caltech": (151, 110, 100, 138, 85, 128, 133, 94, 87, 97),
    "amazon": (92, 82, 94, 99, 100, 100, 99, 100, 94, 98),
    "webcam": (29, 21, 31, 27, 27, 30, 43, 30, 27, 30),
    "dslr": (12, 21, 12, 13, 10, 24, 22, 12, 8, 23),
}
# Number of features in the file, and of reduced features.
WIDTHS = {"surf": (800, 10), "decaf": (4096, 40), "mobilenet": (1024, 40)}
SHA256 = {
    ("surf", "caltech"): "249b97f240651b087a4617ae65d696873535f75b3d8f4ce66f35cdeb3f2d0cb9",
    ("surf", "amazon"): "1dc23ec418a0529124e5f8e0c8a527c14928e040ba411d2babb9bff0c4f06cb1",
    ("surf", "webcam"): "b14a629b008e0ca43583147653d7cdee1e6c2a3e2855199ffee08694518cfeca",
    ("surf", "dslr"): "a2e91c687bc4b4e54c89b5812be4459aa839e04b4cb571cfa79c6b7ff90be5aa",
    ("decaf", "webcam"): "385caa3e0a044367937df59f04147bf77d5587828bb678ba66fdfe8af416cb42",
    ("decaf", "dslr"): "ac1b95d81b4725dd231a6b1930fa8fdaa58bfae94ee3a5045a5cb7d9faa6b6c4",
    ("mobilenet", "caltech"): "8318c27e00b981fe3aac97e29e796334898c08b21939c5585eb21a926cc6a991",
    ("mobilenet", "amazon"): "44d51def5d70038d04f6a99ecbcda146b058200fcac89c50367a13e129f3c947",
    ("mobilenet", "webcam"): "fa09444f9bf28ff3341668fe1e3b6ee2bb41b77adc90a61d7036c7e7f13df0f1",
    ("mobilenet", "dslr"): "03ac9b572445647deccef13f2b676585ce00134aa178a4fb12b54e896f327d37",
}
FOLDER = "office_caltech10"
ORIGIN = (
    "SURF histograms and DeCAF6 features are those of https://github.com/jindongwang/transferlearning, "
    "code/traditional/: save each domain as one .npz with X (images × features; SURF z-scored), pca_ref (images × 10 "
    "or 40, the reduced features that docs/pu.md describes) and y, the class of each image from 1. MobileNet features "
    "are not the paper's but ours, of the same images"
)


def office_caltech10(
    path: str | os.PathLike[str] | None = None, *, keys: Iterable[str] | None = None
) -> dict[str, Domain]:
    """Return the image features and classes of Office-Caltech10 (Gong et al. 2012), a `Domain` for each key.

    Keys are surf_caltech, surf_amazon, surf_webcam, surf_dslr (SURF, R⁸⁰⁰), decaf_webcam, decaf_dslr (DeCAF6, R⁴⁰⁹⁶),
    and mobilenet_caltech, ..., mobilenet_dslr (R¹⁰²⁴), which the paper on UGW does not have. Class 0 is "backpack".
    `reduced` has 10 coordinates for SURF, 40 for the others; docs/pu.md describes how they are made.
    path: a folder with the files; None searches the folder $UGW_DATA, then the cache folder. Shapes, counts and
    checksums are checked. keys: the domains to read, all for None.

    >>> domains = office_caltech10()  # doctest: +SKIP
    >>> domains["surf_dslr"].reduced.shape, domains["surf_dslr"].counts["backpack"]  # doctest: +SKIP
    ((157, 10), 12)
    """
    all_keys = [f"{features}_{domain}" for features, domain in SHA256]
    return {key: _read_domain(key, path, all_keys) for key in (all_keys if keys is None else keys)}


def _read_domain(key: str, path: str | os.PathLike[str] | None, all_keys: list[str]) -> Domain:
    """Return images of a domain by a key such as "surf_dslr": features, classes, reduced features.

    Raises InputError if the key is not in `all_keys`, or the file is missing or has other contents. path: the folder
    with the files; None searches the folder $UGW_DATA, then the cache folder.
    """
    if key not in all_keys:
        raise InputError(f"the features of a domain must be one of {', '.join(all_keys)}, got {key}")
    features, _, domain = key.partition("_")
    file_path = find_file(f"{key}.npz", FOLDER, path, ORIGIN)
    n, (wide, narrow) = sum(COUNTS[domain]), WIDTHS[features]
    shapes = {"X": (n, wide), "pca_ref": (n, narrow)}
    points, reduced, labels = load_labeled_arrays(file_path, shapes, COUNTS[domain], SHA256[features, domain])
    return Domain(points, labels, CLASSES, reduced=reduced)
