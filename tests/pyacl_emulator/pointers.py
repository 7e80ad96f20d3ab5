"""acl.util: pointers of Python objects, views on host memory, and threads for callbacks."""

from __future__ import annotations

import ctypes
import math
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from .binding import api
from .machine import MACHINE
from .violation import EmulatorViolation

_NPY_TYPES: dict[int, np.dtype[Any]] = {np.dtype(name).num: np.dtype(name) for name in (
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
    "float16", "float32", "float64", "complex64", "complex128",
)}  # fmt: skip
_HOST_ONLY = "acl.util reads host memory: a device pointer in EP form is a segmentation fault"


def _bytes_address(data: bytes) -> int:
    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0


@api("acl.util.bytes_to_ptr")
def bytes_to_ptr(data: bytes) -> int:
    """Address of the payload; the caller keeps the object alive."""
    return _bytes_address(data)


def _host(address: int, size: int, what: str) -> int:
    memory = MACHINE.memory
    if not memory.rc and memory.is_device_address(address):
        raise EmulatorViolation(f"{what} of the device pointer {address:#x}", _HOST_ONLY)
    return memory.host_address(address, size, what)


@api("acl.util.ptr_to_bytes")
def ptr_to_bytes(address: int, size: int) -> bytes:
    """A copy of host memory."""
    return ctypes.string_at(_host(address, size, "ptr_to_bytes"), size)


def _deprecated(name: str, instead: str) -> None:
    warnings.warn(f"acl.util.{name} will be deprecated. Please use acl.util.{instead} instead.",
                  Warning, stacklevel=4)  # fmt: skip


@api("acl.util.numpy_to_ptr")
def numpy_to_ptr(array: np.ndarray[Any, Any]) -> int:
    """The array's data pointer as it is, contiguous or not; warns."""
    _deprecated("numpy_to_ptr", "bytes_to_ptr")
    if not array.flags.c_contiguous:
        warnings.warn("the numpy array is not C-contiguous", Warning, stacklevel=3)
    return int(array.ctypes.data)


@api("acl.util.numpy_contiguous_to_ptr")
def numpy_contiguous_to_ptr(array: np.ndarray[Any, Any]) -> tuple[int, np.ndarray[Any, Any]]:
    """(pointer, contiguous array to keep alive)."""
    contiguous = np.ascontiguousarray(array)
    return int(contiguous.ctypes.data), contiguous


@api("acl.util.ptr_to_numpy")
def ptr_to_numpy(address: int, shape: tuple[int, ...], npy_type: int) -> np.ndarray[Any, Any]:
    """A writeable view on host memory that owns nothing; npy_type is NumPy's type number."""
    dtype = _NPY_TYPES.get(npy_type)
    if dtype is None:
        raise ValueError(f"acl.util.ptr_to_numpy: unknown numpy type number {npy_type}")
    _deprecated("ptr_to_numpy", "ptr_to_bytes")
    size = math.prod(shape) * dtype.itemsize
    buffer = (ctypes.c_char * size).from_address(_host(address, size, "ptr_to_numpy"))
    return np.ndarray(shape, dtype, memoryview(buffer))


class _Thread:
    """A thread of start_thread and what became of it."""

    def __init__(self, target: Callable[..., object], args: object) -> None:
        self.error: BaseException | None = None
        self._target, self._args = target, args
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self._target() if self._args is None else self._target(self._args)
        except Exception as error:  # reported by stop_thread, as the binding does
            self.error = error


_THREADS: dict[int, _Thread] = {}


@api("acl.util.start_thread")
def start_thread(function: Callable[..., object], args: object) -> tuple[int, int]:
    """(pthread id, 0); the function gets one argument."""
    worker = _Thread(function, args)
    worker.thread.start()
    assert worker.thread.ident is not None
    _THREADS[worker.thread.ident] = worker
    return worker.thread.ident, 0


@api("acl.util.stop_thread")
def stop_thread(ident: int) -> int:
    """Joins; the function must return by itself. RuntimeError when it raised."""
    worker = _THREADS.pop(ident, None)
    if worker is None:
        return -1
    worker.thread.join()
    if worker.error is not None:
        raise RuntimeError(f"exception={type(worker.error).__name__},msg=thread call failed;")
    return 0
