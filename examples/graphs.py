"""Graphs with a missing part
==========================

Two planar graphs are alike, but for two things: the second has lost half of its cluster, and its
long branch ends in a small circle that the first does not have. Distances are shortest paths. The
colors of the first graph are carried over to the second by the plan.
"""

# %%
# `Space.from_graph` takes a networkx graph or a sparse adjacency; `LabeledGraph.space` calls it.

import matplotlib.pyplot as plt

import ugw

source, target = ugw.datasets.planar_graphs(n=160)
x, y = source.space(), target.space()
results = {
    "balanced GW": ugw.solve(x, y, rho=float("inf"), eps=5e-3).check(),
    "unbalanced, rho = 0.05": ugw.solve(x, y, rho=0.05, eps=5e-3).check(),
    "partial: what fits, in full": ugw.solve(x, y, rho=ugw.Mass(0.8)).check(),
}

# %%
# A node is as large as the mass that it receives over its weight. KL, in the middle, thins out the
# circle. Partial matching, right, decides node by node: what is left behind is pale.

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
