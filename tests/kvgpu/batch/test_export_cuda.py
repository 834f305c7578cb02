"""Exports of a GPU's tables to torch: the same memory, the right device, in order (R8.7)."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from kvgpu.batch.batch import Batch
from kvgpu.device.open import open_device, why_no_gpu
from kvgpu.errors import LogicError
from kvgpu.manager import Manager
from kvspec.config import ManagerConfig

from .scene import CONFIG, MAIN

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(why_no_gpu() is not None, reason=f"needs a GPU: {why_no_gpu()}"),
]


def test_torch_reads_the_published_tables_where_they_are() -> None:
    import torch

    device = open_device("cuda")
    manager = Manager(ManagerConfig.model_validate(CONFIG), device)
    stream = device.stream("exec")
    batch = Batch(manager, "rows", rows=2, blocks=3, levels=True)
    request = manager.create("a")
    assert manager.resume(request, stream)
    assert manager.resize(request, 12, 8)
    batch.add(request)
    assert manager.enter_decode(request)
    table = batch.page_table(MAIN)
    with pytest.raises(LogicError, match="not published"):
        torch.from_dlpack(table)
    batch.publish(stream)
    seen = torch.from_dlpack(table)
    assert (seen.device.type, seen.device.index, seen.dtype) == ("cuda", device.ordinal, torch.int32)
    assert seen.data_ptr() == table.address
    assert seen.tolist() == [request.indices(MAIN).tolist(), [-1] * 3]
    assert torch.from_dlpack(batch.num_blocks(MAIN)).tolist() == [2, 0]
    assert torch.from_dlpack(batch.page_level(MAIN)).tolist() == [[1, 1, 0], [-1] * 3]
    assert table.__cuda_array_interface__["data"] == (table.address, True)
    with pytest.raises(TypeError, match="read only"):  # torch takes no read-only array this way; DLPack it does
        torch.as_tensor(table, device=seen.device)
    with pytest.raises(TypeError, match="on a GPU"):
        np.asarray(table)
    with pytest.raises(BufferError, match="never copied"):
        np.from_dlpack(table, device="cpu", copy=False)
    side = torch.cuda.Stream(device=device.ordinal)
    with torch.cuda.stream(side):
        assert int(torch.from_dlpack(table).sum()) == int(seen.sum())
    batch.close()
    del batch, table
    gc.collect()
    assert seen.tolist()[1] == [-1] * 3
    manager.shut()
    device.close()
