"""The version of the package, as it is installed."""

from __future__ import annotations


def version() -> str:
    """Looked up when somebody asks: importlib.metadata is not needed for anything else."""
    from importlib import metadata

    try:
        return metadata.version("ugw")
    except metadata.PackageNotFoundError:  # run from a source tree
        return "unknown (not installed)"
