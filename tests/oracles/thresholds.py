"""Other size thresholds for a test."""

from ugw._utils import size_class


def patch_thresholds(monkeypatch, thresholds):
    """Replace the thresholds of `size_class` until the test ends, and forget the classes computed so far."""
    monkeypatch.setattr(size_class, "THRESHOLDS", thresholds)
    size_class.size_class.cache_clear()
