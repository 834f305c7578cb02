"""The expectations: what each says, of what, and how it is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Expectation:
    """An expectation. ``shape``: of its value, for the reader. ``parts``: the keys inside it that are words of the language."""

    text: str
    shape: str
    example: str
    rules: tuple[str, ...]
    parts: Mapping[str, str] = field(default_factory=dict)


_MOVES = {
    "offload": "Pages that went from the GPU to a colder level.",
    "onboard": "Pages that came to the GPU from a colder level.",
    "copy": "Pages copied on the device.",
    "drop": "Pages dropped: nobody keeps them any more.",
    "attach": "Pages of which a request gave up its copy, since the host had them already.",
}
_OF_TOKENS = {
    "key": "Key of the request that the tokens are of; none if left out.",
    "spans": "Parts of the tokens that have a key of their own.",
}
_STATS = {
    "offload_pages": "Pages that went from the GPU to a colder level.",
    "offload_bytes": "Their bytes, of the page on the colder side.",
    "onboard_pages": "Pages that came to the GPU from a colder level.",
    "onboard_bytes": "Their bytes, of the page on the colder side.",
    "copy_pages": "Pages copied on the device.",
    "drop_pages": "Pages dropped, those freed with a removed part of the tree included.",
    "attach_pages": "Pages of which a request gave up its copy, since the host had them already.",
    "fetch_hits": "Selected blocks, or units, that were cached when they were fetched.",
    "fetch_misses": "Selected blocks, or units, that were copied.",
    "fetch_bytes": "The bytes of these.",
    "suspends": "Suspends of all requests; a close counts none.",
    "resumes": "Resumes of requests that had been resumed before.",
}

EXPECTATIONS: Mapping[str, Expectation] = {
    "levels": Expectation(
        "Where the page of each block is, as the request sees it: '-' for none.",
        "a mapping of request.group to a list with an entry for each block",
        "levels: {chat.main: [host, gpu]}",
        ("R6.2",),
    ),
    "owners": Expectation(
        "The active requests that have a page locked, in any order; [] for nobody.",
        "a mapping of request.group.block to a list of requests",
        "owners: {chat.main.0: [chat, other]}",
        ("R2.3",),
    ),
    "eligible": Expectation(
        "How many leading blocks of history are on the host and may be fetched from there.",
        "a mapping of request.group to a count",
        "eligible: {chat.main: 2}",
        ("R6.3",),
    ),
    "num_blocks": Expectation(
        "The eligible counts in the device table, row by row, as last published.",
        "a mapping of batch.group to a list with a count for each row",
        "num_blocks: {rows.main: [2]}",
        ("R8.4", "R8.5"),
    ),
    "table": Expectation(
        "The device table as last published; an entry is '-' or request.block, the slot where that page was then.",
        "a mapping of batch.group to rows of entries",
        "table: {rows.main: [[chat.0, '-']]}",
        ("R8.4",),
    ),
    "status": Expectation(
        "Whether a request is suspended, active or closed.",
        "a mapping of request to a status",
        "status: {chat: active}",
        ("R3.2", "R3.10"),
    ),
    "phase": Expectation(
        "Whether a request is in prefill or decode.", "a mapping of request to a phase", "phase: {chat: decode}", ("R3.8",)
    ),
    "history": Expectation("Tokens of history.", "a mapping of request to a count of tokens", "history: {chat: 8}", ("R3.6",)),
    "capacity": Expectation(
        "How many tokens its blocks hold.", "a mapping of request to a count of tokens", "capacity: {chat: 12}", ("R3.6",)
    ),
    "row": Expectation(
        "The row that a request is bound to; null for none.",
        "a mapping of request to a row or null",
        "row: {chat: 0}",
        ("R6.6", "R8.2"),
    ),
    "committed": Expectation(
        "Tokens committed to the prefix tree.", "a mapping of request to a count of tokens", "committed: {chat: 4}", ("R3.9",)
    ),
    "dirty": Expectation(
        "Whether the newest version of a request is not acknowledged.",
        "a mapping of request to true or false",
        "dirty: {chat: true}",
        ("R6.5",),
    ),
    "dirty_rows": Expectation(
        "The rows that the next publication writes; [] for none.",
        "a mapping of batch to a list of rows",
        "dirty_rows: {rows: [0]}",
        ("R8.3",),
    ),
    "version": Expectation(
        "Whether the step has changed the version of a request: same or newer.",
        "a mapping of request to same or newer",
        "version: {chat: newer}",
        ("R6.4",),
    ),
    "free": Expectation(
        "Free slots, those behind a fence included: of a level, or, with several pool groups, of the one that serves a group.",
        "a mapping of level or level.group to a count",
        "free: {gpu: 2}",
        ("R1.2", "R7.2"),
    ),
    "same_page": Expectation(
        "These blocks are the same page.",
        "a list of at least two request.group.block",
        "same_page: [chat.main.0, other.main.0]",
        ("R2.3",),
    ),
    "different_page": Expectation(
        "No two of these blocks are the same page.",
        "a list of at least two request.group.block",
        "different_page: [chat.main.0, other.main.0]",
        ("R3.4",),
    ),
    "page_status": Expectation(
        "Whether a page is locked (by an active request), held (only by others) or droppable (only the tree keeps it).",
        "a mapping of request.group.block to a status",
        "page_status: {chat.main.0: held}",
        ("R2.2",),
    ),
    "backing": Expectation(
        "Where the backing of a page is, with private ownership: the location that all share; none if it has only copies.",
        "a mapping of request.group.block to gpu, host, disk or none",
        "backing: {chat.main.0: host}",
        ("R14.1",),
    ),
    "copies": Expectation(
        "The requests that have a copy of a page on the GPU, with private ownership, in any order; [] for nobody.",
        "a mapping of request.group.block to a list of requests",
        "copies: {chat.main.0: [chat, other]}",
        ("R14.1",),
    ),
    "moved": Expectation(
        "Pages that this step has moved, by group. What is left out is not checked.",
        "a mapping of group to counts",
        "moved: {main: {offload: 1}}",
        ("R13.1",),
        _MOVES,
    ),
    "copy_calls": Expectation(
        "Copies submitted in this step, by direction. What is left out is not checked.",
        "a mapping of direction to a count",
        "copy_calls: {offload: 1}",
        ("R4.5", "R13.2"),
        {
            "offload": "Submissions from the GPU to a colder level.",
            "onboard": "Submissions to the GPU.",
            "copy": "Submissions on the device.",
        },
    ),
    "pending": Expectation(
        "Device work that has not run: publish:<batch>, page:<request.group.block>, read:<label> or slot:<level.group>.",
        "a list of labels",
        "pending: [publish:rows]",
        ("R7.1",),
    ),
    "done": Expectation(
        "Device work that has run: publish:<batch>, page:<request.group.block>, read:<label> or slot:<level.group>.",
        "a list of labels",
        "done: [page:chat.main.0]",
        ("R7.1",),
    ),
    "page_level": Expectation(
        "Where a page is, also while its request is suspended.",
        "a mapping of request.group.block to a level",
        "page_level: {chat.main.0: host}",
        ("R2.4",),
    ),
    "version_since": Expectation(
        "Whether the version of a request is that of a labelled snapshot, or newer.",
        "a mapping of request to a mapping of snapshot label to same or newer",
        "version_since: {chat: {before: newer}}",
        ("R6.4",),
    ),
    "tree": Expectation(
        "For blocks of the prefix tree, the level of each group's page, or absent.",
        "a list of mappings with tokens, all from the root, and groups",
        "tree: [{tokens: [0, 1, 2, 3], main: gpu}]",
        ("R2.6",),
        _OF_TOKENS,
    ),
    "level_table": Expectation(
        "The levels in the third device table, of a batch with `levels: true`.",
        "a mapping of batch.group to rows of levels",
        "level_table: {rows.main: [[host, '-']]}",
        ("R8.1",),
    ),
    "would_evict": Expectation(
        "The first pages in the order of eviction, as request.group.block or tokens; [] if none can go.",
        "a mapping of level.group to a list of pages",
        "would_evict: {gpu.main: [chat.main.0]}",
        ("R10.2",),
        {"tokens": "All tokens from the root to the end of the page's block.", **_OF_TOKENS},
    ),
    "snapshot": Expectation(
        "A labelled snapshot as it was taken. What is left out is not checked.",
        "a mapping of label to levels, eligible or row",
        "snapshot: {before: {levels: [gpu, gpu]}}",
        ("R6.1",),
        {"levels": "Level of each block, '-' for none.", "eligible": "The eligible count.", "row": "The row, or null for none."},
    ),
    "events": Expectation(
        "What happened to the prefix tree in this step, in order: blocks stored or removed, pages that changed their level.",
        "a list of mappings with stored, removed, level or cleared",
        "events: [{stored: [0, 1, 2, 3]}]",
        ("R13.3",),
        {
            **_OF_TOKENS,
            "stored": "Tokens, from the root, of the block that entered the tree.",
            "removed": "Tokens, from the root, of the block that left the tree.",
            "level": "Tokens, from the root, of the block whose page moved.",
            "group": "Group of the page.",
            "from": "Level that it left.",
            "to": "Level where it is.",
            "cleared": "true: clear_reusable said in one event that it dropped what it could (policy clear_event: one).",
        },
    ),
    "stats": Expectation(
        "Counters since they were last reset, by group, and of the manager. What is left out is not checked.",
        "a mapping of group or manager to counters",
        "stats: {main: {offload_pages: 2}, manager: {resumes: 1}}",
        ("R13.1",),
        _STATS,
    ),
    "staging": Expectation(
        "How many staging buffers a batch has.", "a mapping of batch to a count", "staging: {rows: 2}", ("R7.6",)
    ),
    "payload": Expectation(
        "Whether a page has the contents that belong there, and is ready: ok or undefined.",
        "a mapping of request.group.block to ok or undefined",
        "payload: {chat.main.0: ok}",
        ("R2.4",),
    ),
    "sees": Expectation(
        "The rows that a read of the table returned; entries as in table.",
        "a mapping of read label to rows of entries",
        "sees: {after: [[chat.0, '-']]}",
        ("R8.7",),
    ),
    "fetched": Expectation(
        "What came of each selected number: hit if it was cached, miss if it was copied, '-' for neither.",
        "a mapping of fetch label to requests, each with a list of hit, miss or '-'",
        "fetched: {now: {chat: [hit, miss]}}",
        ("R15.4",),
    ),
    "resident": Expectation(
        "The blocks, or units, of a layer that are cached in reserved slots, the most recent first.",
        "a mapping of request.layer to a list of numbers",
        "resident: {chat.main: [3, 0]}",
        ("R15.3", "R15.5"),
    ),
    "reserved": Expectation(
        "How many GPU slots a decoding request has reserved for fetched history.",
        "a mapping of request.group to a count",
        "reserved: {chat.main: 2}",
        ("R15.2",),
    ),
}
