"""float32 numbers as sums of two that TF32 represents exactly, and the setting for matrix products."""

import pytest
import torch

from ugw._utils.precision import round_to_tf32, split_tf32, tf32_products


def test_two_numbers_of_tf32_are_a_number_of_float32():
    x = torch.randn(1000, generator=torch.Generator().manual_seed(0)) * 2.0 ** torch.arange(-50, 50).repeat(10)
    for part in split_tf32(x):
        assert torch.equal(part, round_to_tf32(part))
        assert not (part.view(torch.int32) & 0x1FFF).any()  # 10 bits of the mantissa
    high, low = split_tf32(x)
    assert float(((high.double() + low.double() - x.double()) / x.double()).abs().max()) <= 2.0**-23


def test_rounding_keeps_nan_and_infinity():
    rounded = round_to_tf32(torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0]))
    assert rounded.isnan().tolist() == [True, False, False, False]
    assert rounded[1:].tolist() == [torch.inf, -torch.inf, 0.0]


@pytest.mark.parametrize("allowed", [False, True])
def test_the_setting_for_products_is_restored(allowed):
    before = torch.backends.cuda.matmul.allow_tf32
    with pytest.raises(ZeroDivisionError), tf32_products(allowed=allowed):
        assert torch.backends.cuda.matmul.allow_tf32 is allowed
        raise ZeroDivisionError
    assert torch.backends.cuda.matmul.allow_tf32 is before
