"""Comparison of ugw with other packages, in one process and one run: `python -m benchmarks.compare --quick`."""
