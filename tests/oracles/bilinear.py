"""Random bilinear matrices and their entries by definition."""

import torch

from ugw.geometry.bilinear_matrix import BilinearMatrix


def random_matrix(seed=0, batch=2, n=6, m=8, r=3, s=2):
    """A bilinear matrix of random factors."""
    generator = torch.Generator().manual_seed(seed)
    shapes = ((batch, n), (batch, m), (batch, r, s), (batch, n, r), (batch, m, s))
    return BilinearMatrix(*(torch.randn(shape, dtype=torch.float64, generator=generator) for shape in shapes))


def entries(z):
    """All entries of a bilinear matrix by its definition."""
    return z.row[:, :, None] + z.col[:, None, :] + z.left @ z.core @ z.right.mT
