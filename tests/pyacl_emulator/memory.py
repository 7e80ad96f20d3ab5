"""Device and pinned memory: who owns which addresses, how large they are, what may be touched.

EP form (310P, 910): device addresses are not host addresses; a fake range is handed out and every
use of it is translated. RC form (310B): host and device memory are one, addresses are real.
"""

from __future__ import annotations

import bisect
from collections import deque
from dataclasses import dataclass

from .counters import Counters
from .pages import Pages
from .violation import EmulatorViolation

DEVICE_BASE = 0x1240_0000_0000
DEVICE_TOP = 0x2240_0000_0000
_GUARD = 1 << 16
_QUARANTINE_BLOCKS = 32
_QUARANTINE_BYTES = 256 << 20
_SOURCE = "aclrtMalloc.md: access only inside a live allocation"


def real_size(size: int) -> int:
    """Bytes that the allocator takes: ALIGN_UP(size, 32) + 32 (runtime docs 11-01, memory.cpp)."""
    return (size + 63) // 32 * 32


@dataclass(slots=True, eq=False)
class Block:
    """One allocation. address: what the program sees; host: where its bytes are in this process."""

    address: int
    size: int
    real: int
    host: int
    mapped: int
    device: int
    pinned: bool
    purpose: str
    live: bool = True

    @property
    def where(self) -> str:
        return "host" if self.pinned else "device"


class Memory:
    """All allocations of the process, by address."""

    def __init__(self, rc: bool, counters: Counters) -> None:
        self.rc = rc
        self.counters = counters
        self.pages = Pages()
        self.blocks: dict[int, Block] = {}
        self._starts: list[int] = []
        self._next = DEVICE_BASE
        self._quarantine: deque[Block] = deque()

    def allocate(
        self, size: int, device: int, *, pinned: bool = False, padded: bool = True,
        purpose: str = "user",
    ) -> Block:  # fmt: skip
        """A fresh poisoned block, 64-byte aligned. Raises MemoryError when the host has no room."""
        real = real_size(size) if padded else size
        host, mapped = self.pages.take(real)
        address = host
        if not self.rc and not pinned:
            address = self._next
            self._next = (address + real + 2 * _GUARD - 1) // _GUARD * _GUARD
        block = Block(address, size, real, host, mapped, device, pinned and not self.rc, purpose)
        self.blocks[address] = block
        bisect.insort(self._starts, address)
        if block.pinned:
            self.counters.host_allocations += 1
            self.counters.live_host_bytes += real
        else:
            self.counters.allocated(device, real)
        return block

    def free(self, block: Block) -> None:
        """Poisons the block and forgets it; its pages stay mapped a while for late readers."""
        block.live = False
        del self.blocks[block.address]
        del self._starts[bisect.bisect_left(self._starts, block.address)]
        if block.pinned:
            self.counters.live_host_bytes -= block.real
        else:
            self.counters.released(block.device, block.real)
        self.pages.poison(block.host, block.mapped)
        self._quarantine.append(block)
        held = sum(old.mapped for old in self._quarantine)
        while len(self._quarantine) > _QUARANTINE_BLOCKS or held > _QUARANTINE_BYTES:
            old = self._quarantine.popleft()
            held -= old.mapped
            self.pages.release(old.host, old.mapped)

    def find(self, address: int) -> Block | None:
        """The live block around an address, or None."""
        at = bisect.bisect_right(self._starts, address) - 1
        if at < 0:
            return None
        block = self.blocks[self._starts[at]]
        return block if address < block.address + max(block.size, 1) else None

    def is_device_address(self, address: int) -> bool:
        """True for a live device address, and for any address of the fake device range."""
        if DEVICE_BASE <= address < DEVICE_TOP and not self.rc:
            return True
        block = self.find(address)
        return block is not None and not block.pinned

    def span(self, address: int, count: int, what: str) -> Block:
        """The live device or pinned block that holds [address, address + count), or a violation."""
        block = self.find(address)
        if block is None:
            known = "freed or out-of-range" if address < self._next else "unknown"
            raise EmulatorViolation(f"{what}: {address:#x} is a {known} device address", _SOURCE)
        if address + count > block.address + block.size:
            raise EmulatorViolation(
                f"{what}: {count} bytes at {address:#x} run "
                f"{address + count - block.address - block.size} bytes past a "
                f"{block.size}-byte {block.where} block",
                _SOURCE,
            )
        return block

    def host_address(self, address: int, count: int, what: str) -> int:
        """Where the bytes are in this process; plain host pointers are returned as they are."""
        block = self.find(address)
        if block is None:
            if not self.rc and DEVICE_BASE <= address < DEVICE_TOP:
                self.span(address, count, what)
            return address
        self.span(address, count, what)
        return block.host + (address - block.address)

    def retire(self) -> None:
        """Frees everything, live or not, but leaves it mapped for threads that come late."""
        self._quarantine.extend(self.blocks.values())
        self.blocks.clear()
        self._starts.clear()
        for block in self._quarantine:
            block.live = False
            self.pages.poison(block.host, block.mapped)

    def close(self) -> None:
        """Unmaps everything after `retire`."""
        for block in self._quarantine:
            self.pages.release(block.host, block.mapped)
        self._quarantine.clear()
