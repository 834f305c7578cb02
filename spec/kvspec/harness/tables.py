"""Comparing batches: rows, published and device entries, addresses; labelled snapshots; device reads; streams."""

from __future__ import annotations

from collections.abc import Iterator

from kvspec.harness.compare import Comparison
from kvspec.harness.difference import Difference
from kvspec.harness.memory import BatchMemory, LabelMemory, read_positions
from kvspec.harness.newer import may_be_newer, more_often, same_publication
from kvspec.harness.order import order_problems, order_text
from kvspec.harness.payloads import payload_equal, payload_text
from kvspec.harness.side import Side
from kvspec.harness.state import snapshot_differences
from kvspec.observation import BatchView, Order, ReadView, TableEntries
from kvspec.payload import Content

PUBLISHING = frozenset({"publish", "resize_batch", "iterate"})
"""The verbs that may change what is published."""


def compare_tables(c: Comparison) -> Iterator[Difference]:
    """Every difference of batches, labelled snapshots, reads and streams."""
    one, two = c.reference.now.observation, c.implementation.now.observation
    if one.batches.keys() != two.batches.keys():
        yield c.differ("batches", "open batches", sorted(one.batches), sorted(two.batches))
    for name in sorted(one.batches.keys() & two.batches.keys()):
        yield from _batch(c, name, one.batches[name], two.batches[name])
    yield from _labels(c)
    if one.reads.keys() != two.reads.keys():
        yield c.differ("read", "labels of reads", sorted(one.reads), sorted(two.reads))
    for label in sorted(one.reads.keys() & two.reads.keys()):
        yield from _read(c, label, one.reads[label], two.reads[label])
    if one.streams.keys() != two.streams.keys():
        yield c.differ("stream", "streams", sorted(one.streams), sorted(two.streams))
    for name in sorted(one.streams.keys() & two.streams.keys()):
        yield from _order(c, "stream", f"next work on stream {name}", one.streams[name], two.streams[name])


def _order(c: Comparison, identity: str, subject: str, one: Order, two: Order) -> Iterator[Difference]:
    if problems := order_problems(one, two):
        yield c.differ(identity, subject, order_text(one), order_text(two), detail=tuple(problems))


def _batch(c: Comparison, name: str, one: BatchView, two: BatchView) -> Iterator[Difference]:
    for identity, values in (
        ("rows", (one.rows, two.rows)),
        ("blocks", (one.blocks, two.blocks)),
        ("dirty rows", (one.dirty_rows, two.dirty_rows)),
        ("staging", (one.staging, two.staging)),
    ):
        if values[0] != values[1] and not _again(c, identity, one, two):
            yield c.differ(identity, f"{identity} of {name}", *values)
    if one.published.keys() != two.published.keys():
        yield c.differ("published", f"tables of {name}", sorted(one.published), sorted(two.published))
    for group in sorted(one.published.keys() & two.published.keys()):
        yield from _entries(c, name, group, one.published[group], two.published[group])
    for side in (c.reference, c.implementation):
        yield from _unchanged(c, side, name)
        yield from _address(c, side, name)
    yield from _device(c, name, one, two)
    yield from _order(c, "upload", f"upload of the last publication of {name}", one.upload, two.upload)


def _again(c: Comparison, identity: str, one: BatchView, two: BatchView) -> bool:
    """Whether a difference says only that rows are published again (policy ``versions``)."""
    if identity == "staging":
        return may_be_newer(c) and two.staging > one.staging
    return identity == "dirty rows" and more_often(c, one.dirty_rows, two.dirty_rows)


def _entries(c: Comparison, name: str, group: str, one: TableEntries, two: TableEntries) -> Iterator[Difference]:
    memories = c.reference.memory.batches[name], c.implementation.memory.batches[name]
    shapes = [_shape(entries) for entries in (one, two)]
    if shapes[0] != shapes[1]:
        yield c.differ("published", f"shape of {name}.{group}", *shapes)
        return
    tables = [memory.last.names(group) for memory in memories]
    for row, cells in enumerate(zip(*tables, strict=True)):
        if cells[0] != cells[1]:
            differ = [n for n, (a, b) in enumerate(zip(*cells, strict=True)) if a != b]
            where = f"page table of {name}.{group} row {row} block {differ[0]}" + (
                f" and {len(differ) - 1} more" * (len(differ) > 1)
            )
            yield c.differ(
                "published",
                where,
                cells[0][differ[0]],
                cells[1][differ[0]],
                detail=table_detail(c, name, group, row),
                row=(name, row),
            )
        if one.num_blocks[row] != two.num_blocks[row]:
            yield c.differ(
                "published",
                f"num_blocks of {name}.{group} row {row}",
                one.num_blocks[row],
                two.num_blocks[row],
                detail=table_detail(c, name, group, row),
                row=(name, row),
            )
        levels = [entries.page_level[row] if entries.page_level is not None else None for entries in (one, two)]
        if levels[0] != levels[1]:
            yield c.differ("published", f"page_level of {name}.{group} row {row}", *levels, row=(name, row))


