"""Divergences that penalize the marginals of a plan, and cones with their losses of differences of distances."""
