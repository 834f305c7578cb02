"""Scenarios on their way to a process that has no files of them: packed once, unpacked once by each process."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Sequence
from functools import lru_cache

from kvspec.scenario import Scenario


def packed(scenarios: Sequence[Scenario]) -> bytes:
    """The scenarios as bytes, about a kilobyte each."""
    return zlib.compress(pickle.dumps(tuple(scenarios)), 1)


@lru_cache(maxsize=2)
def unpacked(data: bytes) -> tuple[Scenario, ...]:
    """What `packed` was given. Only for bytes from there."""
    found: tuple[Scenario, ...] = pickle.loads(zlib.decompress(data))
    return found
