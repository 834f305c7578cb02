"""The errors of operations: one class for each kind of section 9, and the error of a configuration."""

from __future__ import annotations

from typing import ClassVar

from kvspec.errors import ErrorKind


class ConfigurationError(ValueError):
    """A configuration that no manager can be built from: the text says which part, and what to change (section 1)."""


class CacheError(Exception):
    """Base of the errors that an operation raises; ``kind``: which of the five of section 9 it is.

    After any of them the state is as before the call, except as R3.9, R4.8, R8.6 and R8.9 say.
    """

    kind: ClassVar[ErrorKind]


class InvalidArgument(CacheError):
    """A value that can never be right, whatever the state: a negative length, a row that the batch does not have (section 9)."""

    kind = ErrorKind.INVALID_ARGUMENT


class LogicError(CacheError):
    """A call that the present state does not allow: on a closed request, say, or while a graph is captured (section 9)."""

    kind = ErrorKind.LOGIC_ERROR


class OutOfPages(CacheError):
    """A level is full and nothing can be evicted from it, in a call that cannot return false for that (section 9)."""

    kind = ErrorKind.OUT_OF_PAGES


class CopyFailed(CacheError):
    """A copy or an upload could not be submitted (R4.8, R8.6). Work that was queued before runs; the text says what to do."""

    kind = ErrorKind.COPY_FAILED


class OutOfRange(CacheError):
    """No such request, batch, buffer, group, layer, stream or label; the text names those that there are (section 9)."""

    kind = ErrorKind.OUT_OF_RANGE
