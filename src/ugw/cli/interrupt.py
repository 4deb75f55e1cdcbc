"""Ctrl-C on the command line: the exit code, and the end of the process during imports."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

# Exit code after Ctrl-C, 128 + SIGINT as in shells.
INTERRUPTED = 130
MESSAGE = "Interrupted: nothing was written"


@contextmanager
def exit_at_interrupt() -> Iterator[None]:
    """End the process at once with exit code 130 if Ctrl-C is pressed inside the context.

    It is meant for imports, before anything is written: an exception raised inside the import of a compiled module may
    be lost, or be reported as another one with a traceback. A caller's own handler of SIGINT is kept.
    """
    is_main_thread = threading.current_thread() is threading.main_thread()
    if not is_main_thread or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _exit_with_message)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def exit_now() -> NoReturn:
    """Flush stdout and stderr, and end the process with exit code 130 at once: torch takes most of a second to exit."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # closed, or a pipe that nobody reads
            stream.flush()
    os._exit(INTERRUPTED)


def _exit_with_message(*_: object) -> NoReturn:
    """Write `MESSAGE` to stderr and end the process with exit code 130, as a signal handler."""
    os.write(2, f"\n{MESSAGE}\n".encode())
    os._exit(INTERRUPTED)
