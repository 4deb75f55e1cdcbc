"""Finding a part in a whole
=========================

A template is located in a larger scene. All mass of the template must be matched; the scene may be
matched in part. This is the semi-relaxed problem: one penalty per side, `rho=(inf, small)`.
"""

# %%
# The template is the letter F. The scene contains it, rotated and with noise, between other letters.

import matplotlib.pyplot as plt
import numpy as np

import ugw

rng = np.random.default_rng(0)


def strokes(*ends):
    """Points along straight strokes, four per unit of length; each stroke is given by its two ends."""
    pairs = zip(ends[::2], ends[1::2], strict=True)
    return np.concatenate([np.linspace(a, b, int(4 * np.linalg.norm(np.subtract(b, a))) + 1) for a, b in pairs])


letters = {
    "F": strokes((0, 0), (0, 5), (0, 5), (3, 5), (0, 2.7), (2, 2.7)),
    "X": strokes((0, 0), (3, 5), (0, 5), (3, 0)),
    "O": strokes((0, 0), (3, 0), (3, 0), (3, 5), (3, 5), (0, 5), (0, 5), (0, 0)),
}
rotation = np.array([[0.6, 0.8], [-0.8, 0.6]])
scene_letters = {"O": letters["O"], "F": letters["F"] @ rotation + [9, 1], "X": letters["X"] + [14, 0]}
scene = np.concatenate([part + 0.05 * rng.normal(size=part.shape) for part in scene_letters.values()])
name = np.repeat(list(scene_letters), [len(part) for part in scene_letters.values()])

# %%
# Every point has the same weight, so the scene has more mass than the template. The second rho is
# the penalty for unmatched mass of the scene.

template = ugw.Space.from_points(letters["F"])
whole = ugw.Space.from_points(scene, weights=np.full(len(scene), 1 / template.n))
result = ugw.solve(template, whole, rho=(float("inf"), 0.2), eps=0.05).check()
print(f"{result.status}: value {result.value:.4f}, mass {result.mass:.3f}")
for letter in scene_letters:
    print(f"{letter} receives {result.marginals[1][name == letter].sum():.0%} of the template")

# %%
# The plan transfers the colors of the template. The size of a dot is the mass that it receives;
# circles show the whole scene.

colors = plt.get_cmap("turbo")(0.9 * (letters["F"] @ [1.0, 1.0]) / 8)[:, :3]
figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", width_ratios=[1, 3.2])
axes[0].scatter(*letters["F"].T, c=colors, s=45)
axes[0].set_title("the template", fontsize=12)
axes[1].scatter(*scene.T, facecolors="none", edgecolors="0.75", s=45)
received = result.marginals[1] * template.n
axes[1].scatter(*scene.T, c=np.clip(result.transport(colors), 0, 1), s=45 * np.clip(received, 0, 2))
axes[1].set_title("the scene", fontsize=12)
for axis in axes:
    axis.set_aspect("equal")
    axis.axis("off")
plt.show()
