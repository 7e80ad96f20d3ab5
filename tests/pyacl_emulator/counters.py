"""Exact counts of what a program asked of the emulated device."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Counters:
    """Everything counted since the last reset; reading is free, `clear()` starts a new interval.

    calls: ACL calls by full name. bytes: copied bytes by direction (h2d, d2h, d2d, h2h). copies:
    number of copies by direction. executes: runs by (model name, gear). Device bytes are real ones,
    i.e. rounded as the allocator rounds, by device. inside_ns: time spent inside emulated calls,
    for whoever wants the cost of the calling program alone.
    """

    calls: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    copies: Counter[str] = field(default_factory=Counter)
    executes: Counter[tuple[str, tuple[int, ...] | None]] = field(default_factory=Counter)
    allocations: int = 0
    host_allocations: int = 0
    live_device_bytes: Counter[int] = field(default_factory=Counter)
    peak_device_bytes: Counter[int] = field(default_factory=Counter)
    live_host_bytes: int = 0
    inside_ns: int = 0

    @property
    def total_calls(self) -> int:
        """Calls of every name together."""
        return sum(self.calls.values())

    def clear(self) -> None:
        """Starts a new interval: counts go to zero, the peak falls to what is live now."""
        for counter in (self.calls, self.bytes, self.copies, self.executes):
            counter.clear()
        self.allocations = self.host_allocations = self.inside_ns = 0
        self.peak_device_bytes = Counter(self.live_device_bytes)

    def copied(self, direction: str, count: int) -> None:
        """Records one copy."""
        self.bytes[direction] += count
        self.copies[direction] += 1

    def allocated(self, device: int, real: int) -> None:
        """Records device memory taken."""
        self.allocations += 1
        live = self.live_device_bytes[device] + real
        self.live_device_bytes[device] = live
        if live > self.peak_device_bytes[device]:
            self.peak_device_bytes[device] = live

    def released(self, device: int, real: int) -> None:
        """Records device memory given back."""
        self.live_device_bytes[device] -= real
