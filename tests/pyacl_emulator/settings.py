"""What a test may choose about the emulated machine."""

from __future__ import annotations

import os
from dataclasses import dataclass

from .chips import CHIPS, Chip

SOC_VARIABLE = "HYOCR_EMULATOR_SOC"
DEFAULT_SOC = "Ascend310P3"


@dataclass(slots=True)
class Settings:
    """Switches of the emulator; every default is the strictest reading of the documents.

    unset_gear: "violation", or "largest" (GE: the largest gear runs when none was set).
    pageable_async: "violation" (CANN <= 8.0: memory of memcpy_async must be pinned, else
        undefined), or "sync" (2026 runtime: waits for the stream and copies synchronously).
    wrong_kind: a copy whose kind contradicts its addresses: "violation" (CANN <= 8.0), or "hint"
        (2026 runtime: the addresses decide).
    alias: whether an output may lie inside an input's buffer: "allow" or "violation".
    null_compute: models return at once with zeros; every check still runs.
    time_scale: real seconds per emulated second of waiting (0: waits take no time).
    hang_limit_s: how long the device's own watchdog lets a hang last.
    threads: ONNX Runtime threads inside one operator.
    """

    soc: str = DEFAULT_SOC
    device_count: int = 2
    memory_limit: int | None = None
    null_compute: bool = False
    unset_gear: str = "violation"
    pageable_async: str = "violation"
    wrong_kind: str = "violation"
    alias: str = "allow"
    time_scale: float = 1.0
    hang_limit_s: float = 5.0
    threads: int = 1

    @classmethod
    def from_environment(cls) -> Settings:
        """Reads the chip. Raises ValueError on a name that is not in the table."""
        settings = cls(soc=os.environ.get(SOC_VARIABLE, DEFAULT_SOC))
        _ = settings.chip
        settings.threads = int(os.environ.get("HYOCR_EMULATOR_THREADS", "1"))
        return settings

    @property
    def chip(self) -> Chip:
        """The chip's row."""
        if self.soc not in CHIPS:
            raise ValueError(f"chip {self.soc!r} is not emulated: one of {', '.join(CHIPS)}")
        return CHIPS[self.soc]

    @property
    def visible_devices(self) -> int:
        """Devices that the process sees: ASCEND_RT_VISIBLE_DEVICES up to its first bad entry."""
        text = os.environ.get("ASCEND_RT_VISIBLE_DEVICES")
        if text is None:
            return self.device_count
        known = {str(index) for index in range(self.device_count)}
        count = 0
        for entry in text.split(","):
            if entry.strip() not in known:
                break
            count += 1
        return count

    @property
    def device_memory(self) -> int:
        """Bytes of one device."""
        return self.memory_limit if self.memory_limit is not None else self.chip.memory_bytes
