"""What is minimised: each problem linearises itself for a solver, and takes the solution of the linear problem back."""
