"""What one system shows for the expectations of a step, looked up by the names that scenarios use.

Every look-up that finds nothing raises ``Nothing``, with what there is: an expectation that refers to nothing fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from kvspec.harness.compare import Comparison
from kvspec.harness.memory import BatchMemory, LabelMemory
from kvspec.harness.naming import Index
from kvspec.harness.side import Side
from kvspec.observation import (
    BatchView,
    FetchView,
    Observation,
    Order,
    PageRef,
    PageView,
    PoolView,
    ReadView,
    RequestView,
    SnapshotView,
)
from kvspec.refs import batch_group, level_group, pages, request_group, work

T = TypeVar("T")


class Nothing(LookupError):
    """An expectation refers to nothing; ``str()`` of it says what is missing and what there is."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One side of a comparison, as expectations look at it."""

    comparison: Comparison
    side: Side

    @property
    def now(self) -> Observation:
        """What the system shows after the step."""
        return self.side.now.observation

    @property
    def before(self) -> Observation | None:
        """What it showed before the step."""
        return self.side.before.observation if self.side.before is not None else None

    @property
    def index(self) -> Index:
        """The pages that the system shows now, by reference and key."""
        return self.side.now

    @property
    def groups(self) -> tuple[str, ...]:
        """The layer groups that the manager has, by the configuration and not by what the system says."""
        return tuple(self.comparison.shared.page_bytes)

    def request(self, name: str) -> RequestView:
        """A request, closed ones included."""
        return found(self.now.requests, name, "request")

    def batch(self, name: str) -> BatchView:
        """The open batch of that name, as it is shown now."""
        return found(self.now.batches, name, "open batch")

    def memory(self, name: str) -> BatchMemory:
        """What is remembered of an open batch."""
        return found(self.side.memory.batches, name, "open batch")

    def snapshots(self, text: str) -> list[tuple[str, SnapshotView | None]]:
        """The snapshots of ``request.group``; ``None`` for a closed request, which has none."""
        ref = request_group(text, self.groups)
        view = self.request(ref.owner)
        return [(f"{ref.owner}.{group}", view.snapshots.get((group, 0))) for group in ref.groups]

    def batch_groups(self, text: str) -> list[tuple[str, str]]:
        """The (batch, group) that ``batch.group`` means: with the group left out, every one that has tables."""
        ref = batch_group(text, self.groups)
        view = self.batch(ref.owner)
        chosen = [group for group in ref.groups if group in view.published]
        if not chosen:
            raise Nothing(f"{text}: no such tables; there are {', '.join(view.published)}")
        return [(ref.owner, group) for group in chosen]

    def page_number(self, ref: PageRef) -> int:
        """The number of the page that a request's block refers to, or that it had last, if the tree has that still."""
        number = self.index.by_ref.get(ref)
        if number is None and (key := self.side.memory.tree_pages.get(ref)) is not None:
            number = self.index.by_key[key] if key in self.index.by_key else self.index.copied.get(key)
        if number is None:
            self.request(ref.request)
            raise Nothing(f"{ref} has no page")
        return number

    def pages(self, text: str) -> list[tuple[str, PageView]]:
        """The pages that ``request.group.block`` names, one for each group if it names none."""
        return [(str(ref), self.index.pages[self.page_number(ref)]) for ref in self.refs(text)]

    def refs(self, text: str) -> tuple[PageRef, ...]:
        """What ``request.group.block`` names, one for each group if it names none."""
        return pages(text, self.groups)

    def pool(self, text: str) -> PoolView:
        """The pool group of ``level.group``."""
        level, group = level_group(text, self.comparison.shared.pools)
        return found(self.now.pools, (level, group), "pool group")

    def label(self, name: str) -> LabelMemory:
        """A labelled snapshot, as taken."""
        found(self.now.labels, name, "snapshot label")
        return found(self.side.memory.labels, name, "snapshot label")

    def read(self, name: str) -> ReadView:
        """The read under a label, as it is shown now."""
        return found(self.now.reads, name, "read label")

    def fetch(self, name: str) -> FetchView:
        """The fetch under a label, as it is shown now."""
        return found(self.now.fetches, name, "fetch label")

    def work(self, text: str) -> list[Order]:
        """The orders of the device work with a label."""
        label = work(text, self.groups, self.comparison.shared.pools)
        match label.kind:
            case "publish":
                if not self.memory(label.name).published:
                    raise Nothing(f"batch {label.name} has not been published")
                return [self.batch(label.name).upload]
            case "read":
                return [self.read(label.name).order]
            case "fetch":
                return [self.fetch(label.name).order]
            case "page":
                return [self.index.pages[self.page_number(ref)].ready for ref in label.pages]
            case "slot":
                assert label.pool is not None
                pool = found(self.now.pools, label.pool, "pool group")
                if len(pool.fences) != 1:
                    raise Nothing(f"{text}: needs exactly one free slot, there are {len(pool.fences)}")
                return [pool.fences[0]]


K = TypeVar("K")


def found(mapping: Mapping[K, T], key: K, what: str) -> T:
    """An entry of a mapping.

    :raises Nothing: there is none; the text says which there are.
    """
    if key not in mapping:
        raise Nothing(f"there is no {what} {_key(key)!r}: there {_list(map(_key, mapping))}")
    return mapping[key]


def _key(key: object) -> str:
    return f"{key[0].label}.{key[1]}" if isinstance(key, tuple) else str(key)


def _list(names: Iterable[str]) -> str:
    known = sorted(names)
    return f"are {', '.join(known)}" if len(known) > 1 else f"is only {known[0]}" if known else "is none"
