"""Texts put together, and the word that somebody looks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kvspec.ops import VERBS as MODELS
from kvspec.words.document import BUFFER, HEAD, LAYER, LEVEL, MANAGER, POLICY, STEP, Key
from kvspec.words.expectations import EXPECTATIONS
from kvspec.words.terms import OTHER_WORDS, TERMS
from kvspec.words.verbs import VERBS


def summary(verb: str) -> str:
    """What a verb does, in plain text: the docstring of its model."""
    return " ".join((MODELS[verb].__doc__ or "").split()).replace("``", "`").replace("`None`", "null")


def verb_text(verb: str) -> str:
    """What a verb does, returns and raises: for an editor."""
    word = VERBS[verb]
    lines = [summary(verb), f"Returns: {word.returns or 'nothing.'}"]
    lines += [f"Raises {kind}: {when}." for kind, when in word.errors.items()]
    return "\n\n".join([*lines, f"Example: {word.example}"])


def expectation_text(key: str) -> str:
    """What an expectation says and how it is written: for an editor."""
    word = EXPECTATIONS[key]
    return f"{word.text}\n\nValue: {word.shape}.\n\nExample: {word.example}"


def key_text(word: Key) -> str:
    """What a key of the head, of a step or of the manager means: for an editor."""
    return f"{word.text}\n\nExample: {word.example}"


@dataclass(frozen=True, slots=True)
class Entry:
    """What a word means. ``kind``: such as ``expectation``; ``lines``: the text; ``rules``: that say more."""

    kind: str
    lines: tuple[str, ...]
    rules: tuple[str, ...]


def words() -> dict[str, None]:
    """All words that can be looked up, verbs and rules aside."""
    return dict.fromkeys((*EXPECTATIONS, *(key for keys in _KEYS.values() for key in keys), *TERMS))


def entries(word: str) -> Iterator[Entry]:
    """What a word means, verbs aside; several entries if it means several things."""
    if word in EXPECTATIONS:
        one = EXPECTATIONS[word]
        parts = tuple(f"  {part}: {text}" for part, text in one.parts.items())
        yield Entry("expectation", (one.text, f"value: {one.shape}", *parts, f"example: {one.example}"), one.rules)
    for owner, keys in _KEYS.items():
        if word in keys:
            key = keys[word]
            yield Entry(f"key of a {owner}", (key.text, f"example: {key.example}"), key.rules)
    if word in TERMS:
        term = TERMS[word]
        yield Entry("term", (term.text,), term.rules)


def called(word: str) -> str | None:
    """The word of the language for what other managers call by another."""
    return OTHER_WORDS.get(word.lower().replace("-", "_").replace(" ", "_"))


_KEYS: Mapping[str, Mapping[str, Key]] = {
    "scenario": HEAD,
    "step": STEP,
    "manager": MANAGER,
    "policy": POLICY,
    "level": LEVEL,
    "layer": LAYER,
    "buffer": BUFFER,
}
