"""An immutable, hashable mapping: the only container that the state needs beside tuples and frozen sets."""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import Any, Generic, TypeVar, overload

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

LARGE = 64
"""Smaller mappings are copied when they change: that costs less than what follows for the larger ones."""
FEW = 16
"""Up to one in so many entries is changed by itself."""
ABSENT: Any = object()


class Map(Mapping[K, V], Generic[K, V]):
    """A mapping that never changes; `set` and `without` give new ones. Keeps the order of insertion, compares without it.

    A large mapping hands its entries on to the one that `set` makes of it, and keeps only what it had itself under that key:
    mostly the newest is used from then on. Asked again, it takes a copy and puts its own entries back.
    """

    __slots__ = ("_entries", "_key", "_lent", "_newer", "_was", "memo")

    _entries: dict[K, V] | None
    _newer: Map[K, V]
    _key: K
    _was: V

    def __init__(self, items: Mapping[K, V] | Iterable[tuple[K, V]] = ()) -> None:
        """``items``: a mapping, or pairs."""
        self._entries = dict(items)
        self._lent = False

    @property
    def _items(self) -> dict[K, V]:
        return self._back() if self._entries is None else self._entries

    def _back(self) -> dict[K, V]:
        """Take a copy of what a newer mapping has, and undo in it what has changed since."""
        changed: list[Map[K, V]] = []
        newer = self
        while newer._entries is None:
            changed.append(newer)
            newer = newer._newer
        entries = newer._entries.copy()
        for older in reversed(changed):
            if older._was is ABSENT:
                del entries[older._key]
            else:
                entries[older._key] = older._was
        self._entries = entries
        del self._newer, self._key, self._was
        return entries

    def __getitem__(self, key: K) -> V:
        """The value of ``key``; ``KeyError`` if there is none."""
        entries = self._entries
        return (self._back() if entries is None else entries)[key]

    @overload
    def get(self, key: K, /) -> V | None: ...
    @overload
    def get(self, key: K, /, default: V | D) -> V | D: ...
    def get(self, key: K, /, default: Any = None) -> Any:
        """The value of ``key``, or ``default``."""
        entries = self._entries
        return (self._back() if entries is None else entries).get(key, default)

    def __contains__(self, key: object) -> bool:
        """Whether there is a value of ``key``."""
        return key in self._items

    def __iter__(self) -> Iterator[K]:
        """The keys."""
        return iter(self.keys())

    def __len__(self) -> int:
        """The number of keys."""
        return len(self._items)

    def keys(self) -> KeysView[K]:
        """The keys."""
        self._lent = True  # whoever goes through them may make newer mappings meanwhile
        return self._items.keys()

    def values(self) -> ValuesView[V]:
        """The values."""
        self._lent = True
        return self._items.values()

    def items(self) -> ItemsView[K, V]:
        """The pairs."""
        self._lent = True
        return self._items.items()

    def __hash__(self) -> int:
        """Equal mappings hash alike."""
        return hash(frozenset(self._items.items()))

    def __eq__(self, other: object) -> bool:
        """Equal to any mapping of the same keys to the same values."""
        if isinstance(other, Map):
            return self is other or self._items == other._items
        return isinstance(other, Mapping) and self._items == dict(other)

    def __repr__(self) -> str:
        """The contents."""
        return f"Map({self._items!r})"

    def set(self, key: K, value: V) -> Map[K, V]:
        """The same mapping with ``key`` bound to ``value``."""
        entries = self._items
        if self._lent or len(entries) < LARGE:
            return _of({**entries, key: value})
        made = _of(entries)
        self._entries, self._newer, self._key, self._was = None, made, key, entries.get(key, ABSENT)
        entries[key] = value
        return made

    def updated(self, entries: Mapping[K, V]) -> Map[K, V]:
        """The same mapping with all of ``entries``."""
        if FEW * len(entries) > len(self._items):
            return _of({**self._items, **entries})
        made = self
        for key, value in entries.items():
            made = made.set(key, value)
        return made

    def without(self, *keys: K) -> Map[K, V]:
        """The same mapping without ``keys``."""
        entries = self._items.copy()
        for key in keys:
            entries.pop(key, None)
        return _of(entries)


def _of(entries: dict[K, V]) -> Map[K, V]:
    """A mapping that has these entries, and nobody else."""
    made: Map[K, V] = Map.__new__(Map)
    made._entries, made._lent = entries, False
    return made
