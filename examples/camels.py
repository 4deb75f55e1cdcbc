"""Ten poses of a camel, and their distances
=========================================

Ten meshes of a galloping camel. `ugw.pairwise` computes the conic distance of each pair without knowing which vertices
correspond or when a pose was recorded. Multidimensional scaling of the distances recovers the cycle of the gallop.
"""

# %%
# `ugw.datasets.camels` reads the data from the folder `UGW_DATA`. If they are missing, it says where to get them. Each
# pose is reduced to 80 vertices by farthest-point sampling, with shortest paths along edges and weights proportional to
# area. With 100 points the result is clearer; with 60 or 70 the sampling error hides the order.

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
# All poses have the same unit, the longest path of any pose. Between poses most paths change by a few percent of it, so
# `rho` is the square of a tenth of it: points whose paths differ by more than a tenth stay unmatched. The start
# "coarse" is nearly as good as the default, and much faster.

spaces = [pose.space(points=POINTS) for pose in poses]
longest = max((float(space.distances.max()) for space in spaces), default=1.0)
quick = {"method": ugw.Method("cgw", init="coarse"), "solver": ugw.AlternateMin(tol=1e-3)}
distances = ugw.pairwise(spaces, rho=(0.1 * longest) ** 2, **quick).check().distances / longest if poses else None

# %%
# Two samples of one pose have a positive distance: sampling adds about the same constant to all squared distances.
# Classical scaling is not affected, as such a constant does not change its axes.

plane, angular_order, frames = np.ones((0, 2)), (), np.arange(len(poses))
steps_between = np.abs(frames[:, None] - frames)
steps_between = np.minimum(steps_between, len(poses) - steps_between)  # number of steps between two poses, cyclic
if poses:
    center, pairs = np.eye(len(poses)) - 1 / len(poses), np.triu_indices(len(poses), 1)
    sizes, axes = np.linalg.eigh(-center @ distances**2 @ center / 2)
    plane = axes[:, :-3:-1] * np.sqrt(sizes[:-3:-1])
    plane *= np.sign(plane[[0, 2], [0, 1]]) * [-1, 1] / np.abs(plane).max()  # fix the signs: pose 1 left, pose 3 top
    angular_order = np.argsort(-np.arctan2(plane[:, 1], plane[:, 0]))
    nearest = np.where(steps_between > 0, distances, np.inf).argmin(axis=1)
    print("clockwise:", *(np.roll(angular_order, -int(angular_order.argmin())) + 1))
    print(f"the nearest pose is the one before or after: {(steps_between[frames, nearest] == 1).sum()} of {len(poses)}")
    print(f"rank correlation of distance and steps apart: {spearmanr(distances[pairs], steps_between[pairs])[0]:.2f}")

# %%
# Dots are the poses, connected in temporal order. The meshes are drawn around them in angular order.

figure, (left, right) = plt.subplots(1, 2, figsize=(13, 6), layout="constrained", width_ratios=[1.55, 1])
left.fill(*plane.T, facecolor="0.95", edgecolor="0.7")
for position, k in enumerate(angular_order):
    angle = 2 * np.pi * ((position + 0.5) / len(angular_order) - 0.5)
    ring = 2.1 * np.array([np.cos(angle), -0.8 * np.sin(angle)])
    corners = (poses[k].vertices - poses[k].vertices.mean(axis=0))[poses[k].faces]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    light = np.abs(normals @ [[0.8], [0.55], [0.25]]) / np.linalg.norm(normals, axis=1, keepdims=True)
    order, color = np.argsort(corners[:, :, 0].mean(axis=1)), np.array(plt.colormaps["hsv"](k / len(poses))[:3])
    shades, polygons = np.clip(0.1 + 0.5 * light + 0.3 * color, 0, 1)[order], (ring + corners[:, :, [2, 1]])[order]
    left.add_collection(PolyCollection(polygons, facecolors=shades, edgecolors=shades, linewidths=0.2))
    left.plot(*np.stack([plane[k], 0.75 * ring]).T, color="0.8", zorder=0)
    left.scatter(*plane[k], s=260, color=0.3 + 0.6 * color, zorder=2)
    left.text(*plane[k], str(k + 1), ha="center", va="center", fontsize=11)
left.axis("off")
left.set_aspect("equal")
if poses:
    image = right.imshow(np.where(steps_between > 0, distances, np.nan), extent=(0.5, 10.5, 10.5, 0.5))
    figure.colorbar(image, ax=right, shrink=0.7, label="conic distance, in longest paths")
right.set(xticks=frames + 1, yticks=frames + 1, xlabel="pose", ylabel="pose")
plt.show()
