"""Garbage collection while much is made that stays, or goes by itself."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

OBJECTS = 1_000_000
"""After how many more objects that may be in cycles the collector looks: observations are made of many that are in none."""


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Have the collector look less often meanwhile, unless somebody has it look even less often, or never."""
    before = gc.get_threshold()
    if 0 < before[0] < OBJECTS:
        gc.set_threshold(OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
