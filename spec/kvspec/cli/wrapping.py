"""Lines on a terminal, which break between words alone, and what follows stands below what it belongs to."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.text import Text

_WHOLE = re.compile(r"reproduce: |  *\S+$")
"""Lines that stay one: a command that is copied, and a single word."""


def print_report(console: Console, report: RenderableType) -> None:
    """The report of a failure. What follows of a line of YAML stands under its text, of anything else under its words."""
    for part in report.renderables if isinstance(report, Group) else [report]:
        text = part if isinstance(part, Text) else Text(str(part))
        for line in text.split("\n"):
            if _WHOLE.match(line.plain):
                console.print(line, soft_wrap=True)
                continue
            lead = re.match(r"[> ] *\d+ \| *|[> ]*", line.plain)
            print_line(console, line, len(lead[0] if lead else "") + 2)


def print_line(console: Console, text: Text, indent: int) -> None:
    """One line, on a terminal wrapped between words and what follows indented; in a file or a pipe it stays one."""
    if not console.is_terminal:
        console.print(text, soft_wrap=True)
        return
    indent = min(indent, console.width // 3)
    for number, line in enumerate(_wrapped(console, text, indent)):
        console.print(Text(" " * indent).append_text(line) if number else line, soft_wrap=True)


def _wrapped(console: Console, text: Text, indent: int) -> Iterator[Text]:
    lead = len(text.plain) - len(text.plain.lstrip(" "))
    width = max(console.width - indent, 20)
    rest = text
    limit = max(console.width, 20)
    while len(rest.plain) > limit:
        cut = rest.plain.rfind(" ", lead, limit + 1)
        if cut <= lead:  # a word longer than the line is not broken
            cut = rest.plain.find(" ", limit)
        if cut < 0:
            break
        yield rest[:cut]
        rest = rest[cut:]
        strip = len(rest.plain) - len(rest.plain.lstrip(" "))
        rest = rest[strip:]
        lead, limit = 0, width
    yield rest
