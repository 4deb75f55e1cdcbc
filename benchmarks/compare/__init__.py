"""ugw beside its peers, in one process and one run: `python -m benchmarks.compare --quick`."""
