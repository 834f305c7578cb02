"""The errors of operations: one class for each kind of section 9, and the error of a configuration."""

from __future__ import annotations

from typing import ClassVar

from kvspec.errors import ErrorKind


class ConfigurationError(ValueError):
    """A configuration that no manager can be built from (section 1)."""


class CacheError(Exception):
    """Base of the errors that an operation raises. After any of them the state is as before the call (section 9)."""

    kind: ClassVar[ErrorKind]


class InvalidArgument(CacheError):
    """A value that can never be right."""

    kind = ErrorKind.INVALID_ARGUMENT


class LogicError(CacheError):
    """A call that the present state does not allow."""

    kind = ErrorKind.LOGIC_ERROR


class OutOfPages(CacheError):
    """A level is full, where the call has no ``False``."""

    kind = ErrorKind.OUT_OF_PAGES


class CopyFailed(CacheError):
    """A transfer was refused (R4.8)."""

    kind = ErrorKind.COPY_FAILED


class OutOfRange(CacheError):
    """No such request, batch, buffer, group, layer, stream or label."""

    kind = ErrorKind.OUT_OF_RANGE
