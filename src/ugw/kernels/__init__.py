"""Numerical primitives: plain torch references and faster backends with the same signatures."""
