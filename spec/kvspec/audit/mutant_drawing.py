"""Drawing breaks of a package at random: the same on every machine, and most of them the same after an edit elsewhere."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from kvspec.audit.changed_import import folder_above, package_folder
from kvspec.audit.changes import Change, changes_of

KNOWN = Path(__file__).with_name("equivalent.yaml")
"""What is not drawn, and which changes are equivalent."""

WEIGHTS: Mapping[str, float] = {"arguments swapped": 0.2, "statement deleted": 0.35, "return deleted": 0.5, "raise deleted": 0.5}
"""How likely a kind of change is drawn, against 1: there are many of these, and most of them fail at once."""
NUMBER = 0.6
"""The weight of a changed number."""

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LeftOut(_Entry):
    """What is never drawn. ``files``: patterns. ``functions``: qualified names; all of the file if empty."""

    files: tuple[Text, ...]
    functions: tuple[Text, ...] = ()
    reason: Text


class Equivalent(_Entry):
    """A change after which the program does the same."""

    file: Text
    function: str
    line: Text
    change: Text
    nth: Annotated[int, Field(ge=0)] = 0
    reason: Text

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        """As ``Change.key``."""
        return (self.file, self.function, self.line, self.change, self.nth)


class Known(_Entry):
    """The content of such a file."""

    left_out: tuple[LeftOut, ...] = ()
    equivalent: tuple[Equivalent, ...] = ()

    def reason(self, change: Change) -> str | None:
        """Why a change is equivalent, if it is said to be."""
        return next((entry.reason for entry in self.equivalent if entry.key == change.key), None)


class KnownError(ValueError):
    """A file of known changes is wrong; ``str()`` of it says where and what was expected."""


def load_known(path: Path = KNOWN) -> Known:
    """What is known of changes.

    :raises KnownError: the file cannot be read, or is none of these.
    """
    try:
        data: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
        known = Known.model_validate(data or {})
    except OSError as error:
        raise KnownError(f"{path}: cannot be read: {(error.strerror or 'no reason given').lower()}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise KnownError(f"{path}: no YAML: {' '.join(str(error).split())}") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the top"
        raise KnownError(f"{path}: {place}: {first['msg'][:1].lower()}{first['msg'][1:]}") from None
    return known


@dataclass(frozen=True, slots=True)
class Source:
    """A module of a package. ``file``: from the package's folder on. ``changes``: all that may be drawn."""

    file: str
    text: bytes
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Drawn:
    """The ``index``-th break of a seed."""

    index: int
    change: Change


def sources_of(package: str, known: Known) -> dict[str, Source]:
    """The modules of a package and what may be drawn from each.

    :raises NoPackage: there is no such package.
    """
    folder, above = package_folder(package), folder_above(package)
    found = {}
    for path in sorted(folder.rglob("*.py")):
        file = path.relative_to(above).as_posix()
        left = [entry for entry in known.left_out if any(fnmatchcase(file, pattern) for pattern in entry.files)]
        text = path.read_bytes()
        whole = any(not entry.functions for entry in left)
        functions = [name for entry in left for name in entry.functions]
        found[file] = Source(file, text, () if whole else tuple(changes_of(text, file, functions)))
    return found


def draw(sources: Mapping[str, Source], seed: int, count: int) -> list[Drawn]:
    """The first ``count`` breaks of a seed, without repetition; fewer if there are no more."""
    changes = [change for source in sources.values() for change in source.changes]
    ranked = sorted(changes, key=lambda change: (_rank(change, seed), change.key))
    return [Drawn(index, change) for index, change in enumerate(ranked[:count])]


def fingerprint(sources: Mapping[str, Source]) -> str:
    """Equal if and only if the same is drawn, and the same is changed."""
    digest = hashlib.sha256()
    for file in sorted(sources):
        source = sources[file]
        digest.update(f"{file} {len(source.text)} {len(source.changes)}\n".encode() + source.text)
    return digest.hexdigest()[:16]


def stale(known: Known, sources: Mapping[str, Source], package: str) -> Sequence[Equivalent]:
    """Entries of a package that no change has any more."""
    there = {change.key for source in sources.values() for change in source.changes}
    folder = package.replace(".", "/")
    return [entry for entry in known.equivalent if entry.file.startswith(f"{folder}/") and entry.key not in there]


def _rank(change: Change, seed: int) -> float:
    """Its number among all: a change keeps its own, whatever other changes there are."""
    digest = hashlib.sha256("\0".join(map(str, (seed, *change.key))).encode()).digest()
    even = (int.from_bytes(digest[:7], "big") + 1) / (256**7 + 1)
    return -math.log(even) / _weight(change.what)


def _weight(what: str) -> float:
    kind = what.split(":")[0]
    return WEIGHTS.get(kind, NUMBER if kind.lstrip("-")[:1].isdigit() else 1.0)
