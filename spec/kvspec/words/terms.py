"""The terms of the rules, each in a sentence or two, and the words that other managers have for the same."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Term:
    """A term, and the rules that say more."""

    text: str
    rules: tuple[str, ...]


GLOSSARY: Mapping[str, Mapping[str, Term]] = {
    "What lies where": {
        "block": Term("tokens_per_block tokens of a request, counted from 0.", ("R1.1",)),
        "page": Term("All buffers of a layer group for one block of one request or of the prefix tree.", ("R1.6", "R2.1")),
        "level": Term("Where pages may be: gpu (level 0), host (level 1), disk (level 2).", ("R1.2",)),
        "slot": Term("It holds one page on a level. A page has one place: a level and a slot there.", ("R1.6", "R2.4")),
        "group": Term(
            "Layer group: layers of the same kind, window, sinks and sparsity, named after the first of them.", ("R1.5",)
        ),
        "pool group": Term(
            "The layer groups whose pages have the same shape on a level, so that they share its slots.", ("R1.6",)
        ),
        "sparse": Term("A buffer of which decode reads only a few blocks, so that its history may be on the host.", ("R1.4",)),
        "sliding window": Term(
            "A layer group that needs the last tokens alone; what lies before the window is stale.", ("R1.3", "R1.8")
        ),
        "sink_tokens": Term("The first tokens, which attention sees as well as a sliding window.", ("R1.8",)),
        "state": Term("The one page of a request in a group of SSM layers; it changes at every step.", ("R1.3",)),
        "beam": Term("One of several continuations of a prompt; each has pages of its own after the prompt.", ("R3.12",)),
    },
    "What a request has": {
        "history": Term(
            "The leading tokens of a request that are final; a block wholly inside is complete history.", ("R3", "R4.1")
        ),
        "capacity": Term("Tokens that a request has blocks for.", ("R3",)),
        "committed": Term(
            "The leading tokens that a request has put into the prefix tree; such pages never change.", ("R2.1", "R3.9")
        ),
        "prefill": Term("The phase in which the prompt is computed; nothing moves to the host by itself.", ("R3.8",)),
        "decode": Term("The phase in which tokens are generated; complete history may move to the host.", ("R3.8", "R4.1")),
        "owner": Term("An active request that has a page locked.", ("R2.3",)),
        "locked": Term(
            "At least one active request has the page locked. Only offload and promotion move it.",
            ("R2.2", "R2.5"),
        ),
        "held": Term(
            "No active request has the page locked, but some request keeps it: it may be evicted, not dropped.", ("R2.2",)
        ),
        "droppable": Term("Only the prefix tree keeps the page: it may be evicted or dropped.", ("R2.2",)),
        "stale": Term("A block that lies before the sliding window: its group does not need it any more.", ("R1.8", "R3.7")),
    },
    "What requests share": {
        "prefix tree": Term("Blocks by their tokens from the root, with the pages that requests may share.", ("R2.6", "R3.1")),
        "match": Term("The longest beginning of a request's tokens for which the tree has every page that is needed.", ("R3.1",)),
        "commit": Term("Tokens become final; each full block enters the prefix tree, with the page that it has.", ("R3.9",)),
        "rebase": Term(
            "At a commit, a request gives up its own page of a block and locks the one that the tree has already.", ("R3.9",)
        ),
        "key": Term("What tells a token from an equal number: a salt, an adapter, an image.", ("R2.7",)),
        "partial block": Term("A block of the tree with fewer tokens than fit; nothing follows it.", ("R2.6", "R3.4")),
    },
    "What moves": {
        "eligible": Term(
            "A sparse page of complete history that is locked by a decoding request: it may move to the host.", ("R4.1", "R6.3")
        ),
        "offload": Term("Moving eligible pages from the GPU to the host.", ("R4.5", "R4.9")),
        "deferred": Term(
            "An eligible page that stays on the GPU since one of its owners is not decoding; it is tried again later.",
            ("R4.2", "R4.3"),
        ),
        "promotion": Term(
            "Bringing a sparse page that others hold on the host back to the GPU, for an owner in prefill.", ("R5",)
        ),
        "onboard": Term("Bringing a page to the GPU from a colder level.", ("R3.3", "R3.11")),
        "eviction": Term("Making room on a level: pages move one level down, or are dropped.", ("R10.1", "R10.2")),
        "drop": Term("Taking a page out of the prefix tree for good; what is below it in the tree goes with it.", ("R10.3",)),
    },
    "What kernels see": {
        "batch": Term("A fixed number of rows, and for each layer group tables on the device that never move.", ("R8.1",)),
        "row": Term("The place of a request in a batch, which it keeps until it is removed.", ("R8.2",)),
        "eligible count": Term("How many leading blocks of history are on the host; num_blocks, as published.", ("R6.3", "R8.5")),
        "snapshot": Term("A copy of what a request shows in a group: where each block is, and from when on.", ("R6.1",)),
        "version": Term("A number of a request: newer whenever something that its row shows may have changed.", ("R6.4",)),
        "dirty": Term(
            "Of a request: its newest version is not acknowledged. Of a row: it shows something else than it last published.",
            ("R6.5", "R8.3"),
        ),
        "publish": Term("Writing the dirty rows of a batch into its device tables.", ("R8.4",)),
        "staging": Term("Buffers in which the rows of a publication wait for their upload.", ("R7.6",)),
    },
    "What waits for what": {
        "readiness": Term("The device work after which the payload of a page is valid.", ("R2.4", "R7.1")),
        "fence": Term("Device work that must run before a slot, a table or a buffer is used again.", ("R7.2", "R7.4")),
        "gate": Term("Holds up a stream in a scenario, so that work submitted to it stays pending until it opens.", ("R7.1",)),
        "payload": Term("What is in a page; the harness writes its own into each block, so that a wrong page shows.", ("R2.1",)),
    },
    "What is compared": {
        "scenario": Term("A manager, steps, and what must hold; one YAML document.", ()),
        "system": Term("Whatever carries out steps and can be observed: kvref, kvgpu, or your own manager.", ()),
        "reference": Term("The system that says what is right: kvref, the rules as plain Python.", ()),
        "divergence": Term("The first step at which two systems do not show the same.", ()),
        "break": Term(
            "A mistake that is planted in a system, to see whether the scenarios notice; a mutant, in other tools.", ()
        ),
    },
}
"""The terms by what they are about, in an order in which they can be read."""

TERMS: Mapping[str, Term] = {name: term for terms in GLOSSARY.values() for name, term in terms.items()}

OTHER_WORDS: Mapping[str, str] = {
    "preempt": "suspend",
    "pause": "suspend",
    "swap_out": "suspend",
    "swap_in": "resume",
    "activate": "resume",
    "start": "resume",
    "new": "create",
    "add_request": "create",
    "match": "create",
    "allocate": "resize",
    "alloc": "resize",
    "append": "resize",
    "append_slots": "resize",
    "extend": "resize",
    "grow": "resize",
    "shrink": "resize",
    "free": "close",
    "release": "close",
    "finish": "close",
    "abort": "close",
    "cancel": "close",
    "delete": "close",
    "decode": "enter_decode",
    "start_decode": "enter_decode",
    "generate": "enter_decode",
    "onboard": "prefetch",
    "load": "prefetch",
    "fetch": "prefetch",
    "store": "commit",
    "save": "commit",
    "insert": "commit",
    "cache": "commit",
    "fork": "set_beam_width",
    "beam": "set_beam_width",
    "drop": "evict",
    "flush": "clear_reusable",
    "reset": "clear_reusable",
    "clear": "clear_reusable",
    "step": "iterate",
    "forward": "iterate",
    "schedule": "iterate",
    "wait": "sync",
    "synchronize": "sync",
    "upload": "publish",
    "ack": "acknowledge",
    "location": "levels",
    "locations": "levels",
    "level": "levels",
    "place": "levels",
    "refcount": "owners",
    "locked_by": "owners",
    "page_table": "table",
    "block_table": "table",
    "length": "history",
    "contents": "payload",
    "return": "returns",
    "result": "returns",
    "value": "returns",
    "error": "raises",
    "throws": "raises",
    "fails": "raises",
    "expects": "expect",
    "expected": "expect",
    "assert": "expect",
    "check": "expect",
    "comment": "note",
    "salt": "key",
    "cache_salt": "key",
    "extra_key": "key",
    "extra_keys": "key",
    "lora": "key",
    "adapter": "key",
    "page_size": "tokens_per_block",
    "block_size": "tokens_per_block",
}
"""What people who know other managers may call a word of the language."""


def meant_word(word: str, words: Container[str]) -> str | None:
    """The word of the language that somebody means by another, if it is among ``words``."""
    found = OTHER_WORDS.get(word.lower().replace("-", "_").replace(" ", "_"))
    return found if found is not None and found in words else None
