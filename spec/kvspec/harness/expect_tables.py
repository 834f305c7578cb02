"""Expectations of batches: rows, published tables, labelled table reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kvspec.harness.checks import Check, check
from kvspec.harness.evidence import Evidence, Nothing
from kvspec.harness.memory import Publication, read_positions
from kvspec.observation import BAD
from kvspec.refs import entry

Rows = Sequence[Sequence[str]]


def dirty_rows(e: Evidence, wanted: Mapping[str, Sequence[int]]) -> Iterator[Check]:
    """``dirty_rows``: per batch (R8.3)."""
    for name, rows in wanted.items():
        yield check(("dirty_rows", name), f"dirty rows of {name}", tuple(rows), e.batch(name).dirty_rows)


def staging(e: Evidence, wanted: Mapping[str, int]) -> Iterator[Check]:
    """``staging``: per batch, the number of staging buffers (R7.6)."""
    for name, count in wanted.items():
        yield check(("staging", name), f"staging buffers of {name}", count, e.batch(name).staging)


def num_blocks(e: Evidence, wanted: Mapping[str, Sequence[int]]) -> Iterator[Check]:
    """``num_blocks``: per ``batch.group``, as last published (R8.5)."""
    for key, counts in wanted.items():
        for name, group in e.batch_groups(key):
            actual = e.batch(name).published[group].num_blocks
            row = next((n for n, (a, b) in enumerate(zip(counts, actual, strict=False)) if a != b), 0)
            yield check(("num_blocks", key), f"num_blocks of {name}.{group}", tuple(counts), actual, row=(name, row))


def table(e: Evidence, wanted: Mapping[str, Rows]) -> Iterator[Check]:
    """``table``: per ``batch.group``, rows of entries as last published (R8.4)."""
    for key, rows in wanted.items():
        for name, group in e.batch_groups(key):
            last = e.memory(name).last
            table = e.batch(name).published[group].page_table
            yield from _rows(("table", key), f"page table of {name}.{group}", rows, table, last, group, name)


def level_table(e: Evidence, wanted: Mapping[str, Rows]) -> Iterator[Check]:
    """``level_table``: per ``batch.group`` of a batch with level tables, as last published (R8.1)."""
    labels = {BAD: "-", 0: "gpu", 1: "host", 2: "disk"}
    for key, rows in wanted.items():
        for name, group in e.batch_groups(key):
            table = e.batch(name).published[group].page_level
            if table is None:
                raise Nothing(f"batch {name} has no level tables: it was not made with levels: true")
            actual = tuple(tuple(labels.get(word, f"level {word}") for word in row) for row in table)
            said = tuple(map(tuple, rows))
            row = next((n for n, (a, b) in enumerate(zip(said, actual, strict=False)) if a != b), 0)
            yield check(("level_table", key), f"level table of {name}.{group}", said, actual, row=(name, row))


def sees(e: Evidence, wanted: Mapping[str, Rows]) -> Iterator[Check]:
    """``sees``: per label of a table read, the rows that it returned, named by where pages were when it was published."""
    for label, rows in wanted.items():
        view = e.read(label)
        target = e.side.memory.reads.get(label)
        path, title = ("sees", label), f"table read {label}"
        if target is None:
            raise Nothing(f"read {label} reads no table")
        if view.entries is None:
            yield check(path, title, tuple(map(tuple, rows)), "nothing yet: the read is pending or was never replayed", ok=False)
            continue
        positions = sorted(read_positions(target, view.entries), reverse=True)
        answers = [
            list(_rows(path, title, rows, view.entries, target.batch.publications[position], target.group, None))
            for position in positions
        ]
        if not answers:
            yield check(path, title, tuple(map(tuple, rows)), f"entries never published: {view.entries}", ok=False)
            continue
        # Where several publications had the same entries, any of their readings will do.
        yield from min(answers, key=lambda checks: sum(not one.ok for one in checks))


def _rows(
    path: tuple[str, ...],
    title: str,
    wanted: Rows,
    table: Sequence[Sequence[int]],
    publication: Publication,
    group: str,
    batch: str | None,
) -> Iterator[Check]:
    names = publication.names(group, tuple(map(tuple, table)))
    if len(wanted) != len(table):
        yield check(path, f"rows of {title}", f"{len(wanted)} rows", f"{len(table)} rows")
        return
    for row, entries in enumerate(wanted):
        have = table[row]
        record = publication.rows[row]
        ok = len(entries) == len(have)
        for said, word in zip(entries, have, strict=False):
            named = entry(said)
            if named is None:
                ok = ok and word == BAD
            elif record is None or (slot := record.slot(group, named)) is None:
                raise Nothing(f"{title} row {row}: {said} had no page when that row was published")
            else:
                ok = ok and slot == word
        place = None if batch is None else (batch, row)
        yield check(path, f"{title} row {row}", tuple(entries), names[row], ok, row=place)
