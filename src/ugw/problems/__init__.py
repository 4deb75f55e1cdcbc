"""What is minimized: each problem linearizes itself for a solver, and takes the solution of the linear problem back."""
