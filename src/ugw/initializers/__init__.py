"""Initial plans."""
