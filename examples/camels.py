"""Ten poses of a camel, and their distances
=========================================

Ten meshes of a galloping camel, each with vertices of its own. `ugw.pairwise` measures the conic distance of each pair:
no vertex of a pose is known to be a vertex of another, and no pose knows its time. Two axes that are made of these
distances alone show the gallop: it goes around and closes.
"""

# %%
# `ugw.datasets.camels` looks for the data in the folder `UGW_DATA`. Where they are not, it says where to get them. Of a
# pose 80 vertices are kept, far from each other, with shortest paths along edges and shares of the area. All pairs take
# 25 s on one core. 100 points take a third more for a clearer picture; with 60 or 70 sampling hides the order.

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.collections import PolyCollection
from scipy.stats import spearmanr

import ugw

POINTS = 80
try:
    poses = ugw.datasets.camels()
except ugw.InputError as missing:
    print(missing)
    poses = []

# %%
# One scale for all, the longest path of any pose: one that stretches shall be longer. From pose to pose most paths
# change by a few per cent of it, so `rho` is small, a tenth of it squared: where paths differ by more than a tenth, it
# is cheaper to leave a point than to match it. The start "coarse" is nearly as good as the default, and much quicker.

spaces = [pose.space(points=POINTS) for pose in poses]
longest = max((float(space.metric.dense().max()) for space in spaces), default=1.0)
quick = {"method": ugw.Method("cgw", init="coarse"), "solver": ugw.AlternateMin(tol=1e-3)}
distances = ugw.pairwise(spaces, rho=(0.1 * longest) ** 2, **quick).check().distances / longest if poses else None

# %%
# Two samples of one pose are not at 0 from each other: sampling adds about the same to all squared distances. Classical
# scaling does not see it, as a constant there leaves its axes what they are.

plane, turn, frames = np.ones((0, 2)), (), np.arange(len(poses))
apart = np.abs(frames[:, None] - frames)
apart = np.minimum(apart, len(poses) - apart)  # in steps of a gallop that begins anew
if poses:
    center, pairs = np.eye(len(poses)) - 1 / len(poses), np.triu_indices(len(poses), 1)
    sizes, axes = np.linalg.eigh(-center @ distances**2 @ center / 2)
    plane = axes[:, :-3:-1] * np.sqrt(sizes[:-3:-1])
    plane *= np.sign(plane[[0, 2], [0, 1]]) * [-1, 1] / np.abs(plane).max()  # the first on the left, the third above
    turn = np.argsort(-np.arctan2(plane[:, 1], plane[:, 0]))
    nearest = np.where(apart > 0, distances, np.inf).argmin(axis=1)
    print("clockwise:", *(np.roll(turn, -int(turn.argmin())) + 1))
    print(f"the nearest pose is the one before or after: {(apart[frames, nearest] == 1).sum()} of {len(poses)}")
    print(f"rank correlation of distance and steps apart: {spearmanr(distances[pairs], apart[pairs])[0]:.2f}")

# %%
# Dots are the poses, joined in the order of time. The camels stand around in the order of their dots.

figure, (left, right) = plt.subplots(1, 2, figsize=(13, 6), layout="constrained", width_ratios=[1.55, 1])
left.fill(*plane.T, facecolor="0.95", edgecolor="0.7")
for place, k in enumerate(turn):
    way = 2 * np.pi * ((place + 0.5) / len(turn) - 0.5)
    ring = 2.1 * np.array([np.cos(way), -0.8 * np.sin(way)])
    corners = (poses[k].vertices - poses[k].vertices.mean(axis=0))[poses[k].faces]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    light = np.abs(normals @ [[0.8], [0.55], [0.25]]) / np.linalg.norm(normals, axis=1, keepdims=True)
    order, color = np.argsort(corners[:, :, 0].mean(axis=1)), np.array(plt.colormaps["hsv"](k / len(poses))[:3])
    shades, seen = np.clip(0.1 + 0.5 * light + 0.3 * color, 0, 1)[order], (ring + corners[:, :, [2, 1]])[order]
    left.add_collection(PolyCollection(seen, facecolors=shades, edgecolors=shades, linewidths=0.2))
    left.plot(*np.stack([plane[k], 0.75 * ring]).T, color="0.8", zorder=0)
    left.scatter(*plane[k], s=260, color=0.3 + 0.6 * color, zorder=2)
    left.text(*plane[k], str(k + 1), ha="center", va="center", fontsize=11)
left.axis("off")
left.set_aspect("equal")
if poses:
    image = right.imshow(np.where(apart > 0, distances, np.nan), extent=(0.5, 10.5, 10.5, 0.5))
    figure.colorbar(image, ax=right, shrink=0.7, label="conic distance, in longest paths")
right.set(xticks=frames + 1, yticks=frames + 1, xlabel="pose", ylabel="pose")
plt.show()
