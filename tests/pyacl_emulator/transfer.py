"""Copies and fills: memcpy, memcpy2d, memset, and which pair of locations each accepts."""

from __future__ import annotations

import ctypes

from .binding import api, code
from .context import current
from .machine import MACHINE
from .stream import Task, enqueue, require_idle, resolve, run
from .violation import EmulatorViolation

KIND_NAMES = {0: "h2h", 1: "h2d", 2: "d2h", 3: "d2d"}
DEFAULT_KIND = 4
_WIDTH_LIMIT = 5_000_000
_HEIGHT_LIMIT = 5 * 1024 * 1024


def _direction(dst: int, src: int) -> str:
    """The direction that the two addresses themselves say."""
    memory = MACHINE.memory
    ends = ["d" if memory.is_device_address(address) else "h" for address in (src, dst)]
    return "2".join(ends)


def _check_kind(kind: int, dst: int, src: int) -> str:
    """The direction to count; raises when `kind` contradicts the addresses in EP form."""
    if MACHINE.memory.rc:
        return KIND_NAMES.get(kind, "d2d")
    actual = _direction(dst, src)
    wrong = kind in KIND_NAMES and KIND_NAMES[kind] != actual
    if wrong and MACHINE.settings.wrong_kind == "violation":
        raise EmulatorViolation(
            f"copy of kind {KIND_NAMES[kind]} between addresses that are {actual}",
            "aclrtMemcpy.md (CANN <= 8.0): kind must match where the two addresses are",
        )
    return actual


def _check_copy(dst: int, dest_max: int, src: int, count: int, kind: int) -> int:
    """The code for arguments that the library refuses, else 0."""
    if dst == 0 or src == 0:
        return MACHINE.report(code("INVALID_PARAM"), "EH0002: dst or src is NULL")
    if not 0 <= kind <= 5:
        return MACHINE.report(code("INVALID_PARAM"), f"EH0001: memcpy kind {kind} is not in [0, 5]")
    if count > dest_max or dest_max <= 0:
        return MACHINE.report(
            code("RT_PARAM_INVALID"), f"EE1001: count {count} exceeds the destination's {dest_max}"
        )
    return 0


@api("acl.rt.memcpy")
def memcpy(dst: int, dest_max: int, src: int, count: int, kind: int) -> int:
    """Synchronous copy; not ordered against streams."""
    context = current()
    if isinstance(context, int):
        return context
    if count == 0:
        return 0
    problem = _check_copy(dst, dest_max, src, count, kind)
    if problem:
        return problem
    direction = _check_kind(kind, dst, src)
    if MACHINE.busy:
        require_idle(((src, src + count),), ((dst, dst + count),), f"memcpy {direction}")
    if direction == "d2d":
        _same_device(dst, src)
    target = MACHINE.memory.host_address(dst, count, "memcpy destination")
    source = MACHINE.memory.host_address(src, count, "memcpy source")
    MACHINE.counters.copied(direction, count)
    ctypes.memmove(target, source, count)
    return 0


def _same_device(dst: int, src: int) -> None:
    first, second = MACHINE.memory.find(dst), MACHINE.memory.find(src)
    if first is not None and second is not None and first.device != second.device:
        raise EmulatorViolation(
            f"copy from device {second.device} to device {first.device}",
            "aclrtMemcpy.md: across devices only with peer access enabled",
        )


def _pageable(address: int, count: int) -> bool:
    memory = MACHINE.memory
    if memory.rc or memory.is_device_address(address):
        return False
    block = memory.find(address)
    if block is None:
        return True
    memory.span(address, count, "memcpy_async host side")
    return False


@api("acl.rt.memcpy_async")
def memcpy_async(dst: int, dest_max: int, src: int, count: int, kind: int, stream: int) -> int:
    """Copy on a stream; bytes move when the stream gets there."""
    queue = resolve(stream)
    if isinstance(queue, int):
        return queue
    if count == 0:
        return 0
    problem = _check_copy(dst, dest_max, src, count, kind)
    if problem:
        return problem
    memory = MACHINE.memory
    actual = _direction(dst, src)
    if not memory.rc and actual == "h2h":
        return MACHINE.report(code("RT_FEATURE_NOT_SUPPORT"), "EE1006: async host-to-host copy")
    direction = _check_kind(kind, dst, src)
    if direction == "d2d":
        _same_device(dst, src)
    for address in (dst, src):
        if _pageable(address, count):
            if MACHINE.settings.pageable_async == "sync":
                result = run(queue)
                return result or memcpy(dst, dest_max, src, count, kind)
            raise EmulatorViolation(
                f"memcpy_async with pageable host memory {address:#x}",
                "aclrtMemcpyAsync.md (CANN <= 8.0): host memory must come from aclrtMallocHost",
            )
    memory.host_address(dst, count, "memcpy_async destination")
    memory.host_address(src, count, "memcpy_async source")

    def move() -> int:
        target = memory.host_address(dst, count, "memcpy_async destination")
        source = memory.host_address(src, count, "memcpy_async source")
        MACHINE.counters.copied(direction, count)
        ctypes.memmove(target, source, count)
        return 0

    task = Task("memcpy_async", move, ((src, src + count),), ((dst, dst + count),))
    planted(task)
    enqueue(queue, task)
    return 0


