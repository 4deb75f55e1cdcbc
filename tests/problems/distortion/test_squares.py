"""The mean distortion of the product plan for the loss t²."""

import torch

from ugw.geometry.metric import DenseMetric
from ugw.problems.distortion.squares import SquaredDistortion


def test_a_mean_that_is_only_rounding_is_zero():
    flat = DenseMetric(0.7 * (1.0 - torch.eye(1, dtype=torch.float64)))
    zero = torch.zeros(1, 1, dtype=torch.float64)
    assert SquaredDistortion(flat, flat).product_mean(zero, zero).item() == 0.0
