"""Frozen values: changed copies of them, and what follows from one, worked out once and kept with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

V = TypeVar("V")
P = ParamSpec("P")
R = TypeVar("R")

MEMO = "memo"
"""The attribute of a value that keeps what is known of it: no field, so it is neither compared nor copied."""


def memoised(function: Callable[Concatenate[V, P], R]) -> Callable[Concatenate[V, P], R]:
    """A pure function of a frozen value and hashable arguments: worked out once, and kept with the value."""

    @wraps(function)
    def known(value: V, /, *args: P.args, **kwargs: P.kwargs) -> R:
        memo = memo_of(value)
        key = (function, args)
        if key not in memo:
            memo[key] = function(value, *args, **kwargs)
        found: R = memo[key]
        return found

    return known


def memo_of(value: object) -> dict[object, Any]:
    """What is kept with a frozen value, to be filled: only with what follows from the value and from what is kept beside it."""
    memo: dict[object, Any] | None = getattr(value, MEMO, None)
    if memo is None:
        memo = {}
        object.__setattr__(value, MEMO, memo)
    return memo


if TYPE_CHECKING:
    from dataclasses import replace as replace
else:

    def replace(value: V, /, **changes: Any) -> V:
        """The same frozen dataclass value with some fields changed, as `dataclasses.replace`, but without its cost."""
        try:
            fields = value.__dict__
        except AttributeError:  # it has slots
            return dataclasses.replace(value, **changes)
        made = object.__new__(type(value))
        own = made.__dict__
        own.update(fields)
        own.pop(MEMO, None)
        count = len(own)
        own.update(changes)
        if len(own) != count:
            unknown = changes.keys() - {field.name for field in dataclasses.fields(value)}
            raise TypeError(f"{type(value).__name__} has no field {', '.join(sorted(unknown))}")
        return made
