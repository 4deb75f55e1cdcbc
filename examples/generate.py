"""A generator learns in R³ what a data set in R² looks like, from distances alone.

No point of one space is ever compared with a point of the other. Run it: python examples/generate.py [folder], under a
minute on two cores. It writes generate.png.
"""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch

import ugw


def arms(n: int, generator: torch.Generator) -> torch.Tensor:
    """Samples of three arms of different lengths, in R²."""
    ends = torch.tensor([[2.0, 0.0], [-0.5, 1.2], [-0.4, -0.7]])
    share = torch.tensor([2.0, 1.3, 0.8])
    chosen = torch.multinomial(share, n, replacement=True, generator=generator)
    along = torch.rand(n, 1, generator=generator) * ends[chosen]
    return along + 0.05 * torch.randn(n, 2, generator=generator)


def main(folder: str = ".", steps: int = 320, size: int = 100) -> float:
    """Train, draw, and give the debiased loss on fresh samples of both."""
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Linear(2, 64), torch.nn.SiLU(), torch.nn.Linear(64, 64), torch.nn.SiLU(), torch.nn.Linear(64, 3)
    )
    solver = ugw.AlternateMin(tol=1e-4)
    loss = ugw.UGWLoss(rho=2.0, eps=0.01, debiased=True, init="last", solver=solver)
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    latent, data = torch.rand(size, 2, generator=generator), arms(size, generator)
    for _ in range(steps):
        optimiser.zero_grad()
        value = loss(network(latent), data)
        value.backward()
        optimiser.step()
        schedule.step()
    with torch.no_grad():
        data, made = arms(400, generator), network(torch.rand(400, 2, generator=generator))
        end = ugw.debiased(made, data, rho=2.0, eps=0.01, solver=solver)
    draw(Path(folder) / "generate.png", data, made, end.cross.plan)
    return float(end.value)


def draw(path: Path, data: torch.Tensor, made: torch.Tensor, plan: torch.Tensor) -> None:
    """Both samples; a generated point has the colour of the data that the plan sends it to."""
    figure = plt.figure(figsize=(8.4, 3.9), layout="constrained")
    flat, deep = figure.add_subplot(1, 2, 1), figure.add_subplot(1, 2, 2, projection="3d")
    hue = torch.atan2(data[:, 1], data[:, 0] + 0.3)
    flat.scatter(*data.T, c=hue, s=12, cmap="turbo")
    flat.set_aspect("equal")
    flat.set_title("data in R²", size=10)
    # Where the generated points lie in R³ means nothing: they are turned so that the data's plane comes first.
    made, data = made - made.mean(0), data - data.mean(0)
    left, _, right = torch.linalg.svd(made.T @ plan @ data)
    turned = made @ left
    turned[:, :2] = turned[:, :2] @ right
    deep.scatter(*turned.T, c=hue[plan.argmax(1)], s=12, cmap="turbo")
    deep.set_title("what the generator makes in R³", size=10)
    deep.set_box_aspect((3.0, 2.2, 0.7), zoom=1.35)
    deep.set_zlim(-0.5, 0.5)
    deep.set_zticks([-0.5, 0.5])
    deep.view_init(elev=60, azim=-80)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    print(main(*sys.argv[1:2]))
