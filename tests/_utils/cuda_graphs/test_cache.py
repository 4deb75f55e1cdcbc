"""The cache of captured graphs: which calls have the same signature, and which graphs are kept."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from oracles.captured_graphs import kept_names
from ugw._utils.cuda_graphs import cache
from ugw._utils.cuda_graphs.config import CAPTURE_CONFIG
from ugw._utils.pytree import BatchRecord, flatten

MAX_GRAPHS, MAX_SIGNATURES = CAPTURE_CONFIG.max_graphs, CAPTURE_CONFIG.max_signatures
PERCENT = CAPTURE_CONFIG.max_graph_bytes // 100


@dataclass(frozen=True, eq=False)
class Pair(BatchRecord):
    first: Tensor
    second: Tensor
    label: str = "pair"


@dataclass(frozen=True)
class Graph:
    """Everything that the cache reads of a graph."""

    bytes: int


def double(numbers):
    return 2.0 * numbers


def triple(numbers):
    return 3.0 * numbers


@pytest.fixture(autouse=True)
def empty_cache():
    cache.clear()
    yield
    cache.clear()


def signature_of(*arguments, function=double):
    return cache.find_signature(function, *arguments)[0]


def test_calls_that_differ_only_in_values_have_the_same_signature():
    ones, zeros = torch.ones(2), torch.zeros(2)
    assert signature_of(Pair(ones, zeros), 5) is signature_of(Pair(zeros, ones), 5)


@pytest.mark.parametrize(
    "other",
    [
        (Pair(torch.ones(3), torch.zeros(3)), 5),
        (Pair(torch.ones(2).double(), torch.zeros(2)), 5),
        (Pair(torch.ones(2), torch.zeros(2), "another label"), 5),
        (Pair(torch.ones(2), torch.zeros(2)), 6),
        ((torch.ones(2), torch.zeros(2)), 5),
    ],
    ids=["shape", "dtype", "field", "argument", "type"],
)
def test_calls_that_differ_in_anything_else_have_other_signatures(other):
    assert signature_of(Pair(torch.ones(2), torch.zeros(2)), 5) is not signature_of(*other)


def test_a_tensor_that_appears_twice_makes_another_signature():
    """A graph holds it once, so two different values could not be written."""
    ones = torch.ones(2)
    assert signature_of(Pair(ones, ones)) is not signature_of(Pair(ones, ones.clone()))


def test_tensors_shared_by_two_arguments_make_no_difference():
    """Each argument is copied separately."""
    ones = torch.ones(2)
    assert signature_of(ones, ones) is signature_of(ones, ones.clone())


def test_signatures_depend_on_the_function_and_on_the_settings_of_torch():
    ones = torch.ones(2)
    first = signature_of(ones)
    assert first is not signature_of(ones, function=triple)
    with torch.inference_mode():
        assert first is not signature_of(ones)
    before = torch.backends.cuda.matmul.allow_tf32
    try:
        torch.backends.cuda.matmul.allow_tf32 = not before
        assert first is not signature_of(ones)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    assert first is signature_of(ones)


def test_tensors_of_a_call_are_returned_in_order():
    first, second, third = torch.ones(1), torch.ones(2), torch.ones(3)
    _, tensors = cache.find_signature(double, Pair(first, second), "no tensor", third)
    assert [tensor.shape[0] for tensor in tensors] == [1, 2, 3]


def test_a_signature_of_a_structure_needs_no_tensor_of_it():
    """Steps are found by their settings and by the structure of their state."""
    settings = Pair(torch.ones(2), torch.zeros(2))
    structures = [flatten(Pair(torch.ones(n), torch.ones(n)))[0] for n in (2, 2, 3)]
    first, same, other = (signature_of(settings, structure) for structure in structures)
    assert first is same
    assert first is not other


def test_a_stored_graph_is_returned_once():
    signature = signature_of(torch.ones(2))
    graph = Graph(10)
    cache.store_graph(signature, "variant", graph)
    assert kept_names() == ["double"]
    assert cache.pop_graph(signature, "another variant") is None
    assert cache.pop_graph(signature, "variant") is graph
    assert cache.pop_graph(signature, "variant") is None


def test_a_graph_replaces_the_one_of_the_same_signature():
    signature = signature_of(torch.ones(2))
    for size in (90, 80, 70):
        cache.store_graph(signature, 1, Graph(size * PERCENT))
    assert cache.pop_graph(signature, 1) == Graph(70 * PERCENT)


def test_the_number_of_kept_graphs_is_limited():
    signatures = [signature_of(torch.ones(n)) for n in range(1, MAX_GRAPHS + 3)]
    for signature in signatures:
        cache.store_graph(signature, 1, Graph(0))
        assert len(kept_names()) <= MAX_GRAPHS
    is_stored = [cache.pop_graph(signature, 1) is not None for signature in signatures]
    assert is_stored == [False, False] + [True] * MAX_GRAPHS, "the graphs stored last are kept"


def test_the_bytes_of_kept_graphs_are_limited():
    signatures = [signature_of(torch.ones(n)) for n in range(1, 6)]
    for signature in signatures:
        cache.store_graph(signature, 1, Graph(40 * PERCENT))
    assert len(kept_names()) == 2
    assert cache.pop_graph(signatures[0], 1) is None
    assert cache.pop_graph(signatures[-1], 1) == Graph(40 * PERCENT)
    cache.store_graph(signatures[-1], 1, Graph(1000 * PERCENT))  # too large alone
    assert kept_names() == []
    for signature in signatures[:2]:  # the bytes of removed graphs count no more
        cache.store_graph(signature, 1, Graph(50 * PERCENT))
    assert len(kept_names()) == 2


def test_graphs_of_forgotten_signatures_are_dropped():
    """No call could use these graphs, and their bytes are not counted."""
    forgotten = signature_of(torch.ones(1))
    cache.store_graph(forgotten, 1, Graph(90 * PERCENT))
    latest = [signature_of(torch.ones(n)) for n in range(2, MAX_SIGNATURES + 3)][-1]
    assert kept_names() == []
    assert signature_of(torch.ones(1)) is not forgotten
    cache.store_graph(latest, 1, Graph(90 * PERCENT))
    assert kept_names() == ["double"]


def test_a_signature_in_use_is_not_forgotten():
    used = signature_of(torch.ones(1))
    for n in range(2, MAX_SIGNATURES + 5):
        signature_of(torch.ones(n))
        assert signature_of(torch.ones(1)) is used


def test_clear_drops_graphs_and_signatures():
    signature = signature_of(torch.ones(1))
    cache.store_graph(signature, 1, Graph(1))
    cache.clear()
    assert kept_names() == []
    assert signature_of(torch.ones(1)) is not signature


def test_a_copy_shares_what_the_record_shares():
    ones = torch.ones(2)
    copy = cache.copy_record(Pair(ones, ones))
    assert copy.first is copy.second
    copy.first.fill_(2.0)
    assert ones.tolist() == [1.0, 1.0]


def test_tensors_of_several_dtypes_are_written_at_once():
    targets = [torch.zeros(2), torch.zeros(3, dtype=torch.float64), torch.zeros(1, dtype=torch.int64)]
    targets.append(targets[0])  # appears twice
    sources = [torch.ones(2), torch.ones(3, dtype=torch.float64), torch.tensor([7]), torch.ones(2)]
    cache.write_tensors(targets, sources)
    assert [target.tolist() for target in targets] == [source.tolist() for source in sources]


def test_bytes_of_identical_tensors_count_once():
    ones, more = torch.ones(2), torch.ones(3, dtype=torch.float64)
    assert cache.bytes_of([ones, more, ones]) == 2 * 4 + 3 * 8
