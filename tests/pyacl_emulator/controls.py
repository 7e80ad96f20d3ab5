"""The handle by which a test sets up the emulated machine and reads what happened on it."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import ModuleType
from typing import Any

from .counters import Counters
from .faults import Faults
from .machine import MACHINE
from .settings import Settings
from .violation import EmulatorViolation

_SETTINGS = frozenset(Settings.__dataclass_fields__)


class Control:
    """`control.reset(...)`, then settings as attributes: `control.null_compute = True`.

    Settings (see `Settings`): soc, device_count, memory_limit, null_compute, unset_gear,
    pageable_async, wrong_kind, alias, time_scale, hang_limit_s, threads.
    """

    def reset(self, **settings: Any) -> None:
        """A fresh process with the given settings; the chip comes from HYOCR_EMULATOR_SOC."""
        MACHINE.reset(replace(Settings.from_environment(), **settings))

    @property
    def counters(self) -> Counters:
        """What was counted since the reset."""
        return MACHINE.counters

    @property
    def faults(self) -> Faults:
        """Plants faults: `control.faults.inject("acl.mdl.execute_async", nth=2, kind="hang")`."""
        return MACHINE.faults

    @property
    def violations(self) -> list[EmulatorViolation]:
        """Every violation raised since the reset, also those that somebody swallowed."""
        return MACHINE.violations

    @property
    def leaks(self) -> list[str]:
        """What was not released, known after acl.finalize or reset_device."""
        return MACHINE.leaks

    @property
    def live_handles(self) -> int:
        """Handles that are alive now, default streams and primary contexts not counted."""
        from .context import Context
        from .stream import Stream

        count = 0
        for thing in list(MACHINE.handles.live.values()):
            if isinstance(thing, Stream) and not thing.explicit:
                continue
            if isinstance(thing, Context) and thing.device.primary is thing:
                continue
            count += 1
        return count + len(MACHINE.models)

    @property
    def live_bytes(self) -> int:
        """Device and pinned bytes that are allocated now."""
        return sum(block.real for block in MACHINE.memory.blocks.values())

    def lose_device(self, index: int = 0) -> None:
        """The device stops answering until it is reset."""
        from .context import Device

        MACHINE.devices.setdefault(index, Device(index)).lost = True

    def release_hangs(self) -> None:
        """Ends every wait of a hang or delay now."""
        MACHINE.hangs.set()

    def device_bytes(self, address: int, size: int) -> bytes:
        """A copy of device or pinned memory, past every rule."""
        import ctypes

        return ctypes.string_at(MACHINE.memory.host_address(address, size, "control"), size)

    def install_as_acl(self, package: ModuleType, modules: dict[str, ModuleType]) -> None:
        """Makes `import acl`, `import acl.rt` find the emulator in this process."""
        sys.modules["acl"] = package
        for part, module in modules.items():
            sys.modules[f"acl.{part}"] = module

    def __getattr__(self, name: str) -> Any:
        if name in _SETTINGS:
            return getattr(MACHINE.settings, name)
        raise AttributeError(
            f"control has no {name!r}: settings are {', '.join(sorted(_SETTINGS))}"
        )

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _SETTINGS:
            raise AttributeError(f"control has no setting {name!r}")
        if name == "soc":
            raise AttributeError("the chip is chosen by control.reset(soc=...)")
        setattr(MACHINE.settings, name, value)
