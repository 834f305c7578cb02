"""The named breaks of fences whose sites are shared: of one wait among them, by a patch."""

from __future__ import annotations

from typing import Any

from kvgpu.batch.tables import Tables
from kvgpu.operations import growth, journal
from kvgpu.operations.transaction import Transaction
from kvgpu.storage.fences import FenceTable
from kvgpu.storage.pools import SlotPool
from kvgpu.testing.patches import Break, at, during, instead, on


def _all_wait_for_writes(old: Any) -> Any:
    def write_completed(tx: Any, request: Any, completed: Any, leaving: Any) -> None:
        old(tx, request, completed, leaving)
        tx.fence_slots(leaving, journal.released_work(tx.core, request))

    return write_completed


def _last_release_alone(old: Any) -> Any:
    def fence_slots(self: Any, numbers: Any, points: Any) -> None:
        for key, part in self.core.by_key(numbers):
            pool, slots = self.core.pool(key), self.core.pages.slot[part]
            self.put_slots(pool, "fence", slots, self.core.fences.add(points))

    return fence_slots


WAITS: tuple[Break, ...] = (
    ("an offload does not wait for the slots that its request takes", "R7.9", at("R7.9 slots that an owner is about to take")),
    ("seeds do not wait for the slots that they take", "R7.2", at("R7.2 the slots that seeds take")),
    ("what a copy overwrites is saved before it is there", "R3.14", at("R3.14 the slots that are saved")),
    ("a grown request waits for no slot that it takes", "R7.9", at("R7.9 the slots that a request takes")),
    ("a resumed request waits for no reader of its pages", "R7.9", at("R7.9 readers of the pages that a resume locks")),
    ("a rebase waits for no reader of the tree's page", "R7.9", at("R7.9 readers of the pages that a rebase locks")),
    ("a copy does not wait for the slot that it writes", "R7.1", at("R7.1 the slots that a copy writes")),
    ("a move does not wait for what is kept of its old slot", "R7.1", at("R7.1 what is kept of the slots that pages leave")),
    (
        "a private copy does not wait for what is kept of its source",
        "R7.1",
        at("R7.1 what is kept of the slots that a private copy reads"),
    ),
    (
        "a slot freed without a copy forgets the readiness of its page",
        "R7.2",
        on(FenceTable.united, lambda old: lambda self, left, right: left.copy()),
    ),
    ("recorded reads are kept for no slot", "R7.7", on(SlotPool.note_reads, instead(None))),
    ("recorded reads of tables keep back no publication", "R7.7", on(Tables.note_reads, instead(None))),
    (
        "of several releases of a page the last alone is before the next use of its slot",
        "R7.4",
        on(Transaction.fence_slots, _last_release_alone),
    ),
    ("a release puts no work into the fences of its slots", "R7.4", on(Transaction.fence_slots, instead(None))),
    (
        "what is written to a block as it goes stale is not before its release",
        "R7.4",
        during(growth._write_completed, Transaction.fence_slots, instead(None)),
    ),
    (
        "all blocks that go stale wait for what is written meanwhile",
        "R7.4",
        on(growth._write_completed, _all_wait_for_writes),
    ),
    (
        "a fetch does not wait for the slots that its rows have reserved",
        "R15.7",
        at("R15.7 fetch: the slots that its rows have reserved"),
    ),
    ("a fetch does not wait for the readers of reserved slots", "R15.7", at("R15.7 fetch: the readers of these slots")),
    ("a commit joins no work into the readiness", "R6.4", on(Transaction.join_readiness, instead(None))),
)
