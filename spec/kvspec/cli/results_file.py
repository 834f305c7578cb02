"""Files of results, with which a long run can be stopped and gone on with.

The first line of JSON says what they are results of, each other one is a result.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


class NotResults(Exception):
    """A file is not one of these."""


class OfAnotherRun(Exception):
    """A file has results of something else. ``known``: its first line."""

    def __init__(self, known: Any) -> None:
        """See there."""
        super().__init__(known)
        self.known = known


def read_or_begin(path: Path, head: Mapping[str, Any], take: Callable[[Any], None]) -> None:
    """Have ``take`` look at each result of a file; one that is not there, or empty, is begun.

    :param head: what the results are of. :param take: raises ``ValueError``, ``TypeError`` or ``KeyError`` for what is no result.
    :raises NotResults: that, or no JSON. :raises OfAnotherRun: of something else.
    """
    if not path.exists() or not path.stat().st_size:
        path.write_text(json.dumps(head) + "\n", encoding="utf-8")
        return
    if (known := read_results(path, take)) != head:
        raise OfAnotherRun(known)
    if not path.read_bytes().endswith(b"\n"):
        with path.open("a", encoding="utf-8") as file:
            file.write("\n")


def read_results(path: Path, take: Callable[[Any], None]) -> Any:
    """The first line of a file. ``take``: as above.

    :raises NotResults: it cannot be read, is no JSON, or ``take`` refuses a line.
    """
    try:
        first, *lines = path.read_text(encoding="utf-8").splitlines()
        known = json.loads(first)
        for line in lines:
            if line.endswith("}"):  # the last may have been cut off
                take(json.loads(line))
    except (OSError, ValueError, TypeError, KeyError):
        raise NotResults from None
    return known


def add_result(path: Path, values: Mapping[str, Any]) -> None:
    """Write a result down."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(values) + "\n")
