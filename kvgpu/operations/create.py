"""Making a request and matching its tokens against the prefix tree (R3.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kvgpu.errors import InvalidArgument, LogicError
from kvgpu.operations.keys import Span, check_keys
from kvgpu.operations.state import Core
from kvgpu.operations.transaction import Transaction
from kvgpu.requests.request import Request
from kvgpu.storage.pages import NO_PAGE
from kvgpu.storage.prefix_tree import Node
from kvgpu.storage.texts import Text


def check_create(
    core: Core,
    known: Request | None,
    name: str,
    tokens: Sequence[int] | None,
    prompt_length: int | None,
    key: str | None = None,
    spans: Sequence[Span] = (),
) -> None:
    """The errors of a creation. ``known``: the request that has this name so far."""
    size = core.layout.tokens_per_block
    if prompt_length is not None and (prompt_length < 0 or prompt_length % size):
        raise InvalidArgument(f"create of {name!r}: prompt_length {prompt_length}: expected a multiple of {size}, 0 or more")
    if tokens is not None and any(token < 0 for token in tokens):
        raise InvalidArgument(f"create of {name!r}: tokens are integers from 0, got {min(tokens)}")
    check_keys(f"create of {name!r}", len(tokens or ()), key, spans)
    if known is not None and not known.closed:
        raise LogicError(f"create of {name!r}: a request of that name is {known.status.value}; close it first")


def create(
    core: Core, manager: Any, name: str, uid: int, text: Text, prompt_length: int, priority: int, key: str | None
) -> Request:
    """A new suspended request that holds what its tokens match (R3.1). ``key``: that of all its tokens (R2.7)."""
    groups = core.layout.groups
    request = Request(
        name,
        uid,
        manager,
        core.pages,
        len(groups),
        tuple(group.sparse for group in groups),
        tuple(group.ssm for group in groups),
        core.layout.tokens_per_block,
        priority,
        prompt_length,
        core.tree.root,
        key=key,
    )
    core.by_uid[uid] = request
    core.tree.root.tails.add(uid)
    core.renew(request)
    adopt_match(core, request, text)
    return request


def match(core: Core, text: Text) -> tuple[int, list[Node]]:
    """The longest prefix at which every group has what it needs (R3.1): its tokens, and its blocks of the tree."""
    size = core.layout.tokens_per_block
    found = core.tree.match(text)
    path = found.whole + ([found.partial] if found.partial is not None and found.common else [])
    if not path:
        return 0, []
    present = np.array([node.pages for node in path]) != NO_PAGE
    lengths = [len(found.whole) * size + found.common] if found.common else []
    for length in [*lengths, *range(len(found.whole) * size, 0, -size)]:
        if _usable(core, length, path, present):
            return length, path[: -(-length // size)]
    return 0, []


def _usable(core: Core, length: int, path: list[Node], present: npt.NDArray[np.bool_]) -> bool:
    size = core.layout.tokens_per_block
    blocks = -(-length // size)
    for group in core.layout.groups:
        if group.ssm:  # R1.3: a snapshot is the state after all tokens of its block
            if not (_ends_block(core, length, path) and present[blocks - 1, group.number]):
                return False
            continue
        first, end = group.stale(length, size)
        if not (present[: min(first, blocks), group.number].all() and present[end:blocks, group.number].all()):
            return False
    return True


def _ends_block(core: Core, length: int, path: list[Node]) -> bool:
    """Whether a match covers all tokens of its last block."""
    blocks = -(-length // core.layout.tokens_per_block)
    return length - (blocks - 1) * core.layout.tokens_per_block == len(path[blocks - 1].tokens)


def adopt_match(core: Core, request: Request, text: Text) -> None:
    """Match a new request's tokens, and hold what was matched (R3.1): no copy is made (R14.3)."""
    length, path = match(core, text)
    if not length:
        return
    size = core.layout.tokens_per_block
    request.capacity = request.history = length
    request.hold(text.part(0, length))
    request.partial = length % size != 0
    whole = path[: length // size]
    if whole:
        request.tail.tails.discard(request.uid)
        request.tail = whole[-1]
        request.tail.tails.add(request.uid)
    with Transaction(core, core.scope()) as tx:
        for group in core.layout.groups:
            own = request.groups[group.number]
            own.reserve(len(path), 1)
            if group.ssm:
                numbers = np.array([path[-1].pages[group.number]], dtype=np.int32)
                own.page[0, 0] = numbers[0]
            else:
                first, end = group.stale(length, size)
                columns = np.array([block for block in range(len(path)) if not first <= block < end], dtype=np.int32)
                numbers = np.array([path[block].pages[group.number] for block in columns.tolist()], dtype=np.int32)
                own.page[0, columns] = numbers
            tx.add_user(numbers, request)
        tx.commit()
