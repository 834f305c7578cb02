"""The kinds of error that an operation may have as its outcome (rules, section 9)."""

from __future__ import annotations

from enum import StrEnum


class ErrorKind(StrEnum):
    """What went wrong, as a scenario writes it after ``raises:``."""

    INVALID_ARGUMENT = "invalid_argument"
    """A value that can never be right."""
    LOGIC_ERROR = "logic_error"
    """A call that the present state does not allow."""
    OUT_OF_PAGES = "out_of_pages"
    """A level is full, where the call has no ``false``."""
    COPY_FAILED = "copy_failed"
    """A transfer was refused."""
    OUT_OF_RANGE = "out_of_range"
    """No such request, batch, buffer, group, layer, stream or label."""
