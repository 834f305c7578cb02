"""Explicit expectations, which hold both systems to account."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kvspec.harness import expect_fetches, expect_pages, expect_requests, expect_tables
from kvspec.harness.checks import Check
from kvspec.harness.compare import Comparison
from kvspec.harness.difference import Difference, Kind
from kvspec.harness.evidence import Evidence, Nothing
from kvspec.harness.newer import OF_THE_REFERENCE, may_be_newer
from kvspec.harness.side import Side
from kvspec.harness.tables import table_detail
from kvspec.refs import RefError, batch_group
from kvspec.scenario import Position, Step

Evaluator = Callable[[Evidence, Any], Iterator[Check]]

EVALUATORS: dict[str, Evaluator] = {
    "levels": expect_requests.levels,
    "owners": expect_pages.owners,
    "eligible": expect_requests.eligible,
    "num_blocks": expect_tables.num_blocks,
    "table": expect_tables.table,
    "status": expect_requests.fields("status"),
    "phase": expect_requests.fields("phase"),
    "history": expect_requests.fields("history"),
    "capacity": expect_requests.fields("capacity"),
    "row": expect_requests.fields("row"),
    "committed": expect_requests.fields("committed"),
    "dirty": expect_requests.fields("dirty"),
    "dirty_rows": expect_tables.dirty_rows,
    "version": expect_requests.version,
    "free": expect_pages.free,
    "same_page": expect_pages.same_page,
    "different_page": expect_pages.different_page,
    "page_status": expect_pages.page_status,
    "backing": expect_pages.backing,
    "copies": expect_pages.copies,
    "moved": expect_requests.moved,
    "copy_calls": expect_requests.copy_calls,
    "pending": expect_pages.pending,
    "done": expect_pages.done,
    "page_level": expect_pages.page_level,
    "version_since": expect_requests.version_since,
    "tree": expect_pages.tree,
    "level_table": expect_tables.level_table,
    "would_evict": expect_pages.would_evict,
    "snapshot": expect_requests.snapshot,
    "events": expect_pages.events,
    "stats": expect_requests.stats,
    "staging": expect_tables.staging,
    "payload": expect_pages.payload,
    "sees": expect_tables.sees,
    "fetched": expect_fetches.fetched,
    "resident": expect_fetches.resident,
    "reserved": expect_fetches.reserved,
}
"""What answers each key of ``Expect``."""
_ORDER = {key: number for number, key in enumerate(EVALUATORS)}


def compare_expectations(c: Comparison) -> Iterator[Difference]:
    """Every expectation of the step that one of the systems, or both, does not meet."""
    given = c.step.expect.model_fields_set
    for key in sorted(given, key=_ORDER.__getitem__):
        evaluate, wanted = EVALUATORS[key], getattr(c.step.expect, key)
        if wanted is None:
            continue
        if not isinstance(wanted, tuple | list) and hasattr(wanted, "items") and wanted:
            # Entry by entry, so that one that refers to nothing hides none of the others.
            for name, value in wanted.items():
                yield from _merged(c, evaluate, (key, str(name)), {name: value})
        else:
            yield from _merged(c, evaluate, (key,), wanted)


def _merged(c: Comparison, evaluate: Evaluator, path: tuple[str, ...], wanted: Any) -> Iterator[Difference]:
    answers = [_answer(c, side, evaluate, path, wanted) for side in (c.reference, c.implementation)]
    if not any(answers):
        nothing = Check(path, ": ".join(path), "something", "the expectation is empty: it could not fail", ok=False)
        answers = [[nothing], [nothing]]
    for one, two in zip(*(_padded(answer, answers) for answer in answers), strict=True):
        if one.ok and two.ok:
            continue
        if one.ok and path[0] in OF_THE_REFERENCE and may_be_newer(c):
            continue  # what the system shows is compared with the reference
        if c.shared.loose and not one.ok:
            c.shared.passed_over += 1
            continue
        subject = two.subject if one.ok else one.subject
        yield Difference(
            Kind.EXPECTATION,
            subject,
            one.actual,
            two.actual,
            expected=two.wanted if one.ok else one.wanted,
            identity=path[0],
            detail=_raw_words(c, path, one.row or two.row),
            page=one.page or two.page,
            row=one.row or two.row,
            position=_position(c.step, one.path),
        )


def _answer(c: Comparison, side: Side, evaluate: Evaluator, path: tuple[str, ...], wanted: Any) -> list[Check]:
    try:
        return list(evaluate(Evidence(c, side), wanted))
    except (Nothing, RefError) as error:
        return [Check(path, ": ".join(path), "something to refer to", str(error), ok=False)]


def _padded(mine: list[Check], answers: list[list[Check]]) -> list[Check]:
    """The checks of one side, filled up where the other side has more: an answer of one side only is no agreement."""
    other = max(answers, key=len)
    return mine + [Check(one.path, one.subject, one.wanted, "no answer", ok=False) for one in other[len(mine) :]]


def _raw_words(c: Comparison, path: tuple[str, ...], row: tuple[str, int] | None) -> tuple[str, ...]:
    """For an expectation of ``batch.group``: the host's snapshot of the row's member, and the entries of the row."""
    if row is None or len(path) < 2 or path[0] not in ("table", "num_blocks", "level_table"):
        return ()
    groups = batch_group(path[1], tuple(c.shared.page_bytes)).groups
    return tuple(line for group in groups for line in table_detail(c, row[0], group, row[1]))


def _position(step: Step, path: tuple[str, ...]) -> Position:
    for length in range(len(path), 0, -1):
        position = step.positions.get(path[:length])
        if position is not None:
            return position
    return step.position
