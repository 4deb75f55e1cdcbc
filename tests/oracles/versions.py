"""Marks for comparisons that need a newer version of another library."""

import ot
import pytest
from packaging.version import Version


def needs_pot(version):
    """Return a mark that skips a comparison with POT where an older version is installed."""
    return pytest.mark.skipif(Version(ot.__version__) < Version(version), reason=f"compares with POT {version}")
