"""Limits of captured CUDA graphs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CaptureConfig:
    """Limits of captured CUDA graphs, one per line with unit and reason."""

    # Captured graphs kept for later calls.
    max_graphs: int = 128
    # Bytes of device memory that all kept graphs may hold.
    max_graph_bytes: int = 2**31
    # Signatures of calls that are remembered with their number of calls.
    max_signatures: int = 1024
    # Bytes of arguments above which a call keeps the GPU busy without a graph.
    max_call_bytes: int = 2**25
    # Calls of one signature before it is captured: capturing costs several calls.
    calls_before_capture: int = 2
    # Plan entries above which a step keeps the GPU busy without a graph.
    max_step_entries: int = 2**25
    # Steps made one by one before a step is captured: they compile the kernels it needs.
    warmup_steps: int = 1
    # Rounds of inner iterations in a captured step.
    usual_rounds: int = 2
    # Rounds in a captured step for items that need more; still more are made one by one.
    many_rounds: int = 40
    # Share of items that need more rounds below which they wait for every `patience_steps`-th step.
    min_share_of_waiting: float = 0.25
    # Steps between two steps with more rounds if few items need them; all others would wait for these.
    patience_steps: int = 8
    # Bytes read by a captured step above which it is not kept for later problems.
    max_cached_step_bytes: int = 2**27
    # Plan entries below which a GPU takes the same time for any size.
    busy_entries: int = 2**20


CAPTURE_CONFIG = CaptureConfig()
