"""Limits of `pairwise`: block sizes, padding, workers and checkpoints."""

from __future__ import annotations

from dataclasses import dataclass, field


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
    # Estimated seconds of one block on a CPU: what an interrupted run loses, and how long the progress bar stands
    # still. A shorter limit would make the batches of slow methods single pairs.
    max_block_seconds: float = 2.0
    # Estimated seconds of a pair of n and m points on one CPU core by the way in which it is solved: a constant, and a
    # factor of n·m·(n + m + 100). Near the largest that were measured for clouds of 10 to 300 points, alone and in
    # batches: a block may then take less than its limit, and hardly more. Beyond, a block is one pair in any case.
    pair_seconds: dict[str, tuple[float, float]] = field(
        default_factory=lambda: {
            "entropic": (0.01, 3e-8),  # soft marginals, eps > 0, down to 0.1 % of the mean distortion
            "hard": (0.25, 1.5e-8),  # both marginals hard, eps > 0: many inner iterations at any size
            "sharp": (0.005, 1e-7),  # eps = 0: many proximal steps
            "partial": (0.06, 4e-8),  # TV and Mass: linear programs from many starts
            "general loss": (0.05, 1.4e-6),  # a loss other than t²: a sum of many terms
            "conic": (0.1, 3.2e-7),  # CGW with the Gaussian–Hellinger cone
            "conic, general loss": (0.1, 2.4e-6),  # CGW with another cone over KL
            "linear programs": (2.0, 0.0),  # CGW of partial transport: a pair is a block
        }
    )
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
        """Return (minimum, maximum) of the plan entries of pairs solved as one batch; device: "cpu" or "cuda"."""
        if device == "cuda":
            return self.min_block_entries_cuda, self.max_block_entries_cuda
        return self.min_block_entries_cpu, self.max_block_entries_cpu


PAIRWISE_CONFIG = PairwiseConfig()
