"""Which valid name somebody meant who misspelt it."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable


def nearest(name: str, choices: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The valid name that ``name`` was probably meant to be, if one is near enough: ``cutoff`` of 1.0 is equal but for case."""
    if len(name) > 100:  # difflib is quadratic, and nobody misspells that much
        return None
    pool = {choice.lower(): choice for choice in itertools.islice(choices, 1000)}
    found = difflib.get_close_matches(name.lower(), list(pool), n=1, cutoff=cutoff)
    return pool[found[0]] if found else None


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """That name as a sentence that follows another; empty if none is near enough."""
    near = nearest(name, choices)
    return "" if near is None else f" Did you mean {near!r}?"
