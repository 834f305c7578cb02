"""The prefix tree: blocks of tokens, each with at most one page per layer group (R2.6, R3.1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kvgpu.storage.pages import NO_PAGE
from kvgpu.storage.texts import Text, Tokens, joined


@dataclass(slots=True, eq=False)
class Node:
    """A block of the tree. ``depth``: its block number, -1 for the root. ``pages``: by layer group, or ``NO_PAGE``.

    ``text``: its tokens, with their keys. ``children``: by theirs, oldest first. ``tails``: uids of the requests whose committed
    path ends here. ``whole``: its prefix, once an observer has asked for it.
    """

    number: int
    text: Text
    parent: Node | None
    depth: int
    pages: list[int]
    children: dict[Text, Node] = field(default_factory=dict)
    tails: set[int] = field(default_factory=set)
    whole: Text | None = None

    @property
    def tokens(self) -> Tokens:
        """Its tokens without their keys."""
        return self.text.tokens

    def prefix(self) -> Text:
        """All tokens from the beginning to the end of this block, with their keys."""
        parts: list[Text] = []
        node: Node | None = self
        while node is not None and node.whole is None:
            parts.append(node.text)
            node = node.parent
        if node is not None and node.whole is not None:
            parts.append(node.whole)
        return joined(reversed(parts))

    def kept_prefix(self) -> Text:
        """The same, kept with the block: for observers, who ask for all of them again and again."""
        if self.whole is None:
            self.whole = self.prefix()
        return self.whole

    def below(self) -> Iterator[Node]:
        """This block and all below it, parents first, older children first."""
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children.values()))

    def path(self) -> Iterator[Node]:
        """This block and those above it, without the root."""
        node: Node = self
        while node.parent is not None:
            yield node
            node = node.parent


@dataclass(frozen=True, slots=True)
class Match:
    """The blocks that begin like some tokens: whole ones, and the child that goes on longest with how many tokens (R3.1)."""

    whole: list[Node]
    partial: Node | None
    common: int


class PrefixTree:
    """The tree. Its blocks have numbers; those of blocks that are gone are used again."""

    def __init__(self, tokens_per_block: int, groups: int) -> None:
        """An empty tree."""
        self._tokens_per_block = tokens_per_block
        self._groups = groups
        self.root = Node(-1, Text(()), None, -1, [NO_PAGE] * groups)
        self._nodes: list[Node | None] = []
        self._spare: list[int] = []

    def match(self, text: Text) -> Match:
        """Whole blocks, then the child with the longest common beginning, by tokens and keys alone (R3.1)."""
        whole: list[Node] = []
        node, size = self.root, self._tokens_per_block
        while child := node.children.get(text.part(len(whole) * size, (len(whole) + 1) * size)):
            if len(child.tokens) < size:
                break
            whole.append(child)
            node = child
        rest = text.part(len(whole) * size, (len(whole) + 1) * size)
        best: Node | None = None
        common = 0
        for child in node.children.values():  # oldest first, so only a better one replaces
            length = child.text.common(rest)
            fuller = best is not None and len(best.tokens) < size == len(child.tokens)
            if length > common or (length == common > 0 and fuller):
                best, common = child, length
        return Match(whole, best, common)

    def insert(self, parent: Node, text: Text) -> Node:
        """A new block without pages."""
        number = self._spare.pop() if self._spare else len(self._nodes)
        node = Node(number, text, parent, parent.depth + 1, [NO_PAGE] * self._groups)
        if number == len(self._nodes):
            self._nodes.append(node)
        else:
            self._nodes[number] = node
        parent.children[text] = node
        return node

    def detach(self, node: Node) -> None:
        """Take a block out of its parent's children; the numbers of it and all below it stay theirs until ``forget``."""
        assert node.parent is not None
        del node.parent.children[node.text]

    def forget(self, node: Node) -> None:
        """Let the number of a detached block be used again, and keep nothing of the block."""
        self._nodes[node.number] = None
        self._spare.append(node.number)

    def node(self, number: int) -> Node:
        """A block by its number."""
        node = self._nodes[number]
        assert node is not None
        return node

    def walk(self) -> Iterator[Node]:
        """All blocks but the root, each after its parent."""
        blocks = self.root.below()
        next(blocks)
        return blocks
