"""Input checks: conversion to tensors, refused values and the messages of the errors."""

import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st

from oracles.cases import label
from oracles.errors import assert_refused
from ugw._utils.checks import (
    as_index,
    as_list,
    as_parameter,
    as_path,
    as_tensor,
    check_bool,
    check_choice,
    check_nonnegative,
    check_symmetric,
    check_tolerance,
    check_whole_number,
    check_zero_diagonal,
    describe_value,
)
from ugw.errors import InputError


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_float_arrays_keep_their_dtype_and_memory(dtype):
    array = np.arange(6, dtype=dtype).reshape(2, 3)
    tensor = as_tensor("x", array)
    assert tensor.numpy().dtype == dtype
    assert np.shares_memory(tensor.numpy(), array)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0)[::-1],  # torch does not support negative strides
        np.arange(6.0).astype(">f8"),  # non-native byte order
        np.broadcast_to(np.float64(3.0), 6),  # read-only memory
        np.arange(6.0).reshape(2, 3).T,
        np.arange(6, dtype=np.uint64),
        np.arange(6, dtype=np.int8),
        [0, 1, 2, 3, 4, 5],
        (0.5, 1),
        2,
    ],
)
@pytest.mark.filterwarnings("error")
def test_awkward_arrays_become_float64_tensors_of_equal_value(array):
    tensor = as_tensor("x", array)
    assert tensor.dtype == torch.float64
    assert np.array_equal(tensor.numpy(), np.asarray(array, dtype=np.float64))


def test_integers_too_large_for_exact_floats_are_converted():
    assert as_tensor("x", np.array([2**53 + 1])).item() == 2.0**53
    assert as_tensor("x", torch.tensor([2**62 + 1])).item() == 2.0**62
    assert as_tensor("x", [2**70, 1]).tolist() == [2.0**70, 1.0]


def test_like_gives_its_dtype_to_integers_and_lists_only():
    single = torch.zeros(3)
    for value in ([1.0, 2.0], [1, 2], np.array([1, 2]), torch.tensor([1, 2]), np.array([1, 2], np.float32)):
        assert as_tensor("x", value, like=single).dtype == torch.float32
    for value in (np.array([1.0]), torch.tensor([1.0], dtype=torch.float64)):
        with pytest.raises(InputError, match="x must be float32 like the rest, got float64"):
            as_tensor("x", value, like=single)


def test_tensors_of_another_device_are_refused_and_arrays_follow():
    elsewhere = torch.zeros(3, dtype=torch.float64, device="meta")
    with pytest.raises(InputError, match="x must be on meta like the rest, got cpu"):
        as_tensor("x", torch.zeros(3, dtype=torch.float64), like=elsewhere)
    assert as_tensor("x", np.zeros(3), like=elsewhere).device.type == "meta"


def test_tensors_keep_their_autograd_graph():
    leaf = torch.ones(2, requires_grad=True)
    assert as_tensor("x", leaf) is leaf
    rho = torch.tensor(2.0, requires_grad=True)
    as_parameter("rho", rho).square().backward()
    assert rho.grad.item() == 4.0


NOT_NUMBERS = [
    "text",
    ["1", "2"],
    None,
    [1.0, None],
    True,
    [True, False],
    np.array([True]),
    torch.tensor([True]),
    1j,
    np.array([1j]),
    torch.tensor([1j]),
    np.array([1, 2], dtype=object),
    np.array([1.0], dtype=np.float16),
    np.array([1.0], dtype=np.longdouble),
    torch.tensor([1.0], dtype=torch.float16),
    torch.tensor([1.0], dtype=torch.bfloat16),
    torch.eye(2).to_sparse(),
    [[1.0], [1.0, 2.0]],
    [torch.ones(2), torch.ones(2)],
    np.ma.masked_array([1.0, 2.0], mask=[True, False]),
    np.array(["2020-01-01"], dtype="datetime64[D]"),
    {"a": 1},
    object(),
    [10**400],
]


@pytest.mark.parametrize("value", NOT_NUMBERS, ids=label)
def test_values_other_than_real_numbers_are_refused_in_one_line(value):
    for convert in (as_tensor, as_parameter):
        assert_refused(convert, "x", value, match="^x must")


@given(st.floats(min_value=0, exclude_min=True) | st.integers(1, 2**80))
def test_positive_numbers_pass_unchanged(value):
    parameter = as_parameter("rho", value, allow_inf=True)
    assert parameter.shape == ()
    assert parameter.dtype == torch.float64
    assert parameter.item() == float(value)


@given(st.lists(st.floats(0, 1e300), min_size=1, max_size=4))
def test_nonnegative_arrays_pass_unchanged(values):
    assert as_parameter("eps", np.array(values), allow_zero=True).tolist() == values


