"""DLPack capsules over memory that NumPy cannot hand out itself: memory of a GPU, and, for older consumers, read-only memory.

A consumer that knows DLPack 1.0 gets a versioned capsule, which says that the memory is read-only. The older form cannot say it;
what takes that must not write all the same (R8.7).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

CPU = 1
"""DLPack's device type of host memory."""
CUDA = 2
"""DLPack's device type of a CUDA GPU."""
VERSION = (1, 0)
"""The DLPack version of the capsules."""
READ_ONLY = 1
"""The flag of a tensor that must not be written."""
_NAME, _OLD_NAME = b"dltensor_versioned", b"dltensor"
_SIGNED = 0


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", _Deleter),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


class _OldManaged(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("manager_ctx", ctypes.c_void_p), ("deleter", _Deleter))


_alive: dict[int, tuple[object, ...]] = {}
"""What each tensor handed out keeps alive, by the address of its structure, until its consumer deletes it."""


def _forget(address: int) -> None:
    _alive.pop(address, None)


_delete = _Deleter(_forget)

_api = ctypes.pythonapi
_Destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, _Destructor)(("PyCapsule_New", _api))


def _gone(capsule: int) -> None:
    # A consumer that took the tensor renamed the capsule, and deletes the tensor itself.
    for name in (_NAME, _OLD_NAME):
        if _is_valid(capsule, name):
            _forget(_pointer(capsule, name))


_capsule_gone = _Destructor(_gone)


def signed_capsule(
    address: int, shape: Sequence[int], bits: int, device: tuple[int, int], owner: object, *, versioned: bool = True
) -> Any:
    """A capsule of a read-only, C-contiguous tensor of signed integers.

    ``address``: of its first byte. ``bits``: of an element. ``device``: DLPack's device type and number.
    ``owner``: what stays alive for as long as a consumer holds the tensor. ``versioned``: of DLPack 1.0; else of the older form.
    """
    ndim = len(shape)
    dims = (ctypes.c_int64 * ndim)(*shape)
    steps = (ctypes.c_int64 * ndim)()
    step = 1
    for axis in reversed(range(ndim)):
        steps[axis] = step
        step *= shape[axis]
    tensor = _Tensor(
        data=address,
        device_type=device[0],
        device_id=device[1],
        ndim=ndim,
        code=_SIGNED,
        bits=bits,
        lanes=1,
        shape=ctypes.addressof(dims),
        strides=ctypes.addressof(steps),
    )
    managed: _Managed | _OldManaged
    if versioned:
        managed = _Managed(major=VERSION[0], minor=VERSION[1], deleter=_delete, flags=READ_ONLY, tensor=tensor)
    else:
        managed = _OldManaged(tensor=tensor, deleter=_delete)
    _alive[ctypes.addressof(managed)] = (owner, managed, dims, steps)
    return _new(ctypes.addressof(managed), _NAME if versioned else _OLD_NAME, _capsule_gone)
