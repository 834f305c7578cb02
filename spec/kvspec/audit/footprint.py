"""What an object keeps in memory: everything that can be reached from it, counted and weighed."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

SHARED = (type, ModuleType, CodeType, BuiltinFunctionType)
"""What belongs to the program, not to the object that mentions it."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """``objects``: how many, without numbers, which the interpreter shares as it likes; ``bytes``: of all; ``kinds``: by type."""

    objects: int
    bytes: int
    kinds: Counter[str]


def footprint(*roots: object, without: tuple[object, ...] = ()) -> Footprint:
    """What is reached from ``roots``, each object once. ``without``: objects that are neither counted nor followed."""
    seen = {id(each) for each in without}
    stack, size = list(roots), 0
    kinds: Counter[str] = Counter()
    while stack:
        one = stack.pop()
        if id(one) in seen or isinstance(one, SHARED):
            continue
        seen.add(id(one))
        size += sys.getsizeof(one)
        if not isinstance(one, int | float | None):
            kinds[type(one).__qualname__] += 1
        stack.extend(_referents(one))
    return Footprint(kinds.total(), size, kinds)


def _referents(one: Any) -> Iterator[object]:
    if isinstance(one, FunctionType):  # a closure; the module that it is from is not its own
        yield from (cell for cell in (*(one.__closure__ or ()), *(one.__defaults__ or ())))
        return
    yield from gc.get_referents(one)
    if hasattr(one, "nbytes") and getattr(one, "base", None) is not None:
        yield one.base  # a view of an array keeps the whole of it