@pytest.mark.parametrize("bad", [0, -0.0, -1.0, float("nan"), float("-inf"), np.array([1.0, -2.0]), np.array([np.nan])])
def test_positive_parameter_refuses(bad):
    with pytest.raises(InputError, match=r"rho must be positive \(inf is allowed\), got"):
        as_parameter("rho", bad, allow_inf=True)


def test_parameter_refuses_inf_unless_allowed():
    assert as_parameter("rho", np.inf, allow_inf=True).item() == np.inf
    with pytest.raises(InputError, match="rho must be positive and finite, got inf at index 1"):
        as_parameter("rho", np.array([1.0, np.inf]))


@pytest.mark.parametrize("bad", [-1e-300, float("nan"), float("inf"), np.array([0.0, -1.0])])
def test_nonnegative_parameter_refuses(bad):
    with pytest.raises(InputError, match="eps must be nonnegative and finite, got"):
        as_parameter("eps", bad, allow_zero=True)


@pytest.mark.parametrize("values", [[1.0, math.nan, -1.0], [-1.0, 2.0], [math.nan, -math.inf]], ids=str)
def test_check_nonnegative_finds_negative_entries_also_beside_nan(values):
    with pytest.raises(InputError, match="rho must be nonnegative, got -"):
        check_nonnegative("rho", torch.tensor(values))


@pytest.mark.parametrize("values", [[0.0, -0.0], [math.inf, 1e-300], [math.nan, 1.0]], ids=str)
def test_check_nonnegative_accepts_zeros_infinity_and_nan(values):
    check_nonnegative("rho", torch.tensor(values, dtype=torch.float64))


@pytest.mark.parametrize("bad", [np.array([]), np.array([[1.0]]), np.ones((2, 2))])
def test_parameters_are_scalars_or_one_per_item(bad):
    with pytest.raises(InputError, match=r"expected \(\) or \(B,\)|must have shape \(\) or \(B,\)"):
        as_parameter("eps", bad)


@pytest.mark.parametrize("shape", [(7, 7), (3, 7, 7), (2100, 2100), (3, 1200, 1200)], ids=str)  # one block, and two
def test_check_symmetric_finds_an_asymmetric_entry_in_any_block(shape):
    symmetric = torch.randn(shape, dtype=torch.float64)
    symmetric = symmetric + symmetric.mT
    check_symmetric("D", symmetric)
    n = shape[-1]
    for place in [(0, n - 1), (n - 2, 2)]:
        asymmetric = symmetric.clone()
        asymmetric.view(-1, n, n)[-1][place] += 1e-9
        first = ", ".join(map(str, ([2] if len(shape) == 3 else []) + sorted(place)))
        with pytest.raises(InputError, match=rf"D must be symmetric, got .* at index \({first}\) but"):
            check_symmetric("D", asymmetric)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rounding_relative_to_the_largest_entry_of_each_item_is_accepted(dtype):
    eps = torch.finfo(dtype).eps
    small = torch.tensor([[0.0, 1.0], [1.0 + 4 * eps, 0.0]], dtype=dtype)
    batch = torch.stack([small, small.round() * 1e6])
    check_symmetric("D", batch)
    small = torch.tensor([[0.0, 1.0], [1.0 + 400 * eps, 0.0]], dtype=dtype)
    with pytest.raises(InputError, match=r"at index \(0, 0, 1\)"):
        check_symmetric("D", torch.stack([small, small.round() * 1e6]))


def test_diagonal_is_zero_up_to_rounding():
    check_zero_diagonal("D", torch.tensor([[1e-16, 1.0], [1.0, 0.0]], dtype=torch.float64))
    with pytest.raises(InputError, match=r"D must have a zero diagonal, got 1e-06 at index \(1, 1\)"):
        check_zero_diagonal("D", torch.tensor([[0.0, 1.0], [1.0, 1e-6]], dtype=torch.float64))


@pytest.mark.parametrize("value", [1, 7, 10**30, np.int64(3), np.uint8(1)])
def test_whole_numbers_become_ints(value):
    number = check_whole_number("n", value)
    assert type(number) is int
    assert number == value


@pytest.mark.parametrize("value", [0, -1, 1.0, 2.5, True, False, "3", None, math.nan, [3], np.float64(3.0)])
def test_check_whole_number_refuses_other_values(value):
    assert assert_refused(check_whole_number, "n", value).startswith("n must be a whole number ≥ 1, got ")


def test_check_whole_number_uses_the_given_minimum():
    check_whole_number("n", 0, minimum=0)
    assert "≥ 5" in assert_refused(check_whole_number, "n", 4, minimum=5)


@given(st.floats(min_value=0, max_value=1, exclude_min=True, exclude_max=True))
def test_tolerances_between_0_and_1_pass(value):
    check_tolerance("tol", value)


@pytest.mark.parametrize("value", [np.float32(0.5), Fraction(1, 3)])
def test_tolerances_of_any_real_type_become_floats(value):
    tolerance = check_tolerance("tol", value)
    assert type(tolerance) is float
    assert tolerance == float(value)


