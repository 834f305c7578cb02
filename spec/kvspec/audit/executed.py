"""Which lines of a package some code executes, in all threads: by ``sys.monitoring`` where Python has it, else by tracing."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

Lines = dict[str, int]
"""By file, with slashes: bit ``n`` is set if line ``n`` was executed."""

_TOOLS = range(6)
"""The numbers that ``sys.monitoring`` gives to tools."""


def span_mask(first: int, last: int) -> int:
    """The bits of the lines ``first`` to ``last``."""
    return ((1 << (last - first + 1)) - 1) << first


def reaches(lines: Mapping[str, int], file: str, first: int, last: int) -> bool:
    """Whether one of the lines ``first`` to ``last`` of a file was executed."""
    return bool(lines.get(file, 0) & span_mask(first, last))


@contextmanager
def executed(folder: Path, above: Path) -> Iterator[Lines]:
    """The lines below ``folder`` that are executed while the context is open; complete when it is closed.

    :param above: the folder from which on files are named.
    """
    found: dict[str, set[int]] = {}
    lines: Lines = {}
    record = _monitored if sys.version_info >= (3, 12) else _traced
    try:
        with record(f"{folder}/", found):
            yield lines
    finally:
        for name, numbers in found.items():
            lines[Path(name).relative_to(above).as_posix()] = sum(1 << number for number in numbers)


@contextmanager
def _traced(prefix: str, found: dict[str, set[int]]) -> Iterator[None]:
    def begun(frame: FrameType, event: str, argument: object) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(prefix):
            return None
        add = found.setdefault(name, set()).add

        def at_line(frame: FrameType, event: str, argument: object) -> Any:
            if event == "line":
                add(frame.f_lineno)
            return at_line

        return at_line

    before = sys.gettrace()
    threading.settrace(begun)
    sys.settrace(begun)
    try:
        yield
    finally:
        sys.settrace(before)
        threading.settrace(before)


@contextmanager
def _monitored(prefix: str, found: dict[str, set[int]]) -> Iterator[None]:
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
    tool = next(number for number in reversed(_TOOLS) if monitoring.get_tool(number) is None)
    monitoring.use_tool_id(tool, "kvspec")

    def begun(code: CodeType, offset: int) -> Any:
        if code.co_filename.startswith(prefix):
            monitoring.set_local_events(tool, code, monitoring.events.LINE)
        return monitoring.DISABLE

    def at_line(code: CodeType, number: int) -> Any:
        found.setdefault(code.co_filename, set()).add(number)
        return monitoring.DISABLE  # once is enough

    monitoring.register_callback(tool, monitoring.events.PY_START, begun)
    monitoring.register_callback(tool, monitoring.events.LINE, at_line)
    monitoring.set_events(tool, monitoring.events.PY_START)
    monitoring.restart_events()
    try:
        yield
    finally:
        monitoring.set_events(tool, monitoring.events.NO_EVENTS)
        monitoring.free_tool_id(tool)
