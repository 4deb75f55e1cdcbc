"""Memory of the CPU and of CUDA devices: how much there is, how much is left, and errors of allocations that failed."""

from __future__ import annotations

import os
from pathlib import Path

import torch


def available_bytes(device: torch.device) -> int | None:
    """Return the bytes of memory that this process can still allocate on a device, None if unknown.

    On CUDA these include what torch has reserved and does not use; on a CPU a container's limit counts too.
    """
    if device.type == "cuda":
        # `memory_reserved` and `memory_allocated` would sort all statistics at each call.
        statistics = torch.cuda.memory_stats_as_nested_dict(device)
        reserved, allocated = (
            statistics.get(f"{name}_bytes", {}).get("all", {}).get("current", 0) for name in ("reserved", "allocated")
        )
        return torch.cuda.mem_get_info(device)[0] + reserved - allocated
    if device.type != "cpu":
        return None
    known = [left for left in (_machine_bytes_left(), _container_bytes_left()) if left is not None]
    return min(known, default=None)


def machine_memory() -> float:
    """Return the bytes of main memory that this machine has in total, used or not, inf if unknown."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return float("inf")


def _machine_bytes_left() -> int | None:
    """Return the bytes of main memory available (on Linux) or free (elsewhere) on this machine, None if unknown."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass  # not Linux
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return None


def _container_bytes_left() -> int | None:
    """Return the bytes left below the memory limit of the container (Linux control group), None without a limit."""
    try:
        limit, used = (int(Path(f"/sys/fs/cgroup/memory.{name}").read_text("ascii")) for name in ("max", "current"))
    except (OSError, ValueError):  # no control group, or the limit is "max"
        return None
    return max(0, limit - used)


def is_allocation_error(error: Exception) -> bool:
    """Return whether an exception says that memory could not be allocated, on any device."""
    # torch has a class for CUDA alone; errors of a CPU are recognized by their text.
    is_known = isinstance(error, MemoryError | torch.OutOfMemoryError)
    return is_known or "DefaultCPUAllocator" in str(error) or "_ALLOC_FAILED" in str(error)


def release_cached_memory() -> None:
    """Free captured CUDA graphs, cached constants, and the blocks that torch keeps for later tensors."""
    from .cuda_graphs.cache import clear  # here, because a solve on a CPU needs no capture

    clear()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
