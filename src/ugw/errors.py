"""The ways the library complains."""


class InputError(ValueError):
    """Bad input, found before any work: the message says what, what it got and what it expected."""


class NotConverged(RuntimeError):
    """Raised by `Result.check()` when a solve did not converge; the message carries the cure."""


class OutOfMemory(MemoryError):
    """The memory does not suffice: the message says what was tried, how much it needs and what would fit."""


class Incomplete(RuntimeError):
    """Some pairs of `pairwise` could not be solved: `result` has all others, and NaN for these.

    The message names the pair and says what happened.
    """

    def __init__(self, message: str, result: object = None) -> None:
        super().__init__(message)
        self.result = result


class ConvergenceWarning(UserWarning):
    """Issued once per solve whose result is not converged."""
