"""The functions that users call to solve a problem."""
