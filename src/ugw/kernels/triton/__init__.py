"""Triton versions of the numerical primitives for CUDA, tested against the torch references.

Only `config` may be imported where Triton is not installed.
"""
