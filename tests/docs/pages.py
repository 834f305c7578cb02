"""The pages of the documentation: their fenced blocks, and the commands in them with what they print.

What a block is, its language and the comment above it say, which nobody sees who reads the page:

- ``sh``: commands. A ``text`` block right behind it is what they print.
- ``console``: each line that begins with ``$ `` is a command, the lines below are what it prints. A line ``...`` stands
  for any lines.
- ``<!-- exits with 1 -->``: the last command of the block does.
- ``<!-- file: NAME -->``: the block is the file; ``<!-- add to: NAME -->``: it comes behind what is in the file.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.paths import PATHS, ROOT

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
_FENCE = re.compile(r"^(?:<!-- (?P<mark>[^\n]*) -->\n)?```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_VARIES = (
    (re.compile(r"\d+ ms\b"), "N ms"),
    (re.compile(r"\d+\.\d s\b"), "N s"),
    (re.compile(r"\(\d+ s\)"), "(N s)"),
    (re.compile(r"\d+ kB\b"), "N kB"),
)
"""What is not the same in any two runs."""
WIDTH = "100"
"""Columns of the terminal in which outputs were taken."""
TIMEOUT = 120.0
RUN = """\
#!/bin/sh
PYTHONPATH="$PYTHONPATH:{paths}" \\
exec {python} -c 'import sys; from kvspec.cli.main import main; sys.argv[0] = "kvspec"; main()' "$@"
"""
"""A ``kvspec`` that takes the packages from here, installed or not."""


@dataclass(frozen=True)
class Block:
    """A fenced block. ``mark``: the comment above it. ``line``: of its first line of text. ``span``: of the text in the page."""

    kind: str
    mark: str
    text: str
    line: int
    span: tuple[int, int]


@dataclass(frozen=True)
class Command:
    """Commands of a shell, and what they print together, ``None`` if the page does not show it.

    ``span``: of the printed text in the page. ``code``: the exit status.
    """

    text: str
    line: int
    printed: str | None = None
    span: tuple[int, int] = (0, 0)
    code: int = 0


@dataclass(frozen=True)
class File:
    """Text that a page has the reader put into a file."""

    name: str
    text: str
    added: bool


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(found["kind"], found["mark"] or "", found["text"], text[: found.start("text")].count("\n") + 1, found.span("text"))
        for found in _FENCE.finditer(text)
    ]


def steps(page: Path) -> Iterator[Command | File]:
    """What a reader does who goes through a page: types commands, and writes files. Examples in Python are not among them."""
    whole = page.read_text(encoding="utf-8")
    found = blocks(page)
    for number, block in enumerate(found):
        verb, _, name = block.mark.partition(": ")
        code = int(block.mark.removeprefix("exits with ")) if block.mark.startswith("exits with ") else 0
        if verb in ("file", "add to"):
            yield File(name, block.text, verb == "add to")
        elif block.kind == "console":
            yield from _console(block, code)
        elif block.kind == "sh":
            behind = found[number + 1] if number + 1 < len(found) else None
            between = whole[block.span[1] : behind.span[0]] if behind is not None else ""
            if behind is not None and behind.kind == "text" and not behind.mark and between == "```\n\n```text\n":
                yield Command(block.text, block.line, behind.text, behind.span, code)
            else:
                yield Command(block.text, block.line, code=code)


def _console(block: Block, code: int) -> Iterator[Command]:
    place, line, parts = block.span[0], block.line, re.split(r"^(?=\$ )", block.text, flags=re.MULTILINE)
    assert not parts[0], f"line {block.line}: a console block begins with a command: $ ..."
    for number, part in enumerate(parts[1:], start=2):
        head, _, printed = part.partition("\n")
        start = place + len(head) + 1
        yield Command(head[2:], line, printed, (start, start + len(printed)), code if number == len(parts) else 0)
        place, line = place + len(part), line + part.count("\n")


class Reader:
    """Somebody who goes through a page with a copy of the project before them."""

    def __init__(self, folder: Path) -> None:
        """``folder``: an empty one."""
        self.where = folder / "kvspec"
        self.told = folder / "where"
        bin_ = folder / "bin"
        bin_.mkdir()
        (bin_ / "kvspec").write_text(RUN.format(python=sys.executable, paths=PATHS))
        (bin_ / "kvspec").chmod(0o755)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("KVSPEC_", "TINY_", "PYTEST_"))},
            "PATH": os.pathsep.join((str(bin_), str(Path(sys.executable).parent), os.environ["PATH"])),
            "PYTHONPATH": "",
            "COLUMNS": WIDTH,
            "XDG_CACHE_HOME": str(folder / "cache"),
        }

    def write(self, file: File) -> None:
        """Write a file, or add to it."""
        with (self.where / file.name).open("a" if file.added else "w", encoding="utf-8") as out:
            out.write(file.text)

    def run(self, command: Command) -> tuple[int, str]:
        """The exit status of a command, and all that it printed."""
        script = f"set -e\ntrap 'pwd > {self.told}' EXIT\n{command.text}"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.where,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        self.where = Path(self.told.read_text().rstrip("\n"))
        return done.returncode, done.stdout


def same(shown: str, printed: str) -> bool:
    """Whether a page shows what was printed, but for times and sizes."""
    lines = [re.escape(line) for line in _plain(shown)]
    pattern = "\n".join(r"(?s:.*)" if line == re.escape("...") else line for line in lines)
    return re.fullmatch(pattern, "\n".join(_plain(printed))) is not None


def _plain(text: str) -> list[str]:
    for varies, name in _VARIES:
        text = varies.sub(name, text)
    return [re.sub(r"(?<=\S) +", " ", line.rstrip()) for line in text.strip("\n").split("\n")]
