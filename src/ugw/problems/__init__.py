"""Objectives: a problem linearizes itself for a solver, and accepts the solution of the linear problem."""
