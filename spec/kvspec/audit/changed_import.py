"""Importing a package anew, with one of its modules from a changed source. Nothing on disk changes, bytecode included."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any


class NoPackage(LookupError):
    """There is no such package to draw from; ``str()`` of it says what was expected."""


class _Loader(SourceFileLoader):
    """Loads a module from a source that is not on disk, under the path of the one that is."""

    source = b""

    def get_code(self, fullname: str) -> CodeType:
        """The changed source, compiled; no bytecode is read or written."""
        return compile(self.source, self.path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    def __init__(self, module: str, source: bytes) -> None:
        self.module = module
        self.source = source

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        found = PathFinder.find_spec(fullname, path, target) if fullname == self.module else None
        if found is None or found.origin is None:
            return None
        loader = _Loader(fullname, found.origin)
        loader.source = self.source
        return importlib.util.spec_from_file_location(
            fullname, found.origin, loader=loader, submodule_search_locations=found.submodule_search_locations
        )


def package_folder(package: str) -> Path:
    """The folder of a package.

    :raises NoPackage: it cannot be imported, or is a module.
    """
    try:
        found = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        found = None
    if found is None or not found.submodule_search_locations:
        raise NoPackage(f"no package is called {package!r}: expected kvgpu, kvref, harness or a package that can be imported")
    return Path(next(iter(found.submodule_search_locations))).resolve()


def folder_above(package: str) -> Path:
    """The folder from which on the files of a package are named: that of ``kvref`` for ``kvref/state.py``.

    :raises NoPackage: as ``package_folder``.
    """
    return package_folder(package).parents[package.count(".")]


def module_of(file: str) -> str:
    """The name of the module of a file, which is named as ``folder_above`` says."""
    parts = file.removesuffix(".py").split("/")
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def forget(packages: Iterable[str]) -> None:
    """Whoever imports these packages next gets them anew."""
    for package in packages:
        for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
            del sys.modules[name]


def import_changed(module: str, source: bytes) -> None:
    """From now on this process imports ``module`` from ``source``; what was imported before must have been forgotten."""
    sys.dont_write_bytecode = True
    sys.meta_path.insert(0, _Finder(module, source))


def clear_caches(package: str) -> None:
    """Let go of what the functions of a package remember, so that what calls them next executes them."""
    for name, module in list(sys.modules.items()):
        if name == package or name.startswith(f"{package}."):
            for value in list(vars(module).values()):
                _clear(value)
                if isinstance(value, type):
                    for own in list(vars(value).values()):
                        _clear(own)


def _clear(value: Any) -> None:
    clear: Callable[[], object] | None = getattr(value, "cache_clear", None) if hasattr(type(value), "cache_clear") else None
    if clear is not None:
        clear()