@pytest.mark.parametrize("value", [Fraction(1, 10**400), 1 - Fraction(1, 10**20)])
def test_check_tolerance_refuses_numbers_that_are_0_or_1_as_floats(value):
    assert_refused(check_tolerance, "tol", value)


@given(st.one_of(st.floats(max_value=0), st.floats(min_value=1), st.just(math.nan), st.booleans(), st.text()))
def test_check_tolerance_refuses_other_values(value):
    assert assert_refused(check_tolerance, "tol", value).startswith("tol must")


def test_check_tolerance_refuses_integers_beyond_floats():
    assert_refused(check_tolerance, "tol", 10**400)


def test_check_choice_accepts_only_the_allowed_strings():
    check_choice("method", "log", ("log", "stabilized"))
    for value in ("Log", "", None, 0, ["log"], b"log"):
        message = assert_refused(check_choice, "method", value, ("log", "stabilized"))
        assert "'log', 'stabilized'" in message
        assert message.endswith(repr(value))


@pytest.mark.parametrize(
    "value",
    [np.eye(30), torch.eye(30), np.ma.ones((30, 30)), ["a\nb"] * 99, 10**400, torch.eye(3).to_sparse()],
    ids=label,
)
def test_described_values_are_one_short_line(value):
    text = describe_value(value)
    assert "\n" not in text
    assert len(text) <= 110
    if hasattr(value, "shape"):
        assert text.endswith(f"of shape {tuple(value.shape)}")


@pytest.mark.parametrize(
    "check", [check_whole_number, check_tolerance, check_bool, as_path, lambda n, v: check_choice(n, v, ("a",))]
)
def test_checks_refuse_arrays_in_one_line(check):
    for value in (np.full((20, 20), 0.5), torch.full((20, 20), 0.5), np.zeros(0)):
        assert str(tuple(value.shape)) in assert_refused(check, "x", value)
    assert_refused(check, "x", np.eye(2) > 5)


def test_whole_numbers_may_have_a_maximum():
    check_whole_number("k", 3, maximum=3)
    assert assert_refused(check_whole_number, "k", 4, maximum=3).startswith(
        "k must be a whole number from 1 to 3, got 4"
    )


def test_bools_of_numpy_pass_and_other_values_do_not():
    for value in (True, False, np.bool_(True)):
        check_bool("x", value)
    for value in (0, 1, None, "no", [True]):
        assert_refused(check_bool, "x", value)


def test_paths(tmp_path):
    assert as_path("path", str(tmp_path)) == as_path("path", tmp_path) == tmp_path
    for value in (None, 3, "", b"a", ["a"]):
        assert assert_refused(as_path, "path", value, kind="folder").startswith(
            "path must be the path of a folder, got"
        )


def test_lists_are_any_iterables():
    for values in ([1, 2], (1, 2), {1: "a", 2: "b"}, np.array([1, 2]), iter([1, 2])):
        assert as_list("x", values, "a list") == [1, 2]
    for values in (None, 3, "ab", np.array(1.0), scipy.sparse.dia_matrix(np.eye(2))):
        assert assert_refused(as_list, "x", values, "a list").startswith("x must be a list, got ")


CPU = torch.device("cpu")


@pytest.mark.parametrize("index", [[2, -1], (2, 2), np.array([2, 2], np.uint8), np.array([2, 2], np.uint32), np.array([-1, -1], np.int32), torch.tensor([2, 2]),
                                   torch.tensor([2, -1], dtype=torch.int16)], ids=label)  # fmt: skip
def test_indices_of_any_kind_count_from_either_end(index):
    assert as_index("index", index, 3, CPU).tolist() == [2, 2]


def test_indices_may_be_one_number_none_or_a_mask():
    assert as_index("index", -3, 3, CPU).tolist() == as_index("index", np.int64(0), 3, CPU).tolist() == 0
    assert as_index("index", np.zeros(0, int), 3, CPU).tolist() == []
    for mask in ([True, False, True], np.array([True, False, True]), torch.tensor([True, False, True])):
        assert as_index("index", mask, 3, CPU, allow_mask=True).tolist() == [0, 2]
        assert_refused(as_index, "index", mask, 3, CPU)
        assert_refused(as_index, "index", mask, 4, CPU, allow_mask=True)


@pytest.mark.parametrize(
    "index",
    [3, -4, [0, 3], 1.0, [0.0], np.ones(3), torch.ones(3), [[0, 1]], "a", None, [None], True, 10**30, [[0], [1, 2]]],
    ids=label,
)
def test_indices_that_are_none_of_the_items_are_refused(index):
    assert assert_refused(as_index, "index", index, 3, CPU, allow_mask=True).startswith(
        "index must be whole numbers from 0 to 2"
    )
