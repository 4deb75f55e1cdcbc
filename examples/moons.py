"""Two moons with outliers
=======================

Two moons are matched to two moons that were turned by a right angle and have a cluster of outliers
beside them. Only distances within each cloud count, so the turn does not matter. The outliers do:
balanced Gromov–Wasserstein has to match them, unbalanced Gromov–Wasserstein may leave them behind.
"""

# %%
# Each cloud becomes a *space*: distances between its points, and a weight for each. The solver
# returns a *result*.

import matplotlib.pyplot as plt

import ugw

source, target = ugw.datasets.moons_with_outliers(n=150, outliers=20)
x, y = source.space(), target.space()
results = {rho: ugw.solve(x, y, rho=rho, eps=3e-3).check() for rho in (float("inf"), 0.05)}
for rho, result in results.items():
    print(f"rho = {rho}: {result}")

# %%
# The area of a dot is the share of its weight that is matched. Colors run along the first moons
# and are carried over by the plan. Unbalanced, the outliers nearly vanish, and the moons get the
# colors of the moons, turned.

figure, axes = plt.subplots(1, 2, figsize=(9, 5.4), layout="constrained")
far = target.labels == 2
for axis, (rho, result) in zip(axes, results.items(), strict=True):
    ugw.plots.matching(result, source.points, target.points, lines=70, ax=axis)
    received = result.marginals[1][far].sum() / y.weights[far].sum()
    name = "balanced" if rho == float("inf") else f"unbalanced, rho = {rho}"
    axis.set_title(f"{name}: {received:.0%} of the outliers matched", fontsize=12)
plt.show()
