"""What a step has changed, in lines for the reader: pages that changed alike are one line, ``chat.main [0..31]  gpu -> host``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kvspec.config import Level
from kvspec.harness.timeline.facts import BatchFact, Facts, Key, PageFact, PoolFact, RequestFact
from kvspec.harness.timeline.wording import folded
from kvspec.observation import Cleared, LevelChanged, Observation, Removed, Stored

LETTERS = {None: ".", 0: "G", 1: "H", 2: "D"}
"""How the level of a block is written in a row."""
MAX_RUNS = 12
"""Up to so many runs of levels a long row is written as runs."""
NONE = frozenset[str]()


@dataclass(frozen=True, slots=True)
class Change:
    """One line. ``subject``: what changed; ``text``: how; ``why``: a remark, with its rule; ``requests``: whom it concerns."""

    subject: str
    text: str
    why: str = ""
    requests: frozenset[str] = NONE


def changes(old: Facts, new: Facts, before: Observation | None, now: Observation) -> Iterator[Change]:
    """Every change of a step: requests, pages, rows, what moved, tables, free slots, the tree, gates, reads and fetches."""
    yield from _requests(old, new)
    yield from _pages(old, new)
    yield from _rows(old, new)
    yield from _batches(old, new)
    yield from _pools(old, new)
    yield from _counts(before, now)
    yield from _events(now)
    yield from _gates(old, new)
    yield from _reads(old, new)
    yield from _fetches(old, new, now)


def level_text(level: int | str | None) -> str:
    """A level as scenarios write it."""
    return "-" if level is None else Level(int(level)).label


def _of(facts: Facts, kind: str) -> dict[Key, tuple[int | str | None, ...]]:
    return {key: value for key, value in facts.items() if key[0] == kind}


def _moved(pairs: Mapping[str, tuple[object, object]]) -> str:
    return ", ".join(f"{title} {_text(one)} -> {_text(two)}" for title, (one, two) in pairs.items() if one != two)


def _text(value: object) -> str:
    return "-" if value is None or value == "" else str(value)


def _requests(old: Facts, new: Facts) -> Iterator[Change]:
    for key, value in _of(new, "request").items():
        name, now = str(key[1]), RequestFact(*value)  # type: ignore[arg-type]
        mine = frozenset((name,))
        if key not in old:
            length = f", history {now.history}/{now.capacity}" if now.capacity else ""
            yield Change(name, f"new: {now.status}, {now.phase}{length}", requests=mine)
            continue
        was = RequestFact(*old[key])  # type: ignore[arg-type]
        if was == now:
            continue
        fields = ("status", "phase", "capacity", "history", "committed", "row")
        said = [_moved({field: (getattr(was, field), getattr(now, field)) for field in fields})]
        if was.batch != now.batch:
            said.append(f"in batch {now.batch}" if now.batch is not None else f"out of batch {was.batch}")
        if now.status != "closed":
            said += ["newer version"] if was.version != now.version else []
            said += [] if was.dirty == now.dirty else ["dirty" if now.dirty else "clean"]
        text = ", ".join(filter(None, said))
        if text:
            yield Change(name, text, requests=mine)
    for key in sorted(_of(old, "request").keys() - new.keys()):
        yield Change(str(key[1]), "gone", requests=frozenset((str(key[1]),)))


def _pages(old: Facts, new: Facts) -> Iterator[Change]:
    """Pages that changed in the same way, each kind of change once a request and group."""
    alike: dict[tuple[str, str, str], list[PageFact]] = {}
    concerned: dict[tuple[str, str, str], set[str]] = {}
    for key in sorted({*_of(old, "page"), *_of(new, "page")}, key=lambda key: key[1]):
        was = PageFact(*old[key]) if key in old else None  # type: ignore[arg-type]
        now = PageFact(*new[key]) if key in new else None  # type: ignore[arg-type]
        if was == now:
            continue
        text, why = _page(was, now)
        if why and not text and now is not None:
            text = f"stays at {level_text(now.level)}"
        if text:
            page = now or was
            assert page is not None
            alike.setdefault((page.base, text, why), []).append(page)
            keepers = {name for one in (was, now) if one for name in one.keepers.split(", ") if name}
            concerned.setdefault((page.base, text, why), set()).update(keepers)
    for (base, text, why), pages in sorted(alike.items(), key=lambda item: (item[1][0].base, item[1][0].block)):
        yield Change(_subject(base, pages), text, why, frozenset(concerned[base, text, why]))


def _subject(base: str, pages: list[PageFact]) -> str:
    if len(pages) == 1:
        return pages[0].name
    return f"{base} {folded(tuple(sorted(page.block for page in pages)), 'blocks')}"


def _page(was: PageFact | None, now: PageFact | None) -> tuple[str, str]:
    """What became of a page, and why it is where it is if that is new."""
    if now is None:
        assert was is not None
        return f"freed; was at {level_text(was.level)}, {was.status}", ""
    why = f"{now.why} ({now.rule})" if now.why else ""
    owners = f"locked by {now.owners}" if now.owners else now.status
    kept = f" by {now.keepers}" if now.status == "held" else ""
    if was is None:
        tree = f", in the tree as {now.tokens}" if now.tokens is not None and now.keepers else ""
        return f"new at {level_text(now.level)}, {owners}{kept}{tree}", why
    said: list[str] = []
    if was.level != now.level:
        said.append(f"{level_text(was.level)} -> {level_text(now.level)}")
    elif was.slot != now.slot:
        said.append(f"at {level_text(now.level)} still, in another slot")
    if (was.status, was.owners) != (now.status, now.owners):
        said.append(f"{owners}{kept}")
    elif was.keepers != now.keepers:
        said.append(f"kept by {now.keepers}" if now.keepers else "kept by the tree alone")
    if was.tokens != now.tokens:
        said.append("out of the tree" if now.tokens is None else f"enters the tree as {now.tokens}")
    if was.gates != now.gates:
        said.append(f"pending behind {now.gates}" if now.gates else "ready")
    if was.why and not now.why and was.level == now.level and was.deferred:
        said.append("deferred no more")
    fresh = (was.why, was.rule) != (now.why, now.rule)
    return ", ".join(said), why if fresh else ""


def _rows(old: Facts, new: Facts) -> Iterator[Change]:
    """The blocks of a request and group in a row, where what the snapshot shows has changed."""
    for key, value in _of(new, "levels").items():
        count = new.get(("eligible", *key[1:]), (0,))[0]
        was, was_count = old.get(key, ()), old.get(("eligible", *key[1:]), (0,))[0]
        if (was, was_count) == (value, count) or not any(one is not None for one in (*was, *value)):
            continue
        row = f"{row_text(was)} -> {row_text(value)}" if was != value else row_text(value)
        eligible = "" if was_count == count else f", eligible {was_count} -> {count}"
        beam = f" beam {key[3]}" if key[3] else ""
        yield Change(f"{key[1]}.{key[2]}{beam}", f"{row}{eligible}", requests=frozenset((str(key[1]),)))


def row_text(levels: tuple[int | str | None, ...]) -> str:
    """Levels of a row of blocks as letters: ``GHG``; where it is long ``H*128 G``, or in words of 16."""
    letters = "".join(LETTERS[None if level is None else int(level)] for level in levels)
    if len(letters) <= 16:
        return letters or "-"
    runs: list[str] = []
    for letter in letters:
        if runs and runs[-1][0] == letter:
            runs[-1] += letter
        else:
            runs.append(letter)
    if len(runs) > MAX_RUNS:
        return " ".join(letters[first : first + 16] for first in range(0, len(letters), 16))
    return " ".join(run if len(run) < 4 else f"{run[0]}*{len(run)}" for run in runs)


def _batches(old: Facts, new: Facts) -> Iterator[Change]:
    for key, value in _of(new, "batch").items():
        name, now = str(key[1]), BatchFact(*value)  # type: ignore[arg-type]
        was = BatchFact(*old[key]) if key in old else None  # type: ignore[arg-type]
        if was is None:
            yield Change(name, f"new batch of {now.rows} rows and {now.blocks} blocks")
            continue
        rows = range(now.rows)
        members = [(old.get(("member", name, row), (None, 0)), new["member", name, row]) for row in rows]
        dirty = [folded(tuple(row for row in rows if members[row][side][1]), "rows") for side in (0, 1)]
        if dirty[0] != dirty[1]:
            yield Change(name, f"dirty rows {dirty[0]} -> {dirty[1]}", requests=_members(new, name))
        if was.upload != now.upload:
            yield Change(name, f"upload pending behind {now.upload}" if now.upload else "upload done")
        yield from _tables(old, new, name)
    for key in sorted(_of(old, "batch").keys() - new.keys()):
        yield Change(str(key[1]), "closed")


def _members(facts: Facts, batch: str) -> frozenset[str]:
    return frozenset(str(value[0]) for key, value in facts.items() if key[:2] == ("member", batch) and value[0] is not None)


def _tables(old: Facts, new: Facts, batch: str) -> Iterator[Change]:
    for key, entries in _of(new, "entries").items():
        if key[1] != batch:
            continue
        rest = key[1:]
        kinds = ("slots", "entries", "at", "count")
        if all(old.get((kind, *rest)) == new[(kind, *rest)] for kind in kinds):
            continue
        member = new["member", batch, key[3]][0]
        mine = frozenset((str(member),)) if member is not None else NONE
        shown = row_text(_unpadded(new[("at", *rest)], entries))
        yield Change(f"{batch}.{key[2]} row {key[3]}", f"published {shown}, num_blocks {new[('count', *rest)][0]}", requests=mine)


def _unpadded(levels: tuple[int | str | None, ...], entries: tuple[int | str | None, ...]) -> tuple[int | str | None, ...]:
    last = max((index for index, entry in enumerate(entries) if entry != "-"), default=-1)
    return levels[: last + 1]


def _pools(old: Facts, new: Facts) -> Iterator[Change]:
    said = []
    for key, value in _of(new, "pool").items():
        now, was = PoolFact(*value), PoolFact(*old[key]) if key in old else None  # type: ignore[arg-type]
        if was is not None and was.free != now.free:
            said.append(f"{key[1]}.{key[2]} {was.free} -> {now.free}")
    if said:
        yield Change("free slots", ", ".join(said))


def _counts(before: Observation | None, now: Observation) -> Iterator[Change]:
    """The submissions of the step (R13.2)."""
    old = before.copy_calls if before is not None else {}
    calls = {kind: count - old.get(kind, 0) for kind, count in now.copy_calls.items()}
    said = [f"{count} {kind} submission{'s' if count > 1 else ''}" for kind, count in calls.items() if count > 0]
    if said:
        yield Change("copies", ", ".join(said))


def _events(now: Observation) -> Iterator[Change]:
    stored = [event.tokens for event in now.events if isinstance(event, Stored)]
    removed = [event.tokens for event in now.events if isinstance(event, Removed)]
    levels = [event for event in now.events if isinstance(event, LevelChanged)]
    if Cleared() in now.events:
        yield Change("tree", "cleared")
    for word, blocks in (("stored", stored), ("removed", removed)):
        if blocks:
            longest = max(blocks, key=len)
            chain = all(longest[: len(one)] == one for one in blocks)
            if len(blocks) > 1 and chain:
                yield Change("tree", f"{len(blocks)} blocks {word}, up to {folded(longest)}")
            else:
                yield Change("tree", f"{word} {', '.join(map(folded, blocks))}")
    if levels:
        yield Change("tree", f"{len(levels)} level event{'s' if len(levels) > 1 else ''}")


def _gates(old: Facts, new: Facts) -> Iterator[Change]:
    for key, value in _of(new, "gate").items():
        if old.get(key) != value:
            waits = ", ".join(map(str, value[1:])) or "nothing yet"
            yield Change(f"gate {key[1]}", f"{'closed, ' if key not in old else ''}holds up {waits}")
    for key in sorted(_of(old, "gate").keys() - new.keys()):
        yield Change(f"gate {key[1]}", "opened")


def _reads(old: Facts, new: Facts) -> Iterator[Change]:
    for key, value in _of(new, "read").items():
        if old.get(key) != value:
            yield Change(f"read {key[1]}", str(value[0]))


def _fetches(old: Facts, new: Facts, seen: Observation) -> Iterator[Change]:
    """What has been reserved and fetched, and what is cached then (section 15)."""
    for key in sorted(_of(old, "reserved").keys() | _of(new, "reserved").keys(), key=str):
        was, now = old.get(key, (0,))[0], new.get(key, (0,))[0]
        if was != now:
            yield Change(f"{key[1]}.{key[2]}", f"reserved slots {was} -> {now}", requests=frozenset((str(key[1]),)))
    for key, value in _of(new, "fetch").items():
        if old.get(key) != value:
            members = frozenset(name for name in seen.fetches[str(key[1])].requests if name is not None)
            yield Change(f"fetch {key[1]}", str(value[0]), requests=members)
    for key, value in _of(new, "cached").items():
        if old.get(key, ()) != value:
            text = f"cached {cached_text(old.get(key, ()))} -> {cached_text(value)}"
            yield Change(f"{key[1]}.{key[2]}", text, requests=frozenset((str(key[1]),)))


def cached_text(numbers: tuple[int | str | None, ...]) -> str:
    """What is cached, the most recent first, as scenarios write it; or that it is pending."""
    return "pending" if numbers == ("pending",) else f"[{', '.join(map(str, numbers))}]"
