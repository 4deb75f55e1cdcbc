"""What solvers return."""
