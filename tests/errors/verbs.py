"""The scene, and for each verb what can be wrong with a call in it."""

from __future__ import annotations

from collections.abc import Callable

from kvspec.errors import ErrorKind
from tests.errors.choices import Arguments, Fault, Stage, Verb, both, closed, full, missing, never, not_now, right, unknown

MANAGER = {
    "tokens_per_block": 4,
    "levels": [{"kind": "gpu", "slots": 40}, {"kind": "host", "slots": 8}],
    "layers": [
        {"name": "main", "buffers": [{"role": "key", "bytes": 64, "sparse": True, "selected": 2, "reserve": 2}]},
        {"name": "index", "buffers": [{"role": "key", "bytes": 32}]},
        {"name": "state", "kind": "ssm", "buffers": [{"role": "state", "bytes": 48}]},
    ],
}
STREAMS = ("exec", "side", "stuck")

SCENE = """
create: {request: gone}
resume: {request: gone}
close: {request: gone}
create: {request: live}
resume: {request: live}
resize: {request: live, capacity: 16, history: 8}
create: {request: asleep}
resume: {request: asleep}
resize: {request: asleep, capacity: 16, history: 8}
suspend: {request: asleep}
create: {request: dozing}
resume: {request: dozing}
resize: {request: dozing, capacity: 16, history: 8}
create: {request: decoding}
resume: {request: decoding}
resize: {request: decoding, capacity: 16, history: 8}
enter_decode: {request: decoding}
create: {request: ended}
resume: {request: ended}
resize: {request: ended, capacity: 16, history: 8}
commit: {request: ended, tokens: [9, 9, 9, 9, 9, 9, 9, 9], end: true}
create: {request: wide, prompt_length: 4}
resume: {request: wide}
resize: {request: wide, capacity: 8}
set_beam_width: {request: wide, width: 2}
create: {request: young}
resume: {request: young}
create: {request: fresh}
create: {request: other}
create: {request: big}
resume: {request: big}
resize: {request: big, capacity: 24}
suspend: {request: big}
batch: {name: shut, rows: 1, blocks: 1}
close_batch: {batch: shut}
batch: {name: rows, rows: 2, blocks: 4}
add: {batch: rows, request: live}
publish: {batch: rows}
batch: {name: others, rows: 1, blocks: 4}
add: {batch: others, request: other}
batch: {name: sleepers, rows: 2, blocks: 4}
add: {batch: sleepers, request: dozing}
suspend: {request: dozing}
batch: {name: tight, rows: 1, blocks: 1}
create: {request: grown}
resume: {request: grown}
add: {batch: tight, request: grown}
resize: {request: grown, capacity: 8}
snapshot: {request: live, group: main, as: seen}
take_slots: {level: host, group: index, count: 1, as: taken}
begin_capture: {stream: side}
end_capture: {stream: side, as: graph}
gate: {stream: stuck, as: shut}
"""
"""Requests by what they are; ``rows`` is published, ``sleepers`` has a suspended member, ``tight`` one that is too large."""

CAPTURE = "begin_capture: {stream: side}"

NAMES = (unknown("nobody"), closed("gone"))
BATCHES = (unknown("nowhere"), closed("shut"))
STREAM = (right("exec"), missing("nostream"))
GROUP = (right("main"), missing("nogroup"), never(None))
GROUPS = (right(("main",)), missing(("main", "nogroup")))
SPANS = ({"start": 0, "end": 9, "key": "cat"},)
"""More than any of the tokens below."""
LEVEL = (right("gpu"), never("disk"))


def _is(name: str, *values: object) -> Callable[[Arguments], bool]:
    return lambda given: given[name] in values


def _blocks_but(*blocks: int) -> Callable[[Arguments], bool]:
    return lambda given: any(block not in blocks for block in given["blocks"])


def _grows(given: Arguments) -> bool:
    return given["request"] == "ended" and ((given["capacity"] or 0) > 16 or (given["history"] or 0) > 8)


def _beyond(given: Arguments) -> bool:
    """A history of 20 beyond the capacity that there will be, or, in decode, that there is (R3.6)."""
    return given["capacity"] != 32 or given["request"] == "decoding"


