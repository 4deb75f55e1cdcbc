"""The captured CUDA graphs in the cache."""

from ugw._utils.cuda_graphs import cache


def kept_names() -> list[str]:
    """Return the function name of each stored graph, without leading underscores, least recently used first."""
    return [signature.name.lstrip("_") for signature, _ in cache.stored_graphs]
