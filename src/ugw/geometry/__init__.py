"""Metric measure spaces, metrics (stored or of low rank), and matrices and plans that are never stored."""
