"""Reached states in which two common things meet: gates and promotions, disks and commits, beams and shared prompts."""

from __future__ import annotations

from kvspec import ops
from kvspec.audit.moment import Moment
from kvspec.audit.states.registry import state
from kvspec.config import Level
from kvspec.errors import ErrorKind
from kvspec.observation import BAD

PUBLISHING = ("publish", "resize_batch", "iterate")
"""The verbs that publish (R8.4, R8.9, R11.1)."""


@state("promotion, gates", "a page comes up for a request in prefill by a copy that a gate holds up, while a decoding one has it")
def _promotion_gated(m: Moment) -> bool:
    return any(not move.down and move.before.owners and move.after.ready.pending for move in m.moved)


@state("gap closes from behind", "a deferred page moves, and the blocks behind it, on the host already, count from then on")
def _gap_closes(m: Moment) -> bool:
    for name, now in m.after.observation.requests.items():
        was = m.was(name)
        if was is None:
            continue
        for key, snapshot in now.snapshots.items():
            before = was.snapshots.get(key)
            if before is None or snapshot.eligible <= before.eligible:
                continue
            known = range(before.eligible + 1, min(snapshot.eligible, len(before.levels)))
            if before.levels[before.eligible : before.eligible + 1] == (Level.GPU,) and any(
                before.levels[block] is Level.HOST and before.indices[block] != BAD for block in known
            ):
                return True
    return False


@state("rebase, disk", "a commit rebases onto a block of which the tree has a page on the disk")
def _rebase_disk(m: Moment) -> bool:
    if not isinstance(m.op, ops.Commit):
        return False
    name = m.op.request
    return any(
        old.level is Level.DISK and name in {ref.request for ref in new.refs} - {ref.request for ref in old.refs}
        for old, new in m.pairs
    )


@state(
    "commit stops, middle", "a block in the middle of a commit fails: one before it is in the tree, and one behind it was to come"
)
def _commit_stops_middle(m: Moment) -> bool:
    if not isinstance(m.op, ops.Commit) or m.outcome.error not in (ErrorKind.OUT_OF_PAGES, ErrorKind.COPY_FAILED):
        return False
    was, now = m.was(m.op.request), m.now(m.op.request)
    if was is None or now is None or now.committed <= was.committed:
        return False
    return was.committed + len(m.op.tokens) >= (now.committed // m.manager.tokens_per_block + 2) * m.manager.tokens_per_block


@state(
    "publication, three levels",
    "within one publication pages go from the GPU to the host, from there to the disk, and out of there",
)
def _three_levels(m: Moment) -> bool:
    if m.verb not in PUBLISHING or not m.offloaded:
        return False
    to_disk = any(move.before.level is Level.HOST and move.after.level is Level.DISK for move in m.evicted)
    return to_disk and any(page.level is Level.DISK for page in m.dropped)


@state("beam rows let go", "a request lets go of its beam rows, and of a prompt that another request has, too")
def _beams_let_go(m: Moment) -> bool:
    for name in m.actors:
        was = m.was(name)
        if was is None or was.beam_width < 2 or not any(ref.request == name and ref.beam for page in m.gone for ref in page.refs):
            continue
        for old, new in m.pairs:
            names = {ref.request for ref in new.refs}
            if names and name not in names and any(ref.request == name for ref in old.refs):
                return True
    return False
