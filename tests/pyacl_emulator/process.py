"""Process lifecycle and what can be asked of the library itself."""

from __future__ import annotations

import logging

import numpy as np

from .binding import api, code
from .context import Context
from .machine import FINALIZED, FRESH, MACHINE, READY
from .violation import EmulatorViolation

log = logging.getLogger(__name__)


@api("acl.init")
def init(config_path: str = "") -> int:
    """Initialises once per process; again while initialised is 100002."""
    if MACHINE.phase == FINALIZED:
        raise EmulatorViolation(
            "acl.init after acl.finalize", "function-init.md: acl.init is called once per process"
        )
    if config_path:
        problem = _read_config(config_path)
        if problem:
            return problem
    MACHINE.inits += 1
    if MACHINE.phase == READY:
        return MACHINE.report(code("REPEAT_INITIALIZE"), "EE1001: acl is already initialised")
    MACHINE.phase = READY
    return 0


def _read_config(path: str) -> int:
    import json
    from pathlib import Path

    try:
        json.loads(Path(path).read_text() or "{}")
    except OSError:
        return MACHINE.report(code("INVALID_FILE"), f"E10410: config file [{path}] does not exist")
    except ValueError as error:
        return MACHINE.report(code("PARSE_FILE"), f"E10025: config file [{path}]: {error}")
    return 0


def _finish() -> int:
    leaks = MACHINE.leaks
    for model in MACHINE.models.values():
        leaks.append(f"model {model.id} ({model.name}) was not unloaded")
    for thing in MACHINE.handles.live.values():
        if isinstance(thing, Context):
            if thing.device.primary is not thing:
                leaks.append(f"context {thing.handle:#x} was not destroyed")
        elif getattr(thing, "explicit", True):
            leaks.append(f"a {type(thing).__name__} was not destroyed")
    for block in MACHINE.memory.blocks.values():
        if block.purpose == "user":
            leaks.append(f"{block.size} bytes of {block.where} memory were not freed")
    for device in MACHINE.devices.values():
        if device.uses:
            leaks.append(f"device {device.index} was not reset ({device.uses} times set)")
    for leak in leaks:
        log.warning("acl.finalize: %s", leak)
    MACHINE.phase = FINALIZED
    return 0


@api("acl.finalize")
def finalize() -> int:
    """Ends the process' use of the library and reports every leak."""
    if MACHINE.phase == FINALIZED:
        return MACHINE.report(code("REPEAT_FINALIZE"), "EE1001: acl is already finalised")
    MACHINE.inits = 0
    return 0 if MACHINE.phase == FRESH else _finish()


@api("acl.finalize_reference")
def finalize_reference() -> tuple[int, int]:
    """Drops one init; the last one finalises."""
    if MACHINE.inits < 1:
        return 0, code("REPEAT_FINALIZE")
    MACHINE.inits -= 1
    return MACHINE.inits, (_finish() if MACHINE.inits == 0 else 0)


@api("acl.get_version")
def get_version() -> tuple[int, int, int, int]:
    """ACL API version of the header that the table was made from."""
    return 1, 17, 0, 0


@api("acl.get_soc_name")
def get_soc_name() -> str:
    """The chip's name, e.g. Ascend310P3."""
    return MACHINE.settings.soc


@api("acl.get_recent_err_msg")
def get_recent_err_msg() -> str | None:
    """The latest message of this thread; reading clears it."""
    message: str | None = getattr(MACHINE.local, "message", None)
    MACHINE.local.message = None
    return message


@api("acl.app_log")
def app_log(level: int, message: str) -> None:
    """Writes to the application log."""
    levels = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
    log.log(levels[level] if 0 <= level < 4 else logging.INFO, "%s", message)


_SIZES = {0: 4, 1: 2, 2: 1, 3: 4, 4: 1, 6: 2, 7: 2, 8: 4, 9: 8, 10: 8, 11: 8, 12: 1, 16: 8, 17: 16,
          27: 2, 33: 4}  # fmt: skip


@api("acl.data_type_size")
def data_type_size(dtype: int) -> int:
    """Bytes of one element, 0 when unknown."""
    return _SIZES.get(dtype, 0)


@api("acl.float16_to_float")
def float16_to_float(value: int) -> float:
    """The value of an fp16 bit pattern."""
    return float(np.uint16(value & 0xFFFF).view(np.float16))


@api("acl.float_to_float16")
def float_to_float16(value: float) -> int:
    """The fp16 bit pattern of a value."""
    return int(np.float32(value).astype(np.float16).view(np.uint16))
