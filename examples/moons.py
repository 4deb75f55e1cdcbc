"""Two moons with outliers
=======================

Two moons are matched to the same moons rotated by a right angle, with a cluster of outliers added.
Only distances within each cloud enter the problem, so the rotation has no effect. Balanced
Gromov–Wasserstein must match the outliers; unbalanced Gromov–Wasserstein can leave them unmatched.
"""

# %%
# A `Space` holds the distances between the points of a cloud and one weight per point. `ugw.solve`
# returns a `Result`.

import matplotlib.pyplot as plt

import ugw

source, target = ugw.datasets.moons_with_outliers(n=150, outliers=20)
x, y = source.space(), target.space()
results = {rho: ugw.solve(x, y, rho=rho, eps=3e-3).check() for rho in (float("inf"), 0.05)}
for rho, result in results.items():
    print(f"rho = {rho}: {result.status}, value {result.value:.4f}, mass {result.mass:.3f}")

# %%
# The area of a dot is the share of its weight that is matched. The plan transfers the colors of the
# first cloud to the second. In the unbalanced result the outliers receive almost no mass, and the
# moons receive the colors of the corresponding moons.

figure, axes = plt.subplots(1, 2, figsize=(9, 5.4), layout="constrained")
far = target.labels == 2
for axis, (rho, result) in zip(axes, results.items(), strict=True):
    ugw.plots.matching(result, source.points, target.points, lines=70, ax=axis)
    received = result.marginals[1][far].sum() / y.weights[far].sum()
    name = "balanced" if rho == float("inf") else f"unbalanced, rho = {rho}"
    axis.set_title(f"{name}: {received:.0%} of the outliers matched", fontsize=12)
plt.show()
