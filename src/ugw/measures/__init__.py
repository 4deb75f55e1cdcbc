"""Divergences for the marginals, and cones."""
