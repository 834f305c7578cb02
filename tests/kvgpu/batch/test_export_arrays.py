"""Exported arrays: views of the same memory, read-only, ordered, alive (R8.7)."""

import gc
import weakref

import numpy as np
import pytest

from kvgpu.batch import dlpack
from kvgpu.batch.export import ExportedArray, TableStorage
from kvgpu.device.api import Event
from kvgpu.device.sim import SimDevice
from kvgpu.locks import ManagerLock
from kvgpu.upload.table_layout import TableLayout


def storage_with_words(device: SimDevice) -> TableStorage:
    storage = TableStorage(device, TableLayout(groups=1, rows=2, blocks=3, levels=False), "tables", ManagerLock())
    storage.layout.page_table(storage.memory.host_array())[:] = [[[0, 1, 2], [3, 4, -1]]]
    return storage


def table_of(storage: TableStorage, event: Event) -> ExportedArray:
    return ExportedArray(storage, 0, (2, 3), np.int32, lambda: event)


def test_from_dlpack_is_a_read_only_view() -> None:
    device = SimDevice()
    storage = storage_with_words(device)
    table = table_of(storage, device.record(storage.stream, "published"))
    seen = np.from_dlpack(table)
    assert seen.tolist() == [[0, 1, 2], [3, 4, -1]]
    assert not seen.flags.writeable
    storage.layout.page_table(storage.memory.host_array())[0, 0, 0] = 9
    assert seen[0, 0] == 9
    assert np.shares_memory(np.asarray(table), seen)
    assert not np.asarray(table).flags.writeable


def test_torch_sees_the_same_memory() -> None:
    import torch

    device = SimDevice()
    storage = storage_with_words(device)
    table = table_of(storage, device.record(storage.stream, "published"))
    seen = torch.from_dlpack(table)
    assert seen.tolist() == [[0, 1, 2], [3, 4, -1]]
    assert seen.data_ptr() == table.address


def test_the_memory_outlives_the_storage_and_the_export() -> None:
    device = SimDevice()
    storage = storage_with_words(device)
    table = table_of(storage, device.record(storage.stream, "published"))
    views = [np.from_dlpack(table), np.asarray(table)]
    alive = weakref.ref(storage)
    del storage, table
    gc.collect()
    assert alive() is not None
    assert [view.tolist() for view in views] == [[[0, 1, 2], [3, 4, -1]]] * 2
    views.clear()
    gc.collect()
    assert alive() is None


def test_a_consumer_without_a_stream_needs_the_publication_to_have_run() -> None:
    device = SimDevice()
    storage = storage_with_words(device)
    gate = device.gate(storage.stream, "g")
    table = table_of(storage, device.record(storage.stream, "published"))
    with pytest.raises(BufferError, match="has not run yet"):
        np.from_dlpack(table)
    side = device.stream("side")
    table.__dlpack__(stream="side", max_version=(1, 0))
    assert device.position(side).gates == {"g"}
    gate.open()
    assert np.from_dlpack(table).shape == (2, 3)


def test_copies_are_refused() -> None:
    device = SimDevice()
    storage = storage_with_words(device)
    table = table_of(storage, device.record(storage.stream, "published"))
    with pytest.raises(BufferError, match="never copied to"):
        table.__dlpack__(max_version=(1, 0), dl_device=(dlpack.CUDA, 0), copy=False)
    with pytest.raises(BufferError, match="without a copy only"):
        table.__dlpack__(max_version=(1, 0), copy=True)
    with pytest.raises(BufferError, match="max_version"):
        table.__dlpack__()
    with pytest.raises(ValueError, match=r"[Uu]nable to avoid copy"):
        table.__array__(np.dtype(np.int64), copy=False)


class Foreign:
    """A producer over memory that NumPy does not own, as a GPU's is."""

    def __init__(self, words: np.ndarray, owner: object) -> None:
        self.words, self.owner = words, owner

    def __dlpack__(self, **_: object) -> object:
        return dlpack.signed_capsule(self.words.ctypes.data, self.words.shape, 32, (dlpack.CPU, 0), self.owner)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (dlpack.CPU, 0)


class Owner:
    pass


def test_own_capsules_keep_their_owner_until_the_consumer_is_gone() -> None:
    words = np.arange(12, dtype=np.int32).reshape(3, 4)
    owner = Owner()
    alive = weakref.ref(owner)
    foreign = Foreign(words, owner)
    seen = np.from_dlpack(foreign)
    del owner, foreign
    gc.collect()
    assert seen.tolist() == words.tolist()
    assert not seen.flags.writeable
    assert alive() is not None
    del seen
    gc.collect()
    assert alive() is None


def test_own_capsules_that_nobody_takes_are_given_back() -> None:
    owner = Owner()
    alive = weakref.ref(owner)
    capsule = dlpack.signed_capsule(0, (0,), 8, (dlpack.CPU, 0), owner)
    del owner
    gc.collect()
    assert alive() is not None
    del capsule
    gc.collect()
    assert alive() is None
