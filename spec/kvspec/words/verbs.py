"""The verbs: arguments, value, errors and an example of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

ALWAYS: Mapping[str, str] = {
    "out_of_range": "a name that does not exist",
    "logic_error": "a closed request or batch, or a status that does not allow the call",
}
"""The errors that any verb has that names a request or a batch (R3.13, R8.2)."""


@dataclass(frozen=True, slots=True)
class Verb:
    """What a verb means besides its docstring.

    ``returns``: its value; empty for none. ``errors``: by kind, when, besides ``ALWAYS``. ``example``: a step, as YAML.
    ``arguments``: those whose meaning is not the usual one.
    """

    returns: str
    errors: Mapping[str, str]
    example: str
    arguments: Mapping[str, str] = field(default_factory=dict)


USUAL: Mapping[str, str] = {
    "request": "Name of the request.",
    "requests": "Names of requests.",
    "batch": "Name of the batch.",
    "stream": "Name of the stream; `exec` if left out.",
    "level": "Level: gpu, host or disk.",
    "group": "Layer group; it may be left out where there is one.",
    "groups": "Layer groups; all if left out.",
    "beam": "Number of the beam, from 0.",
    "blocks": "Numbers of blocks, from 0.",
    "tokens": "Tokens, whole numbers from 0.",
    "priority": "Eviction priority of its pages: lower ones go first; 35 if left out.",
    "key": "Key of all its tokens, such as a salt or an adapter: under another key they are other tokens; none if left out.",
    "spans": "Parts of the tokens that have a key of their own, such as an image: from start up to end.",
    "capacity": "How many tokens its blocks must hold; kept if left out.",
    "history": "Tokens of history, at most the capacity; kept if left out.",
    "layer": "Name of the layer.",
    "layers": "Layers to build dense offsets for.",
    "role": "Name of the buffer within the layer.",
    "row": "Number of the row, from 0.",
    "as": "Label under which later steps speak of it.",
}
"""The arguments that mean the same wherever they stand."""

_FULL = "false, and nothing has changed, when slots run out"

VERBS: Mapping[str, Verb] = {
    "create": Verb(
        "How many tokens were matched in the prefix tree.",
        {
            "logic_error": "the name is in use",
            "invalid_argument": "a prompt_length that is negative or no multiple of tokens_per_block, a bad key or span",
        },
        "create: {request: chat, tokens: [0, 1, 2, 3]}",
        {
            "request": "Name of the new request.",
            "tokens": "Tokens to match against the prefix tree; none if left out.",
            "prompt_length": "Tokens of the prompt, a multiple of tokens_per_block: beams begin after it.",
        },
    ),
    "resume": Verb(
        f"true; {_FULL}, or the GPU is fuller than max_util_for_resume.",
        {
            "invalid_argument": "the request has no stream yet, or `decode: false` while it decodes",
            "logic_error": "the request is active already",
            "out_of_range": "an unknown stream",
        },
        "resume: chat",
        {
            "stream": "Its stream from now on. Left out: the one that it has, or exec the first time; null: none is given.",
            "decode": "true: enter decode as well. Left out: the phase stays.",
        },
    ),
    "resize": Verb(
        f"true; {_FULL}.",
        {
            "invalid_argument": "history that shrinks, is negative, or exceeds the capacity (while decoding: the old capacity)",
            "logic_error": "the request is not active, or it would grow after its last commit",
        },
        "resize: {request: chat, capacity: 12, history: 8}",
    ),
    "enter_decode": Verb(
        "true; false, still in prefill, when host slots run out.", {"copy_failed": "a copy was refused"}, "enter_decode: chat"
    ),
    "admit_generation": Verb("true; false means not now.", {"copy_failed": "a copy was refused"}, "admit_generation: chat"),
    "commit": Verb(
        "",
        {
            "invalid_argument": "more tokens than the capacity, a negative token, or a bad key",
            "out_of_pages": "no slot for a block: earlier blocks stay in the tree",
            "logic_error": "the request is not active, has ended its commits, or has several beams",
            "copy_failed": "a copy was refused: earlier blocks stay in the tree",
        },
        "commit: {request: chat, tokens: [0, 1, 2, 3]}",
        {
            "tokens": "Tokens to append to the committed ones.",
            "key": "Key of these tokens, such as an image, beside that of the request; none if left out.",
            "end": "Whether this is the last commit: a partial block enters the tree too, and nothing grows afterwards.",
        },
    ),
    "stop_committing": Verb("", {}, "stop_committing: chat"),
    "suspend": Verb("", {"logic_error": "the request is not active"}, "suspend: chat"),
    "close": Verb("", {}, "close: chat"),
    "prefetch": Verb(
        f"true; {_FULL}.",
        {
            "invalid_argument": "a level that the manager does not have",
            "logic_error": "the request is not suspended",
            "copy_failed": "a copy was refused",
        },
        "prefetch: {request: chat, level: gpu}",
        {"level": "Level to bring its pages up to."},
    ),
    "offload": Verb(
        "",
        {
            "logic_error": "a page that is not complete history, or is partial, dense, absent or another's",
            "out_of_pages": "no host slot",
            "invalid_argument": "a negative block",
            "copy_failed": "a copy was refused",
        },
        "offload: {request: chat, blocks: [0]}",
        {"groups": "Sparse layer groups; all of them if left out."},
    ),
    "set_beam_width": Verb(
        f"true; {_FULL}.",
        {
            "invalid_argument": "a width below 1",
            "logic_error": "a second call, decode, history past the prompt, or a member of a batch",
        },
        "set_beam_width: {request: chat, width: 2}",
        {"width": "How many beams the blocks after the prompt have."},
    ),
    "set_stream": Verb(
        "",
        {"out_of_range": "an unknown stream"},
        "set_stream: {request: chat, stream: side}",
        {"stream": "Its stream from now on."},
    ),
    "write": Verb(
        "",
        {
            "logic_error": "a block that is history, committed, not on the GPU, stale or absent",
            "invalid_argument": "a negative block",
        },
        "write: {request: chat, blocks: [1]}",
        {"blocks": "Numbers of the blocks to write, from 0."},
    ),
    "acknowledge": Verb(
        "Whether that was the newest version, so that the request is clean now.",
        {},
        "acknowledge: {request: chat, version: latest}",
        {"version": "`latest`, or the label of a snapshot."},
    ),
    "snapshot": Verb("", {"invalid_argument": "a beam that the request does not have"}, "snapshot: {request: chat, as: before}"),
    "wait_snapshot": Verb(
        "",
        {},
        "wait_snapshot: {snapshot: before, stream: side}",
        {"snapshot": "Label of the snapshot.", "stream": "The stream that waits; `exec` if left out."},
    ),
    "bind_row": Verb(
        "",
        {"logic_error": "a negative row, or a member of a batch"},
        "bind_row: {request: chat, row: 0}",
        {"row": "Number of the row, from 0; `null` takes the row away again."},
    ),
    "is_sparse": Verb("Whether the buffer is sparse.", {"out_of_range": "no such buffer"}, "is_sparse: {layer: main, role: key}"),
    "page_index_scale": Verb(
        "The factor from slot number to the buffer's page index.",
        {"out_of_range": "no such buffer"},
        "page_index_scale: {layer: main, role: key}",
    ),
    "seed_prefix": Verb(
        "",
        {
            "out_of_pages": "no room can be made",
            "invalid_argument": "a level that the manager does not have, a bad key or span",
        },
        "seed_prefix: {tokens: [0, 1, 2, 3], level: gpu}",
        {
            "key": "Key of all the tokens: requests with the same key find them; none if left out.",
            "tokens": "Tokens from the root; a remainder is a partial block.",
            "level": "Level for the pages that are missing.",
            "groups": "Layer groups that get pages; all if left out.",
        },
    ),
    "evict": Verb(
        "",
        {"out_of_pages": "fewer pages can leave", "invalid_argument": "less than one page"},
        "evict: {level: gpu, group: main, pages: 1}",
        {
            "pages": "How many pages leave, in the order of eviction.",
            "group": "A layer group of the pool group that is meant; it may be left out where there is one.",
        },
    ),
    "clear_reusable": Verb("", {}, "clear_reusable"),
    "take_slots": Verb(
        "",
        {"out_of_pages": "fewer slots are free"},
        "take_slots: {level: gpu, count: 1, as: taken}",
        {
            "count": "How many free slots, or all of them.",
            "group": "A layer group of the pool group that is meant; it may be left out where there is one.",
        },
    ),
    "give_slots": Verb("", {"out_of_range": "an unknown label"}, "give_slots: taken", {"as": "Label of the slots taken."}),
    "batch": Verb(
        "",
        {
            "invalid_argument": "fewer than one row or block, or a beam width other than 1",
            "logic_error": "an open batch has that name",
        },
        "batch: {name: rows, rows: 2, blocks: 4}",
        {
            "name": "Name of the new batch.",
            "rows": "Rows of its tables: how many requests it holds.",
            "blocks": "Blocks of a row: how long a request may be.",
            "beam_width": "Beams of a row; must be 1.",
            "levels": "Whether there is a third table, with the levels of the blocks.",
            "retry": "Where a deferred page finds no host slot: strict raises, lenient publishes the lower count.",
        },
    ),
    "add": Verb(
        "The row.",
        {
            "invalid_argument": "the row is taken or does not exist, no row is free, or the request is larger than the batch",
            "logic_error": "it is in another row or batch",
        },
        "add: {batch: rows, request: chat}",
        {"row": "Number of the row; the first free one if left out."},
    ),
    "remove": Verb("", {"logic_error": "it is in another batch"}, "remove: {batch: rows, request: chat}"),
    "publish": Verb(
        "The rows written, ascending.",
        {
            "invalid_argument": "a member larger than the batch",
            "out_of_pages": "a deferred page may move and finds no host slot",
            "copy_failed": "a copy was refused",
            "logic_error": "a capture runs",
        },
        "publish: rows",
        {"stream": "The stream of the upload; `exec` if left out."},
    ),
    "wait_ready": Verb(
        "",
        {"logic_error": "something is not published, or a capture runs"},
        "wait_ready: {batch: rows, stream: side}",
        {"stream": "The stream that waits; `exec` if left out."},
    ),
    "record_read": Verb(
        "",
        {"logic_error": "a capture runs"},
        "record_read: {batch: rows}",
        {
            "batch": "The batch whose tables were read. Either batch or request.",
            "request": "The request whose pages were read. Either batch or request.",
            "stream": "The stream of the reads; `exec` if left out.",
        },
    ),
    "resize_batch": Verb(
        "For each row whether its resize succeeded, null for empty rows and suspended members.",
        {
            "invalid_argument": "lists of another length than the rows; a value that is negative, too large, or for an empty row",
            "logic_error": "a value for a suspended member",
            "copy_failed": "in one row: the others are done and published",
        },
        "resize_batch: {batch: rows, capacities: [8], histories: [8]}",
        {
            "capacities": "Capacity for each row, null to keep it.",
            "histories": "History for each row, null to keep it.",
            "stream": "The stream of the upload; `exec` if left out.",
        },
    ),
    "close_batch": Verb("", {}, "close_batch: rows"),
    "read_page": Verb(
        "",
        {"logic_error": "a capture runs on that stream"},
        "read_page: {request: chat, block: 0, as: seen}",
        {"block": "Number of the block, from 0.", "stream": "The stream that reads; `exec` if left out."},
    ),
    "read_table": Verb(
        "",
        {"logic_error": "something is not published"},
        "read_table: {batch: rows, as: after}",
        {"stream": "The stream that reads; `exec` if left out."},
    ),
    "fetch": Verb(
        "",
        {
            "invalid_argument": "a layer whose group reserves nothing, or more numbers than it selects",
            "logic_error": "something is not published, a capture runs on another stream, or a request is in no published row",
        },
        "fetch: {batch: rows, layer: main, select: {chat: [0, 3]}, as: now}",
        {
            "layer": "The layer whose history is fetched.",
            "select": "By request, the numbers of the blocks that are needed, or of units (R15.11); none where left out.",
            "stream": "The stream that fetches; `exec` if left out.",
        },
    ),
    "gate": Verb("", {}, "gate: {stream: side, as: hold}", {"stream": "The stream to hold up.", "as": "Label of the gate."}),
    "open": Verb("", {"out_of_range": "no gate of that label"}, "open: hold", {"as": "Label of the gate."}),
    "fail_copy": Verb(
        "",
        {},
        "fail_copy: {direction: offload}",
        {
            "direction": "Direction of the copies: offload, onboard, copy or upload.",
            "call": "Which one from now on: 1 is the next.",
            "queued": "Whether device work has been queued by the time it is refused.",
        },
    ),
    "begin_capture": Verb("", {"logic_error": "one runs already"}, "begin_capture: side", {"stream": "The stream to capture."}),
    "end_capture": Verb(
        "",
        {"logic_error": "none runs, or it runs on another stream"},
        "end_capture: {stream: side, as: graph}",
        {"stream": "The stream that is captured.", "as": "Label of the graph."},
    ),
    "replay": Verb(
        "",
        {
            "logic_error": "a capture runs on that stream, or a request is in no published row",
            "invalid_argument": "a bad selection",
        },
        "replay: {graph: graph, stream: side, as: seen}",
        {
            "graph": "Label of the graph.",
            "stream": "The stream to run it on; `exec` if left out.",
            "select": "What the fetches in it fetch, by request; nothing if left out.",
        },
    ),
    "dense_offsets": Verb(
        "By layer and request an offset for each block, with request.block for the slot of a block, '-' for none.",
        {"logic_error": "a block of a sparse group is not on the GPU, or a request is not active or not in the batch"},
        "dense_offsets: {batch: rows, requests: [chat]}",
        {"layers": "Layers; every attention layer if left out."},
    ),
    "iterate": Verb(
        "By request: ran, waiting or refused.",
        {
            "invalid_argument": "a request named twice",
            "logic_error": "a request that is not a member, a capture runs, or a dense layer would need host pages",
            "out_of_pages": "as publish",
            "copy_failed": "a copy was refused",
        },
        "iterate: {batch: rows, requests: [{request: chat, capacity: 8, history: 8, decode: true}]}",
        {
            "requests": "The requests of this iteration, in order, with what each needs.",
            "group": "The group whose table the iteration reads; the first attention group if left out.",
            "as": "Label of that read; none if left out.",
            "stream": "The stream of the iteration; `exec` if left out.",
            "layers": "Layers to build dense offsets for; none if left out.",
        },
    ),
    "stats": Verb(
        "The counters, by group, and of the manager.", {}, "stats: {reset: false}", {"reset": "Whether to reset them after this."}
    ),
    "sync": Verb(
        "",
        {"logic_error": "the stream is behind a closed gate, or captured"},
        "sync",
        {"stream": "The stream to wait for; all if left out."},
    ),
}

SCHEDULED: Mapping[str, str] = {
    "request": "Name of the request.",
    "capacity": "How many tokens its blocks must hold; kept if left out.",
    "history": "Tokens of history; kept if left out.",
    "decode": "Whether it must be in decode.",
    "accept": "The connector's answer; with false the request is refused in this iteration.",
}
"""The keys of a request of `iterate`."""

SPAN: Mapping[str, str] = {
    "start": "Its first token, counted from 0.",
    "end": "The token behind its last.",
    "key": "The key of these tokens.",
}
"""The keys of a span of tokens."""


def argument(verb: str, name: str) -> str:
    """What an argument of a verb means."""
    return VERBS[verb].arguments.get(name) or USUAL[name]
