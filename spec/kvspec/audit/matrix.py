"""The matrix of verbs and failures: which cells can be filled at all, and why the others cannot."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import yaml

VERBS = (
    *("resume", "resize", "enter_decode", "admit_generation", "commit", "prefetch", "offload", "set_beam_width"),
    *("seed_prefix", "evict", "publish", "resize_batch", "iterate"),
)
"""The verbs that copy or take slots."""
SORTS = (
    *("offload", "offload, queued", "onboard", "onboard, queued", "copy", "copy, queued", "upload", "upload, queued"),
    *("gpu slots", "host slots", "disk slots", "file"),
)
"""The kinds of failure, as `Injection.sort` names them."""

_FILE = Path(__file__).with_name("unreached.yaml")


def reasons() -> dict[str, dict[str, str]]:
    """Why a verb cannot fail in a way, by verb, then kind of failure: the cells that may stay empty.

    Raises ``ValueError`` for a verb or kind that does not exist.
    """
    known = cast(list[dict[str, object]], yaml.safe_load(_FILE.read_text(encoding="utf-8")))
    found: dict[str, dict[str, str]] = {}
    for entry in known:
        for verb in _names(entry["verbs"], VERBS):
            for sort in _names(entry["failures"], SORTS):
                found.setdefault(verb, {})[sort] = " ".join(str(entry["reason"]).split())
    return found


def _names(value: object, known: tuple[str, ...]) -> tuple[str, ...]:
    names = known if value == "all" else tuple(cast(list[str], value))
    if wrong := [name for name in names if name not in known]:
        raise ValueError(f"{_FILE.name}: unknown {', '.join(wrong)}: expected some of {', '.join(known)}")
    return names
