"""Triton versions of the numerical primitives."""
