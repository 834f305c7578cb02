"""What no single step shows, and the kinds of state ask for: who has resumed, which commits have ended, what is to be refused."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvspec import ops
from kvspec.audit.moment import Moment
from kvspec.observation import RequestStatus


@dataclass(slots=True)
class Past:
    """What is remembered between steps.

    ``resumed``: the requests that have been active. ``ended``: those that commit no more (`end`, `stop_committing`).
    ``closed``: the batches that were closed. ``refusals``: the copies that are still to be refused.
    """

    resumed: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)
    closed: set[str] = field(default_factory=set)
    refusals: list[ops.FailCopy] = field(default_factory=list)

    def queued(self) -> bool:
        """Whether a copy that is refused now is refused after its work was queued: whatever is to be refused is, then."""
        return bool(self.refusals) and all(one.queued for one in self.refusals)

    def follow(self, moment: Moment) -> None:
        """Take a step in."""
        if moment.refused:
            self.refusals.clear()
        for name in moment.actors:
            view = moment.now(name)
            if view is not None and view.status is RequestStatus.ACTIVE:
                self.resumed.add(name)
        if moment.outcome.error is not None:
            return
        match moment.op:
            case ops.Create():
                self.resumed.discard(moment.op.request)
                self.ended.discard(moment.op.request)
            case ops.StopCommitting():
                self.ended.add(moment.op.request)
            case ops.Commit() if moment.op.end:
                self.ended.add(moment.op.request)
            case ops.MakeBatch():
                self.closed.discard(moment.op.name)
            case ops.CloseBatch():
                self.closed.add(moment.op.batch)
            case ops.FailCopy():
                self.refusals.append(moment.op)
