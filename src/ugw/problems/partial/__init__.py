"""Partial problems, whose plans have marginals below the weights."""
