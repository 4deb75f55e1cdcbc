"""How it is solved: one loop and what it repeats."""
