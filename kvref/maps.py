"""An immutable, hashable mapping: the only container that the state needs beside tuples and frozen sets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Map(Mapping[K, V], Generic[K, V]):
    """A mapping that never changes; `set` and `without` give new ones. Keeps the order of insertion, compares without it."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[K, V] | Iterable[tuple[K, V]] = ()) -> None:
        """``items``: a mapping, or pairs."""
        self._items: dict[K, V] = dict(items)

    def __getitem__(self, key: K) -> V:
        """The value of ``key``; ``KeyError`` if there is none."""
        return self._items[key]

    def __iter__(self) -> Iterator[K]:
        """The keys."""
        return iter(self._items)

    def __len__(self) -> int:
        """The number of keys."""
        return len(self._items)

    def __hash__(self) -> int:
        """Equal mappings hash alike."""
        return hash(frozenset(self._items.items()))

    def __eq__(self, other: object) -> bool:
        """Equal to any mapping of the same keys to the same values."""
        return isinstance(other, Mapping) and self._items == dict(other)

    def __repr__(self) -> str:
        """The contents."""
        return f"Map({self._items!r})"

    def set(self, key: K, value: V) -> Map[K, V]:
        """The same mapping with ``key`` bound to ``value``."""
        return Map({**self._items, key: value})

    def without(self, *keys: K) -> Map[K, V]:
        """The same mapping without ``keys``."""
        return Map({k: v for k, v in self._items.items() if k not in keys})
