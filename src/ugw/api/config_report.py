"""`show_config`: the versions of the installed packages and the backends that this machine has."""

from __future__ import annotations

import platform
from importlib import metadata

import torch

from .._utils.version import version
from ..kernels.cpu import native


def show_config() -> dict[str, str]:
    """Return the versions of ugw and the packages it uses, and which backends are available, as texts by name.

    compiled: the instruction set of the C++ library, or why it is not used; cuda: the device, or "not available";
    a package that is missing, such as triton, has "not installed"; threads: the number that torch uses. Please include
    it in bug reports.

    >>> import ugw
    >>> sorted(ugw.show_config())
    ['POT', 'compiled', 'cuda', 'numpy', 'python', 'scipy', 'threads', 'torch', 'triton', 'ugw']
    """
    return {
        "ugw": version(),
        "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        **{name: _installed_version(name) for name in ("torch", "numpy", "scipy", "POT", "triton")},
        "compiled": _compiled_backend(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else "not available",
        "threads": str(torch.get_num_threads()),
    }


def _compiled_backend() -> str:
    """Return the name of the instruction set that the C++ library uses on this CPU, or why the library is not used."""
    if native.is_available():
        return native.load().instruction_set
    return f"switched off ({native.SWITCH}=0)" if native.is_switched_off() else "not built"


def _installed_version(package: str) -> str:
    """Return the version of a package, or "not installed"."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
