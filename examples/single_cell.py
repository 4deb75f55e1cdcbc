"""Two assays of the same cells, and a cell type that one of them lacks
====================================================================

scGEM and SNARE-seq measure each cell twice, in features that have nothing in common. The assays are aligned without
knowing which row belongs to which, by balanced entropic GW as SCOT does it, and with unbalanced marginals; first on all
cells, then with one cell type taken out of the second assay, so that a part of the first has no counterpart.
"""

# %%
# `ugw.datasets` looks for the data in the folder `UGW_DATA`. Where they are not, it says where to get them.

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
# SCOT's recipe: cells are points of unit norm, their distance counts edges of a graph of nearest neighbors by
# correlation. Unbalanced, one setting serves for all, chosen with both data sets in view: the assay that has more
# than the other may leave cells behind, at a low price. FOSCTTM: fraction of samples closer than the true match, 0 is
# perfect. 5-NN: cells of the first assay whose five nearest of the second have their type. Votes: cells of the second
# that are sent the right type. Kept: weight that the cells without counterpart keep.

FIRM, SOFT, BALANCED = 1.0, (0.01, 1.0), float("inf")


def rows(name: str, removed: str | None) -> dict[str, tuple[float, float, float, float]]:
    """FOSCTTM, 5-NN, votes and kept by method, with a cell type removed from the second assay."""
    first, second = assays[name]
    X, Y = (cells.points / np.linalg.norm(cells.points, axis=1, keepdims=True) for cells in (first, second))
    there = np.array([first.names[k] != removed for k in first.labels])
    truth, metric = first.labels[there], KNN(k=NEIGHBORS[name], metric="correlation", hops=True, bridge=True)
    x, y, made = metric(X), metric(Y[there]), {}
    for method, rho in (("balanced", BALANCED), ("unbalanced", SOFT if removed else FIRM)):
        fit = Aligner(rho=rho, eps=5e-3, solver=ugw.AlternateMin(tol=1e-4)).fit(x, y)
        projected, votes = fit.embedding_[there], fit.transfer_labels(first.labels)[0] == truth
        near = label_transfer_accuracy(projected, truth, Y[there], truth)
        kept = fit.mass_[0][~there].mean() if removed else np.nan
        made[method] = (foscttm(projected, Y[there]), near, votes.mean(), kept)
    return made


found = {name: {} for name in assays}
for name in assays:
    print(f"\n{name}, k = {NEIGHBORS[name]}, eps = 0.005\nremoved  method       FOSCTTM    5-NN   votes    kept")
    kinds = assays[name][0].names
    found[name] = {removed or "nothing": rows(name, removed) for removed in (None, *kinds)}
    means = {method: np.mean([found[name][k][method] for k in kinds], axis=0) for method in ("balanced", "unbalanced")}
    for removed, both in {**found[name], "mean": means}.items():
        for method, row in both.items():
            kept = "" if np.isnan(row[3]) else f"{row[3]:>8.2f}"
            print(f"{removed:<8} {method:<12}" + "".join(f"{number:>8.3f}" for number in row[:3]) + kept)

# %%
# What unbalanced matching gains: the distance from an open dot to a full one.

plt.rcParams["figure.constrained_layout.h_pad"] = 0.1
figure, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained", sharex=True)
for axis, name in zip(axes, assays, strict=False):
    kinds = list(found[name])[::-1]
    for method, face in (("balanced", "none"), ("unbalanced", "#0072B2")):
        values = [found[name][removed][method][0] for removed in kinds]
        axis.scatter(values, kinds, s=90, facecolors=face, edgecolors="#0072B2", label=method, zorder=2)
        axis.hlines(kinds, 0, values, color="0.85", zorder=1)
    axis.set_title(f"{name}: cell type removed", fontsize=12)
    axis.set_xlabel("FOSCTTM, 0.5 is chance", fontsize=11)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, loc="upper right")
for axis in axes[len(assays) :]:
    axis.axis("off")
plt.show()
