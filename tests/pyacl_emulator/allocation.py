"""The allocation functions: malloc, malloc_host, free, and questions about memory."""

from __future__ import annotations

from .binding import api, code
from .context import current
from .machine import MACHINE
from .memory import real_size
from .stream import conflict
from .violation import EmulatorViolation

_HUGE_1G = (6, 7)


def device_block(size: int, *, padded: bool = True, purpose: str = "user") -> tuple[int, int]:
    """(address, 0) on the current device, or (0, code)."""
    context = current()
    if isinstance(context, int):
        return 0, context
    if size == 0:
        return 0, MACHINE.report(code("INVALID_PARAM"), "EH0001: size is 0")
    real = real_size(size) if padded else size
    device = context.device.index
    free = MACHINE.settings.device_memory - MACHINE.counters.live_device_bytes[device]
    if size < 0 or real > free:
        return 0, MACHINE.report(
            code("RT_MEMORY_ALLOCATION"),
            f"EL0004: Failed to allocate memory: {size} bytes wanted, {free} free",
        )
    return MACHINE.memory.allocate(size, device, padded=padded, purpose=purpose).address, 0


@api("acl.rt.malloc")
def malloc(size: int, policy: int) -> tuple[int, int]:
    """(address, 0): uninitialised device memory, 64-byte aligned; see `real_size`."""
    return device_block(size, padded=policy not in _HUGE_1G)


@api("acl.rt.malloc_align32")
def malloc_align32(size: int, policy: int) -> tuple[int, int]:
    """As malloc without the extra 32 bytes."""
    return device_block((size + 31) // 32 * 32, padded=False)


@api("acl.rt.malloc_cached")
def malloc_cached(size: int, policy: int) -> tuple[int, int]:
    """The same as malloc on current products."""
    return malloc(size, policy)


@api("acl.rt.malloc_with_cfg")
def malloc_with_cfg(size: int, policy: int, cfg: dict[str, object]) -> tuple[int, int]:
    """As malloc without alignment and padding."""
    return device_block(size, padded=False)


@api("acl.media.dvpp_malloc")
def dvpp_malloc(size: int) -> tuple[int, int]:
    """Device memory for the image units; plain device memory here."""
    return device_block(size)


def _free(address: int, *, pinned: bool, name: str) -> int:
    if address == 0:
        return MACHINE.report(code("INVALID_PARAM"), f"EH0002: {name} of NULL")
    memory = MACHINE.memory
    block = memory.blocks.get(address)
    if block is None:
        inside = memory.find(address)
        what = "the inside of a block" if inside else "freed already or never allocated"
        raise EmulatorViolation(
            f"{name} of {address:#x}: {what}",
            "aclrtFree.md: free exactly what malloc returned, once",
        )
    if block.purpose != "user" or (block.pinned != pinned and not memory.rc):
        raise EmulatorViolation(
            f"{name} of a {block.where} block ({block.purpose})",
            "aclrtFree.md / aclrtFreeHost.md: each pairs with its own malloc",
        )
    if MACHINE.busy:
        span = ((address, address + block.size),)
        found = conflict((), span, None)
        if found is not None:
            raise EmulatorViolation(
                f"{name} of {address:#x} while the unfinished {found[1].label} uses it",
                "aclrtFree.md: frees at once; no task may still use the memory",
            )
    memory.free(block)
    return 0


@api("acl.rt.free")
def free(address: int) -> int:
    """Frees device memory at once."""
    return _free(address, pinned=False, name="free")


@api("acl.media.dvpp_free")
def dvpp_free(address: int) -> int:
    """Frees memory of dvpp_malloc."""
    return _free(address, pinned=False, name="dvpp_free")


@api("acl.rt.malloc_host")
def malloc_host(size: int) -> tuple[int, int]:
    """(address, 0): pinned host memory; in RC form plain device memory."""
    context = current()
    if isinstance(context, int):
        return 0, context
    if size == 0:
        return 0, MACHINE.report(code("INVALID_PARAM"), "EH0001: size is 0")
    if MACHINE.memory.rc:
        return device_block(size)
    try:
        return MACHINE.memory.allocate(size, context.device.index, pinned=True).address, 0
    except MemoryError as error:
        return 0, MACHINE.report(code("RT_MEMORY_ALLOCATION"), f"EL0004: {error}")


@api("acl.rt.free_host")
def free_host(address: int) -> int:
    """Frees pinned memory."""
    return _free(address, pinned=True, name="free_host")


@api("acl.rt.get_mem_info")
def get_mem_info(attr: int) -> tuple[int, int, int]:
    """(free, total, 0) bytes of the device; an HBM question to a DDR chip is answered with DDR."""
    context = current()
    if isinstance(context, int):
        return 0, 0, context
    if not 0 <= attr <= 17 or (MACHINE.settings.chip.hbm and attr in (0, 2, 3)):
        return 0, 0, 0
    total = MACHINE.settings.device_memory
    return total - MACHINE.counters.live_device_bytes[context.device.index], total, 0


@api("acl.rt.mem_flush")
def mem_flush(address: int, size: int) -> int:
    """Nothing to do on current products."""
    return 0 if address and size else code("INVALID_PARAM")


@api("acl.rt.mem_invalidate")
def mem_invalidate(address: int, size: int) -> int:
    """Nothing to do on current products."""
    return 0 if address and size else code("INVALID_PARAM")


@api("acl.rt.host_register")
def host_register(address: int, size: int, kind: int) -> tuple[int, int]:
    """Not supported on the emulated products."""
    return 0, MACHINE.report(code("RT_FEATURE_NOT_SUPPORT"), "EE1006: host_register")


@api("acl.rt.host_unregister")
def host_unregister(address: int) -> int:
    """Not supported on the emulated products."""
    return MACHINE.report(code("RT_FEATURE_NOT_SUPPORT"), "EE1006: host_unregister")


@api("acl.rt.pointer_get_attributes")
def pointer_get_attributes(address: int) -> tuple[dict[str, object], int]:
    """Where an address lies: type 0 pinned host, 1 device, 2 unregistered."""
    block = MACHINE.memory.find(address)
    kind = 2 if block is None else 0 if block.pinned else 1
    where = {"id": 0 if block is None else block.device, "type": kind}
    return {"location": where, "page_size": 4096, "rsv": []}, 0
