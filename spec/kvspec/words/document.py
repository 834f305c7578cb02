"""The keys of a scenario's head and of its manager, the policies among them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kvspec.policies import POLICIES, value_text


@dataclass(frozen=True, slots=True)
class Key:
    """A key. ``owner``: the mapping that it stands in, as messages call it. ``example``: as YAML writes it."""

    owner: str
    text: str
    example: str
    rules: tuple[str, ...] = ()


HEAD: Mapping[str, Key] = {
    "kvspec": Key("scenario", "Version of the language: 1.", "kvspec: 1"),
    "name": Key(
        "scenario",
        "What the scenario shows, in a sentence. No two scenarios of a run may have the same name.",
        "name: a gap is closed later",
    ),
    "rules": Key("scenario", "The rules that it covers, as `kvspec rules` lists them.", "rules: [R4.2, R6.3]"),
    "tags": Key("scenario", "Words to select it by, with `kvspec run -k`.", "tags: [sharing]"),
    "requires": Key(
        "scenario",
        "What a system must support besides the verbs, or the scenario is skipped: async, capture, disk, beams, ssm, faults.",
        "requires: [async]",
    ),
    "manager": Key(
        "scenario",
        "The cache manager to build.",
        "manager: {tokens_per_block: 4, levels: [{kind: gpu, slots: 4}], layers: [...]}",
    ),
    "streams": Key("scenario", "Streams by name; `exec` always exists and is the default.", "streams: [side]", ("R7.9",)),
    "steps": Key(
        "scenario", "What to do, in order; a step is a mapping with exactly one verb.", "steps: [{create: chat}, {resume: chat}]"
    ),
}

STEP: Mapping[str, Key] = {
    "returns": Key("step", "What the verb returns. Without it the two systems must still agree.", "returns: true"),
    "raises": Key(
        "step",
        "The kind of error that is expected (rules, section 9). Any other error is a failure.",
        "raises: logic_error",
        ("R9",),
    ),
    "expect": Key("step", "What must hold after the step, in both systems.", "expect: {levels: {chat.main: [host, gpu]}}"),
    "note": Key("step", "A remark for the reader.", "note: the second block is not complete yet"),
}

MANAGER: Mapping[str, Key] = {
    "tokens_per_block": Key(
        "manager", "Tokens of a block, which is the size of a page; at least 1.", "tokens_per_block: 4", ("R1.1",)
    ),
    "levels": Key(
        "manager",
        "Where pages may be, the hottest first: gpu, then host, then disk.",
        "levels: [{kind: gpu, slots: 4}, {kind: host, slots: 4}]",
        ("R1.2",),
    ),
    "layers": Key(
        "manager",
        "The layers of the model. Layers that are alike form a group, which is named after its first layer.",
        "layers: [{name: main, buffers: [{role: key, bytes: 64, sparse: true}]}]",
        ("R1.3", "R1.5"),
    ),
    "max_util_for_resume": Key(
        "manager",
        "The share of GPU slots in use, from 0 to 1, above which a resume is refused.",
        "max_util_for_resume: 0.75",
        ("R3.5",),
    ),
    "ownership": Key(
        "manager",
        "Whether requests that share a sparse page share its place on the GPU, too, or have a copy each over one on the host.",
        "ownership: private",
        ("R14.1",),
    ),
    "policy": Key(
        "manager",
        "What a system must do where good managers differ, or it skips the scenario. Left out: as the system does it.",
        "policy: {match: block}",
        ("R16.1",),
    ),
}

POLICY: Mapping[str, Key] = {
    name: Key(
        "policy",
        f"{policy.text} " + "; ".join(f"{value_text(value)}: {text}" for value, text in policy.values.items()) + ".",
        f"{name}: {value_text(list(policy.values)[-1])}",
        policy.rules,
    )
    for name, policy in POLICIES.items()
}

LEVEL: Mapping[str, Key] = {
    "kind": Key("level", "gpu, host or disk.", "kind: host", ("R1.2",)),
    "slots": Key("level", "How many slots each pool group has. Give either slots or bytes.", "slots: 4", ("R1.2",)),
    "bytes": Key(
        "level",
        "Size in bytes, divided so that every pool group has the same number of slots. Give either slots or bytes.",
        "bytes: 65536",
        ("R1.2",),
    ),
}

LAYER: Mapping[str, Key] = {
    "name": Key("layer", "Name of the layer; the first of a group names the group.", "name: main", ("R1.5",)),
    "kind": Key("layer", "attention, which keeps history blocks, or ssm, which keeps one state.", "kind: ssm", ("R1.3",)),
    "sliding_window": Key(
        "layer", "How many of the latest tokens attention sees; older blocks become stale.", "sliding_window: 8", ("R1.8",)
    ),
    "sink_tokens": Key(
        "layer", "How many of the first tokens attention sees as well as the window.", "sink_tokens: 4", ("R1.8",)
    ),
    "buffers": Key(
        "layer", "What the layer keeps of each block.", "buffers: [{role: key, bytes: 64}, {role: value, bytes: 64}]", ("R1.6",)
    ),
}

BUFFER: Mapping[str, Key] = {
    "role": Key("buffer", "Name of the buffer within its layer.", "role: key", ("R1.3",)),
    "bytes": Key("buffer", "Size in bytes for `tokens_per_block` tokens; of an ssm layer, of the state.", "bytes: 64", ("R1.3",)),
    "sparse": Key(
        "buffer", "Whether decode reads only some blocks of it, so that history may go to the host.", "sparse: true", ("R1.4",)
    ),
    "tokens_per_block": Key(
        "buffer",
        "How many tokens `bytes` is for, if not the manager's number, which must be a multiple of it.",
        "tokens_per_block: 2",
        ("R1.6",),
    ),
    "selected": Key("buffer", "How many numbers a fetch selects for a row, at most.", "selected: 2", ("R15.1",)),
    "reserve": Key(
        "buffer", "How many GPU slots a decoding request reserves for fetched history, at most.", "reserve: 6", ("R15.1", "R15.2")
    ),
    "unit": Key(
        "buffer", "How many tokens a selected number stands for, if not a whole block; it divides one.", "unit: 2", ("R15.11",)
    ),
}

KEYS: Mapping[str, Mapping[str, Key]] = {
    "Document": HEAD,
    "ManagerConfig": MANAGER,
    "Policies": POLICY,
    "LevelConfig": LEVEL,
    "LayerConfig": LAYER,
    "BufferConfig": BUFFER,
}
"""The keys of each mapping, by the name of its model."""
