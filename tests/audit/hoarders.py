"""The reference with things that it never gives back; both systems are the same, so that no step differs."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from kvref.system import Reference
from kvspec.observation import Observation
from kvspec.system import Setup


class KeepsSlots(Reference):
    """One slot of each pool group is never free again once all of them have been in use for a while."""

    def observe(self) -> Observation:
        seen = super().observe()
        pools = {
            key: replace(pool, free=pool.free - 1, fences=pool.fences[1:]) if pool.free == pool.slots and pool.slots else pool
            for key, pool in seen.pools.items()
        }
        return replace(seen, pools=pools) if not seen.tree and not seen.pages else seen


class KeepsFiles(Reference):
    """A temporary file stays."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        handle, name = tempfile.mkstemp(prefix="hoard-")
        Path(name).write_bytes(b"kept")
        open(handle, "rb").close()


class SharesAlone(Reference):
    """It has no private ownership."""

    capabilities = Reference.capabilities - {"private"}


class FetchesNothing(Reference):
    """It cannot fetch."""

    capabilities = Reference.capabilities - {"fetch"}