def _shape(entries: TableEntries) -> str:
    levels = "none" if entries.page_level is None else str([len(row) for row in entries.page_level])
    return f"page_table {[len(row) for row in entries.page_table]}, num_blocks {len(entries.num_blocks)}, page_level {levels}"


def table_detail(c: Comparison, name: str, group: str, row: int) -> tuple[str, ...]:
    """For the reader: in both systems the host's snapshot of a row's member, and the published and device entries of the row."""
    lines = []
    for side in (c.reference, c.implementation):
        view = side.now.observation.batches[name]
        member = view.rows[row] if row < len(view.rows) else None
        request = side.now.observation.requests.get(member) if member is not None else None
        snapshot = request.snapshots.get((group, 0)) if request is not None else None
        if snapshot is not None:
            levels = ["-" if level is None else level.label for level in snapshot.levels]
            lines.append(
                f"{side.name}: host snapshot of {member}: indices {list(snapshot.indices)}, levels {levels}, "
                f"eligible {snapshot.eligible}"
            )
        shown = (("published", view.published), ("device", view.device))
        for title, tables in shown[: 1 if "device" in c.shared.unobserved else 2]:
            entries = tables.get(group)
            if entries is not None and row < len(entries.page_table) and row < len(entries.num_blocks):
                lines.append(
                    f"{side.name}: {title} entries {list(entries.page_table[row])}, num_blocks {entries.num_blocks[row]}"
                )
    return tuple(lines)


def _unchanged(c: Comparison, side: Side, name: str) -> Iterator[Difference]:
    """Published entries stay as they are between publications, and a publication writes dirty rows only (R8.4)."""
    before = side.before.observation.batches.get(name) if side.before is not None else None
    if before is None:
        return
    now = side.now.observation.batches[name]
    dirty = frozenset(now.dirty_rows)
    for group, entries in now.published.items():
        old = before.published.get(group)
        if old is None or _shape(old) != _shape(entries):
            yield _one_sided(c, side, "published", f"tables of {name} changed their shape", group)
            continue
        for row in range(len(entries.num_blocks)):
            same = entries.page_table[row] == old.page_table[row] and entries.num_blocks[row] == old.num_blocks[row]
            if entries.page_level is not None and old.page_level is not None:
                same = same and entries.page_level[row] == old.page_level[row]
            if not same and (c.step.op.verb not in PUBLISHING or row in dirty):
                was, new = list(old.page_table[row]), list(entries.page_table[row])
                said = f"{was}, {old.num_blocks[row]} became {new}, {entries.num_blocks[row]}"
                yield _one_sided(c, side, "published", f"{name}.{group} row {row} changed without a publication of it", said)


def _address(c: Comparison, side: Side, name: str) -> Iterator[Difference]:
    first, now = side.memory.batches[name].address, side.now.observation.batches[name].address
    if dict(first) != dict(now):
        yield _one_sided(c, side, "address", f"addresses of the arrays of {name} changed", f"{dict(first)} became {dict(now)}")


def _device(c: Comparison, name: str, one: BatchView, two: BatchView) -> Iterator[Difference]:
    """Device entries are those of the last publication if its upload is done, else of an earlier one, the same in both."""
    shown = []
    for side, view in ((c.reference, one), (c.implementation, two)):
        memory = side.memory.batches[name]
        positions = memory.shown
        if not view.upload.pending:
            positions &= frozenset({len(memory.publications) - 1})
        shown.append(positions)
        if not positions:
            yield _stray(c, side, name, memory, view)
    memories = c.reference.memory.batches[name], c.implementation.memory.batches[name]
    if shown[0] and shown[1] and not same_publication(c, memories, (shown[0], shown[1])):
        said = [f"publication {max(positions)}" for positions in shown]
        yield c.differ("device entries", f"device entries of {name}", *said)


def _stray(c: Comparison, side: Side, name: str, memory: BatchMemory, view: BatchView) -> Difference:
    should = memory.last if not view.upload.pending else memory.publications[memory.settled]
    for group in sorted(should.entries.keys() | view.device.keys()):
        want, have = should.entries.get(group), view.device.get(group)
        if want == have:
            continue
        if want is None or have is None or _shape(want) != _shape(have):
            return _one_sided(
                c, side, "device entries", f"device entries of {name}.{group} have another shape", str(have and _shape(have))
            )
        for row in range(len(want.num_blocks)):
            triple = [
                (
                    entries.page_table[row],
                    entries.num_blocks[row],
                    entries.page_level[row] if entries.page_level is not None else (),
                )
                for entries in (want, have)
            ]
            if triple[0] != triple[1]:
                said = [
                    f"{list(t)}, num_blocks {n}" + (f", page_level {list(levels)}" if levels else "") for t, n, levels in triple
                ]
                subject = f"device entries of {name}.{group} row {row} ({side.name})"
                return c.differ(
                    "device entries",
                    subject,
                    f"published: {said[0]}",
                    f"on the device: {said[1]}",
                    detail=table_detail(c, name, group, row),
                    row=(name, row),
                )
    return _one_sided(
        c, side, "device entries", f"device entries of {name} are older than an upload that is done", "an older publication"
    )


