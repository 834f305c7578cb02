"""What a comparison finds, and how a replay ends: plain data, so that it travels between processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kvspec.scenario import Position


class Kind(StrEnum):
    """What sort of finding it is."""

    RAISED = "raised"
    """A system let an exception out."""
    SILENT = "silent"
    """A system gave no answer: the time was up, or its process ended."""
    FAULT = "fault"
    """A system reported a problem of its own, such as two unordered accesses."""
    OUTCOME = "outcome"
    """The value or error of the operation."""
    EXPECTATION = "expectation"
    """Something that the scenario says."""
    STATE = "state"
    """Something that the harness compares anyway."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One finding at one step.

    ``subject``: what differs, with request, group and block where there are some. ``reference`` and ``implementation``: the
    values of the two systems. ``expected``: what the scenario says, if it does. ``identity``: the subject without
    names and numbers, the same for the same kind of mistake. ``page``, ``row``: by which the report finds the last step
    that touched it. ``detail``: further lines. ``position``: of the expectation in the file.
    """

    kind: Kind
    subject: str
    reference: str
    implementation: str
    expected: str | None = None
    identity: str = ""
    rules: tuple[str, ...] = ()
    detail: tuple[str, ...] = ()
    page: str | None = None
    row: tuple[str, int] | None = None
    position: Position | None = None


_DECIDING = (
    # What a system said or did,
    "raises error returns outcome",
    # where pages are,
    "page references tokens level levels page_level snapshot index slot same_page different_page tree moved",
    # who has them, and what requests and batches are,
    "page_status owners copies backing reserved status phase capacity history committed row batch batches rows free",
    "events copy_calls evictable would_evict",
    # what follows from that: contents, order, tables and counters,
    "payload ready pending done eligible published num_blocks table level_table sees device_entries read counters stats "
    "cached_payload cache resident fetch fetched",
    # and what says no more than that something has changed.
    "dirty dirty_rows acknowledged version version_since",
)
_RANKS = {identity: rank for rank, line in enumerate(_DECIDING) for identity in line.split()}
_USUAL = 4


def deciding(difference: Difference) -> int:
    """How early a difference stands in a report, 0 first: a page on the wrong level explains a version, and not the reverse."""
    if difference.kind in (Kind.RAISED, Kind.SILENT, Kind.FAULT):
        return -1
    return _RANKS.get(difference.identity.replace(" ", "_"), _USUAL)


class Verdict(StrEnum):
    """What came of a replay: passed, failed, or skipped."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Failure:
    """The first step that diverged, and what the report says around it.

    ``step``: its number, that of the last step if the systems failed to close. ``touched``: the last earlier step that
    touched each page or row in question, by name. ``gates``: the closed gates, with the step that closed each. ``remarks``: what
    the systems said beside the value of the step: why it is false, or a match no longer.
    """

    step: int
    verb: str
    position: Position
    last_line: int
    differences: tuple[Difference, ...]
    touched: Mapping[str, int] = field(default_factory=dict)
    gates: Mapping[str, int] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    @property
    def identity(self) -> tuple[str, ...]:
        """What fails, without the names in this scenario: equal for the same mistake in a shorter scenario."""
        return tuple(sorted({f"{d.kind}:{d.identity or d.subject}" for d in self.differences}))


@dataclass(frozen=True, slots=True)
class Result:
    """How one scenario's replay ended.

    ``steps``: those carried out. ``device``: of the system under test. ``reason``: why it was skipped; ``lacks``: the same as
    single things that a system cannot do. ``timeline``: of a failure, where it was asked for, what its page over time is told
    (``kvspec.harness.timeline.page``). ``alone``: it asks for policies that the system under test does not have, and the
    reference alone was held to what it expects (skipped where it does that, else failed). ``passed_over``: how many of its
    expectations are for other policies than those of the system, so that the system was compared with the reference alone.
    """

    name: str
    position: Position
    index: int
    rules: tuple[str, ...]
    verdict: Verdict
    steps: int
    seconds: float
    device: str = "unknown"
    reason: str = ""
    failure: Failure | None = None
    lacks: tuple[str, ...] = ()
    timeline: str = ""
    alone: bool = False
    passed_over: int = 0


def side_names(reference: str, implementation: str) -> tuple[str, str]:
    """How reports call the two systems: by their names, which are told apart where they are the same."""
    if reference != implementation:
        return reference, implementation
    return f"{reference} (reference)", f"{implementation} (tested)"
