"""What is solved: problems that linearise themselves."""
