"""The version of the package, as it is installed."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("ugw")
except PackageNotFoundError:  # run from a source tree
    VERSION = "unknown (not installed)"
