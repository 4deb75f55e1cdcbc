"""The effect of eps
=================

eps is the weight of the entropy. With a large eps every point sends mass to many points. With a
small eps the plan is close to a one-to-one matching, but the problem has more local minima and
takes more steps. `ugw.relative` sets eps as a fraction of the mean distortion under the product
plan, so that the same number has the same effect for data in any units.
"""

# %%
# The same spiral twice, points in order; the second is rotated and has some noise.

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import PowerNorm

import ugw

rng = np.random.default_rng(0)
angle = np.linspace(1.0, 9.0, 80)
spiral = np.stack([angle * np.cos(angle), angle * np.sin(angle)], axis=1) / 9
rotated = (spiral + 0.01 * rng.normal(size=spiral.shape)) @ [[0.0, -1.0], [1.0, 0.0]]
x, y = ugw.Space.from_points(spiral), ugw.Space.from_points(rotated)
shares = [1.0, 0.3, 0.1, 0.03, 0.01, 0.001]
results = [ugw.solve(x, y, rho=1.0, eps=ugw.relative(share)).check() for share in shares]

# %%
# The exponential of the entropy of a row is the effective number of points that the row is spread
# over. `ugw.objective(plan, x, y, rho=1.0, eps=0)` evaluates the plans without the entropy term.

for share, result in zip(shares, results, strict=True):
    rows = result.plan / result.plan.sum(axis=1, keepdims=True)
    spread = np.exp(-(rows * np.log(np.maximum(rows, 1e-300))).sum(axis=1)).mean()
    plain = ugw.objective(result.plan, x, y, rho=1.0, eps=0).total
    print(f"{share:6.1%}  spread over {spread:5.1f} points  value without entropy {plain:.5f}")

# %%
# The plans, with rows and columns in the order of the spirals. At 100 % the plan is the product of its
# marginals.

figure, axes = plt.subplots(2, 3, figsize=(9, 6.3), layout="constrained")
for axis, share, result in zip(axes.flat, shares, results, strict=True):
    axis.imshow(result.plan, cmap="Blues", norm=PowerNorm(0.4, vmin=0, vmax=1 / 80))
    axis.set_title(f"eps = {100 * share:g} % of the mean distortion", fontsize=11)
    axis.set(xticks=[], yticks=[])
plt.show()
