"""The same front door for AnnData: two assays in, shared coordinates, kept mass and transferred labels out.

UGW_DATA=folder python examples/align_anndata.py
"""

from __future__ import annotations

import sys

import anndata
import numpy as np

from ugw import InputError, datasets
from ugw.estimators import KNN, Aligner


def main() -> int:
    """Align gene expression with methylation (scGEM) and carry the stage of each cell across."""
    try:
        first, second = datasets.scgem()
    except InputError as error:
        print(error)
        return 1
    expression, methylation = anndata.AnnData(X=first.points), anndata.AnnData(X=second.points)
    expression.obs["stage"] = np.array(first.names)[first.labels]
    aligner = Aligner(metric=KNN(k=35, metric="correlation", hops=True, bridge=True), use_rep="X")
    aligner.fit(expression, methylation, labels="stage")
    print(methylation)
    right = methylation.obs["ugw_stage"].to_numpy() == np.array(second.names)[second.labels]
    off = 1 - aligner.score(expression, methylation)
    print(f"{right.mean():.0%} of the cells are given their stage; FOSCTTM {off:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
