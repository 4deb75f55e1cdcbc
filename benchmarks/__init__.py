"""Benchmarks of ugw. `compare` sets it beside other packages; the others are scripts of their own."""
