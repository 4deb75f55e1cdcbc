"""Alignment of co-assays with a missing cell type
===============================================

scGEM and SNARE-seq measure each cell twice, with unrelated features. The assays are aligned without knowing the
correspondence of the rows, by balanced entropic GW as in SCOT and by unbalanced GW: first on all cells, then with one
cell type removed from the second assay, so that a part of the first has no counterpart.
"""

# %%
# `ugw.datasets` reads the data from the folder `UGW_DATA`. If they are missing, it says where to get them.

import matplotlib.pyplot as plt
import numpy as np

import ugw
from ugw.estimators import KNN, Aligner, foscttm, label_transfer_accuracy

NEIGHBORS = {"scgem": 35, "snareseq": 50}
try:
    assays = {name: getattr(ugw.datasets, name)() for name in NEIGHBORS}
except ugw.InputError as missing:
    print(missing)
    assays = {}

# %%
# The recipe of SCOT: cells have unit norm, and distances are numbers of edges in a k-nearest-neighbor graph under
# correlation distance. The unbalanced runs use the same rho for all removed types (chosen on both data sets): a
# low penalty on the assay with the additional type. FOSCTTM: fraction of samples closer than the true match, 0 is
# perfect. 5-NN: label accuracy by the five nearest cells of the second assay. Votes: label accuracy by the mass
# that a cell receives. Kept: matched share of the cells without counterpart.

FIRM, SOFT, BALANCED = 1.0, (0.01, 1.0), float("inf")


def rows(name: str, removed: str | None) -> dict[str, tuple[float, float, float, float]]:
    """FOSCTTM, 5-NN, votes and kept by method, with a cell type removed from the second assay."""
    first, second = assays[name]
    X, Y = (cells.points / np.linalg.norm(cells.points, axis=1, keepdims=True) for cells in (first, second))
    is_present = np.array([first.names[k] != removed for k in first.labels])
    truth, metric = first.labels[is_present], KNN(k=NEIGHBORS[name], metric="correlation", hops=True, bridge=True)
    x, y, scores = metric(X), metric(Y[is_present]), {}
    for method, rho in (("balanced", BALANCED), ("unbalanced", SOFT if removed else FIRM)):
        fit = Aligner(rho=rho, eps=5e-3, solver=ugw.AlternateMin(tol=1e-4)).fit(x, y)
        projected, votes = fit.embedding_[is_present], fit.transfer_labels(first.labels)[0] == truth
        near = label_transfer_accuracy(projected, truth, Y[is_present], truth)
        kept = fit.mass_[0][~is_present].mean() if removed else np.nan
        scores[method] = (foscttm(projected, Y[is_present]), near, votes.mean(), kept)
    return scores


results = {name: {} for name in assays}
for name in assays:
    print(f"\n{name}, k = {NEIGHBORS[name]}, eps = 0.005\nremoved  method       FOSCTTM    5-NN   votes    kept")
    kinds = assays[name][0].names
    results[name] = {removed or "nothing": rows(name, removed) for removed in (None, *kinds)}
    means = {m: np.mean([results[name][k][m] for k in kinds], axis=0) for m in ("balanced", "unbalanced")}
    for removed, by_method in {**results[name], "mean": means}.items():
        for method, row in by_method.items():
            kept = "" if np.isnan(row[3]) else f"{row[3]:>8.2f}"
            print(f"{removed:<8} {method:<12}" + "".join(f"{number:>8.3f}" for number in row[:3]) + kept)

# %%
# Open dots: balanced. Filled dots: unbalanced.

plt.rcParams["figure.constrained_layout.h_pad"] = 0.1
figure, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained", sharex=True)
for axis, name in zip(axes, assays, strict=False):
    kinds = list(results[name])[::-1]
    for method, face in (("balanced", "none"), ("unbalanced", "#0072B2")):
        values = [results[name][removed][method][0] for removed in kinds]
        axis.scatter(values, kinds, s=90, facecolors=face, edgecolors="#0072B2", label=method, zorder=2)
        axis.hlines(kinds, 0, values, color="0.85", zorder=1)
    axis.set_title(f"{name}: cell type removed", fontsize=12)
    axis.set_xlabel("FOSCTTM, 0.5 is chance", fontsize=11)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, loc="upper right")
for axis in axes[len(assays) :]:
    axis.axis("off")
plt.show()
