"""Reading a result honestly
=========================

A plan is always returned. Whether to believe it is another question, and a result answers it:
`status` says how the solve ended, `message` what to do about it, `check()` raises unless it
converged. Three solves, one of them good.
"""

# %%
# Two clouds without anything in common, and a small eps: not an easy problem.

import warnings

import matplotlib.pyplot as plt
import numpy as np

import ugw

rng = np.random.default_rng(0)
x, y = ugw.Space.from_points(rng.random((100, 3))), ugw.Space.from_points(rng.random((120, 2)))

# %%
# A solve that did not converge warns. The warnings are collected here; the good result is silent.

tries = {
    "the default": ("float64", 1e-3, 1000),
    "ten steps only": ("float64", 1e-3, 10),
    "an eps that float32 cannot resolve": ("float32", 1e-6, 1000),
}
results = {}
for name, (dtype, eps, limit) in tries.items():
    solver = ugw.AlternateMin(max_iter=limit)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        results[name] = ugw.solve(x.to(dtype), y.to(dtype), rho=0.1, eps=eps, solver=solver)
    print(f"{name}: {results[name].status}")
    for warning in said:
        print(f"    {warning.message}")

# %%
# `check()` is for code that must not go on with a bad plan.

good = results["the default"].check()
try:
    results["ten steps only"].check()
except ugw.NotConverged as error:
    print("refused:", str(error)[:60], "...")

# %%
# What the value is made of. The terms are weighted and sum to the value; the gap says whether the
# alternation ended with one plan or with two.

print(good.summary())

# %%
# The histories. A straight line on this scale is linear convergence; a flat one is rounding, or a
# limit. The jump near the end of the first is the change from float32, which serves for most steps,
# to float64 for the last.

figure, axes = plt.subplots(1, 3, figsize=(12, 3.9), layout="constrained", sharey=True)
for axis, (name, result) in zip(axes, results.items(), strict=True):
    ugw.plots.convergence(result, ax=axis)
    axis.set_title(f"{name}: {result.status}", fontsize=11, loc="left")
plt.show()
