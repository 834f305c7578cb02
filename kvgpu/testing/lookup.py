"""A match that finds blocks by something else than their tokens and keys: what several named breaks have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvgpu.storage.prefix_tree import Match, Node, PrefixTree
from kvgpu.storage.texts import Text

Wanted = Callable[[PrefixTree, Text, int], object]
"""What stands for the block of a text that begins at a position, for a lookup."""


def looked_up(key: Callable[[Node], object], wanted: Wanted, anywhere: bool = False) -> Callable[[Any], Any]:
    """Where ``match`` finds no whole block any more, one is found by a key: among the children, or in all of the tree."""

    def make(old: Any) -> Any:
        def match(self: Any, text: Text) -> Match:
            found: Match = old(self, text)
            whole, size = list(found.whole), self._tokens_per_block
            while len(text.tokens) >= (len(whole) + 1) * size:
                above = whole[-1] if whole else self.root
                asked = wanted(self, text, len(whole) * size)
                nodes = self.walk() if anywhere else above.children.values()
                node = next((one for one in nodes if len(one.tokens) == size and key(one) == asked), None)
                if node is None:
                    break
                whole.append(node)
            return found if len(whole) == len(found.whole) else Match(whole, None, 0)

        return match

    return make
