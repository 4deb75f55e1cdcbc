"""Calls of long compiled functions that Ctrl-C can interrupt."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


def call_interruptibly(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Return `function(*args, **kwargs)`, called in another thread while the main thread waits and reacts to Ctrl-C.

    It is meant for compiled functions that release the GIL for seconds. After Ctrl-C the function runs to its end in
    the background, and its result is dropped. Signals reach only the main thread; other threads call directly.

    >>> call_interruptibly(max, 1, 2)
    2
    """
    if threading.current_thread() is not threading.main_thread():
        return function(*args, **kwargs)
    outcome: Future[T] = Future()

    def call() -> None:
        """Store the result of the call, or the error that it raised."""
        try:
            outcome.set_result(function(*args, **kwargs))
        except BaseException as error:  # raised again in the main thread
            outcome.set_exception(error)

    threading.Thread(target=call, daemon=True).start()  # a daemon does not delay the end of the process
    return outcome.result()
