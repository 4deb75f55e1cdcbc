"""The effect of rho, and how to choose it
=======================================

rho is the penalty for unmatched mass, in units of squared distance: parts whose distortion is well
above rho stay unmatched. If you know which share of your data should be matched,
`ugw.rho_for_mass` returns the corresponding rho.
"""

# %%
# A body with five buds. In the second space each bud lies farther out than the previous one.

import matplotlib.pyplot as plt
import numpy as np

import ugw

rng = np.random.default_rng(0)
shifts = np.array([0.0, 0.15, 0.3, 0.6, 1.0])
directions = np.exp(2j * np.pi * (np.arange(5) / 5 + 0.05))
body = 0.45 * np.sqrt(rng.random(20)) * np.exp(2j * np.pi * rng.random(20))
bud = 0.08 * (rng.normal(size=(5, 5)) + 1j * rng.normal(size=(5, 5)))
first = np.concatenate([body, (0.9 * directions[:, None] + bud).ravel()])
second = np.concatenate([body, ((0.9 + shifts) * directions)[:, None].repeat(5, axis=1).ravel() + bud.ravel()])
part = np.repeat([5, 0, 1, 2, 3, 4], [20, 5, 5, 5, 5, 5])  # 5 is the body
x, y = (ugw.Space.from_points(np.stack([z.real, z.imag], axis=1)) for z in (first, second))
eps = 4e-3

# %%
# An array of rhos is solved as one batch. All items start from the plan of an intermediate rho, which
# is cheaper than the default search for a start.

rhos = np.geomspace(3e-3, 30, 20)
middle = ugw.solve(x, y, rho=0.3, eps=eps).plan
path = ugw.solve(x, y, rho=rhos, eps=eps, init=np.repeat(middle[None], len(rhos), axis=0)).check()
matched_shares = np.stack([45 * path.marginals[1][:, part == k].mean(axis=1) for k in range(6)])

# %%
# `rho_for_mass` returns the rho whose plan has the given share of the mass.

shares = (0.95, 0.85, 0.7)
rhos_of_shares = [ugw.rho_for_mass(x, y, kept=share, eps=eps) for share in shares]
results = [ugw.solve(x, y, rho=rho, eps=eps).check() for rho in rhos_of_shares]
for share, rho, result in zip(shares, rhos_of_shares, results, strict=True):
    print(f"share {share:.0%}: rho = {rho:.3f}, the plan has mass {result.mass:.3f}")

# %%
# Top: the matched share of each part against rho; the dotted line is the total. Bottom: the second
# space for the three given shares; the size of a dot is its matched mass.

colors = [*plt.get_cmap("plasma")(np.linspace(0.0, 0.85, 5)), "0.4"]
names = [f"bud moved by {d:g}" for d in shifts] + ["body"]
figure = plt.figure(figsize=(9, 7), layout="constrained")
upper, lower = figure.subfigures(2, 1, height_ratios=[1.1, 1])
curve = upper.subplots()
for k in (5, 0, 1, 2, 3, 4):
    curve.semilogx(rhos, matched_shares[k], color=colors[k], lw=2.5, label=names[k])
curve.semilogx(rhos, path.mass, color="k", lw=1.5, ls=":", label="total")
curve.set(xlabel="rho", ylabel="matched share", xlim=(rhos[0], rhos[-1]), ylim=(0, 1.1))
curve.legend(frameon=False)
curve.spines[["top", "right"]].set_visible(False)
for axis, share, rho, result in zip(lower.subplots(1, 3), shares, rhos_of_shares, results, strict=True):
    axis.scatter(second.real, second.imag, s=50 * 45 * result.marginals[1], c=[colors[k] for k in part])
    axis.set_title(f"share {share:.0%}: rho = {rho:.2g}", fontsize=12)
    axis.set_aspect("equal")
    axis.axis("off")
plt.show()
