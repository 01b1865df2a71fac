"""Permission to run the code that a name such as ``file.py:Name`` refers to.

A name that the user typed is allowed. A name that was read from a file, such as a model file or a
``config.toml``, may come from a stranger and may be any code, so it is refused unless the user
allows it. Every function that reads such files runs in a context of :func:`restrict_code`;
``load_user_code``, which imports all users' code, calls :func:`check_code`.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from cadis.errors import CadisError

_MAX_NAME = 200
"""Maximum number of characters of a name, and of all names, in an error message."""


class UntrustedCodeError(CadisError):
    """A file names code that the user has not allowed."""


@dataclass(frozen=True)
class _Permission:
    """The names that may be loaded, or all names if ``trust``; and who asks for other names."""

    names: set[str]
    trust: bool
    source: str


_permission: ContextVar[_Permission | None] = ContextVar("permission", default=None)
"""The permission of the innermost context; None outside of all contexts, where names are typed."""


@contextmanager
def restrict_code(
    names: Iterable[str] = (), trust: bool = False, source: str = "A file"
) -> Iterator[None]:
    """Within the context, refuse all code except the given names.

    Args:
        names: the names that the user typed.
        trust: allow all names, because the user asked for it.
        source: what asks for other names, for the error message.
    """
    token = _permission.set(_Permission(set(names), trust, source))
    try:
        yield
    finally:
        _permission.reset(token)


@contextmanager
def restrict_code_by_default(names: Iterable[str] = (), trust: bool = False) -> Iterator[None]:
    """Do the same as :func:`restrict_code`, unless a context has restricted code already."""
    if _permission.get() is not None:
        yield
        return
    with restrict_code(names, trust):
        yield


def permit_code(names: Iterable[str]) -> None:
    """Allow further names until the end of the innermost context."""
    permission = _permission.get()
    if permission is not None:
        permission.names.update(names)


def check_code(*names: str, source: str = "") -> None:
    """Raise an error that lists the names whose code is not allowed, if there are any.

    Args:
        names: names of code.
        source: what names it, for the error message; by default the source of the context.
    """
    permission = _permission.get()
    if permission is None or permission.trust:
        return
    refused = [name for name in dict.fromkeys(names) if name not in permission.names]
    if refused:
        listed = _shorten(", ".join(repr(_shorten(name)) for name in refused))
        raise UntrustedCodeError(
            f"{source or permission.source} asks to run the code {listed}, which could do "
            "anything; if you trust it, add --trust (in Python: trust=True), or name the code "
            "yourself."
        )


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_NAME else f"{text[:_MAX_NAME]}..."
