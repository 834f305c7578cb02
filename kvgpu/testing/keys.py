"""Named breaks of keys (R2.7): something is compared without them, or has one that is not its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvgpu.operations import commit
from kvgpu.requests.request import Request
from kvgpu.storage.prefix_tree import PrefixTree
from kvgpu.storage.texts import NO_KEY, Key, Text, joined, text_of
from kvgpu.testing.lookup import looked_up
from kvgpu.testing.patches import Break, everywhere, on


def _its_part(tree: PrefixTree, text: Text, start: int) -> Text:
    return text.part(start, start + tree._tokens_per_block)


def _plain_common(old: Any) -> Any:
    return lambda self, other: old(Text(self.tokens), Text(other.tokens))


def _plain_rebase(old: Any) -> Any:
    def commit_block(core: Any, scope: Any, request: Any, block: int, prefix: Text) -> None:
        start = block * request.tokens_per_block
        text = prefix.part(start, len(prefix.tokens))
        texts = (child.text for child in request.tail.children.values())
        found = next((one for one in texts if one.tokens == text.tokens), text)
        old(core, scope, request, block, joined((prefix.part(0, start), found)))

    return commit_block


def _plain_cover(old: Any) -> Any:
    def enter_rest(tx: Any, request: Any) -> None:
        rest = tuple(request.tokens[request.committed // request.tokens_per_block * request.tokens_per_block :])
        if not any(child.tokens[: len(rest)] == rest for child in request.tail.children.values()):
            old(tx, request)

    return enter_rest


def _other_keys(change: Callable[[Key], Key]) -> Callable[[Any], Any]:
    """Each token has what ``change`` makes of its key."""
    return lambda old: lambda tokens, keys: old(tokens, tuple(change(key) for key in keys))


def _whole_blocks(old: Any) -> Any:
    def text_with(self: Any, tokens: Any, key: Any) -> Text:
        text, size = old(self, tokens, key), self.tokens_per_block
        keys = [text.key(place) for place in range(len(text.tokens))]
        for start in range(0, len(keys), size):
            found = next((one for one in keys[start : start + size] if one != NO_KEY), NO_KEY)
            keys[start : start + size] = [found] * len(keys[start : start + size])
        return text_of(text.tokens, tuple(keys))

    return text_with


def _last_key_stays(old: Any) -> Any:
    return lambda self, tokens, key: old(self, tokens, key or (self.keys[-1][1] if self.keys else None))


def _no_request_key(old: Any) -> Any:
    def text_with(self: Any, tokens: Any, key: Any) -> Text:
        own, self.key = self.key, None
        try:
            text: Text = old(self, tokens, key)
        finally:
            self.key = own
        return text

    return text_with


KEYS: tuple[Break, ...] = (
    (
        "R2.7 whole blocks are matched whatever their keys",
        "R2.7",
        on(PrefixTree.match, looked_up(lambda node: node.tokens, lambda *asked: _its_part(*asked).tokens)),
    ),
    ("R2.7 a part of a block is matched whatever its keys", "R2.7", on(Text.common, _plain_common)),
    (
        "R2.7 a block is found below blocks of other keys",
        "R2.7",
        on(
            PrefixTree.match,
            looked_up(
                lambda node: (node.text, node.depth),
                lambda tree, text, start: (_its_part(tree, text, start), start // tree._tokens_per_block),
                anywhere=True,
            ),
        ),
    ),
    ("R2.7 a request rebases onto a block of another key", "R2.7", on(commit._commit_block, _plain_rebase)),
    ("R2.7 a last block is covered by one of another key", "R2.7", everywhere(commit.enter_rest, _plain_cover)),
    (
        "R2.7 of a key the first eight letters alone count",
        "R2.7",
        everywhere(text_of, _other_keys(lambda key: (key[0] and key[0][:8], key[1] and key[1][:8]))),
    ),
    (
        "R2.7 the key of a request is as good as that of a part",
        "R2.7",
        everywhere(text_of, _other_keys(lambda key: (key[0] or key[1], key[1] and key[0] and key[1]))),
    ),
    ("R2.7 a key is that of all tokens of its block", "R2.7", on(Request.text_with, _whole_blocks)),
    ("R2.7 the key of a commit stays for the next", "R2.7", on(Request.text_with, _last_key_stays)),
    ("R2.7 what a request commits has not its key", "R2.7", on(Request.text_with, _no_request_key)),
)
