"""The experiments of Séjourné, Vialard and Peyré (2021), each a module with `run`, `table` and `figure`."""
