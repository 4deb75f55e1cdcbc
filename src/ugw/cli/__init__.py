"""The `ugw` command line. Help, errors of usage and shell completion import neither torch nor NumPy."""

from __future__ import annotations

import sys
from typing import Any

from .interrupt import INTERRUPTED, exit_at_interrupt

__all__ = ["main"]


def main(*args: Any, **kwargs: Any) -> None:
    """Run the `ugw` command and exit, with code 130 after Ctrl-C; arguments as for `click.Command.main`."""
    try:
        with exit_at_interrupt():
            from .commands import main as command
        command(*args, **kwargs)
    except KeyboardInterrupt:  # outside of what the command handles, as while its error is printed
        sys.exit(INTERRUPTED)
