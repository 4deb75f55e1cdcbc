"""Size classes: where each choice changes, and which items may be solved together."""

import pytest

from ugw._utils.size_class import CONIC_CHOICES, THRESHOLDS, UGW_CHOICES, group_by_size, size_class


def test_a_class_can_be_compared_and_hashed():
    assert size_class(6, 7) == size_class(7, 6)
    assert len({size_class(6, 7), size_class(6, 6), size_class(70, 7)}) == 2


@pytest.mark.parametrize(
    ("choice", "below", "above"),
    [
        ("has_long_search", (100, 100), (73, 137)),
        ("uses_compiled_steps", (250, 400), (251, 400)),
        ("has_low_precision_phase", (70, 71), (50, 100)),
        ("has_tf32_phase", (1999, 2000), (2000, 2000)),
        ("samples_rows", (64, 3), (65, 3)),
        ("n_middle_clusters", (250, 400), (251, 400)),
        ("n_noise_candidates", (71, 11), (46, 17)),
        ("tries_many_vertices", (50, 50), (41, 61)),
        ("streaming_sample", (1000, 900), (1001, 900)),
    ],
)
def test_each_choice_changes_at_its_threshold(choice, below, above):
    assert getattr(size_class(*below), choice) != getattr(size_class(*above), choice)


@pytest.mark.parametrize(("n", "clusters"), [(316, 0), (317, 200), (334, 200), (335, 300), (501, 300), (502, 400)])
def test_the_middle_level_grows_with_the_points_up_to_a_limit(n, clusters):
    assert size_class(n, n).n_middle_clusters == clusters
    assert size_class(10_000, 10_000).n_middle_clusters == THRESHOLDS.max_middle_clusters


@pytest.mark.parametrize(
    ("n", "m", "count"), [(1, 1, 256), (71, 11, 256), (46, 17, 128), (50, 50, 64), (1000, 1000, 0)]
)
def test_noise_candidates_are_a_power_of_2(n, m, count):
    assert size_class(n, m).n_noise_candidates == count


@pytest.mark.parametrize(
    ("n", "m", "sample"),
    [(2000, 1500, (1000, 1000)), (5000, 80, (1000, 80)), (200_000, 2000, (2000, 1000)), (10**6, 10**6, (10**5, 10**5))],
)
def test_the_sample_of_a_streaming_problem(n, m, sample):
    assert size_class(n, m).streaming_sample == sample


def test_items_are_grouped_by_the_choices_that_matter():
    sizes = [(4, 5), (70, 30), (6, 60), (65, 11)]
    assert group_by_size(sizes, ["samples_rows"]) == [[0, 2], [1, 3]]
    assert group_by_size(sizes, UGW_CHOICES) == [[0, 2], [1, 3]]
    assert group_by_size(sizes, CONIC_CHOICES) == [[0, 2], [1], [3]]
