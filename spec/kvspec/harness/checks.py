"""One answer to one expectation, by one system."""

from __future__ import annotations

from dataclasses import dataclass

from kvspec.harness.compare import text


@dataclass(frozen=True, slots=True)
class Check:
    """What one system shows where a scenario expects something.

    ``path``: of the expectation, its key first. ``subject``: what it speaks of. ``page``, ``row``: see ``Difference``.
    """

    path: tuple[str, ...]
    subject: str
    wanted: str
    actual: str
    ok: bool
    page: str | None = None
    row: tuple[str, int] | None = None


def check(
    path: tuple[str, ...],
    subject: str,
    wanted: object,
    actual: object,
    ok: bool | None = None,
    page: str | None = None,
    row: tuple[str, int] | None = None,
) -> Check:
    """A check that holds if the two values are equal, or if ``ok``."""
    return Check(path, subject, text(wanted), text(actual), wanted == actual if ok is None else ok, page, row)
