"""Two single-cell assays without a common feature
===============================================

Gene expression and methylation of the same 177 cells (scGEM), at five stages of reprogramming. The
assays share no features, and the correspondence of the rows is unknown; only the distances within
each assay can be compared. One stage is removed from the second assay: balanced matching must
assign its cells to other stages.
"""

# %%
# `ugw.datasets.scgem` reads the data from the folder `UGW_DATA`. If they are missing, it says where to
# get them, and this example uses synthetic cells: five stages along a curve, in 34 and 27 dimensions.

import matplotlib.pyplot as plt
import numpy as np

import ugw
from ugw.estimators import KNN, Aligner

try:
    first, second = ugw.datasets.scgem()
except ugw.InputError as missing:
    print(missing)
    rng = np.random.default_rng(0)
    path = np.sort(rng.random(177))
    bent = np.stack([path, np.sin(3 * path), path**2], axis=1)
    noisy = [bent @ rng.normal(size=(3, d)) + 0.05 * rng.normal(size=(177, d)) for d in (34, 27)]
    names = ("BJ", "d8", "d16T+", "d24T+", "iPSc")
    first, second = (ugw.datasets.Labeled(points, np.arange(177) // 36, names) for points in noisy)
print(first.counts)

# %%
# Distances are numbers of edges in a k-nearest-neighbor graph under correlation distance. The penalty
# for unmatched mass is low for the first assay and high for the second.

is_present = second.labels != second.names.index("iPSc")
metric = KNN(k=35, metric="correlation", hops=True, bridge=True)
X, Y = (cells.points / np.linalg.norm(cells.points, axis=1, keepdims=True) for cells in (first, second))
fits = {}
for name, rho in (("balanced", float("inf")), ("unbalanced", (0.01, 1.0))):
    fits[name] = Aligner(metric=metric, rho=rho, eps=5e-3).fit(X, Y[is_present])
    predicted, _ = fits[name].transfer_labels(first.labels)
    accuracy, matched_share = np.mean(predicted == second.labels[is_present]), fits[name].mass_[0][~is_present].mean()
    print(f"{name:10s}  {accuracy:.0%} get the correct stage; the removed stage keeps {matched_share:.0%} of its mass")

# %%
# Both assays in the coordinates of the second, first two principal components. Crosses are cells of the
# first assay, projected by the plan; their size is the matched mass. Black crosses belong to the stage
# that the second assay lacks.

figure, axes = plt.subplots(1, 2, figsize=(11, 4.8), layout="constrained", sharex=True, sharey=True)
center = Y[is_present].mean(axis=0)
main = np.linalg.svd(Y[is_present] - center, full_matrices=False)[2][:2].T
colors = np.array(["#0072B2", "#56B4E9", "#009E73", "#E69F00", "black"])
for axis, (name, fit) in zip(axes, fits.items(), strict=True):
    axis.scatter(*((Y[is_present] - center) @ main).T, c=colors[second.labels[is_present]], s=35, alpha=0.35, lw=0)
    order, size = np.argsort(is_present, kind="stable"), 45 * np.clip(fit.mass_[0], 0.02, 2)
    projected = ((fit.embedding_ - center) @ main)[order]
    axis.scatter(*projected.T, c=colors[first.labels][order], s=size[order], marker="x", lw=1.3)
    axis.set_title(name, fontsize=12)
    axis.axis("off")
for label, color in zip(first.names, colors, strict=True):
    axes[1].scatter([], [], c=color, label=label)
axes[1].legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()
