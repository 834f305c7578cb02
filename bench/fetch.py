"""Fetching selected history: all misses, all hits, some misses, beside the link's ceiling and a fetch that the host decides."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bench.timing import Clock
from kvgpu.batch.batch import Batch
from kvgpu.batch.fetch import Fetch
from kvgpu.device.api import Device, Memory, Stream
from kvgpu.device.cuda.driver import checked, driver
from kvgpu.manager import Manager
from kvspec.config import BufferConfig, LayerConfig, LevelConfig, LevelKind, ManagerConfig

SIZES = (4 << 10, 64 << 10)
TARGETS = {4 << 10: 85, 64 << 10: 92}
"""Per cent of the ceiling, all misses."""
END = 12
"""Microseconds of all hits, end to end."""
PARTLY = 1.2
"""Time of the misses among hits, less a launch, against their bytes at the ceiling."""
FASTER = {4 << 10: 10.0}
"""All misses against a fetch that the host decides."""
SELECTS, TIMES = 16, 3
BLOCKS, TOKENS = 64, 64
"""Blocks that may be selected. Four selections without a block in common take all of them; three are reserved."""

Int32 = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Row:
    """Microseconds. Of all misses: device time, then (CPU time, time to the end) of calls, ours and of a fetch that the host
    decides, in C++ (0 without a compiler) and in Python.

    Of all hits: device time, and (CPU, end) of the kernel's launch alone, of ``Fetch.run`` (again on the same stream, and the
    first after ``record_read``), of a graph's launch alone and framed by ``Batch.replaying``. ``share``: of misses among hits.
    """

    page_bytes: int
    rows: int
    ceiling: float
    misses: float
    misses_run: tuple[float, float]
    by_host: float
    by_host_python: float
    hits: float
    launch: tuple[float, float]
    run: tuple[float, float]
    first: tuple[float, float]
    graph: tuple[float, float]
    replay: tuple[float, float]
    share: float
    partly: float

    def rate(self, time: float) -> float:
        """GB/s of all misses in so much time."""
        return self.rows * SELECTS * self.page_bytes / time / 1e3


class Scene:
    """A batch of decoding requests with all of their history on the host."""

    def __init__(self, device: Device, page_bytes: int, rows: int) -> None:
        self.device, self.page_bytes, self.rows = device, page_bytes, rows
        self.entries = TIMES * SELECTS
        buffer = BufferConfig(role="key", bytes=page_bytes, sparse=True, selected=SELECTS, reserve=self.entries)
        gpu, host = rows * (BLOCKS + 1 + self.entries), rows * (BLOCKS + 1)
        config = ManagerConfig(
            tokens_per_block=TOKENS,
            levels=(LevelConfig(kind=LevelKind.GPU, slots=gpu), LevelConfig(kind=LevelKind.HOST, slots=host)),
            layers=(LayerConfig(name="main", buffers=(buffer,)),),
        )
        self.manager = Manager(config, device)
        self.stream = device.stream(f"fetches {page_bytes} {rows}")
        self.clock = Clock(self.stream.raw)  # type: ignore[attr-defined]
        self.batch = Batch(self.manager, "rows", rows, BLOCKS + 1)
        self.requests = []
        for row in range(rows):
            request = self.manager.create(f"r{row}")
            assert self.manager.resume(request, self.stream)
            assert self.manager.resize(request, (BLOCKS + 1) * TOKENS, BLOCKS * TOKENS)
            assert self.manager.enter_decode(request)
            self.batch.add(request)
            self.requests.append(request)
        self.batch.publish(self.stream)
        device.settle()

    def memories(self) -> tuple[Memory, Memory]:
        """Of the host and of the GPU."""
        return self.manager.pool_memory(1, 0), self.manager.pool_memory(0, 0)

    def selecting(self, numbers: Callable[[int], Sequence[int]]) -> Fetch:
        """A fetch with a selection by row."""
        fetch = self.batch.fetch("main")
        selected = np.array([numbers(row) for row in range(self.rows)], np.int32)
        checked(driver.cuMemcpy(fetch.selected.address, selected.ctypes.data, selected.nbytes))
        return fetch

    def counts(self) -> tuple[int, int]:
        """Hits and misses since the last time."""
        self.device.settle()
        found = self.manager.counters().groups[0]
        self.manager.counters(reset=True)
        return found["fetch_hits"], found["fetch_misses"]


class Turns:
    """Fetches one after the other, again and again, whatever is done with them."""

    def __init__(self, fetches: Sequence[Fetch], stream: Stream) -> None:
        self._next = itertools.cycle(fetches)
        for _ in fetches:
            next(self._next).run(stream)

    def each(self, go: Callable[[Fetch], object]) -> Callable[[], object]:
        """Does something with the next one at each call."""
        return lambda: go(next(self._next))


def one_pair(turn: int) -> Callable[[int], list[int]]:
    """Selections with a tenth of misses: in three rows of five two blocks are new, in the others one; by turns, so that the last
    one has long been evicted."""
    pair, single = turn % 25, turn % 49
    return lambda row: [*range(14), 14 + 2 * pair, 15 + 2 * pair] if row % 5 < 3 else [*range(15), 15 + single]


def measure(device: Device, peers: ctypes.CDLL | None, rows: int = 256, sizes: Sequence[int] = SIZES) -> list[Row]:
    return [_measure(Scene(device, page_bytes, rows), peers) for page_bytes in sizes]


def _measure(scene: Scene, peers: ctypes.CDLL | None) -> Row:
    stream, clock, batch = scene.stream, scene.clock, scene.batch
    host, gpu = scene.memories()
    raw, total = clock.raw, scene.rows * SELECTS * scene.page_bytes
    ceiling = clock.device(lambda: checked(driver.cuMemcpyAsync(gpu.address, host.address, total, raw)))
    apart = [scene.selecting(lambda row, turn=turn: range(SELECTS * turn, SELECTS * (turn + 1))) for turn in range(4)]  # type: ignore[misc]
    turns = Turns(apart, stream)
    scene.counts()
    missing = clock.device(turns.each(lambda fetch: fetch.launch(stream)))
    missing_run = clock.cpu(turns.each(lambda fetch: fetch.run(stream)))
    hits, misses = scene.counts()
    assert hits == 0 and misses > 0, (hits, misses)
    by_python = clock.cpu(turns.each(_python_peer(scene)))[1]
    by_host = clock.cpu(turns.each(_peer(scene, peers)))[1] if peers is not None else 0.0
    one = apart[0]
    one.run(stream)
    scene.counts()
    hitting = clock.device(lambda: one.launch(stream))
    launch, run = clock.cpu(lambda: one.launch(stream)), clock.cpu(lambda: one.run(stream))
    first = clock.cpu(lambda: one.run(stream), prepare=lambda: batch.record_read(stream))
    scene.manager.begin_capture(stream)
    one.run(stream)
    graph = scene.manager.end_capture(stream)
    launched = clock.cpu(lambda: graph.launch(stream, "bench"))

    def replay() -> None:
        with batch.replaying(stream, [one]):
            graph.launch(stream, "bench")

    replayed = clock.cpu(replay)
    hits, misses = scene.counts()
    assert misses == 0 and hits > 0, (hits, misses)
    mixed = [scene.selecting(one_pair(turn)) for turn in range(49)]
    turns = Turns(mixed, stream)
    scene.counts()
    partly = clock.device(turns.each(lambda fetch: fetch.launch(stream)))
    hits, misses = scene.counts()
    share = misses / (hits + misses)
    _verify(scene, one)
    scene.manager.shut()
    return Row(
        scene.page_bytes,
        scene.rows,
        ceiling,
        missing,
        missing_run,
        by_host,
        by_python,
        hitting,
        launch,
        run,
        first,
        launched,
        replayed,
        share,
        partly,
    )


def _entries(scene: Scene) -> tuple[Int32, Int32]:
    """By row: the host slots of the blocks, and the reserved GPU slots."""
    slots = [request.indices(0)[:BLOCKS] for request in scene.requests]
    return np.array(slots, np.int32), np.array([request.reserved[0].slots for request in scene.requests], np.int32)


def _python_peer(scene: Scene) -> Callable[[Fetch], None]:
    """One copy call a miss after a round trip to the host, which knows that all are misses."""
    (host, gpu), (slots, reserved) = scene.memories(), _entries(scene)
    nbytes, raw = scene.page_bytes, scene.clock.raw

    def go(fetch: Fetch) -> None:
        asked = np.frombuffer(fetch.selected.read_now(0, fetch.nbytes), np.int32).reshape(scene.rows, SELECTS)
        for row in range(scene.rows):
            for at, (block, slot) in enumerate(zip(asked[row].tolist(), reserved[row].tolist(), strict=False)):
                assert at < SELECTS
                driver.cuMemcpyHtoDAsync(gpu.address + slot * nbytes, host.address + int(slots[row, block]) * nbytes, nbytes, raw)

    return go


def _peer(scene: Scene, peers: ctypes.CDLL) -> Callable[[Fetch], None]:
    """The same in C++, with a cache of its own in the same slots."""
    (host, gpu), (slots, reserved) = scene.memories(), _entries(scene)
    shape = (scene.rows, scene.entries)
    where, holds = np.full((scene.rows, BLOCKS), -1, np.int32), np.full(shape, -1, np.int32)
    used = np.zeros(shape, np.int64)
    asked, out = (scene.device.allocate("pinned", 4 * scene.rows * SELECTS, "of a peer") for _ in range(2))
    now = 0

    def go(fetch: Fetch) -> None:
        nonlocal now
        now += 1
        arrays = [part.ctypes.data for part in (where, holds, used, slots, reserved)]
        memories = (out.address, fetch.result.address, host.address, gpu.address)
        numbers = (scene.rows, SELECTS, scene.entries, BLOCKS, scene.page_bytes, now, int(scene.clock.raw))
        error = peers.fetch_by_host(fetch.selected.address, asked.address, *arrays, *memories, *numbers)
        if error:
            raise RuntimeError(f"the peer failed with CUDA error {error}")

    return go


def _verify(scene: Scene, fetch: Fetch) -> None:
    """Fresh contents in the host pages of some rows, fetched once, compared byte by byte."""
    rng, (host, gpu), (slots, _) = np.random.default_rng(), scene.memories(), _entries(scene)
    contents = {}
    other = scene.selecting(lambda _: range(SELECTS, 2 * SELECTS))
    for row in rng.choice(scene.rows, min(scene.rows, 8), replace=False).tolist():
        for at in range(SELECTS):
            payload = contents[row, at] = rng.bytes(scene.page_bytes)
            checked(driver.cuMemcpy(host.address + int(slots[row, at]) * scene.page_bytes, _address(payload), scene.page_bytes))
    for turn in (1, 2, 3):
        scene.selecting(lambda _, turn=turn: range(SELECTS * turn, SELECTS * (turn + 1))).run(scene.stream)  # type: ignore[misc]
    other.run(scene.stream)
    fetch.run(scene.stream)
    scene.device.settle()
    entries = np.frombuffer(fetch.result.read_now(0, fetch.nbytes), np.int32).reshape(scene.rows, SELECTS)
    for (row, at), payload in contents.items():
        after = gpu.read_now(int(entries[row, at]) * scene.page_bytes, scene.page_bytes)
        assert after == payload, f"row {row}, block {at} did not arrive whole"


def _address(payload: bytes) -> int:
    return ctypes.cast(ctypes.c_char_p(payload), ctypes.c_void_p).value or 0
