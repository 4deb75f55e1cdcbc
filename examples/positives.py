"""Some positives, and a heap of unlabeled points
===============================================

Positive-unlabeled learning: a few points are known to be of the wanted kind, the rest may be
anything. The positives are matched into the unlabeled set, and what receives most mass is called
positive. Between two different feature spaces this still works: only distances within each are
compared.
"""

# %%
# The wanted kind is a spiral; the heap has a spiral too, and as much clutter again. The heap lives
# in R³.

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
clutter = rng.normal([1.5, 1.5, 1.2], 0.35, size=(80, 3))
heap = np.concatenate([np.pad(spiral(80), ((0, 0), (0, 1))), clutter]) @ tilt
truth = np.repeat([1, 0], 80)

# %%
# `prior` is the share of positives in the heap. In one feature space `fit(X, y)` does; across two,
# `fit_spaces`. The default start compares how central points are, and takes the clutter for the
# spiral. `init="best"` tries many; that it did better can be read off the objective, without any
# labels.

for init in ("auto", "best"):
    pu = PUClassifier(prior=0.5, rho=0.05, eps=5e-3, scale=None, init=init).fit_spaces(positives, heap)
    print(f"{init}: value {pu.result_.value:.4f}, {np.mean(pu.labels_ == truth):.0%} of the heap labeled rightly")

# %%
# Left: what is known. Middle: the heap as it is given. Right: the scores, and rings around what is
# called positive.

flat = heap @ tilt.T
figure, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
axes[0].scatter(*positives.T, color="#0072B2", s=22)
axes[0].set_title("known positives, R²", fontsize=12)
axes[1].scatter(flat[:, 0], flat[:, 1], color="0.6", s=22)
axes[1].set_title("the heap, R³, seen from above", fontsize=12)
axes[2].scatter(flat[:, 0], flat[:, 1], c=pu.scores_, cmap="viridis", s=22)
called = flat[pu.labels_ == 1]
axes[2].scatter(called[:, 0], called[:, 1], facecolors="none", edgecolors="#D55E00", s=60, lw=0.8)
axes[2].set_title(f"{np.mean(pu.labels_ == truth):.0%} labeled rightly", fontsize=12)
for axis in axes:
    axis.set_aspect("equal")
    axis.axis("off")
plt.show()
