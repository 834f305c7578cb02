"""How a break gets into ``kvgpu``: patches from outside, for as long as a context manager is open."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from kvgpu.storage.fences import FenceTable

Patch = Callable[[], AbstractContextManager[None]]

PACKAGE = Path(__file__).parents[1]
DROPPED = "R7 a place that was broken"
"""The site that broken places use, which the device is told to drop."""


@contextmanager
def replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """``owner.name`` is what ``make`` makes of it, while the context is open."""
    descriptor = inspect.getattr_static(owner, name)
    setattr(owner, name, make(getattr(owner, name)))
    try:
        yield
    finally:
        setattr(owner, name, descriptor)


@contextmanager
def replaced_everywhere(module: str, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """A function of a module of ``kvgpu``, also where other modules have imported it by name."""
    original = getattr(importlib.import_module(module), name)
    new = make(original)
    users = [one for key, one in list(sys.modules.items()) if key.startswith("kvgpu") and vars(one).get(name) is original]
    for user in users:
        setattr(user, name, new)
    try:
        yield
    finally:
        for user in users:
            setattr(user, name, original)


@contextmanager
def place_dropped(place: str) -> Iterator[None]:
    """The waits at a place that takes the sites of what it waits for do nothing, whatever those are called."""

    def wait(old: Any) -> Any:
        def broken(self: Any, stream: Any, points: Any, site: str | None = None, *, place: str | None = None) -> None:
            old(self, stream, points, DROPPED if place == broken_place else site, place=place)

        return broken

    broken_place = place
    with replaced(FenceTable, "wait", wait):
        yield
