"""A flat sheet and a rolled sheet
===============================

Bending a surface does not change shortest paths on it. A flat sheet and a rolled sheet are nearly
isometric, although no rotation maps one to the other. The rolled sheet lacks a corner: unbalanced
matching leaves that corner of the flat sheet unmatched.
"""

# %%
# `Space.from_mesh` computes shortest paths along the edges of a triangle mesh.

import matplotlib.pyplot as plt
import numpy as np
from mpl_toolkits.mplot3d.art3d import Poly3DCollection
from scipy.spatial import Delaunay

import ugw

rng = np.random.default_rng(0)
u, v = (axis.ravel() for axis in np.meshgrid(np.linspace(0, 4, 21), np.linspace(0, 2, 11)))
sheet = np.stack([u, v], axis=1) + rng.uniform(-0.03, 0.03, size=(u.size, 2))
present = ~((sheet[:, 0] > 2.7) & (sheet[:, 1] > 1.1))  # the rolled sheet lacks this corner
angle = (np.sqrt(0.3**2 + 0.16 * sheet[present, 0]) - 0.3) / 0.08  # equal lengths along a spiral
radius = 0.3 + 0.08 * angle
rolled = np.stack([radius * np.cos(angle), sheet[present, 1], radius * np.sin(angle)], axis=1)


def triangles(flat):
    """Delaunay faces of flat points, without long triangles that would cover the missing corner."""
    faces = Delaunay(flat).simplices
    sides = flat[faces] - np.roll(flat[faces], 1, axis=1)
    return faces[(sides**2).sum(axis=2).max(axis=1) < 0.25]


surfaces = [(np.pad(sheet, ((0, 0), (0, 1))), triangles(sheet)), (rolled, triangles(sheet[present]))]
x, y = (ugw.Space.from_mesh(*surface, weights=np.full(len(surface[0]), 1 / len(sheet))) for surface in surfaces)

# %%
# All vertices have the same weight, so the flat sheet has more mass. Euclidean distances would not
# work here: under them the two shapes are far from isometric.

result = ugw.solve(x, y, rho=0.02, eps=5e-4).check()
matched = result.marginals[0] * len(sheet)
print(f"the corner keeps {matched[~present].mean():.0%} of its weight, the rest {matched[present].mean():.0%}")

# %%
# Colors vary along the flat sheet and fade to white where vertices are unmatched. The plan transfers
# them to the rolled sheet.

hue = plt.get_cmap("turbo")(0.1 + 0.8 * sheet[:, 0] / 4)[:, :3] * (0.6 + 0.4 * sheet[:, 1:] / 2)
surface_colors = (
    hue * np.clip(matched, 0, 1)[:, None] + 1 - np.clip(matched, 0, 1)[:, None],
    result.transport(hue),
)
figure, axes = plt.subplots(1, 2, figsize=(10, 4.6), layout="constrained", subplot_kw={"projection": "3d"})
for axis, (vertices, faces), colors in zip(axes, surfaces, surface_colors, strict=True):
    shade = np.clip(colors[faces].mean(axis=1), 0, 1)
    axis.add_collection3d(Poly3DCollection(vertices[faces], facecolors=shade, edgecolors="0.85", linewidths=0.4))
    axis.auto_scale_xyz(*vertices.T)
    axis.set_box_aspect(np.ptp(vertices, axis=0) + 0.01, zoom=1.4)
    axis.axis("off")
axes[0].view_init(elev=60, azim=-90)
axes[1].view_init(elev=20, azim=-70)
axes[0].set_title("flat sheet; white is unmatched", fontsize=12)
axes[1].set_title("rolled sheet, without a corner", fontsize=12)
plt.show()
