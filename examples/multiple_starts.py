"""One start or many
=================

The problem is not convex: a solver finds a local minimum that depends on the initial plan. This
example compares forty random starts with the default initialization.
"""

# %%
# A dog made of seven limbs, standing and lying down. Path lengths along the limbs are the same in both
# poses, so the correct matching has a low value. The limbs are similar, so every exchange of limbs is
# close to a local minimum.

import matplotlib.pyplot as plt
import numpy as np

import ugw


def dog(tail, *legs, head):
    """Ten points along each limb: the body from 0 to 2 and six limbs at its ends, given as complex numbers."""
    limbs = [(0, 2), (0, tail), (0, legs[0]), (0, legs[1]), (2, legs[2]), (2, legs[3]), (2, head)]
    points = np.concatenate([np.linspace(*limb, 10) for limb in limbs])
    return np.stack([points.real, points.imag], axis=1)


standing = dog(-0.8 + 0.7j, 0.1 - 1.1j, -0.4 - 1.2j, 2 - 1.3j, 2.4 - 1.4j, head=3.2 + 0.9j)
lying = dog(-1 - 0.3j, 1 - 0.5j, 0.9 - 0.9j, 3.2 - 0.4j, 3.2 - 0.8j, head=3.0 + 1.1j)
x, y = (ugw.Space.from_knn(points, k=4) for points in (standing, lying))

# %%
# An array of equal rhos makes a batch in which each item has its own start. They are compared with one
# random start, the first lower bound, the default, and `Multistart`, which keeps the best of several
# starts. Of two results for the same problem, the one with the lower value is better.

rng = np.random.default_rng(0)
noise = np.exp(
    3 * rng.normal(size=(40, x.n, 1)) + 3 * rng.normal(size=(40, 1, y.n)) + 3 * rng.normal(size=(40, x.n, y.n))
)
many = ugw.solve(x, y, rho=np.full(40, 1.0), eps=5e-3, init=noise / noise.sum(axis=(1, 2), keepdims=True))
named = {name: ugw.solve(x, y, rho=1.0, eps=5e-3, init=name) for name in ("random", "flb", "auto")}
named["random, n = 6"] = ugw.solve(x, y, rho=1.0, eps=5e-3, init="random", solver=ugw.Multistart(n=6))
print(f"random starts end at {many.value.min():.4f} to {many.value.max():.4f}, {many.converged.mean():.0%} converged")
for name, result in named.items():
    print(f"{name:14s} {result.value:.4f}, better than {(many.value > result.value + 1e-6).mean():.0%} of them")

# %%
# Each bar is a local minimum that corresponds to an exchange of limbs. The plan on the right is also a
# local minimum: no small change improves it.

figure = plt.figure(figsize=(10, 6.4), layout="constrained")
upper, lower = figure.subfigures(2, 1, height_ratios=[1, 1.6])
axis = upper.subplots()
axis.hist(many.value, bins=40, color="0.8")
for (name, result), height in zip(named.items(), (0.35, 0.5, 0.65, 0.8), strict=True):
    axis.annotate(name, (result.value, 0), (10, height), textcoords=("offset points", "axes fraction"), color="#0072B2")
    axis.plot(result.value, height, "<", color="#0072B2", ms=9, transform=axis.get_xaxis_transform())
axis.set(xlabel="final value", ylabel="random starts")
axis.spines[["top", "right"]].set_visible(False)
panels = {"auto": named["auto"], "worst random start": many[int(many.value.argmax())]}
for axis, (name, result) in zip(lower.subplots(1, 2), panels.items(), strict=True):
    ugw.plots.matching(result, standing, lying, lines=70, ax=axis)
    axis.set_title(f"{name}: {result.value:.4f}", fontsize=12)
plt.show()
