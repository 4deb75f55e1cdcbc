"""Solvers: one loop, and the steps that it repeats."""
