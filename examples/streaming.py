"""Twenty thousand points without a stored plan
============================================

The plan from 20 000 points to 1500 has 30 million entries, and a solver needs dozens of such
matrices. With squared Euclidean distances none of them is stored: costs and plans are recomputed
block by block from a few numbers per point. On a GPU the same method solves problems with a million
points on both sides.
"""

# %%
# Two galaxies with three arms of different lengths. The second is rotated and has a small companion.

import matplotlib.pyplot as plt
import numpy as np

import ugw

rng = np.random.default_rng(0)


def galaxy(n):
    """Points of a disc with three arms, (n, 3), and the index of the arm of each point."""
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
# `ugw.estimate` predicts the memory without running the solver.

print(ugw.estimate(x, y))

# %%
# A large tolerance keeps this example short.

result = ugw.solve(x, y, rho=0.5, eps=0.1, solver=ugw.AlternateMin(tol=1e-2, inner=ugw.Sinkhorn(max_iter=5))).check()
print(result.status, result.path)
print(result.plan)

# %%
# A `LazyPlan` computes marginals, largest entries and products without storing the plan. One product
# transfers the colors of the first galaxy; points that receive little mass are pale.

colors = np.array([[0.0, 0.45, 0.7], [0.9, 0.62, 0.0], [0.0, 0.62, 0.45]])[arm]
received = result.marginals[1] * 1_200
pale = np.clip(received, 0, 1)[:, None]
transferred = np.nan_to_num(np.clip(result.transport(colors.astype("float32")), 0, 1), nan=0.8) * pale + 0.8 * (
    1 - pale
)
print(f"the companion receives {received[1_200:].mean():.0%} of its mass, the galaxy {received[:1_200].mean():.0%}")
figure, axes = plt.subplots(1, 2, figsize=(10, 4.8), layout="constrained", sharex=True, sharey=True)
for axis, points, shade, name in zip(axes, (first, second), (colors, transferred), ("first", "second"), strict=True):
    axis.scatter(points[:, 0], points[:, 1], c=shade, s=30_000 / len(points), lw=0)
    axis.set_title(f"{name} galaxy, {len(points)} points", fontsize=12)
    axis.set_aspect("equal")
    axis.axis("off")
plt.show()
