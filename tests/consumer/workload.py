"""A decoding workload on both systems, and dense attention over the payloads that the reference says are there."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from kvgpu.adapter.system import Implementation
from kvgpu.batch.batch import Batch
from kvgpu.device.api import Stream
from kvgpu.manager import Manager
from kvgpu.serving.attention import Attention
from kvgpu.serving.consumer import SparseAttention
from kvspec.config import BufferConfig, LayerConfig, Level, LevelConfig, LevelKind, ManagerConfig, Ownership
from kvspec.harness.systems import find_system
from kvspec.observation import Observation, RequestStatus
from kvspec.ops import (
    Add,
    Close,
    Commit,
    Create,
    Iterate,
    MakeBatch,
    Operation,
    Scheduled,
    SeedPrefix,
    Suspend,
    Write,
)
from kvspec.payload import Content
from kvspec.system import Setup, System, Value

TOKENS_PER_BLOCK = 4
KEY_DIM = 16
VALUE_DIM = 12
LAYERS = ("first", "second")
"""Two sparse layers, so that the second has an offset of its own in the pools. It is the second that is read."""
ROWS = 4
BLOCKS = 64

Float64 = npt.NDArray[np.float64]
Float32 = npt.NDArray[np.float32]


def config(
    gpu: int, host: int, ownership: Ownership = Ownership.SHARED, fetching: Mapping[str, int] | None = None
) -> ManagerConfig:
    """Two sparse layers of keys and values, whose sizes differ, and a dense one. ``fetching``: what the sparse ones reserve."""
    key, value = 4 * TOKENS_PER_BLOCK * KEY_DIM, 4 * TOKENS_PER_BLOCK * VALUE_DIM
    sparse = tuple(
        BufferConfig.model_validate({"role": role, "bytes": size, "sparse": True, **(fetching or {})})
        for role, size in (("key", key), ("value", value))
    )
    return ManagerConfig(
        tokens_per_block=TOKENS_PER_BLOCK,
        levels=(LevelConfig(kind=LevelKind.GPU, slots=gpu), LevelConfig(kind=LevelKind.HOST, slots=host)),
        layers=(
            *(LayerConfig(name=name, buffers=sparse) for name in LAYERS),
            LayerConfig(name="index", sliding_window=16, buffers=(BufferConfig(role="key", bytes=64),)),
        ),
        ownership=ownership,
    )


def floats(content: Content, nbytes: int) -> bytes:
    """A payload of float32 numbers, a fixed function of its name: what ``expand`` is to bytes."""
    text = f"{content.source}|{content.group}|{content.block}|{content.beam}|{content.nth}"
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
    return np.random.default_rng(seed).standard_normal(nbytes // 4).astype(np.float32).tobytes()


@lru_cache(maxsize=4096)
def keys_and_values(content: Content) -> tuple[Float64, Float64]:
    """What the second layer has in a page: ``[tokens_per_block, dim]`` each. The page: first all keys, then all values (R1.6)."""
    keys, values = TOKENS_PER_BLOCK * KEY_DIM, TOKENS_PER_BLOCK * VALUE_DIM
    page = np.frombuffer(floats(content, 4 * 2 * (keys + values)), dtype=np.float32).astype(np.float64)
    return (
        page[keys : 2 * keys].reshape(TOKENS_PER_BLOCK, KEY_DIM),
        page[2 * keys + values :].reshape(TOKENS_PER_BLOCK, VALUE_DIM),
    )


def dense_attention(query: Float64, keys: Float64, values: Float64) -> Float64:
    """Attention of one query, all at once, float64."""
    scores = keys @ query / np.sqrt(len(query))
    weights = np.exp(scores - scores.max())
    found: Float64 = weights @ values / weights.sum()
    return found


@dataclass(slots=True)
class Seen:
    """What the workload has gone through, so that a run that shows nothing is not taken for a proof."""

    compared: int = 0
    from_host: int = 0
    from_gpu: int = 0
    behind_a_gap: int = 0
    onboarded: int = 0
    waited: int = 0
    worst: float = 0.0


class Workload:
    """Both systems under the same operations, and the consumer over the tables of the implementation."""

    def __init__(
        self,
        device: str,
        gpu: int = 24,
        host: int = 160,
        schedule: str = "fifo",
        ownership: Ownership = Ownership.SHARED,
        fetching: Mapping[str, int] | None = None,
    ) -> None:
        """``device``: ``sim`` or ``cuda``. ``fetching``: see ``config``."""
        setup = Setup(config(gpu, host, ownership, fetching), ("exec",), {"device": device, "schedule": schedule})
        self.reference: System = find_system("kvref")(setup)
        built = find_system("kvgpu")(setup)
        assert isinstance(built, Implementation)
        self.built = built
        self.rng = np.random.default_rng(7)
        self.seen = Seen()
        self.do(MakeBatch(name="rows", rows=ROWS, blocks=BLOCKS, levels=True))
        run = built._run
        self.stream: Stream = run.names.streams["exec"]
        self.attention = self._consumer(run.manager, run.names.batches["rows"])

    def _consumer(self, manager: Manager, batch: Batch) -> Attention:
        return SparseAttention(manager, batch, LAYERS[1])

    def do(self, op: Operation) -> Value:
        """Apply an operation to both; they must agree, and it must be no error."""
        one, two = self.reference.apply(op), self.built.apply(op)
        assert one.error is None, one.message
        assert (one.value, one.error) == (two.value, two.error), f"{op}: {one} and {two}"
        return two.value

    def compare(self, run: Callable[[], object] | None = None) -> None:
        """Run the consumer and compare every row with dense attention over what the reference has there.

        ``run``: what runs it, if not the consumer by itself. It must change nothing.
        """
        state = self.reference.observe()
        members = state.batches["rows"].rows
        queries = self.rng.standard_normal((ROWS, KEY_DIM)).astype(np.float32)
        histories = [self.read_by(state, member) for member in members]
        self.attention.set_inputs(queries, [length_of(state, member) for member in members])
        if run is None:
            self.attention.run(self.stream)
        else:
            run()
        self.built._device.sync(self.stream)
        result = self.attention.result()
        for row, found in enumerate(histories):
            if found is None:
                assert not result[row].any(), f"row {row} has no history, and the consumer found {result[row]}"
                continue
            wanted = dense_attention(queries[row].astype(np.float64), *found)
            error = float(np.abs(result[row] - wanted).max() / np.abs(wanted).max())
            assert error < 1e-5, f"row {row}, {members[row]}: relative error {error}"
            self.seen.worst = max(self.seen.worst, error)
            self.seen.compared += 1
        self._note(state)

    def read_by(self, state: Observation, member: str | None) -> tuple[Float64, Float64] | None:
        """Keys and values that the consumer is to read of a row, ``None`` for none: here those of the whole history."""
        return history(state, member)

    def _note(self, state: Observation) -> None:
        counts = state.batches["rows"].published["first"].num_blocks
        for member, count in zip(state.batches["rows"].rows, counts, strict=True):
            if member is not None and state.requests[member].status is RequestStatus.ACTIVE:
                view = state.requests[member]
                used = view.snapshots["first", 0].levels[: -(-view.history // TOKENS_PER_BLOCK)]
                self.seen.from_host += count
                self.seen.from_gpu += sum(level is Level.GPU for level in used)
                self.seen.behind_a_gap += sum(level is Level.HOST for level in used[count:])
        self.seen.onboarded = state.lifetime.groups["first"].onboard_pages

    def view(self, name: str) -> tuple[RequestStatus, int, int]:
        """Status, history and capacity of a request, as the reference has them."""
        view = self.reference.observe().requests[name]
        return view.status, view.history, view.capacity

    def prefill(self, name: str, tokens: int) -> bool:
        """Bring a new request to ``tokens`` tokens of history, its last block written; whether there was room."""
        outcomes = self.do(Iterate(batch="rows", requests=(Scheduled(request=name, capacity=tokens + 1),)))
        assert isinstance(outcomes, dict)
        if outcomes[name] != "ran":
            return False
        if tokens % TOKENS_PER_BLOCK:
            self.do(Write(request=name, blocks=(tokens // TOKENS_PER_BLOCK,)))
        self.do(Iterate(batch="rows", requests=(Scheduled(request=name, history=tokens),)))
        return True

    def decode(self, names: list[str]) -> None:
        """One token for each of these requests; a suspended one resumes, and gets its token the next time."""
        entries = []
        for name in names:
            status, history, capacity = self.view(name)
            if status is not RequestStatus.ACTIVE or capacity == history:
                entries.append(Scheduled(request=name, capacity=max(capacity, history + 1), decode=True))
                continue
            self.do(Write(request=name, blocks=(history // TOKENS_PER_BLOCK,)))
            entries.append(Scheduled(request=name, capacity=max(capacity, history + 2), history=history + 1, decode=True))
        outcomes = self.do(Iterate(batch="rows", requests=tuple(entries)))
        assert isinstance(outcomes, dict)
        self.seen.waited += sum(outcome == "waiting" for outcome in outcomes.values())

    def close(self) -> None:
        """Give everything back."""
        self.attention.close()
        self.built.close()
        self.reference.close()


def length_of(state: Observation, member: str | None) -> int:
    """The tokens of history of an active request; 0 for another one."""
    if member is None or state.requests[member].status is not RequestStatus.ACTIVE:
        return 0
    return state.requests[member].history


def history(
    state: Observation, member: str | None, chosen: Callable[[int, Level], bool] | None = None, unit: int = TOKENS_PER_BLOCK
) -> tuple[Float64, Float64] | None:
    """Keys and values of the history of an active request, from the payloads of the reference.

    ``chosen``: of which units of so many tokens, by number and where they are; of all, if left out.
    """
    length = length_of(state, member)
    if not length:
        return None
    assert member is not None
    snapshot = state.requests[member].snapshots["first", 0]
    payloads = {(page.level, page.slot): page.payload for page in state.pages if page.group == "first"}
    keys, values = [], []
    for number in range(-(-length // unit)):
        block, start = divmod(number * unit, TOKENS_PER_BLOCK)
        level = snapshot.levels[block]
        assert level is not None, f"history without a page: {member} block {block}"
        if chosen is not None and not chosen(number, level):
            continue
        payload = payloads[level, snapshot.indices[block]]
        assert isinstance(payload, Content), f"history that nobody has written: {member} block {block}"
        part = slice(start, min(start + unit, length - block * TOKENS_PER_BLOCK))
        key, value = keys_and_values(payload)
        keys.append(key[part])
        values.append(value[part])
    return (np.concatenate(keys), np.concatenate(values)) if keys else None


def decoding(work: Workload, tokens: int) -> Iterator[int]:
    """A conversation of ``tokens`` decoded tokens, with others that share its prefix; yields after each step.

    ``chat`` decodes all along. ``twin`` shares its prompt, is preempted twice and resumes in decode. Every 16 tokens a ``guest``
    with the prompt, or with all that ``chat`` has committed, is in prefill for some steps, so that shared pages are promoted and
    go back; then it decodes for a while and is closed.
    """
    prompt = tuple(range(18))
    work.do(SeedPrefix(tokens=prompt, level=LevelKind.GPU))
    for name in ("chat", "twin"):
        work.do(Create(request=name, tokens=prompt))
        work.do(Add(batch="rows", request=name))
        assert work.prefill(name, len(prompt) + 2)
        yield 0
    guest: str | None = None
    said: list[int] = list(prompt)
    for step in range(tokens):
        phase = step % 16
        if phase == 3:
            guest = f"guest{step}"
            work.do(Create(request=guest, tokens=tuple(said) if step % 32 == 3 else prompt))
            work.do(Add(batch="rows", request=guest))
            _, history, _ = work.view(guest)
            if not work.prefill(guest, history + 3):
                work.do(Close(request=guest))
                guest = None
        if step in (60, 130):
            work.do(Suspend(request="twin"))
        names = ["chat"]
        if not (60 <= step < 85 or 130 <= step < 150):
            names.append("twin")
        if guest is not None and phase >= 8:
            names.append(guest)
        work.decode(names)
        yield step
        if phase == 14 and guest is not None:
            work.do(Close(request=guest))
            guest = None
        if step == 20:
            work.do(Commit(request="chat", tokens=(100, 101)))
            said += [100, 101]
        if step > 20 and step % 4 == 0:
            _, history, _ = work.view("chat")
            more = tuple(range(100 + len(said), 100 + history))
            work.do(Commit(request="chat", tokens=more))
            said += more
