"""Positive-unlabeled learning across two feature spaces
=====================================================

In positive-unlabeled learning some points are known to be positive and the others are unlabeled. The
positives are matched to the unlabeled set, and the points that receive most mass are classified as
positive. The two sets may have different features: only distances within each are compared.
"""

# %%
# The positives form a spiral in R². The unlabeled set in R³ contains a spiral and as many negative
# points.

import matplotlib.pyplot as plt
import numpy as np

from ugw.estimators import PUClassifier

rng = np.random.default_rng(0)


def spiral(n):
    """Points of a flat spiral, (n, 2)."""
    angle = np.sqrt(rng.uniform(1, 60, size=n))
    return 0.13 * angle[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1) + 0.02 * rng.normal(size=(n, 2))


positives = spiral(80)
tilt = np.linalg.qr(rng.normal(size=(3, 3)))[0]
negatives = rng.normal([1.5, 1.5, 1.2], 0.35, size=(80, 3))
unlabeled = np.concatenate([np.pad(spiral(80), ((0, 0), (0, 1))), negatives]) @ tilt
truth = np.repeat([1, 0], 80)

# %%
# `prior` is the share of positives in the unlabeled set. Use `fit(X, y)` in one feature space and
# `fit_spaces` across two. The default start compares eccentricities and confuses the negatives with
# the spiral. `init="best"` compares more starts; its lower objective shows, without labels, that it
# found a better solution.

for init in ("auto", "best"):
    pu = PUClassifier(prior=0.5, rho=0.05, eps=5e-3, scale=None, init=init).fit_spaces(positives, unlabeled)
    print(f"{init}: value {pu.result_.value:.4f}, accuracy on the unlabeled set {np.mean(pu.labels_ == truth):.0%}")

# %%
# Left: the known positives. Middle: the unlabeled set. Right: the scores; rings mark the points
# classified as positive.

flat = unlabeled @ tilt.T
figure, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
axes[0].scatter(*positives.T, color="#0072B2", s=22)
axes[0].set_title("known positives, R²", fontsize=12)
axes[1].scatter(flat[:, 0], flat[:, 1], color="0.6", s=22)
axes[1].set_title("unlabeled points, R³, top view", fontsize=12)
axes[2].scatter(flat[:, 0], flat[:, 1], c=pu.scores_, cmap="viridis", s=22)
predicted = flat[pu.labels_ == 1]
axes[2].scatter(predicted[:, 0], predicted[:, 1], facecolors="none", edgecolors="#D55E00", s=60, lw=0.8)
axes[2].set_title(f"{np.mean(pu.labels_ == truth):.0%} classified correctly", fontsize=12)
for axis in axes:
    axis.set_aspect("equal")
    axis.axis("off")
plt.show()