def _one_sided(c: Comparison, side: Side, identity: str, subject: str, said: str) -> Difference:
    values = (said, "-") if side is c.reference else ("-", said)
    return c.differ(identity, f"{subject} ({side.name})", *values)


def _labels(c: Comparison) -> Iterator[Difference]:
    one, two = c.reference.now.observation.labels, c.implementation.now.observation.labels
    if one.keys() != two.keys():
        yield c.differ("label", "labelled snapshots", sorted(one), sorted(two))
    for label in sorted(one.keys() & two.keys()):
        taken = c.reference.memory.labels.get(label), c.implementation.memory.labels.get(label)
        if taken[0] is None or taken[1] is None:
            yield c.differ("label", f"snapshot {label} was never taken", *("unknown" if t is None else "taken" for t in taken))
            continue
        of = taken[0].request, taken[0].group, taken[0].beam
        if taken[0].step == c.step.number:
            yield from snapshot_differences(c, of, one[label], two[label], label)
            c.shared.label_allowed[label] = _allowed_by_block(c, taken[0])
            continue
        for side, memory in ((c.reference, taken[0]), (c.implementation, taken[1])):
            view = side.now.observation.labels[label]
            fixed = ("indices", "levels", "eligible", "row", "version")
            for field in fixed:
                values = getattr(memory.view, field), getattr(view, field)
                if values[0] != values[1]:
                    said = f"{values[0]} became {values[1]}"
                    yield _one_sided(c, side, "label", f"{field} in snapshot {label} changed after it was taken", said)
        yield from _label_order(c, label, of)


def _allowed_by_block(c: Comparison, taken: LabelMemory) -> dict[int, frozenset[str]]:
    found = {}
    for ref, page in c.implementation.now.by_ref.items():
        if (ref.request, ref.group, ref.beam) == (taken.request, taken.group, taken.beam) and c.allowed(page):
            found[ref.block] = c.allowed(page)
    return found


def _label_order(c: Comparison, label: str, of: tuple[str, str, int]) -> Iterator[Difference]:
    views = [side.now.observation.labels[label] for side in (c.reference, c.implementation)]
    if len(views[0].ready) != len(views[1].ready):
        yield c.differ("label", f"number of readinesses in snapshot {label}", *(len(view.ready) for view in views))
        return
    allowed = c.shared.label_allowed.get(label, {})
    for block, (one, two) in enumerate(zip(views[0].ready, views[1].ready, strict=True)):
        subject = f"readiness of {of[0]}.{of[1]} block {block} in snapshot {label}"
        if one is None or two is None:
            if one is not two:
                yield c.differ("ready", subject, order_text(one), order_text(two))
        elif problems := order_problems(one, two, allowed.get(block, frozenset())):
            yield c.differ("ready", subject, order_text(one), order_text(two), detail=tuple(problems))


def _read(c: Comparison, label: str, one: ReadView, two: ReadView) -> Iterator[Difference]:
    yield from _order(c, "read order", f"read {label}", one.order, two.order)
    if (one.entries is None) != (two.entries is None):
        yield c.differ("read", f"table read {label}", *("nothing yet" if w.entries is None else "rows" for w in (one, two)))
    elif one.entries is not None and two.entries is not None:
        yield from _read_entries(c, label, one.entries, two.entries)
    if one.order.pending or two.order.pending:
        for view, side in ((one, c.reference), (two, c.implementation)):
            if view.order.pending and (view.payload is not None or view.entries is not None):
                yield _one_sided(c, side, "read", f"read {label} has a result while it is pending", "a result")
        return
    # A page read of what nobody wrote may return anything.
    if one.payload is not None:
        known = c.shared.contents
        if two.payload is None or not payload_equal(one.payload, two.payload, _length(c, one, two)):
            yield c.differ("read", f"payload of read {label}", *(payload_text(v.payload, known) for v in (one, two)))


def _length(c: Comparison, one: ReadView, two: ReadView) -> int:
    """The size of the page that was read: that of the group in the content's name, else that of the bytes."""
    for view in (one, two):
        if isinstance(view.payload, Content):
            return c.shared.page_bytes.get(view.payload.group, 0)
    return max(len(view.payload) for view in (one, two) if isinstance(view.payload, bytes))


def _read_entries(
    c: Comparison, label: str, one: tuple[tuple[int, ...], ...], two: tuple[tuple[int, ...], ...]
) -> Iterator[Difference]:
    positions: list[frozenset[int]] = []
    batches: list[BatchMemory] = []
    for side, entries in ((c.reference, one), (c.implementation, two)):
        target = side.memory.reads.get(label)
        found = read_positions(target, entries) if target is not None else frozenset()
        positions.append(found)
        batches += [] if target is None else [target.batch]
        if not found:
            yield _one_sided(
                c, side, "read", f"table read {label} returned entries that were never published", str(list(map(list, entries)))
            )
    if all(positions) and not same_publication(c, (batches[0], batches[1]), (positions[0], positions[1])):
        said = [f"publication {max(found)}" for found in positions]
        yield c.differ("read", f"table read {label}", *said)