def _below(given: Arguments) -> bool:
    return (given["history"] or 8) > 4


def _values_for(given: Arguments) -> bool:
    """Whether the member of row 0 is to have a length (R8.9)."""
    return any(given[what] is not None and given[what][:1] != (None,) for what in ("capacities", "histories"))


ENDED = Fault(ErrorKind.LOGIC_ERROR, Stage.LOGIC, when=_grows)
ONE_OF_TWO = Fault(
    ErrorKind.INVALID_ARGUMENT, Stage.INVALID, when=lambda given: (given["batch"] is None) == (given["request"] is None)
)

VERBS: dict[str, Verb] = {
    "create": Verb(
        {
            "request": (right("new"), not_now("live"), not_now("asleep")),
            "tokens": (right((1, 2)), never((1, -1))),
            "prompt_length": (right(4), never(-4), never(3)),
            "key": (right(None), right("red"), never("")),
            "spans": (right(()), never(SPANS)),
        }
    ),
    "resume": Verb(
        {
            "request": (right("asleep"), *NAMES, not_now("live"), not_now("decoding"), right("fresh")),
            "stream": (right("exec"), missing("nostream"), never(None, _is("request", "fresh"))),
            "decode": (right(None), never(False, _is("request", "decoding"))),
        }
    ),
    "resize": Verb(
        {
            "request": (right("live"), *NAMES, not_now("asleep"), right("ended"), right("decoding")),
            "capacity": (right(16), never(-1), never(4, _below), right(32)),
            "history": (right(8), never(-1), never(4), never(20, _beyond)),
        },
        (ENDED,),
    ),
    "enter_decode": Verb({"request": (right("live"), *NAMES, not_now("asleep"))}),
    "admit_generation": Verb({"request": (right("live"), *NAMES)}),
    "commit": Verb(
        {
            "request": (right("live"), *NAMES, not_now("asleep"), not_now("wide"), not_now("ended")),
            "tokens": (right((1,)), never((1, -1)), never((1,) * 40), never((-1,) * 40)),
            "end": (right(False), right(True)),
            "key": (right(None), never("")),
        }
    ),
    "stop_committing": Verb({"request": (right("live"), *NAMES)}),
    "suspend": Verb({"request": (right("live"), *NAMES, not_now("asleep"))}),
    "close": Verb({"request": (right("live"), unknown("nobody"))}),
    "prefetch": Verb({"request": (right("asleep"), *NAMES, not_now("live")), "level": LEVEL}),
    "offload": Verb(
        {
            "request": (right("live"), *NAMES, not_now("asleep")),
            "blocks": (right((0,)), never((0, -1)), not_now((2,)), not_now((0, 99)), right(())),
            "groups": (*GROUPS, right(None), not_now(("main", "index"), _blocks_but()), not_now(("state",), _blocks_but())),
        }
    ),
    "set_beam_width": Verb(
        {
            "request": (
                right("young"),
                *NAMES,
                not_now("asleep"),
                not_now("live"),
                not_now("wide"),
                not_now("decoding"),
            ),
            "width": (right(2), never(0), never(-1)),
        }
    ),
    "set_stream": Verb({"request": (right("live"), *NAMES), "stream": STREAM}),
    "write": Verb(
        {
            "request": (right("live"), *NAMES, not_now("asleep")),
            "blocks": (
                right((2,)),
                never((2, -1)),
                not_now((2, 99)),
                not_now((0,), lambda given: given["groups"] != ("state",)),
            ),
            "groups": (*GROUPS, right(None), not_now(("state",), _blocks_but(0))),
        }
    ),
    "acknowledge": Verb({"request": (right("live"), *NAMES), "version": (right("latest"), missing("nolabel"))}),
    "snapshot": Verb(
        {
            "request": (right("live"), unknown("nobody"), right("gone")),
            "group": GROUP,
            "beam": (right(0), never(-1), never(5)),
            "as": (right("more"),),
        }
    ),
    "wait_snapshot": Verb({"snapshot": (right("seen"), missing("nolabel")), "stream": STREAM}),
    "bind_row": Verb({"request": (right("asleep"), *NAMES, not_now("live")), "row": (right(3), not_now(-1))}),
    "is_sparse": Verb({"layer": (right("main"), missing("nolayer")), "role": (right("key"), missing("norole"))}),
    "page_index_scale": Verb({"layer": (right("main"), missing("nolayer")), "role": (right("key"), missing("norole"))}),
    "seed_prefix": Verb(
        {
            "tokens": (right((5, 6)), never((5, -1)), full(tuple(range(400))), never((-1,) * 400)),
            "level": LEVEL,
            "groups": GROUPS,
            "key": (right(None), right("red"), never("")),
            "spans": (right(()), never(SPANS, lambda given: len(given["tokens"]) < 9)),
        }
    ),
    "evict": Verb({"level": LEVEL, "group": GROUP, "pages": (right(1), never(0), never(-1), full(999))}),
    "take_slots": Verb(
        {
            "level": LEVEL,
            "group": GROUP,
            "count": (right(1), never(0), never(-1), full(999)),
            "as": (right("fewer"), not_now("taken")),
        }
    ),
    "give_slots": Verb({"as": (right("taken"), missing("nolabel"))}),
    "batch": Verb(
        {
            "name": (right("new"), not_now("rows")),
            "rows": (right(1), never(0), never(-1)),
            "blocks": (right(1), never(0)),
            "beam_width": (right(1), never(2), never(0)),
        }
    ),
    # R8.2: membership before the row and the sizes.
    "add": Verb(
        {
            "batch": (right("rows"), *BATCHES),
            "request": (
                right("asleep"),
                unknown("nobody", 1),
                closed("gone", 1),
                not_now("live", lambda given: given["row"] not in (None, 0), Stage.OWN),
                not_now("other", stage=Stage.OWN),
                never("wide"),
                never("big"),
            ),
            "row": (
                right(1),
                never(-1, lambda given: given["request"] != "live"),
                never(9, lambda given: given["request"] != "live"),
                never(0, lambda given: given["request"] != "live"),
            ),
        }
    ),
    "remove": Verb(
        {
            "batch": (right("rows"), *BATCHES),
            "request": (right("live"), unknown("nobody", 1), closed("gone", 1), not_now("other")),
        }
    ),
    "publish": Verb({"batch": (right("rows"), *BATCHES, never("tight")), "stream": STREAM}),
    "wait_ready": Verb({"batch": (right("rows"), *BATCHES, not_now("tight")), "stream": STREAM}),
    "record_read": Verb(
        {
            "batch": (right(None), right("rows"), *BATCHES),
            "request": (
                right("young"),
                right(None),
                unknown("nobody", 1),
                closed("gone", 1),
                not_now("live"),
                not_now("asleep"),
            ),
            "stream": STREAM,
        },
        (ONE_OF_TWO,),
    ),
    "resize_batch": Verb(
        {
            "batch": (right("rows"), *BATCHES, not_now("sleepers", _values_for)),
            "capacities": (
                right((16, None)),
                never((16, None, None)),
                never((-1, None)),
                never((99, None)),
                never((16, 4)),
                never((4, None)),
                right(None),
            ),
            "histories": (right(None), never((8,)), never((-1, None)), never((4, None)), never((17, None)), never((None, 0))),
            "stream": STREAM,
        }
    ),
    "close_batch": Verb({"batch": (right("rows"), unknown("nowhere"))}),
    "read_page": Verb(
        {
            "request": (right("live"), *NAMES, not_now("asleep")),
            "block": (right(0), never(-1), not_now(99)),
            "group": GROUP,
            "beam": (right(0), never(-1), never(3)),
            "stream": STREAM,
        }
    ),
    "read_table": Verb(
        {
            "batch": (right("rows"), *BATCHES, not_now("tight")),
            "group": (*GROUP, missing("state")),
            "stream": STREAM,
        }
    ),
    "fetch": Verb(
        {
            "batch": (right("rows"), *BATCHES, not_now("tight")),
            "layer": (right("main"), missing("nolayer"), never("index")),
            "select": (
                right({"live": (0,)}),
                unknown({"nobody": (0,)}, 1),
                closed({"gone": (0,)}, 1),
                never({"live": (0, 1, 2)}),
                not_now({"asleep": (0,)}),
            ),
            "stream": STREAM,
            "as": (right("new"),),
        }
    ),
    "gate": Verb({"stream": STREAM, "as": (right("new"), not_now("shut"))}),
    "open": Verb({"as": (right("shut"), missing("nolabel"))}),
    "begin_capture": Verb({"stream": STREAM}),
    "end_capture": Verb({"stream": (not_now("exec"), missing("nostream")), "as": (right("none"),)}),
    "replay": Verb(
        {
            "graph": (right("graph"), missing("nolabel")),
            "stream": STREAM,
            "select": (right(None), unknown({"nobody": (0,)}), never({"live": (0,)})),
        }
    ),
    "dense_offsets": Verb(
        {
            "batch": (right("rows"), *BATCHES),
            "requests": (
                right(("live",)),
                unknown(("live", "nobody"), 1),
                closed(("asleep", "gone"), 1),
                closed(("gone", "nobody"), 1),
                unknown(("nobody", "gone"), 1),
                not_now(("live", "asleep")),
                not_now(("decoding",)),
            ),
            "layers": (
                right(("main",)),
                missing(("main", "nolayer")),
                never(("state",)),
                missing(("state", "nolayer")),
                right(None),
            ),
        }
    ),
    # R11.1: of the requests every name is known before any is asked whether it is closed.
    "iterate": Verb(
        {
            "batch": (right("rows"), *BATCHES),
            "requests": (
                right(("live",)),
                unknown(("live", "nobody"), 1),
                unknown(("gone", "nobody"), 1),
                closed(("live", "gone"), 1),
                never(("live", "live")),
                not_now(("live", "asleep")),
                both(never(("asleep", "asleep")), not_now(())),
            ),
            "layers": (right(("main",)), missing(("main", "nolayer"))),
            "stream": STREAM,
            "group": (right("main"), right(None), missing("nogroup"), missing("state")),
        }
    ),
    "sync": Verb({"stream": (right("exec"), missing("nostream"), not_now("stuck"), not_now(None))}),
}

