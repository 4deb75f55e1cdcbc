"""Seeded generators: reproducible data with the documented shapes, classes and proportions."""

import numpy as np
import pytest

from ugw import InputError, datasets


def test_same_seed_same_points():
    one, two = (datasets.imbalanced_mixtures(n=40, seed=3) for _ in range(2))
    other = datasets.imbalanced_mixtures(n=40, seed=4)
    for side in (0, 1):
        assert np.array_equal(one[side].points, two[side].points)
        assert not np.array_equal(one[side].points, other[side].points)


@pytest.mark.parametrize("share", [0.3, 0.7])
def test_class_masses_are_numbers_of_points(share):
    source, target = datasets.imbalanced_mixtures(n=200, share=share)
    assert source.points.shape == (200, 3)
    assert target.points.shape == (200, 2)
    assert source.counts == {"ellipsoid": 100, "ball": 100}
    assert target.counts == {"ellipse": round(200 * share), "square": 200 - round(200 * share)}
    assert target.space().mass == pytest.approx(1)


def test_classes_are_further_apart_than_they_are_thick():
    for cloud in datasets.imbalanced_mixtures(n=400):
        first, second = (cloud.points[cloud.labels == k] for k in (0, 1))
        gap = second[:, 0].min() - first[:, 0].max()
        assert gap > np.ptp(first[:, 0])


def test_points_are_uniform_in_the_ball():
    source, _ = datasets.imbalanced_mixtures(n=4000)
    ball = source.points[source.labels == 1]
    radius = np.linalg.norm(ball - ball.mean(axis=0), axis=1)
    # The cube of the radius is uniform on [0, R³]: its mean is half of the largest one.
    assert np.mean(radius**3) / np.max(radius**3) == pytest.approx(0.5, abs=0.05)


def test_two_moons_are_half_circles():
    moons = datasets.two_moons(n=101, noise=0.0)
    upper, lower = (moons.points[moons.labels == k] for k in (0, 1))
    assert (len(upper), len(lower)) == (50, 51)
    assert np.allclose(np.linalg.norm(upper, axis=1), 1)
    assert np.allclose(np.linalg.norm(lower - [1, 0.5], axis=1), 1)
    assert upper[:, 1].min() >= 0
    assert lower[:, 1].max() <= 0.5


def test_outliers_are_a_class_away_from_the_moons():
    moons = datasets.two_moons(n=100, outliers=10)
    assert moons.names == ("upper", "lower", "outliers")
    far, near = moons.points[moons.labels == 2], moons.points[moons.labels < 2]
    assert np.linalg.norm(far[:, None] - near, axis=2).min() > 0.3
    assert datasets.two_moons(n=100).names == ("upper", "lower")


def test_moons_with_outliers_lie_in_the_unit_square_and_the_outliers_far_away():
    source, target = datasets.moons_with_outliers(80, outliers=9, seed=3)
    assert target.counts == {"upper": 40, "lower": 40, "outliers": 9}
    for cloud in (source.points, target.points):
        assert cloud.min() >= 0
        assert cloud.max() <= 1
    far = target.labels == 2
    gap = np.linalg.norm(target.points[far][:, None] - target.points[~far], axis=2).min()
    assert gap > 0.25


def test_moons_with_outliers_are_rotated_and_not_scaled():
    same = datasets.moons_with_outliers(60, seed=4)[0].points
    rotated = datasets.moons_with_outliers(60, seed=3)[1].points[:60]  # the same draw, turned
    distances = [np.linalg.norm(cloud[:, None] - cloud, axis=2) for cloud in (same, rotated)]
    np.testing.assert_allclose(distances[0], distances[1], atol=1e-12)
    assert np.ptp(same, axis=0).argmax() != np.ptp(rotated, axis=0).argmax()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: datasets.imbalanced_mixtures(n=3), "n must be a whole number ≥ 4, got 3"),
        (lambda: datasets.imbalanced_mixtures(share=1.0), "share must be a number between 0 and 1, got 1.0"),
        (lambda: datasets.imbalanced_mixtures(share=float("nan")), "share"),
        (lambda: datasets.two_moons(n=1), "n must be a whole number ≥ 2, got 1"),
        (lambda: datasets.imbalanced_mixtures("a"), "n must be a whole number ≥ 4, got 'a'"),
        (lambda: datasets.imbalanced_mixtures(10.5), "n must be a whole number ≥ 4, got 10.5"),
        (lambda: datasets.imbalanced_mixtures(share="a"), "share must be a number between 0 and 1, got 'a'"),
        (lambda: datasets.imbalanced_mixtures(share=None), "share"),
        (lambda: datasets.imbalanced_mixtures(seed="a"), "seed must be a whole number ≥ 0, got 'a'"),
        (lambda: datasets.two_moons(seed=-1), "seed"),
        (lambda: datasets.two_moons(None), "n must be"),
        (lambda: datasets.two_moons(outliers=1.5), "outliers"),
        (lambda: datasets.two_moons(noise="a"), "noise must be a finite number ≥ 0, got 'a'"),
        (lambda: datasets.two_moons(outliers=-1), "outliers"),
        (lambda: datasets.two_moons(noise=float("nan")), "noise"),
        (lambda: datasets.moons_with_outliers(outliers=0), "outliers must be a whole number ≥ 1, got 0"),
        (lambda: datasets.moons_with_outliers(seed=0.5), "seed"),
    ],
)
def test_bad_numbers_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize(("old", "new"), [("Labelled", "Labeled"), ("LabelledGraph", "LabeledGraph")])
def test_british_names_still_work_with_a_warning(old, new):
    with pytest.warns(DeprecationWarning, match=f"ugw.datasets.{old} is deprecated: use ugw.datasets.{new}"):
        assert getattr(datasets, old) is getattr(datasets, new)
