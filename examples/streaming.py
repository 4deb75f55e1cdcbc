"""Twenty thousand points, and no plan in memory
=============================================

The plan from 20 000 points to 1500 has 30 million entries, and a solver needs dozens of such
matrices. Between squared Euclidean distances none is ever stored: costs and plans are made anew,
block by block, from a few numbers per point. On a GPU the same goes up to a million points on both
sides.
"""

# %%
# Two galaxies with three arms of different lengths. The second is seen from elsewhere, and has a
# companion beside it.

import matplotlib.pyplot as plt
import numpy as np

import ugw

rng = np.random.default_rng(0)


def galaxy(n):
    """Points of a disc with three arms, and which arm each belongs to."""
    arm = rng.choice(3, size=n, p=[0.5, 0.3, 0.2])
    radius = np.sqrt(rng.random(n)) * np.array([1.6, 1.1, 0.8])[arm]
    angle = 2.2 * radius + 2 * np.pi * arm / 3 + 0.2 * rng.normal(size=n)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle), 0.04 * rng.normal(size=n)], axis=1), arm


tilt = np.linalg.qr(rng.normal(size=(3, 3)))[0]
first, arm = galaxy(20_000)
second = np.concatenate([galaxy(1_200)[0], rng.normal([1.9, 1.7, 0.0], 0.15, size=(300, 3))])
x = ugw.Space.from_points(first, metric="sqeuclidean").to("float32")
y = ugw.Space.from_points(second @ tilt, weights=np.full(1_500, 1 / 1_200), metric="sqeuclidean").to("float32")

# %%
# What will it need? `ugw.estimate` answers before anything runs.

print(ugw.estimate(x, y))

# %%
# A loose tolerance keeps this page quick.

result = ugw.solve(x, y, rho=0.5, eps=0.1, solver=ugw.AlternateMin(tol=1e-2, inner=ugw.Sinkhorn(max_iter=5))).check()
print(result, result.path)
print(result.plan)

# %%
# A lazy plan answers what one asks a plan: its marginals, its largest entries, products. The
# colors of the first galaxy are carried over by one such product; what receives little is pale.

colors = np.array([[0.0, 0.45, 0.7], [0.9, 0.62, 0.0], [0.0, 0.62, 0.45]])[arm]
received = result.marginals[1] * 1_200
pale = np.clip(received, 0, 1)[:, None]
moved = np.nan_to_num(np.clip(result.transport(colors.astype("float32")), 0, 1), nan=0.8) * pale + 0.8 * (1 - pale)
print(f"the companion receives {received[1_200:].mean():.0%} of its weight, the galaxy {received[:1_200].mean():.0%}")
figure, axes = plt.subplots(1, 2, figsize=(10, 4.8), layout="constrained", sharex=True, sharey=True)
for axis, points, shade, name in zip(axes, (first, second), (colors, moved), ("first", "second"), strict=True):
    axis.scatter(points[:, 0], points[:, 1], c=shade, s=30_000 / len(points), lw=0)
    axis.set_title(f"the {name}, {len(points)} points", fontsize=12)
    axis.set_aspect("equal")
    axis.axis("off")
plt.show()
