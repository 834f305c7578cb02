"""Every file of the corpus is refused with exactly the problem that its first line announces."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kvspec.language.loader import read

CORPUS = sorted((Path(__file__).parents[1] / "corpora" / "invalid").glob("*.yaml"))


def test_corpus_is_large_enough() -> None:
    assert len(CORPUS) >= 270


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_refused_with_the_message(path: Path) -> None:
    first = path.read_bytes().split(b"\n")[0].decode()
    expected = first.removeprefix("# expect: ")
    assert re.match(r"\d+:\d+: .", expected), "the first line announces line:column: message"
    loaded = read(path)
    assert [f"{p.position.line}:{p.position.column}: {p.text}" for p in loaded.problems] == [expected]
    assert loaded.scenarios == ()
    assert str(loaded.problems[0]) == f"{path}:{expected}"


def test_messages_differ() -> None:
    announced = [path.read_bytes().split(b"\n")[0] for path in CORPUS]
    words = {re.sub(rb"'[^']*'|\d+", b"", line) for line in announced}
    assert len(words) > 80, "the corpus shows many kinds of message, not one in many files"
