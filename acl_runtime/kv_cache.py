"""Keys and values of several sequences in device memory, read in place by the graph and appended
to.

One slab per layer and side, token-major: slot i starts at row i * stride of each. A gear with one
sequence and S cache rows reads S rows from there; where S is longer than the slab it reads on into
the next one, whose rows are finite (the block is zeroed once) and masked. A gear with B sequences
wants them S rows apart, so the stride is the S of that gear and changing it re-lays the slabs.

The additive mask (0 for rows in use, -1e4 for the others) stays on the device too: a token uploads
its own element of it, two bytes. Runs on the owner thread, except `truncate` and `close`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acl_runtime.binding import DEVICE_TO_DEVICE, HOST_TO_DEVICE
from acl_runtime.errors import CacheFull, EngineClosed, GraphInputError
from acl_runtime.memory import ALIGNMENT, Arena, align, piece_bytes

MASKED = -1e4  # finite in fp16; scores are bounded by the norms of q and k


@dataclass(frozen=True, slots=True)
class CacheShape:
    """What the compiled gears say of a cache.

    slabs: layers times two; row_bytes: one token in one slab; single_rows, batch_rows: the S of
    the gears with one sequence and with several, ascending; batches: the B of the latter."""

    slabs: int
    row_bytes: int
    mask_dtype: np.dtype[Any]
    single_rows: tuple[int, ...]
    batch_rows: tuple[int, ...]
    batches: tuple[int, ...]


class DeviceCache:
    """The KVCache of the ACL engine; `lengths` (slots,) int32 rows are in use. The caller closes
    it.

    Raises GraphInputError when no gear is as large as `slots` and `capacity`."""

    def __init__(self, arena: Arena, shape: CacheShape, slots: int, capacity: int) -> None:
        self.slots = slots
        self.capacity = capacity
        self.lengths: NDArray[np.int32] = np.zeros(slots, np.int32)
        self.shape = shape
        self.arena = arena
        self._rt = arena.device.binding.rt
        lie = _layout(shape, slots, capacity)
        self.room = lie.room
        self.stride = lie.rows if slots == 1 else shape.batch_rows[0]
        self._slab_bytes, self._mask_rows = lie.slab_bytes, lie.mask_rows
        self._block = arena.take(lie.nbytes)
        self._masks = arena.take(lie.mask_bytes)
        self._rt.memset(self._block.pointer, lie.nbytes, 0, lie.nbytes)
        self._mask = np.full((self.room, self._mask_rows), MASKED, shape.mask_dtype)
        self._single_dirty: dict[int, tuple[int, int]] = {}
        self._batch_dirty: dict[int, tuple[int, int]] = {}
        self._batch: tuple[int, int] | None = None  # (first slot, S) that the batch mask is for
        for slot in range(self.room):
            self._soil(slot, 0, self._mask_rows)

    @property
    def nbytes(self) -> int:
        """Device memory that the cache holds."""
        return self._block.nbytes + self._masks.nbytes

    def truncate(self, slot: int, length: int) -> None:
        """Forgets the rows of `slot` from `length` on; nothing is copied. Any thread."""
        old = int(self.lengths[slot])
        if not 0 <= length <= old:
            raise GraphInputError(f"slot {slot}: length {length} is not within 0..{old}")
        self.lengths[slot] = length
        self._mask[slot, length:old] = MASKED
        self._soil(slot, length, old)

    def close(self) -> None:
        """Gives the memory back; idempotent. Any thread."""
        self.arena.device.release(self._give)

    @property
    def slabs(self) -> range:
        """The device addresses of the slabs: keys of all layers, then values."""
        if not self._block.live or self.arena.closed:
            raise EngineClosed("the key/value cache has been closed")
        start, step = self._block.pointer, self._slab_bytes
        return range(start, start + self.shape.slabs * step, step)

    def row_offset(self, slot: int, row: int) -> int:
        """Bytes from the start of a slab to a row of a slot."""
        return (slot * self.stride + row) * self.shape.row_bytes

    def require_room(self, slot: int, count: int) -> None:
        """Raises CacheFull when `count` rows more do not fit."""
        length = int(self.lengths[slot])
        if length + count > self.capacity:
            raise CacheFull(
                f"slot {slot}: {length} rows and {count} more exceed its capacity"
                f" {self.capacity}; open a larger cache or stop earlier"
            )

    def appended(self, slot: int, count: int) -> None:
        """Counts `count` rows that the device now has behind the slot's length."""
        start = int(self.lengths[slot])
        self.lengths[slot] = start + count
        self._mask[slot, start : start + count] = 0
        self._soil(slot, start, start + count)

    def single_mask(self, slot: int) -> int:
        """The address of one slot's mask, brought up to date."""
        base = self._masks.pointer + slot * self._mask_rows * self._mask.itemsize
        if slot in self._single_dirty:
            self._upload(slot, *self._single_dirty.pop(slot), base, self._mask_rows)
        return base

    def batch_mask(self, first: int, count: int, rows: int) -> int:
        """The address of the mask (count, rows) of slots first.., brought up to date."""
        item = self._mask.itemsize
        base = self._masks.pointer + self.room * self._mask_rows * item
        if self._batch != (first, rows):
            self._batch = (first, rows)
            self._batch_dirty = {slot: (0, rows) for slot in range(self.room)}
        for slot in range(first, first + count):
            if slot in self._batch_dirty:
                target = base + (slot - first) * rows * item
                self._upload(slot, *self._batch_dirty.pop(slot), target, rows)
        return base

    def make_room(self, slot: int, count: int) -> None:
        """Lays the slots so far apart that `count` rows more of `slot` do not reach the next one;
        the stream must be idle."""
        self.require_room(slot, count)
        need = int(self.lengths[slot]) + count
        if self.slots > 1 and need > self.stride:
            self.relay(next(rows for rows in self.shape.batch_rows if rows >= need))

    def relay(self, stride: int) -> None:
        """Moves the rows in use so that slots lie `stride` rows apart; the stream must be idle."""
        order = range(self.slots) if stride < self.stride else reversed(range(self.slots))
        old, row = self.stride, self.shape.row_bytes
        for slot in order:
            length = int(self.lengths[slot])
            for base in self.slabs if slot and length else ():
                self._move(base + slot * stride * row, base + slot * old * row, length * row)
        self.stride = stride

    def _move(self, target: int, source: int, nbytes: int) -> None:
        """A copy inside one slab. Where the two ranges overlap it goes in pieces, from the end
        that is not overwritten (aclrtMemcpy says nothing of overlap)."""
        gap = abs(target - source)
        starts: Sequence[int] = range(0, nbytes, gap)
        for start in starts if target < source else reversed(starts):
            size = min(gap, nbytes - start)
            self._rt.memcpy(target + start, size, source + start, size, DEVICE_TO_DEVICE)

    def _upload(self, slot: int, low: int, high: int, target: int, rows: int) -> None:
        high = min(high, rows)
        if low < high:
            part = self._mask[slot, low:high]
            to, size = target + low * self._mask.itemsize, part.nbytes
            self._rt.memcpy(to, size, part.ctypes.data, size, HOST_TO_DEVICE)

    def _soil(self, slot: int, low: int, high: int) -> None:
        if low < high:
            for dirty in (self._single_dirty, self._batch_dirty):
                before = dirty.get(slot, (low, high))
                dirty[slot] = (min(low, before[0]), max(high, before[1]))

    def _give(self) -> None:
        self.arena.give(self._block)
        self.arena.give(self._masks)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Sizes of one cache: `room` slots of at most `rows` rows in each slab; bytes of a slab, of
    the whole block and of the masks, whose rows are `mask_rows` long."""

    room: int
    rows: int
    slab_bytes: int
    nbytes: int
    mask_rows: int
    mask_bytes: int


def _layout(shape: CacheShape, slots: int, capacity: int) -> _Layout:
    most = max((1, *shape.batches))
    if not 1 <= slots <= most:
        raise GraphInputError(f"{slots} slots: the largest gear has {most} sequences")
    gears = shape.batch_rows if slots > 1 else shape.single_rows
    rows = next((r for r in gears if r >= capacity >= 1), None)
    if rows is None:
        raise GraphInputError(
            f"capacity {capacity}: the largest gear for {slots} slot(s) has"
            f" {gears[-1] if gears else 0} rows; compile with a longer gear"
        )
    # A gear of B sequences reads B slots, so there is memory for whole gears.
    room = next(b for b in (1, *shape.batches) if b >= slots)
    # Behind the last slab the longest gear of the last slot must still read finite rows.
    tail = max(0, shape.single_rows[-1] - rows)
    slab = piece_bytes(room * rows * shape.row_bytes)
    mask_rows = align(max((*shape.single_rows, *shape.batch_rows)), ALIGNMENT)
    mask_bytes = 2 * room * mask_rows * shape.mask_dtype.itemsize
    nbytes = shape.slabs * slab + tail * shape.row_bytes
    return _Layout(room, rows, slab, nbytes, mask_rows, mask_bytes)
