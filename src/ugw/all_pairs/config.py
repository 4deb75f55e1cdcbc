"""Limits of `pairwise`: block sizes, padding, workers and checkpoints."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PairwiseConfig:
    """Limits of `pairwise`."""

    # Padding may increase the work of all pairs by this fraction; a smaller one gives more size groups, and with them
    # smaller batches.
    max_padding_overhead: float = 0.3
    # Points below which a smaller space is not faster: function calls take most of the time, not arithmetic.
    min_effective_size: int = 24
    # Plan entries of one block on the CPU: below the minimum, batches are too small to be efficient; above the maximum,
    # the plans of a block leave the cache.
    min_block_entries_cpu: int = 2**18
    max_block_entries_cpu: int = 2**19
    # Plan entries of one block on a GPU, which needs many pairs at a time to be busy.
    min_block_entries_cuda: int = 2**26
    max_block_entries_cuda: int = 2**27
    # Between minimum and maximum a block has this fraction of all plan entries, so that several workers get some.
    block_fraction: float = 1 / 32
    # Relative difference of two masses that counts as rounding, in machine epsilons.
    mass_rounding_units: float = 1e3
    # Seconds after which a temporary folder of a killed run is removed; a younger one may belong to a running process.
    stale_folder_seconds: float = 3600.0
    # Times that workers may die in a row, without a finished block in between, before the run ends with an error.
    max_worker_deaths: int = 3
    # Blocks per worker in one call of a joblib backend that returns nothing before all its tasks have ended.
    blocks_per_worker: int = 2
    # Seconds between two checks whether Dask has given up on a task.
    dask_poll_seconds: float = 5.0

    def block_entries(self, device: str) -> tuple[int, int]:
        """Return the minimum and maximum of plan entries of a block on a device type, "cpu" or "cuda"."""
        if device == "cuda":
            return self.min_block_entries_cuda, self.max_block_entries_cuda
        return self.min_block_entries_cpu, self.max_block_entries_cpu


PAIRWISE_CONFIG = PairwiseConfig()
