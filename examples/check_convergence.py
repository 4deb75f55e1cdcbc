"""Checking convergence
====================

A solver always returns a plan. The result reports whether it converged: `status` says how the
solve ended, `message` what to change if it did not converge, and `check()` raises `NotConverged` in
that case. Of the three solves below, only the first converges.
"""

# %%
# Two unrelated random clouds and a small eps: a difficult problem.

import warnings

import matplotlib.pyplot as plt
import numpy as np

import ugw

rng = np.random.default_rng(0)
x, y = ugw.Space.from_points(rng.random((100, 3))), ugw.Space.from_points(rng.random((120, 2)))

# %%
# A solve that did not converge emits a `ConvergenceWarning`. The warnings are collected and printed.

settings = {
    "default options": ("float64", 1e-3, 1000),
    "at most ten steps": ("float64", 1e-3, 10),
    "eps too small for float32": ("float32", 1e-6, 1000),
}
results = {}
for name, (dtype, eps, limit) in settings.items():
    solver = ugw.AlternateMin(max_iter=limit)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        results[name] = ugw.solve(x.to(dtype), y.to(dtype), rho=0.1, eps=eps, solver=solver)
    print(f"{name}: {results[name].status}")
    for warning in caught:
        print(f"    {warning.message}")

# %%
# Call `check()` in code that must not continue with an unconverged plan.

converged = results["default options"].check()
try:
    results["at most ten steps"].check()
except ugw.NotConverged as error:
    print("NotConverged:", str(error)[:60], "...")

# %%
# The summary lists the weighted terms, which sum to the value. The gap is 0 if the two plans of the
# alternating scheme agree.

print(converged.summary())

# %%
# Convergence plots. A straight line on this scale means linear convergence; a flat line means that
# rounding errors prevent further progress. The jump near the end of the first plot is the change
# from float32, which the first steps use, to float64.

figure, axes = plt.subplots(1, 3, figsize=(12, 3.9), layout="constrained", sharey=True)
for axis, (name, result) in zip(axes, results.items(), strict=True):
    ugw.plots.convergence(result, ax=axis)
    axis.set_title(f"{name}: {result.status}", fontsize=11, loc="left")
plt.show()
