"""Records of tensors: selection, replacement and copies of items."""

from dataclasses import dataclass
from functools import cached_property

import pytest
import torch
from torch import Tensor

from ugw._utils import pytree as _batch
from ugw._utils.pytree import BatchRecord, clone, put_, take


@dataclass(frozen=True, eq=False)
class Inner(BatchRecord):
    matrix: Tensor
    pair: tuple[Tensor, Tensor] | None


@dataclass(frozen=True, eq=False)
class Outer(BatchRecord):
    scalars: Tensor
    inner: Inner
    nothing: None
    label: str


def record(batch=5, offset=0.0, label="kept"):
    matrix = torch.arange(batch * 6.0).view(batch, 2, 3) + offset
    pair = (torch.arange(batch) + offset, -torch.arange(batch) - offset)
    return Outer(torch.arange(batch) * 10.0 + offset, Inner(matrix, pair), None, label)


def tensors(outer):
    return outer.scalars, outer.inner.matrix, *outer.inner.pair


@pytest.mark.parametrize("index", [[3, 0], [2], [1, 1, 4], []])
def test_take_picks_the_items_of_every_tensor_at_any_depth(index):
    whole, index = record(), torch.tensor(index, dtype=torch.long)
    part = take(whole, index)
    for old, new in zip(tensors(whole), tensors(part), strict=True):
        assert torch.equal(new, old[index])
    assert part.nothing is None
    assert part.label == "kept"


def test_take_with_a_mask_equals_take_with_its_places():
    mask = torch.tensor([True, False, False, True, True])
    by_mask, by_place = take(record(), mask), take(record(), torch.tensor([0, 3, 4]))
    for one, other in zip(tensors(by_mask), tensors(by_place), strict=True):
        assert torch.equal(one, other)


def test_put_writes_items_back_and_leaves_the_others():
    target, source = clone(record().inner), record(batch=2, offset=100.0).inner
    put_(target, torch.tensor([4, 1]), source)
    for old, new, result in zip(
        (record().inner.matrix, *record().inner.pair),
        (target.matrix, *target.pair),
        (source.matrix, *source.pair),
        strict=True,
    ):
        assert torch.equal(new[[4, 1]], result)
        assert torch.equal(new[[0, 2, 3]], old[[0, 2, 3]])


@pytest.mark.parametrize("places", [torch.tensor([0, 2]), torch.tensor([True, False, True, False, False])])
def test_put_undoes_take(places):
    old, target = record().inner, clone(record(offset=7.0).inner)
    put_(target, places, take(old, places))
    put_(target, ~places if places.dtype == torch.bool else torch.tensor([1, 3, 4]), take(old, torch.tensor([1, 3, 4])))
    assert torch.equal(target.matrix, old.matrix)
    assert torch.equal(target.pair[1], old.pair[1])


def test_put_ignores_missing_tensors():
    put_(None, torch.tensor([0]), None)
    target = Inner(torch.zeros(2, 1), None)
    put_(target, torch.tensor([1]), Inner(torch.ones(1, 1), None))
    assert target.matrix.tolist() == [[0.0], [1.0]]


def test_clone_shares_no_memory():
    old = record()
    inner = clone(old.inner)
    inner.matrix.zero_()
    inner.pair[0].zero_()
    assert torch.equal(old.inner.matrix, record().inner.matrix)
    assert torch.equal(old.inner.pair[0], record().inner.pair[0])
    assert clone(None) is None


def record_with_cached_value():
    """A record with a cached value that is not a field."""
    result = record()
    object.__setattr__(result, "worked_out", result.scalars.sum())
    return result


def test_a_mapped_record_differs_in_its_tensors_only():
    whole = record_with_cached_value()
    mapped = _batch.tree_map(whole, lambda tensor: 2 * tensor)
    assert type(mapped) is Outer
    assert (mapped.nothing, mapped.label) == (None, "kept")
    values, expected = (list(_batch.leaves(value)) for value in (mapped, whole))
    assert len(values) == 5
    for new, old in zip(values, expected, strict=True):
        assert torch.equal(new, 2 * old)


def test_structures_differ_in_everything_but_the_numbers():
    frame, _ = _batch.flatten(record())
    again, _ = _batch.flatten(record(offset=3.0))
    assert frame == again
    assert hash(frame) == hash(again)
    others = [
        record(batch=4),
        record(label="other"),
        record_with_cached_value(),
        _batch.tree_map(record(), torch.Tensor.double),
    ]
    assert all(_batch.flatten(other)[0] != frame for other in others)


@dataclass(frozen=True, eq=False)
class Lazy(Inner):
    @cached_property
    def total(self):
        return self.matrix.sum()


def test_cached_values_are_no_part_of_a_record():
    without_cache, with_cache = (Lazy(torch.ones(2, 3), None) for _ in range(2))
    assert with_cache.total == 6.0
    assert _batch.flatten(with_cache)[0] == _batch.flatten(without_cache)[0]
    whole = Outer(torch.zeros(2), with_cache, None, "label")
    for one, other in zip(
        _batch.flatten(whole)[1], _batch.leaves(_batch.without_cached_properties(whole)), strict=True
    ):
        assert one is other


def test_a_record_that_occurs_twice_is_copied_once():
    inner = Lazy(torch.ones(2, 3), None)
    twice = Outer(torch.zeros(2), inner, inner, "label")
    for copy in (_batch.without_cached_properties(twice), _batch.tree_map(twice, torch.clone)):
        assert copy.inner is copy.nothing
        assert copy.inner is not inner
