"""What is left when a lifecycle is over: everything is closed, so every slot is free and no file is there any more."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kvspec.config import LayerKind, ManagerConfig
from kvspec.harness.difference import Difference, Kind
from kvspec.observation import Observation, RequestStatus


@dataclass(slots=True)
class Folder:
    """Where the systems put temporary files. ``left``: what is still there at the end of the context."""

    path: Path
    left: tuple[str, ...] = field(default=())


@contextmanager
def own_folder() -> Iterator[Folder]:
    """Temporary files of this process go to a folder of its own meanwhile."""
    before = tempfile.tempdir
    with tempfile.TemporaryDirectory(prefix="lifecycle-") as name:
        folder = Folder(Path(name))
        tempfile.tempdir = name
        try:
            yield folder
        finally:
            tempfile.tempdir = before
            folder.left = tuple(sorted(str(path.relative_to(folder.path)) for path in folder.path.rglob("*")))


def still_held(manager: ManagerConfig, reference: Observation, implementation: Observation) -> Iterator[Difference]:
    """What of a state in which everything should have been let go of is still there, in either system.

    But for blocks of the tree that may be links: these have no page to lose, and stay (R10.3).
    """
    links = all(layer.kind is LayerKind.SSM or layer.sliding_window for layer in manager.layers)
    for subject, one, two in zip(_subjects(reference), _texts(reference), _texts(implementation), strict=True):
        if links and subject == TREE:
            continue
        if one != NOTHING or two != NOTHING:
            yield Difference(Kind.STATE, f"left at the end: {subject}", one, two, expected=NOTHING, identity="left at the end")


def files_left(folder: Folder) -> Iterator[Difference]:
    """Files of the systems that are still in the folder: one difference with their names."""
    if folder.left:
        names = ", ".join(folder.left)
        yield Difference(Kind.STATE, "files left at the end", names, names, expected=NOTHING, identity="files left at the end")


NOTHING = "none"
TREE = "tree blocks"


def _subjects(seen: Observation) -> list[str]:
    return [
        "requests",
        "pages",
        TREE,
        "batches",
        *(f"slots of {level.label}.{group}" for level, group in sorted(seen.pools)),
    ]


def _texts(seen: Observation) -> list[str]:
    lists = (
        [name for name, view in seen.requests.items() if view.status is not RequestStatus.CLOSED],
        [f"{page.group} block {page.block} at {page.level.label}" for page in seen.pages],
        [str(list(block.tokens)) for block in seen.tree],
        list(seen.batches),
    )
    used = [seen.pools[key].slots - seen.pools[key].free for key in sorted(seen.pools)]
    return [", ".join(names) or NOTHING for names in lists] + [f"{count} in use" if count else NOTHING for count in used]
