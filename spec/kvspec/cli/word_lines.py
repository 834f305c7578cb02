"""What ``kvspec explain`` prints of a word: a verb, an expectation, a key or a term."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import typer

from kvspec.ops import VERBS
from kvspec.words.lookup import called, entries, summary, words
from kvspec.words.verbs import ALWAYS, argument
from kvspec.words.verbs import VERBS as TEXTS


def all_words() -> list[str]:
    """Every word that is known, rules aside."""
    return [*VERBS, *words()]


def is_word(name: str) -> bool:
    """Whether something can be said of a word."""
    return name in VERBS or any(entries(name))


def other_word(name: str) -> str | None:
    """The word of the language for one that other managers use."""
    return called(name)


def word_lines(name: str) -> Iterator[str]:
    """What a word means, line by line; a blank line between its meanings."""
    first = True
    if name in VERBS:
        yield from _verb(name)
        first = False
    for entry in entries(name):
        if not first:
            yield ""
        first = False
        yield f"{name}, {entry.kind}: {entry.lines[0]}"
        yield from (f"  {line}" for line in entry.lines[1:])
        if entry.rules:
            yield f"  the rules: kvspec explain {' '.join(entry.rules)}"


def print_line(line: str, width: int | None) -> None:
    """Print a line, what does not fit below it and two columns further in; all of it in one where there is no ``width``."""
    if width is None or not line:
        typer.echo(line)
        return
    indent = " " * (len(line) - len(line.lstrip()))
    wrapper = textwrap.TextWrapper(
        width=max(width, 40),
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    typer.echo(wrapper.fill(line.lstrip()))


def _verb(name: str) -> Iterator[str]:
    model, text = VERBS[name], TEXTS[name]
    yield f"{name}, verb: {summary(name)}"
    width = max((len(field.alias or key) for key, field in model.model_fields.items()), default=0)
    for key, field in model.model_fields.items():
        alias = field.alias or key
        notes = ["required"] if field.is_required() else []
        if not field.is_required() and field.default not in (None, "", "default", ()):
            notes.append(f"default {str(field.default).lower() if isinstance(field.default, bool) else field.default}")
        notes += ["may be given bare"] if key == model.bare else []
        yield f"  {alias:{width}}  {argument(name, alias)}" + (f" ({', '.join(notes)})" if notes else "")
    yield f"  returns: {text.returns or 'nothing.'}"
    by_name = {"request", "batch", "requests"} & set(model.model_fields)
    for kind in dict.fromkeys((*text.errors, *(ALWAYS if by_name else ()))):
        reasons = [reason for reason in (text.errors.get(kind), ALWAYS.get(kind) if by_name else None) if reason]
        yield f"  raises {kind}: {'; '.join(reasons)}"
    yield f"  example: {text.example}"
