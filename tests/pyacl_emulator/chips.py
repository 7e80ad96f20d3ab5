"""What the emulator knows of each chip: its form, memory, limits and peaks.

Memory and core counts are those of the platform configurations of CANN 8.1.RC1
(`data/platform_config/Ascend*.ini`) and of `npu-smi info`; 310P3 is the usable figure that npu-smi
prints. Event limits: runtime documentation, "07_event_management".
"""

from __future__ import annotations

from dataclasses import dataclass

MB = 1 << 20


@dataclass(frozen=True, slots=True)
class Chip:
    """One row of the table; `rc` means that host and device memory are the same memory."""

    name: str
    short: str  # column of the operator table: 310P, 310B, 910A, 910B
    rc: bool
    memory_bytes: int
    hbm: bool
    events: int
    cores: int
    mhz: int
    bandwidth: float  # bytes/s, a model parameter and never a measurement
    saturates: bool = True  # fp16 overflow clamps to 65504 instead of becoming inf

    @property
    def cube_flops(self) -> float:
        """fp16 peak in operations per second: cores x 16^3 x 2 x f."""
        return self.cores * 16**3 * 2 * self.mhz * 1e6

    @property
    def memcpy2d_d2d(self) -> bool:
        """Only memcpy2d_async, only on A2/A3 (runtime documentation, aclrtMemcpy2dAsync)."""
        return self.short == "910B"


def _p(name: str, cores: int, mhz: int) -> Chip:
    return Chip(name, "310P", False, 21534 * MB, False, 1023, cores, mhz, 204.8e9)


def _b(name: str, memory_mb: int, mhz: int, bandwidth: float) -> Chip:
    return Chip(name, "310B", True, memory_mb * MB, False, 65536, 1, mhz, bandwidth)


def _a(name: str, cores: int, mhz: int) -> Chip:
    return Chip(name, "910A", False, 32768 * MB, True, 65535, cores, mhz, 1.024e12)


def _a2(name: str, memory_mb: int, cores: int, mhz: int) -> Chip:
    bandwidth = cores * 32 * mhz * 1e6
    return Chip(name, "910B", False, memory_mb * MB, True, 65536, cores, mhz, bandwidth, False)


CHIPS: dict[str, Chip] = {
    chip.name: chip
    for chip in (
        _p("Ascend310P1", 10, 1060),
        _p("Ascend310P3", 8, 1060),
        _p("Ascend310P5", 8, 800),
        _p("Ascend310P7", 8, 550),
        _b("Ascend310B1", 12288, 1224, 44e9),
        _b("Ascend310B2", 12288, 1224, 44e9),
        _b("Ascend310B3", 12288, 1224, 44e9),
        _b("Ascend310B4", 8192, 500, 44e9),
        _a("Ascend910A", 32, 1000),
        _a("Ascend910B", 30, 900),
        _a("Ascend910ProA", 32, 1100),
        _a("Ascend910ProB", 30, 1150),
        _a("Ascend910PremiumA", 32, 1220),
        _a2("Ascend910B1", 65536, 24, 1850),
        _a2("Ascend910B2", 65536, 24, 1800),
        _a2("Ascend910B2C", 65536, 24, 1800),
        _a2("Ascend910B3", 65536, 20, 1800),
        _a2("Ascend910B4", 32768, 20, 1500),
        _a2("Ascend910B4-1", 65536, 20, 1500),
        _a2("Ascend910_9391", 65536, 24, 1850),
        _a2("Ascend910_9392", 65536, 24, 1850),
        _a2("Ascend910_9381", 65536, 24, 1800),
        _a2("Ascend910_9382", 65536, 24, 1800),
        _a2("Ascend910_9372", 65536, 20, 1800),
        _a2("Ascend910_9362", 65536, 20, 1500),
    )
}
