"""Which cells there are: what each verb is looked at by, and how its calls can end. A verb is asked for what can matter to it."""

from __future__ import annotations

from kvspec.audit.matrix import VERBS as COPYING

OUTCOMES = (
    *("done", "done, gate", "false", "out_of_pages", "copy_failed", "copy_failed, queued", "copy_failed, gate"),
    *("invalid_argument", "logic_error", "out_of_range"),
)
"""How a call ends. ``gate``: while a gate was closed; ``queued``: the copy was refused after work was queued for it."""
OF_VALUES = ("invalid_argument", "out_of_range")
"""What is decided by values and names alone."""
OF_ARGUMENTS = (*OF_VALUES, "logic_error")
"""What is decided before any page is looked at."""

_OF_PAGES = ("resume", "resize", "enter_decode", "commit", "suspend", "close", "prefetch", "offload", "set_beam_width", "publish")
_OF_PARTS = ("admit_generation", "resize_batch", "iterate")
"""They consist of operations that are looked at by themselves (R8.9, R11.1, R11.2): room and pages are a matter of these."""
_LIGHT = ("beams", "a state", "nothing sparse", "ended", "in a batch")
"""What is true of a request for long: asked of the calls that succeed or find no room, not of gates and refused copies."""
_TRAITS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_OF_PARTS, ("partial match", "deferred pages", "shared pages", "reserved slots", "own copies")),
    "stop_committing": ("kept stale pages",),
    "write": ("shared pages", "beams", "a state", "own copies"),
    "snapshot": ("deferred pages", "beams"),
    "read_page": ("deferred pages", "shared pages", "beams", "own copies"),
    "bind_row": ("in a batch",),
    "record_read": ("in a batch", "reserved slots"),
    "fetch": ("deferred pages", "shared pages", "own copies"),
    "add": ("in a batch",),
    "remove": ("in a batch",),
    "dense_offsets": ("deferred pages", "nothing sparse"),
    "set_stream": ("reserved slots",),
}
_REQUEST = (*_OF_PAGES, *_TRAITS, "create", "acknowledge")
_BATCH = (
    *("batch", "add", "remove", "publish", "wait_ready", "record_read", "resize_batch", "close_batch", "read_table"),
    *("fetch", "dense_offsets", "iterate"),
)
_ROOM = (*(verb for verb in COPYING if verb not in _OF_PARTS), "clear_reusable", "take_slots")
_MEMBERS = ("publish", "resize_batch", "iterate")
"""They are looked at by all requests that they are called on, of which one can have an error for another."""

_FALSE = (
    *("resume", "resize", "enter_decode", "admit_generation", "prefetch", "set_beam_width", "acknowledge"),
    *("resize_batch", "iterate"),
)
_NO_ROOM = ("commit", "offload", "publish", "resize_batch", "iterate", "seed_prefix", "evict", "take_slots")
_INVALID = (
    *("create", "resume", "resize", "commit", "prefetch", "offload", "set_beam_width", "write", "snapshot", "read_page"),
    *(
        "seed_prefix",
        "evict",
        "take_slots",
        "batch",
        "add",
        "publish",
        "resize_batch",
        "read_table",
        "fetch",
        "replay",
        "iterate",
    ),
)
_NO_LOGIC = ("close", "snapshot", "wait_snapshot", "is_sparse", "page_index_scale", "stats", "fail_copy", "open", "give_slots")
_NO_LOGIC_OF_MANAGER = ("seed_prefix", "evict", "clear_reusable", "take_slots", "close_batch")
_NO_RANGE = ("create", "clear_reusable", "batch", "stats", "fail_copy", "end_capture")
_ORDERED = (
    *(*_OF_PAGES, *_OF_PARTS),
    *("set_stream", "write", "snapshot", "read_page", "record_read", "stop_committing", "wait_snapshot", "wait_ready"),
    *("seed_prefix", "evict", "clear_reusable", "take_slots", "give_slots", "read_table", "fetch", "replay", "gate", "sync"),
)
"""They submit device work, or show what it waits for: it matters whether a gate is closed."""


def outcomes(verb: str) -> tuple[str, ...]:
    """How a call of a verb can end, whatever the state."""
    found = {"done"}
    found |= {"done, gate"} if verb in _ORDERED else set()
    found |= {"false"} if verb in _FALSE else set()
    found |= {"out_of_pages"} if verb in _NO_ROOM else set()
    found |= {"copy_failed", "copy_failed, queued", "copy_failed, gate"} if verb in COPYING else set()
    found |= {"copy_failed"} if verb == "create" else set()
    found |= {"invalid_argument"} if verb in _INVALID else set()
    found |= {"logic_error"} if verb not in (*_NO_LOGIC, *_NO_LOGIC_OF_MANAGER) else set()
    found |= {"out_of_range"} if verb not in _NO_RANGE else set()
    return tuple(outcome for outcome in OUTCOMES if outcome in found)


def subjects(verb: str) -> tuple[str, ...]:
    """What a verb is looked at by."""
    of = (("request", _REQUEST), ("batch", _BATCH), ("room", _ROOM))
    return tuple(subject for subject, verbs in of if verb in verbs) or ("device",)


def asked_of(verb: str, subject: str, kind: str, says: str) -> frozenset[str]:
    """The outcomes that a kind of state is asked for, of those of a verb. ``says``: as of `kinds.Says`."""
    member = verb in _MEMBERS and subject == "request"
    match says:
        case "missing":
            if member:
                return frozenset(OF_ARGUMENTS if verb == "iterate" else ())
            return frozenset(OUTCOMES)
        case "there":
            first = not (subject == "request" and verb in _BATCH) and not (subject == "room" and verb in _REQUEST)
            return frozenset(OF_VALUES if first else ())
        case "status":
            return frozenset(OUTCOMES) - frozenset(OF_ARGUMENTS if member else OF_VALUES)
        case _:
            return _asked_of_trait(verb, subject, kind)


def _asked_of_trait(verb: str, subject: str, kind: str) -> frozenset[str]:
    if subject == "request" and verb not in _OF_PAGES and kind not in _TRAITS.get(verb, ()):
        return frozenset()
    if kind == "empty" and verb in _REQUEST:
        return frozenset()
    found = {"done", "done, gate", "false", "out_of_pages", "copy_failed"}
    if subject == "room" or kind in _LIGHT:
        found -= {"done, gate"}
    return frozenset(found - {"copy_failed"} if kind in _LIGHT else found)
