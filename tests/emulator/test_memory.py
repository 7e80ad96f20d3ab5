"""Device and pinned memory: sizes, poison, limits, and every way to misuse them."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.emulator.program import D2H, download, upload
from tests.peak import peak, reset_peak
from tests.pyacl_emulator import EmulatorViolation, control


@pytest.mark.parametrize(("size", "real"), [(1, 64), (32, 64), (33, 96), (100, 160), (4096, 4128)])
def test_real_size_is_aligned_plus_32(ready: ModuleType, size: int, real: int) -> None:
    pointer, _ = ready.rt.malloc(size, 0)
    assert control.counters.live_device_bytes[0] == real
    assert pointer % 64 == 0
    assert ready.rt.free(pointer) == 0
    assert control.counters.live_device_bytes[0] == 0
    assert control.counters.peak_device_bytes[0] == real


def test_align32_skips_the_extra_bytes(ready: ModuleType) -> None:
    pointer, _ = ready.rt.malloc_align32(33, 0)
    assert control.counters.live_device_bytes[0] == 64
    ready.rt.free(pointer)


def test_size_zero_and_null_are_100000(ready: ModuleType) -> None:
    assert ready.rt.malloc(0, 0) == (0, 100000)
    assert ready.rt.malloc_host(0) == (0, 100000)
    assert ready.rt.free(0) == 100000
    assert ready.rt.free_host(0) == 100000


def test_no_context_is_107002(acl: ModuleType) -> None:
    acl.init()
    assert acl.rt.malloc(16, 0) == (0, 107002)
    assert acl.rt.malloc_host(16) == (0, 107002)
    assert acl.rt.get_mem_info(0) == (0, 0, 107002)


def test_out_of_memory_is_207001_with_a_null_pointer(ready: ModuleType) -> None:
    control.memory_limit = 1 << 20
    assert ready.rt.malloc(1 << 20, 0) == (0, 207001)
    assert ready.rt.malloc(-1, 0) == (0, 207001)
    pointer, ret = ready.rt.malloc((1 << 20) - 32, 0)
    assert ret == 0
    assert ready.rt.get_mem_info(0) == (0, 1 << 20, 0)
    ready.rt.free(pointer)


def test_memory_is_that_of_the_chip(ready: ModuleType) -> None:
    free, total, ret = ready.rt.get_mem_info(0)
    assert (free, total, ret) == (21534 << 20, 21534 << 20, 0)
    assert ready.rt.get_mem_info(1) == (free, total, 0)
    assert ready.rt.get_mem_info(99) == (0, 0, 0)


def test_fresh_and_freed_memory_is_poison(ready: ModuleType) -> None:
    pointer, _ = ready.rt.malloc(64, 0)
    assert np.isnan(download(ready, pointer, (16,), np.float32)).all()
    upload(ready, pointer, np.zeros(16, np.float32))
    assert not download(ready, pointer, (16,), np.float32).any()
    ready.rt.free(pointer)
    other, _ = ready.rt.malloc(64, 0)
    assert np.isnan(download(ready, other, (32,), np.float16)).all()
    ready.rt.free(other)


def test_large_blocks_are_poison_and_cost_nothing_until_touched(ready: ModuleType) -> None:
    size = 8 << 30
    before = reset_peak()
    pointer, ret = ready.rt.malloc(size, 0)
    assert ret == 0
    for offset in (0, size // 2, size - 8):
        assert np.isnan(download(ready, pointer + offset, (2,), np.float32)).all()
    upload(ready, pointer + size // 2, np.zeros(2, np.float32))
    assert not download(ready, pointer + size // 2, (2,), np.float32).any()
    ready.rt.free(pointer)
    assert peak() - before < 64 << 20


def test_freeing_twice_is_a_violation(ready: ModuleType) -> None:
    pointer, _ = ready.rt.malloc(64, 0)
    ready.rt.free(pointer)
    with pytest.raises(EmulatorViolation, match="freed already"):
        ready.rt.free(pointer)
    assert len(control.violations) == 1


def test_freeing_the_inside_of_a_block_is_a_violation(ready: ModuleType) -> None:
    pointer, _ = ready.rt.malloc(128, 0)
    with pytest.raises(EmulatorViolation, match="inside of a block"):
        ready.rt.free(pointer + 64)
    ready.rt.free(pointer)


def test_free_and_free_host_do_not_mix(ready: ModuleType) -> None:
    pointer, _ = ready.rt.malloc(64, 0)
    pinned, _ = ready.rt.malloc_host(64)
    with pytest.raises(EmulatorViolation, match="pairs with its own malloc"):
        ready.rt.free_host(pointer)
    with pytest.raises(EmulatorViolation, match="pairs with its own malloc"):
        ready.rt.free(pinned)
    assert ready.rt.free(pointer) == 0
    assert ready.rt.free_host(pinned) == 0


def test_use_after_free_is_a_violation(ready: ModuleType) -> None:
    pointer, _ = ready.rt.malloc(64, 0)
    ready.rt.free(pointer)
    with pytest.raises(EmulatorViolation, match="freed or out-of-range"):
        download(ready, pointer, (16,), np.float32)


@pytest.mark.parametrize("offset", [0, 64, 100])
def test_reading_past_a_block_is_a_violation(ready: ModuleType, offset: int) -> None:
    pointer, _ = ready.rt.malloc(128, 0)
    with pytest.raises(EmulatorViolation, match="past a 128-byte device block"):
        download(ready, pointer + offset, (130 - offset,), np.uint8)
    ready.rt.free(pointer)


def test_a_device_pointer_is_not_a_host_pointer_in_ep_form(ready: ModuleType) -> None:
    pointer, _ = ready.rt.malloc(64, 0)
    with pytest.raises(EmulatorViolation, match="segmentation fault"):
        ready.util.ptr_to_bytes(pointer, 8)
    ready.rt.free(pointer)


@pytest.mark.filterwarnings("ignore:acl.util")
def test_device_memory_is_host_memory_in_rc_form(rc: ModuleType) -> None:
    rc.init()
    rc.rt.set_device(0)
    pointer, _ = rc.rt.malloc(64, 0)
    view = rc.util.ptr_to_numpy(pointer, (16,), 11)
    view[:] = 3.0
    assert np.frombuffer(rc.util.ptr_to_bytes(pointer, 64), np.float32).tolist() == [3.0] * 16
    rc.rt.free(pointer)


def test_pinned_memory_counts_as_device_memory_in_rc_form(rc: ModuleType) -> None:
    rc.init()
    rc.rt.set_device(0)
    pointer, _ = rc.rt.malloc_host(64)
    assert control.counters.live_device_bytes[0] == 96
    assert rc.rt.free_host(pointer) == 0


def test_pinned_memory_is_plain_host_memory_in_ep_form(ready: ModuleType) -> None:
    pointer, _ = ready.rt.malloc_host(64)
    assert ready.rt.memset(pointer, 64, 1, 64) == 0
    assert ready.util.ptr_to_bytes(pointer, 64) == b"\1" * 64
    assert ready.rt.pointer_get_attributes(pointer)[0]["location"]["type"] == 0
    assert ready.rt.free_host(pointer) == 0


def test_overrunning_pinned_memory_is_a_violation(ready: ModuleType) -> None:
    pinned, _ = ready.rt.malloc_host(32)
    pointer, _ = ready.rt.malloc(64, 0)
    with pytest.raises(EmulatorViolation, match="past a 32-byte host block"):
        ready.rt.memcpy(pinned, 64, pointer, 64, D2H)
    ready.rt.free(pointer)
    ready.rt.free_host(pinned)


def test_a_long_life_of_allocations_keeps_memory_flat(ready: ModuleType) -> None:
    def round_trip() -> None:
        pointer, _ = ready.rt.malloc(6 << 20, 0)
        upload(ready, pointer, np.zeros(6 << 18, np.float32))
        ready.rt.free(pointer)

    round_trip()
    before = reset_peak()
    for _ in range(100):
        round_trip()
    assert peak() - before < 64 << 20
    assert control.counters.live_device_bytes[0] == 0


def test_resets_leak_neither_memory_nor_descriptors(acl: ModuleType) -> None:
    descriptors = Path("/proc/self/fd")

    def process() -> None:
        control.reset(soc="Ascend310P3")
        acl.init()
        acl.rt.set_device(0)
        pointer, _ = acl.rt.malloc(32 << 20, 0)
        upload(acl, pointer, np.zeros(8 << 20, np.float32))

    for _ in range(4):
        process()
    files = len(list(descriptors.iterdir()))
    before = reset_peak()
    for _ in range(20):
        process()
    assert len(list(descriptors.iterdir())) == files
    assert peak() - before < 64 << 20
