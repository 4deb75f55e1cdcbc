"""`python -m ugw` is the `ugw` command."""

from .cli import main

if __name__ == "__main__":
    main(prog_name="ugw")
