"""Where scenarios are: the suite, and the scenario files among other files."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_SAYS_KVSPEC = re.compile(rb"^(?:\xef\xbb\xbf)?(?:--- +)?(?:\{ *)?[\"']?kvspec[\"']? *:", re.MULTILINE)
_ENDINGS = (".yaml", ".yml")
_LINE = re.compile(r"(.+?):(\d{1,9})(?::\d+)?")


@dataclass(frozen=True, slots=True)
class Asked:
    """A file that a command line asks for. ``lines``: those whose scenarios alone are meant; none for all of it."""

    path: Path
    lines: tuple[int, ...] = ()


def suite_path() -> Path:
    """The folder of the suite: ``scenarios`` here, else inside the installed package, else beside the package in the repository.

    :raises FileNotFoundError: in none of them.
    """
    package = Path(__file__).resolve().parent
    for folder in (Path("scenarios"), package / "data" / "scenarios", package.parents[1] / "scenarios"):
        if folder.is_dir():
            return folder
    raise FileNotFoundError("the suite is missing: there is no folder 'scenarios' here, and the installation of kvspec has none")


def says_kvspec(path: Path) -> bool:
    """Whether a file claims to be a scenario: it has a top-level key ``kvspec``. False for what cannot be read."""
    try:
        return path.is_file() and _SAYS_KVSPEC.search(path.read_bytes()) is not None
    except OSError:
        return False


def scenario_files(paths: Iterable[Path]) -> list[Path]:
    """The files that the paths stand for, each once, without the lines that they may name."""
    return [asked.path for asked in asked_files(paths)]


def asked_files(paths: Iterable[Path]) -> list[Asked]:
    """The files that the paths stand for, each once.

    A folder stands for the YAML files anywhere below it that say ``kvspec:``, sorted; any other path for itself,
    whatever it is. Folders whose names begin with a dot are passed over. ``FILE:LINE``, as messages write it, stands for the
    scenario of a file at that line. What is not there is looked for in the suite: reports name its files so.
    """
    files: dict[Path, tuple[int, ...]] = {}
    for path, line in map(_resolved, paths):
        if path.is_dir():
            for file in _below(path):
                files[file] = ()
        elif line is None or files.get(path) == ():
            files[path] = ()
        else:
            files[path] = (*files.get(path, ()), line)
    return [Asked(path, lines) for path, lines in files.items()]


def suite_name(path: Path) -> str | None:
    """How a file of the suite is called wherever one is: its path below the suite; ``None`` for any other file."""
    try:
        suite = suite_path().resolve()
    except FileNotFoundError:
        return None
    path = path.resolve()
    return path.relative_to(suite).as_posix() if path.is_relative_to(suite) else None


def _below(path: Path) -> Iterable[Path]:
    for folder, below, names in os.walk(path):
        below[:] = sorted(name for name in below if not name.startswith("."))
        found = (Path(folder, name) for name in sorted(names) if name.endswith(_ENDINGS))
        yield from (file for file in found if says_kvspec(file))


def _resolved(path: Path) -> tuple[Path, int | None]:
    """A path as given, or its file and line, here or in the suite."""
    found = _LINE.fullmatch(str(path))
    candidates: list[tuple[Path, int | None]] = [(path, None)]
    if found is not None:
        candidates.append((Path(found[1]), int(found[2])))
    if not path.is_absolute():
        with contextlib.suppress(FileNotFoundError):
            candidates += [(suite_path() / one, line) for one, line in list(candidates)]
    return next((one for one in candidates if one[0].exists()), candidates[0])
