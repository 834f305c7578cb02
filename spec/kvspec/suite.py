"""Where scenarios are: the suite, and the scenario files among other files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

_SAYS_KVSPEC = re.compile(rb"^(?:\xef\xbb\xbf)?(?:--- +)?(?:\{ *)?[\"']?kvspec[\"']? *:", re.MULTILINE)
_ENDINGS = (".yaml", ".yml")


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
    """The files that the paths stand for, each once.

    A folder stands for the YAML files anywhere below it that say ``kvspec:``, sorted; any other path for itself,
    whatever it is. Folders whose names begin with a dot are passed over.
    """
    files: dict[Path, None] = {}
    for path in paths:
        if not path.is_dir():
            files[path] = None
            continue
        for folder, below, names in os.walk(path):
            below[:] = sorted(name for name in below if not name.startswith("."))
            found = (Path(folder, name) for name in sorted(names) if name.endswith(_ENDINGS))
            files.update((file, None) for file in found if says_kvspec(file))
    return list(files)
