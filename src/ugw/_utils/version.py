"""The version of the installed package."""

from __future__ import annotations


def version() -> str:
    """Return the version of the installed package, or "unknown (not installed)" in a source tree."""
    from importlib import metadata  # imported here to keep `import ugw` fast

    try:
        return metadata.version("ugw")
    except metadata.PackageNotFoundError:  # run from a source tree
        return "unknown (not installed)"
