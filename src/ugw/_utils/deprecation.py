"""Old public spellings that still work: each use issues one DeprecationWarning that names the new spelling."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from .caller import warn_at_caller

F = TypeVar("F", bound=Callable[..., Any])


def warn_renamed(old: str, new: str) -> None:
    """Issue the DeprecationWarning "`old` is deprecated: use `new`", located at the caller of the library."""
    warn_at_caller(f"{old} is deprecated: use {new}", DeprecationWarning)


def renamed_arguments(**renamed: str) -> Callable[[F], F]:
    """Return a decorator that lets a function accept old keyword names: `@renamed_arguments(colour="color")`.

    An old keyword is passed on under its new name, with a DeprecationWarning; giving both raises TypeError.
    """

    def decorate(function: F) -> F:
        """Return a function that calls `function` and also accepts the old keywords of `renamed`, with a warning."""

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            """Return the result of the function, called with every old keyword replaced by its new name."""
            for old, new in renamed.items():
                if old in kwargs:
                    if new in kwargs:
                        raise TypeError(f"{function.__name__}() got both {new!r} and its old name {old!r}")
                    warn_renamed(f"{function.__name__}({old}=...)", f"{new}=...")
                    kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return wrapper  # type: ignore[return-value]

    return decorate


def renamed_names(module: str, **renamed: str) -> Callable[[str], Any]:
    """Return a module's `__getattr__` that resolves old names of public objects, with a DeprecationWarning.

    Use at the end of a module: `__getattr__ = renamed_names(__name__, colour_transfer="color_transfer")`.
    """

    def read_old_name(name: str) -> Any:
        """Return the object under the new name of `name`; raise AttributeError for unknown names."""
        if name not in renamed:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warn_renamed(f"{module}.{name}", f"{module}.{renamed[name]}")
        return getattr(sys.modules[module], renamed[name])

    return read_old_name


def renamed_attribute(owner: str, old: str, new: str) -> property:
    """Return a property that reads attribute `new` and warns that `old`, of the class named `owner`, is deprecated.

    Use in a class body: `unlabelled = renamed_attribute("PUTask", "unlabelled", "unlabeled")`.
    """

    def read(self: Any) -> Any:
        """Return the value of the attribute under its new name."""
        warn_renamed(f"{owner}.{old}", f"{owner}.{new}")
        return getattr(self, new)

    read.__doc__ = f"Deprecated name of `{new}`."
    return property(read)
