"""Blocks and groups that a call names, before anything is looked up (R2.1, R4.9, section 9)."""

from __future__ import annotations

from collections.abc import Sequence

from kvgpu.errors import InvalidArgument, OutOfRange
from kvgpu.requests.request import Request


def need_named(request: Request, what: str, blocks: Sequence[int], groups: Sequence[int] | None) -> None:
    """``OutOfRange`` for a layer group that the manager lacks, then ``InvalidArgument`` for a negative block."""
    if groups is not None and any(not 0 <= group < request.group_count for group in groups):
        raise OutOfRange(f"{what}: groups {list(groups)} are not all layer groups of the manager")
    if any(block < 0 for block in blocks):
        raise InvalidArgument(f"{what}: blocks {list(blocks)}: a block is not negative")