def planted(task: Task) -> None:
    """Attaches the fault that the call drew, if any, to the task that it queued."""
    fault = getattr(MACHINE.local, "next_task_fault", None)
    if fault is None:
        return
    MACHINE.local.next_task_fault = None
    if fault.kind == "hang":
        task.hang = True
    elif fault.kind == "task":
        error = fault.code
        task.run = lambda: MACHINE.report(error, "EZ9999: Inner Error! planted task fault")


def _check_2d(dst: int, dpitch: int, src: int, spitch: int, width: int, height: int) -> int:
    if dst == 0 or src == 0 or width > dpitch or width > spitch:
        return MACHINE.report(
            code("INVALID_PARAM"), "EH0001: null pointer or width beyond the pitch"
        )
    if not 0 < width <= _WIDTH_LIMIT or not 0 < height <= _HEIGHT_LIMIT:
        return MACHINE.report(code("RT_PARAM_INVALID"), "EE1001: width or height beyond its limit")
    if MACHINE.memory.rc:
        return MACHINE.report(code("RT_FEATURE_NOT_SUPPORT"), "EE1006: memcpy2d in RC form")
    return 0


def _rows(dst: int, dpitch: int, src: int, spitch: int, width: int, height: int, way: str) -> None:
    memory = MACHINE.memory
    target = memory.host_address(dst, dpitch * (height - 1) + width, "memcpy2d destination")
    source = memory.host_address(src, spitch * (height - 1) + width, "memcpy2d source")
    MACHINE.counters.copied(way, width * height)
    for row in range(height):
        ctypes.memmove(target + row * dpitch, source + row * spitch, width)


@api("acl.rt.memcpy2d")
def memcpy2d(
    dst: int, dpitch: int, src: int, spitch: int, width: int, height: int, kind: int
) -> int:
    """Synchronous matrix copy, H2D or D2H only: D2D is 207000."""
    context = current()
    if isinstance(context, int):
        return context
    problem = _check_2d(dst, dpitch, src, spitch, width, height)
    if problem:
        return problem
    if kind == 3:
        return MACHINE.report(code("RT_FEATURE_NOT_SUPPORT"), "EE1006: memcpy2d device to device")
    if kind not in (1, 2, DEFAULT_KIND):
        return MACHINE.report(code("INVALID_PARAM"), f"EH0001: memcpy2d kind {kind}")
    way = _check_kind(kind, dst, src)
    reads = ((src, src + spitch * (height - 1) + width),)
    writes = ((dst, dst + dpitch * (height - 1) + width),)
    require_idle(reads, writes, "memcpy2d")
    _rows(dst, dpitch, src, spitch, width, height, way)
    return 0


@api("acl.rt.memcpy2d_async")
def memcpy2d_async(
    dst: int, dpitch: int, src: int, spitch: int, width: int, height: int, kind: int, stream: int
) -> int:
    """Matrix copy on a stream; D2D on A2/A3 only."""
    queue = resolve(stream)
    if isinstance(queue, int):
        return queue
    problem = _check_2d(dst, dpitch, src, spitch, width, height)
    if problem:
        return problem
    if kind == 3 and not MACHINE.settings.chip.memcpy2d_d2d:
        return MACHINE.report(code("INVALID_PARAM"), "EH0001: memcpy2d_async device to device")
    if kind not in (1, 2, 3, DEFAULT_KIND):
        return MACHINE.report(code("INVALID_PARAM"), f"EH0001: memcpy2d_async kind {kind}")
    way = _check_kind(kind, dst, src)

    def move() -> int:
        _rows(dst, dpitch, src, spitch, width, height, way)
        return 0

    reads = ((src, src + spitch * (height - 1) + width),)
    writes = ((dst, dst + dpitch * (height - 1) + width),)
    enqueue(queue, Task("memcpy2d_async", move, reads, writes))
    return 0


def _check_fill(ptr: int, max_count: int, count: int) -> int:
    if ptr == 0:
        return MACHINE.report(code("INVALID_PARAM"), "EH0002: devPtr is NULL")
    if count > max_count:
        return MACHINE.report(code("RT_PARAM_INVALID"), f"EE1001: count {count} > {max_count}")
    if MACHINE.memory.find(ptr) is None:
        MACHINE.memory.span(ptr, count, "memset")
    return 0


@api("acl.rt.memset")
def memset(ptr: int, max_count: int, value: int, count: int) -> int:
    """Synchronous byte fill of device or pinned memory."""
    context = current()
    if isinstance(context, int):
        return context
    problem = _check_fill(ptr, max_count, count)
    if problem or count == 0:
        return problem
    require_idle((), ((ptr, ptr + count),), "memset")
    ctypes.memset(MACHINE.memory.host_address(ptr, count, "memset"), value & 0xFF, count)
    return 0


@api("acl.rt.memset_async")
def memset_async(ptr: int, max_count: int, value: int, count: int, stream: int) -> int:
    """Byte fill on a stream."""
    queue = resolve(stream)
    if isinstance(queue, int):
        return queue
    problem = _check_fill(ptr, max_count, count)
    if problem or count == 0:
        return problem

    def fill() -> int:
        ctypes.memset(MACHINE.memory.host_address(ptr, count, "memset"), value & 0xFF, count)
        return 0

    enqueue(queue, Task("memset_async", fill, (), ((ptr, ptr + count),)))
    return 0