WITHOUT = {"clear_reusable", "stats", "fail_copy"}
"""Verbs of which no argument can be wrong, but for what a file may not say."""


def _in_capture(stage: Stage = Stage.LOGIC) -> tuple[Fault, ...]:
    return (Fault(ErrorKind.LOGIC_ERROR, stage),)


def _on_it() -> tuple[Fault, ...]:
    return (Fault(ErrorKind.LOGIC_ERROR, Stage.LOGIC, when=lambda given: given["stream"] == "side"),)


CAPTURED: dict[str, Verb] = {
    verb: Verb(
        {name: (*choices, right("side")) if name == "stream" else choices for name, choices in VERBS[verb].arguments.items()},
        (*VERBS[verb].also, *more),
    )
    for verb, more in {
        # R8.4, R8.9: a capture is looked for before the values.
        "publish": _in_capture(Stage.OWN),
        "resize_batch": _in_capture(Stage.OWN),
        "wait_ready": _in_capture(),
        "record_read": _in_capture(),
        "iterate": _in_capture(),
        "begin_capture": _in_capture(),
        "fetch": (Fault(ErrorKind.LOGIC_ERROR, Stage.LOGIC, when=lambda given: given["stream"] != "side"),),
        "read_page": _on_it(),
        "gate": _on_it(),
        "replay": _on_it(),
        "sync": _on_it(),
    }.items()
}
"""While a capture runs on ``side`` (R8.8)."""

FULL = ("take_slots: {level: host, group: main, count: all, as: every}", "fail_copy: {direction: offload}")


def _no_room(when: Callable[[Arguments], bool]) -> tuple[Fault, ...]:
    return (Fault(ErrorKind.OUT_OF_PAGES, Stage.SLOTS, when=when),)


CROWDED: dict[str, Verb] = {
    "offload": Verb(VERBS["offload"].arguments, _no_room(lambda given: given["blocks"] != ())),
    "evict": Verb(VERBS["evict"].arguments, _no_room(_is("group", "main"))),
    "seed_prefix": Verb(
        {**VERBS["seed_prefix"].arguments, "level": (right("host"), never("disk"))}, _no_room(_is("level", "host"))
    ),
}
"""While the host has no slot left, and a copy would be refused: a plan that does not fit comes last, and before any copy."""
