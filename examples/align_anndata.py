"""Aligning two AnnData objects
============================

Two assays as AnnData: gene expression with a stage for each cell, and methylation of the same cells without labels.
`Aligner.fit` writes shared coordinates, the matched mass of each cell and transferred labels into both objects.
"""

# %%
# `ugw.datasets.scgem` reads the data from the folder `UGW_DATA`. If they are missing, it says where to get them, and
# this example uses synthetic cells along a curve.

import anndata
import matplotlib.pyplot as plt
import numpy as np

import ugw
from ugw.estimators import KNN, Aligner

try:
    first, second = ugw.datasets.scgem()
    points, stages, names = (first.points, second.points), first.labels, first.names
except ugw.InputError as missing:
    print(missing)
    rng = np.random.default_rng(0)
    path = np.sort(rng.random(150))
    bent = np.stack([path, np.sin(3 * path), path**2], axis=1)
    points = [bent @ rng.normal(size=(3, d)) + 0.05 * rng.normal(size=(150, d)) for d in (34, 27)]
    stages, names = np.arange(150) // 30, ("one", "two", "three", "four", "five")

# %%
# `labels` names a column of `obs`. Labels are transferred from the assay that has the column to the other one.

expression, methylation = (anndata.AnnData(X=cells) for cells in points)
expression.obs["stage"] = np.array(names)[stages]
aligner = Aligner(metric=KNN(k=35, metric="correlation", hops=True, bridge=True), use_rep="X")
aligner.fit(expression, methylation, labels="stage")
print(methylation)
correct = methylation.obs["ugw_stage"].to_numpy() == np.array(names)[stages]
print(
    f"{correct.mean():.0%} of the cells get the correct stage; FOSCTTM {1 - aligner.score(expression, methylation):.3f}"
)

# %%
# Both assays in `obsm["X_ugw"]`, first two principal components. Left: given stages. Right: transferred stages.

plt.rcParams["figure.constrained_layout.h_pad"] = 0.1
figure, axes = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained", sharex=True, sharey=True)
shared = np.concatenate([expression.obsm["X_ugw"], methylation.obsm["X_ugw"]])
main = np.linalg.svd(shared - shared.mean(axis=0), full_matrices=False)[2][:2].T
panels = ((expression, "stage", "expression, projected"), (methylation, "ugw_stage", "methylation, transferred labels"))
for axis, (cells, column, title) in zip(axes, panels, strict=True):
    flat = (cells.obsm["X_ugw"] - shared.mean(axis=0)) @ main
    for k, name in enumerate(names):
        members = flat[(cells.obs[column] == name).to_numpy()]
        axis.scatter(*members.T, s=26, color=plt.get_cmap("viridis")(k / 4.2), label=name)
    axis.set_title(title, fontsize=12)
    axis.axis("off")
axes[1].legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=11)
plt.show()
