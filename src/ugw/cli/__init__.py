"""The `ugw` command line. Help, errors of usage and shell completion import neither torch nor NumPy."""

from __future__ import annotations

__all__ = ["main"]


def main(*args: object, **kwargs: object) -> None:
    """Run the `ugw` command and exit, with code 130 after Ctrl-C; arguments as for `click.Command.main`."""
    try:
        from .interrupt import INTERRUPTED, exit_at_interrupt, exit_now

        with exit_at_interrupt():
            from .commands import main as command
        command(*args, **kwargs)
    except KeyboardInterrupt:  # where the command does not handle it: before it starts, or while it prints an error
        from .interrupt import exit_now

        exit_now()
    except SystemExit as error:
        if error.code != INTERRUPTED:
            raise
        exit_now()
