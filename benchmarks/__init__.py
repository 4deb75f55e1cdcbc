"""Benchmarks of ugw. `compare` compares it with other packages; the other modules are independent scripts."""
