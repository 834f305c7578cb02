"""Threads of the system, each of which does a piece of some work and ends. They need no interpreter.

Threads of Python would need its lock to begin and to end, which the caller, busy with something else, holds. To make a thread
takes as long as to copy a hundred kilobytes: the caller makes one, which makes others, and these others in turn.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

STACK = 256 << 10
"""Bytes of stack of a thread: with little, it is made in a third of the time."""
HEADER = 4
"""Words before those of the work: the addresses of what makes a thread, its attributes, what waits for one, what one runs."""
TASK = 5
"""Words of a thread's task: its first piece, one after its last, the address of the header, whether it was made, its handle."""


class System(NamedTuple):
    """Addresses of functions of the system, and of the attributes of a thread."""

    create: int
    attributes: int
    join: int


class Threads:
    """The threads at some work."""

    def __init__(self, body: Any, pieces: int, work: Sequence[npt.ArrayLike], keep: object) -> None:
        """Start them. ``body``: of :func:`thread_body`. ``work``: int64 words, in parts. ``keep``: what the words point to."""
        system = _system()
        self._keep = keep
        self._body = body
        words = np.concatenate(((*system, body.address), *work))
        self._words: npt.NDArray[np.int64] = words
        self._tasks = np.zeros((pieces, TASK), np.int64)
        self._tasks[0, :3] = 0, pieces, words.ctypes.data
        task = self._tasks.ctypes.data
        made = CREATE(system.create)(task + 8 * (TASK - 1), system.attributes, body.address, task) == 0
        self._tasks[0, 3] = made
        if not made:  # there are too many threads
            body.ctypes(task)

    def join(self) -> None:
        """Wait until all is done. Idempotent."""
        if self._tasks[0, 3]:
            JOIN(_system().join)(int(self._tasks[0, 4]), None)
            self._tasks[0, 3] = 0


CREATE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
JOIN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_attributes = ctypes.create_string_buffer(256)  # more than any system's


@cache
def _system() -> System:
    library = ctypes.CDLL(None)
    library.pthread_attr_init(_attributes)
    library.pthread_attr_setstacksize(_attributes, ctypes.c_size_t(STACK))
    create, join = (ctypes.cast(each, ctypes.c_void_p).value or 0 for each in (library.pthread_create, library.pthread_join))
    return System(create, ctypes.addressof(_attributes), join)


def thread_body(piece: Any) -> Any:
    """What such threads run, compiled. ``piece``: an intrinsic that is given the words' address and a piece's number, int64."""
    import numba  # here: only large tables pay for it
    from llvmlite import ir  # type: ignore[import-untyped]
    from numba import types
    from numba.core.typing import templates
    from numba.extending import intrinsic

    signature: Any = templates.signature
    carray: Any = numba.carray  # type: ignore[attr-defined]
    word = ir.IntType(64)

    @intrinsic
    def pointer(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], ir.IntType(8).as_pointer())

        return signature(types.voidptr, types.int64), generate

    @intrinsic
    def address_of(typing_context: Any, at: Any) -> Any:
        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return builder.ptrtoint(args[0], word)

        return signature(types.int64, types.voidptr), generate

    @intrinsic
    def call(typing_context: Any, function: Any, given: Any) -> Any:
        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            words = [builder.extract_value(args[1], number) for number in range(sig.args[1].count)]
            kind = ir.FunctionType(ir.IntType(32), [word] * len(words))
            return builder.call(builder.inttoptr(args[0], kind.as_pointer()), words)

        return signature(types.int32, types.int64, given), generate

    at: Any = pointer
    address: Any = address_of
    called: Any = call

    def run(task: Any) -> Any:
        own = carray(task, (TASK,), np.int64)
        header = carray(at(own[2]), (HEADER,), np.int64)
        first, end = own[0], own[1]
        while end - first > 1:
            middle = (first + end) >> 1
            child_at = address(task) + 8 * TASK * (middle - first)
            child = carray(at(child_at), (TASK,), np.int64)
            child[0], child[1], child[2] = middle, end, own[2]
            child[3] = called(header[0], (child_at + 8 * (TASK - 1), header[1], header[3], child_at)) == 0
            end = middle
        piece(own[2] + 8 * HEADER, first)
        end = own[1]
        while end - first > 1:
            middle = (first + end) >> 1
            child = carray(at(address(task) + 8 * TASK * (middle - first)), (TASK,), np.int64)
            if child[3]:
                called(header[2], (child[4], 0))
            else:
                for number in range(middle, end):
                    piece(own[2] + 8 * HEADER, number)
            end = middle
        return task

    return numba.cfunc(types.voidptr(types.voidptr))(run)
