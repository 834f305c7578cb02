"""How a break gets into ``kvgpu``: patches from outside, for as long as a context manager is open."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from kvgpu.storage.fences import FenceTable

Patch = Callable[[], AbstractContextManager[None]]
Break = tuple[str, str, Patch]
"""Name, rule, patch."""

PACKAGE = Path(__file__).parents[1]
DROPPED = "R7 a wait that was broken"
"""The site that broken waits use, which the device is told to drop."""


Make = Callable[[Any], Any]
"""Makes what is put instead of something."""


def on(handle: Any, make: Make) -> Patch:
    """A method or property of a class, or a function where it is defined, is what ``make`` makes of it."""
    owner, name = _home(handle)
    return partial(replaced, owner, name, make)


def within(module: ModuleType, handle: Any, make: Make) -> Patch:
    """A function is what ``make`` makes of it for one module that has imported it."""
    return partial(replaced, module, handle.__name__, make)


def everywhere(handle: Any, make: Make) -> Patch:
    """A function is what ``make`` makes of it, also where other modules have imported it."""
    return partial(_replaced_everywhere, handle, make)


def during(outer: Any, inner: Any, make: Make) -> Patch:
    """While ``outer`` runs, ``inner`` is what ``make`` makes of it; elsewhere it is as it was."""

    def around(old: Any) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            with on(inner, make)():
                return old(*args, **kwargs)

        return run

    return on(outer, around) if "." in getattr(outer, "__qualname__", ".") else everywhere(outer, around)


def at(where: str) -> Patch:
    """The waits with this ``where``, which take the sites of what they wait for, do nothing."""
    return partial(wait_dropped, where)


def instead(value: Any) -> Make:
    """Whatever it is called with, nothing happens and ``value`` comes back."""
    return lambda old: lambda *args, **kwargs: value


def first(count: int) -> Make:
    """Of what a method returns for something, the first so many alone."""
    return lambda old: lambda self, *args: old(self, *args)[:count]


def _home(handle: Any) -> tuple[Any, str]:
    """Where a function is defined, and its name there."""
    function: Any = handle.fget if isinstance(handle, property) else handle
    *path, name = function.__qualname__.split(".")
    owner: Any = sys.modules[function.__module__]
    for part in path:
        owner = getattr(owner, part)
    return owner, name


@contextmanager
def replaced(owner: Any, name: str, make: Make) -> Iterator[None]:
    """``owner.name`` is what ``make`` makes of it, while the context is open."""
    descriptor = inspect.getattr_static(owner, name)
    setattr(owner, name, make(getattr(owner, name)))
    try:
        yield
    finally:
        setattr(owner, name, descriptor)


@contextmanager
def _replaced_everywhere(original: Any, make: Make) -> Iterator[None]:
    name, new = original.__name__, make(original)
    users = [one for key, one in list(sys.modules.items()) if key.startswith("kvgpu") and vars(one).get(name) is original]
    for user in users:
        setattr(user, name, new)
    try:
        yield
    finally:
        for user in users:
            setattr(user, name, original)


@contextmanager
def wait_dropped(where: str) -> Iterator[None]:
    """The waits with this ``where``, which take the sites of what they wait for, do nothing."""

    def wait(old: Any) -> Any:
        def broken(self: Any, stream: Any, points: Any, site: str | None = None, *, where: str | None = None) -> None:
            old(self, stream, points, DROPPED if where == broken_where else site, where=where)

        return broken

    broken_where = where
    with replaced(FenceTable, "wait", wait):
        yield
