"""Graphs with a missing part
==========================

Two planar graphs differ in two places: the second has only half of the cluster, and its long
branch ends in a small circle that the first does not have. Distances are shortest paths. The plan
transfers the colors of the first graph to the second.
"""

# %%
# `Space.from_graph` accepts a networkx graph or a sparse adjacency matrix; `LabeledGraph.space` calls it.

import matplotlib.pyplot as plt

import ugw

source, target = ugw.datasets.planar_graphs(n=160)
x, y = source.space(), target.space()
results = {
    "balanced GW": ugw.solve(x, y, rho=float("inf"), eps=5e-3).check(),
    "unbalanced, rho = 0.05": ugw.solve(x, y, rho=0.05, eps=5e-3).check(),
    "partial, mass 0.8": ugw.solve(x, y, rho=ugw.Mass(0.8)).check(),
}

# %%
# The size of a node is the mass that it receives, relative to its weight. With KL (bottom left) the
# circle keeps a part of its mass. Partial matching (bottom right) matches most nodes fully or not at
# all; unmatched nodes are pale.

circle = target.labels == target.names.index("small circle")
colors = source.labels / source.labels.max() + 0.3 * ugw.plots.layout(source.graph)[:, 0]
figure, axes = plt.subplots(2, 2, figsize=(9, 8), layout="constrained")
ugw.plots.colored_graph(source.graph, colors, ax=axes[0, 0])
axes[0, 0].set_title("the first graph", fontsize=12)
for axis, (name, result) in zip(axes.flat[1:], results.items(), strict=True):
    ugw.plots.color_transfer(result, colors, target.graph, ax=axis)
    received = result.marginals[1][circle].sum() / circle.mean()
    axis.set_title(f"{name}\nsmall circle: {received:.0%} matched", fontsize=12)
plt.show()
