"""Device and pinned memory as objects that own it: one arena per engine, arrays and views of it.

Everything that calls ACL here runs on the device's owner thread; the arrays hop there themselves.
Knows bytes, rows and dtypes; knows no model.
"""

from __future__ import annotations

import bisect
import ctypes
import logging
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from acl_runtime.binding import (
    DEVICE_TO_DEVICE,
    DEVICE_TO_HOST,
    HOST_TO_DEVICE,
    HUGE_FIRST,
)
from acl_runtime.device import Device, let_go, memory_info
from acl_runtime.errors import DeviceMemory, EngineClosed, GraphInputError
from acl_runtime.numeric import require_finite
from profiling.spans import span

log = logging.getLogger(__name__)

ALIGNMENT = 64  # bytes; aclrtMalloc and aclrtMemcpyAsync: addresses that ACL gives and likes
MIN_BLOCK = 512


def piece_bytes(nbytes: int) -> int:
    """Room for `nbytes` inside a larger block: ALIGN_UP(n, 32) + 32, next start 64-aligned
    (runtime docs 11-01, sub-allocation)."""
    return align(align(nbytes, 32) + 32, ALIGNMENT)


def align(value: int, step: int) -> int:
    """`value` rounded up to a multiple of `step`."""
    return -(-value // step) * step


def block_bytes(nbytes: int) -> int:
    """The size class of an allocation: four significant bits, so that blocks can be used again
    for slightly other sizes and waste less than an eighth."""
    step = 1 << max((max(nbytes, MIN_BLOCK) - 1).bit_length() - 4, 0)
    return align(max(nbytes, MIN_BLOCK), step)


class Block:
    """`nbytes` of device memory at `pointer`; the arena owns it. `live` until it is given back."""

    __slots__ = ("live", "nbytes", "pointer")

    def __init__(self, pointer: int, nbytes: int) -> None:
        self.pointer = pointer
        self.nbytes = nbytes
        self.live = True


class Pinned:
    """Host memory that the device reads by itself; `bytes` (n,) uint8 starts 64-aligned."""

    __slots__ = ("bytes", "pointer")

    def __init__(self, pointer: int, nbytes: int) -> None:
        self.pointer = align(pointer, ALIGNMENT)
        self.bytes: NDArray[np.uint8] = np.frombuffer(
            memoryview((ctypes.c_uint8 * nbytes).from_address(self.pointer)), np.uint8
        )

    def view(self, offset: int, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """A writable array over bytes from `offset`; valid until the arena is closed."""
        kind = np.dtype(dtype)
        end = offset + math.prod(shape) * kind.itemsize
        return self.bytes[offset:end].view(kind).reshape(shape)


class Arena:
    """All memory of one engine. What is given back is kept for the next taker, so a steady state
    allocates nothing; `close` frees everything, last taken first. Owner thread only.

    live_bytes: in use; cached_bytes: kept; allocations: how often ACL was asked.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.live_bytes = 0
        self.cached_bytes = 0
        self.allocations = 0
        self.closed = False
        self._blocks: dict[int, int] = {}  # pointer -> nbytes, oldest first
        self._pinned: list[int] = []
        self._free: list[tuple[int, int]] = []  # (nbytes, pointer), sorted

    def take(self, nbytes: int) -> Block:
        """A block of at least `nbytes` with undefined content. Raises DeviceMemory with the state
        of the device when there is no room, after giving the cached blocks back."""
        if self.closed:
            raise EngineClosed("the engine that owns this memory is closed")
        wanted = block_bytes(nbytes)
        at = bisect.bisect_left(self._free, (wanted, 0))
        if at < len(self._free) and self._free[at][0] <= wanted + wanted // 4:
            size, pointer = self._free.pop(at)
            self.cached_bytes -= size
        else:
            size, pointer = wanted, self._allocate(wanted)
        self.live_bytes += size
        return Block(pointer, size)

    def give(self, block: Block) -> None:
        """Takes a block back; its memory may be handed out again at once."""
        if block.live and not self.closed:
            block.live = False
            self.live_bytes -= block.nbytes
            self.cached_bytes += block.nbytes
            bisect.insort(self._free, (block.nbytes, block.pointer))

    def pinned(self, nbytes: int) -> Pinned:
        """Pinned host memory, kept until the arena is closed."""
        self.allocations += 1
        pointer = self.device.binding.rt.malloc_host(nbytes + ALIGNMENT)
        self._pinned.append(pointer)
        return Pinned(pointer, nbytes)

    def trim(self) -> None:
        """Gives every cached block back to the device."""
        for _, pointer in self._free:
            del self._blocks[pointer]
            let_go(self.device.binding.rt.free, pointer)
        self._free.clear()
        self.cached_bytes = 0

    def close(self) -> None:
        """Frees everything; idempotent. Blocks and arrays of this arena are dead afterwards."""
        self.closed = True
        rt = self.device.binding.rt
        while self._blocks:
            let_go(rt.free, self._blocks.popitem()[0])
        while self._pinned:
            let_go(rt.free_host, self._pinned.pop())
        self._free.clear()
        self.live_bytes = self.cached_bytes = 0

    def _allocate(self, nbytes: int) -> int:
        try:
            pointer = self._malloc(nbytes)
        except DeviceMemory:
            if not self._free:
                raise
            self.trim()
            pointer = self._malloc(nbytes)
        self._blocks[pointer] = nbytes
        return pointer

    def _malloc(self, nbytes: int) -> int:
        self.allocations += 1
        try:
            return int(self.device.binding.rt.malloc(nbytes, HUGE_FIRST))
        except DeviceMemory as error:
            free, total = memory_info(self.device.binding)
            error.add_context(
                f"{nbytes} bytes wanted, {free} of {total} free,"
                f" {self.live_bytes} in use by this engine and {self.cached_bytes} kept"
            )
            raise


class DeviceArray:
    """Rows of device memory behind the engines' Array protocol.

    block: what keeps the memory alive; `offset` in bytes into it. owned: whether `close` gives
    the block back (a view owns nothing). checked: a name makes `numpy` refuse NaN and infinity.
    """

    __slots__ = ("_block", "_checked", "_owned", "arena", "dtype", "offset", "shape")

    def __init__(
        self,
        arena: Arena,
        block: Block,
        shape: tuple[int, ...],
        dtype: DTypeLike,
        offset: int = 0,
        owned: bool = False,
        checked: str | None = None,
    ) -> None:
        self.arena = arena
        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype)
        self.offset = offset
        self._block = block
        self._owned = owned
        self._checked = checked

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def row_bytes(self) -> int:
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    @property
    def pointer(self) -> int:
        """The device address. Raises EngineClosed once the memory has been given back."""
        if not self._block.live or self.arena.closed:
            raise EngineClosed(f"array {self.shape}: its memory has been closed")
        return self._block.pointer + self.offset

    def numpy(self) -> NDArray[Any]:
        """A host copy. Raises NumericFault for NaN or infinity in a checked output."""
        values = np.empty(self.shape, self.dtype)
        with span("d2h"):
            self._call(
                lambda: self._copy(values.ctypes.data, self.pointer, self.nbytes, DEVICE_TO_HOST)
            )
        if self._checked is not None:
            require_finite(values, self._checked)
        return values

    def write(self, row: int, values: NDArray[Any]) -> None:
        """Copies host values (n, ...) over rows row..row+n-1, cast to the array's dtype."""
        self._check(row, len(values))
        if values.shape[1:] != self.shape[1:]:
            raise GraphInputError(f"rows of shape {values.shape[1:]} into rows {self.shape[1:]}")
        source = np.ascontiguousarray(values, self.dtype)
        start = row * self.row_bytes

        def job() -> None:
            self._copy(self.pointer + start, source.ctypes.data, source.nbytes, HOST_TO_DEVICE)

        self._call(job)

    def copy_rows(self, row: int, source: Any, source_row: int, count: int) -> None:
        """Copies rows of another array; device-to-device when both are on this device."""
        part = source.rows(source_row, count)
        if not (isinstance(part, DeviceArray) and part.arena.device is self.arena.device) or (
            part.dtype != self.dtype
        ):
            self.write(row, part.numpy())
            return
        self._check(row, count)
        if part.shape[1:] != self.shape[1:]:
            raise GraphInputError(f"rows of shape {part.shape[1:]} into rows {self.shape[1:]}")
        start = row * self.row_bytes

        def job() -> None:
            self._copy(self.pointer + start, part.pointer, part.nbytes, DEVICE_TO_DEVICE)

        self._call(job)

    def rows(self, start: int, count: int) -> DeviceArray:
        """A view of rows start..start+count-1; it owns nothing."""
        self._check(start, count)
        shape = (count, *self.shape[1:])
        offset = self.offset + start * self.row_bytes
        return DeviceArray(
            self.arena, self._block, shape, self.dtype, offset, checked=self._checked
        )

    def as_one_row(self) -> DeviceArray:
        """A view of the same memory with a leading axis of 1; it owns nothing."""
        shape = (1, *self.shape)
        return DeviceArray(
            self.arena, self._block, shape, self.dtype, self.offset, checked=self._checked
        )

    def close(self) -> None:
        """Gives the memory back if this array owns it; idempotent, safe after the engine's end."""
        if self._owned and self._block.live:
            self.arena.device.release(lambda: self.arena.give(self._block))

    def _copy(self, target: int, source: int, nbytes: int, kind: int) -> None:
        # Synchronous and not ordered against the stream, which is idle between two calls.
        if nbytes:
            self.arena.device.binding.rt.memcpy(target, nbytes, source, nbytes, kind)

    def _call(self, job: Callable[[], None]) -> None:
        self.arena.device.call(job)

    def _check(self, start: int, count: int) -> None:
        if start < 0 or count < 0 or start + count > self.shape[0]:
            raise GraphInputError(
                f"rows {start}..{start + count - 1} are outside an array of {self.shape[0]} rows"
            )
