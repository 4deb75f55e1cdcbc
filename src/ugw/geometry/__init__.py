"""Metric measure spaces and how their distances are stored and applied."""
