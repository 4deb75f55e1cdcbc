"""Exceptions and warnings of the library."""


class InputError(ValueError):
    """Raised for invalid input before any computation; the message says what was given and what was expected.

    >>> import ugw
    >>> ugw.Space.from_points([[0.0], [1.0]], weights=[1.0])
    Traceback (most recent call last):
    ...
    ugw.errors.InputError: weights must have shape (..., 2), got (1,)
    """


class NotConverged(RuntimeError):
    """Raised by `Result.check()` when a solve did not converge; the message says what to change.

    >>> import warnings, ugw
    >>> x = ugw.Space.from_points([[0.0], [1.0], [3.0]])
    >>> with warnings.catch_warnings(action="ignore"):
    ...     hasty = ugw.solve(x, x, eps=1e-3, solver=ugw.AlternateMin(max_iter=1))
    >>> hasty.check()  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ugw.errors.NotConverged: the iteration limit was reached: ...
    """


class OutOfMemory(MemoryError):
    """Raised if the memory does not suffice; the message says how much is needed, how much there is and what would fit.

    >>> import numpy as np, ugw
    >>> x = ugw.Space.from_points(np.zeros((200_000, 1)), metric="sqeuclidean")
    >>> stored = ugw.AlternateMin(inner=ugw.Sinkhorn(method="stabilized"))
    >>> try:
    ...     ugw.solve(x, x, solver=stored)  # a plan of 320 GB
    ... except ugw.OutOfMemory:
    ...     print("stream instead")
    stream instead
    """


class Incomplete(RuntimeError):
    """Raised by `pairwise` if some pairs could not be solved: `result` has all others, and NaN for these.

    The message names the first pair and says what happened.

    >>> import numpy as np, ugw
    >>> def picky(t):  # a loss that cannot do large numbers
    ...     return t.square() if t.max() < 50 else 1 / 0
    >>> names = ["ant", "bee", "cow"]
    >>> spaces = [ugw.Space.from_points(size * np.eye(3)) for size in (1, 2, 90)]
    >>> try:
    ...     ugw.pairwise(spaces, method=ugw.Method("ugw", loss=picky), names=names)
    ... except ugw.Incomplete as error:
    ...     print(np.isnan(error.result.values).sum(), "values are missing")
    5 values are missing
    """

    def __init__(self, message: str, result: object = None) -> None:
        """Store the message and `result`, in which the missing values are NaN."""
        super().__init__(message)
        self.result = result


class ConvergenceWarning(UserWarning):
    """Issued once per solve whose result is not converged.

    >>> import warnings, ugw
    >>> x = ugw.Space.from_points([[0.0], [1.0], [3.0]])
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     r = ugw.solve(x, x, eps=1e-3, solver=ugw.AlternateMin(max_iter=1))
    >>> [warning.category.__name__ for warning in caught]
    ['ConvergenceWarning']
    """
