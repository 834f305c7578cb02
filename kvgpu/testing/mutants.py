"""Named breaks of ``kvgpu``: what a suite of scenarios must be able to tell from the real thing.

A *fence* break drops a wait or an event record: by the name of its site, which every device can be told to drop, or by a patch
where one name stands for several waits. A *guard* break patches logic that is no fence. Nothing of it is in the way of normal
code: patches are applied from outside, for as long as a context manager is open.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from kvgpu.testing.error_guards import ERROR_GUARDS
from kvgpu.testing.fetches import FETCHES
from kvgpu.testing.guards import GUARDS
from kvgpu.testing.keys import KEYS
from kvgpu.testing.pairs import PAIRS
from kvgpu.testing.patches import DROPPED, Patch
from kvgpu.testing.private import PRIVATE
from kvgpu.testing.reads import READS
from kvgpu.testing.sizes import SIZES
from kvgpu.testing.steps import STEPS
from kvgpu.testing.waits import WAITS


@dataclass(frozen=True, slots=True)
class Mutant:
    """A break. ``rule``: the one that it breaks. ``kind``: ``fence`` or ``guard``. ``options``: of the setup, needed for it."""

    name: str
    rule: str
    kind: str
    options: Mapping[str, str] = field(default_factory=dict)
    patch: Patch = nullcontext

    def broken(self) -> AbstractContextManager[None]:
        """``kvgpu`` is broken while the context is open."""
        return self.patch()


SITES = (
    "R15.2 slot: fetches of it",
    "R15.4 fetch: where the buffers of a layer lie",
    "R15.4 where the buffers of a layer lie",
    "R15.7 fetch: the fetch before it",
    "R15.7 fetch: the last publication",
    "R15.7 the end of a fetch",
    "R3.14 after saving what a copy overwrites",
    "R4.8 put back after the undone copy",
    "R4.8 work of a refused copy",
    "R4.8 work of an owner after undone copies",
    "R6.1 readiness in a snapshot",
    "R6.4 work before a commit",
    "R7.1 completion of a copy",
    "R7.1 readiness of a copied page",
    "R7.1 slot: a private copy out of it",
    "R7.1 work of the owners of a copied page",
    "R7.1 work so far of an owner",
    "R7.2 freed slot: the copy out of it",
    "R7.3 readiness: the copy there",
    "R7.4 freed slot: work before its release",
    "R7.4 work before a release",
    "R7.5 publication: readiness of the pages in its rows",
    "R7.5 publication: recorded reads of the tables",
    "R7.5 publication: the previous publication",
    "R7.5 publication: the tables are written",
    "R7.6 a page read has run",
    "R7.6 a payload buffer has been read",
    "R7.6 staging buffer: its upload has run",
    "R7.7 reads of a request so far",
    "R7.7 record_read: the reads of the tables so far",
    "R7.7 record_read: the stream of an active member",
    "R7.7 slot: reads of it",
    "R7.7 work of a request after its reads",
    "R7.7 work of an owner after reads of its slots",
    "R7.8 a new stream after the one before",
    "R7.8 work on the stream before",
    "R7.9 readiness of a page that a rebase locks",
    "R7.9 readiness of a page that a resume locks",
    "R8.1 first publication: the tables have their first values",
    "R8.1 the tables have their first values",
    "R8.4 nothing dirty: the stream follows the last publication",
    "R8.4 publication: what a refused upload had queued",
    "R8.4 what a refused upload had queued",
    "R8.7 exported array: the consumer's stream",
    "R8.7 wait_ready: the publication",
    "R8.8 after a capture, after the work beside it",
    "R8.8 beside a capture, after the work before it",
    "R8.8 replay: its result has been copied",
    "R8.8 replay: the last publication of a table it reads",
    "R8.8 replay: the result of the replay before has been copied",
    "R8.8 work before a capture",
    "R8.8 work beside a capture",
)
"""Every site that waits or records. A test compares them with those that a run of the suite has seen, both ways."""

UNREACHED: Mapping[str, str] = {
    "R6.4 readiness: work before the commit": "every wait for a readiness has a name of its own, this reason is never quoted",
    "R4.8 readiness: what an undone copy overwrote was put back": "as the one before",
    "R7.6 payload buffer": "nobody waits for it: the CPU asks whether it is over",
    "R7.6 page read": "as the one before",
}
"""Reasons of points that no wait ever quotes, and why."""


def mutants() -> tuple[Mutant, ...]:
    """All breaks: the sites, the waits that share a site's name, the guards."""
    fences = [Mutant(site, site.split()[0], "fence", {"mutant": site}) for site in SITES]
    waits = [Mutant(name, rule, "fence", {"mutant": DROPPED}, patch) for name, rule, patch in WAITS]
    patches = (*GUARDS, *ERROR_GUARDS, *SIZES, *PAIRS, *READS, *STEPS, *KEYS, *PRIVATE, *FETCHES)
    guards = (Mutant(name, rule, "guard", {}, patch) for name, rule, patch in patches)
    return (*fences, *waits, *guards)
