"""Copies and fills: the location table, the codes, and the order against streams."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from tests.emulator.program import D2D, D2H, H2D, download, upload
from tests.pyacl_emulator import EmulatorViolation, control

SIZE = 256


@pytest.fixture
def places(ready: ModuleType) -> dict[str, int]:
    """One address of each kind: d and e on the device, p and q pinned, u pageable."""
    pageable = np.zeros(SIZE, np.uint8)
    ready.pageable = pageable  # keeps the array alive as long as the module object of the test
    device = {name: ready.rt.malloc(SIZE, 0)[0] for name in "de"}
    pinned = {name: ready.rt.malloc_host(SIZE)[0] for name in "pq"}
    yield {**device, **pinned, "u": pageable.ctypes.data}
    del ready.pageable
    for pointer in device.values():
        ready.rt.free(pointer)
    for pointer in pinned.values():
        ready.rt.free_host(pointer)


def copy(acl: ModuleType, places: dict[str, int], pair: str, kind: int, count: int = SIZE) -> int:
    return acl.rt.memcpy(places[pair[1]], SIZE, places[pair[0]], count, kind)


@pytest.mark.parametrize(
    ("pair", "kind", "direction"),
    [("ud", H2D, "h2d"), ("pd", H2D, "h2d"), ("du", D2H, "d2h"), ("dp", D2H, "d2h"),
     ("de", D2D, "d2d"), ("up", 0, "h2h"), ("ud", 4, "h2d"), ("du", 4, "d2h")],
)  # fmt: skip
def test_right_directions_are_copied_and_counted(
    ready: ModuleType, places: dict[str, int], pair: str, kind: int, direction: str
) -> None:
    assert copy(ready, places, pair, kind) == 0
    assert control.counters.bytes == {direction: SIZE}
    assert control.counters.copies == {direction: 1}


@pytest.mark.parametrize(("pair", "kind"), [("ud", D2H), ("du", H2D), ("de", H2D), ("ud", D2D),
                                            ("up", H2D), ("de", 0)])  # fmt: skip
def test_a_wrong_direction_is_a_violation(
    ready: ModuleType, places: dict[str, int], pair: str, kind: int
) -> None:
    with pytest.raises(EmulatorViolation, match="kind must match"):
        copy(ready, places, pair, kind)


def test_a_wrong_direction_is_only_a_hint_in_the_2026_runtime(
    ready: ModuleType, places: dict[str, int]
) -> None:
    control.wrong_kind = "hint"
    assert copy(ready, places, "up", D2H) == 0
    assert control.counters.bytes == {"h2h": SIZE}


def test_codes_of_memcpy(ready: ModuleType, places: dict[str, int]) -> None:
    rt, d, u = ready.rt, places["d"], places["u"]
    assert rt.memcpy(0, SIZE, u, SIZE, H2D) == 100000
    assert rt.memcpy(d, SIZE, 0, SIZE, H2D) == 100000
    assert rt.memcpy(d, SIZE, u, SIZE, 6) == 100000
    assert rt.memcpy(d, SIZE, u, SIZE, -1) == 100000
    assert rt.memcpy(d, SIZE - 1, u, SIZE, H2D) == 107000
    assert rt.memcpy(d, 0, u, SIZE, H2D) == 107000
    assert rt.memcpy(0, 0, 0, 0, H2D) == 0
    assert rt.memcpy(d, SIZE, u, 3, H2D) == 0


def test_interior_pointers_are_legal(ready: ModuleType, places: dict[str, int]) -> None:
    upload(ready, places["d"], np.arange(64, dtype=np.int32))
    assert ready.rt.memcpy(places["e"] + 64, SIZE - 64, places["d"] + 8, 16, D2D) == 0
    assert download(ready, places["e"] + 64, (4,), np.int32).tolist() == [2, 3, 4, 5]


def test_numpy_and_bytes_pointers(ready: ModuleType, places: dict[str, int]) -> None:
    data = np.arange(64, dtype=np.float32)
    with pytest.warns(Warning, match="numpy_to_ptr will be deprecated"):
        pointer = ready.util.numpy_to_ptr(data)
    assert ready.rt.memcpy(places["d"], SIZE, pointer, SIZE, H2D) == 0
    host = bytes(SIZE)
    assert ready.rt.memcpy(ready.util.bytes_to_ptr(host), SIZE, places["d"], SIZE, D2H) == 0
    assert np.frombuffer(host, np.float32).tolist() == data.tolist()
    pointer, kept = ready.util.numpy_contiguous_to_ptr(data.reshape(8, 8).T)
    assert kept.flags.c_contiguous
    assert pointer == kept.ctypes.data
    with pytest.raises(ValueError, match="needs an byte as argument"):
        ready.util.bytes_to_ptr(bytearray(4))
    with pytest.raises(ValueError, match="needs an ndarray as argument"):
        ready.util.numpy_to_ptr([1])
    with pytest.raises(ValueError, match="tuple"):
        ready.util.ptr_to_numpy(places["p"], [4], 11)


def test_a_transposed_array_warns_twice_and_still_gives_its_pointer(ready: ModuleType) -> None:
    array = np.zeros((4, 8), np.float32).T
    with pytest.warns(Warning) as caught:
        assert ready.util.numpy_to_ptr(array) == array.ctypes.data
    assert len(caught) == 2


def test_memset(ready: ModuleType, places: dict[str, int]) -> None:
    assert ready.rt.memset(places["d"], SIZE, 0, SIZE) == 0
    assert not download(ready, places["d"], (SIZE,), np.uint8).any()
    assert ready.rt.memset(0, SIZE, 0, SIZE) == 100000
    assert ready.rt.memset(places["d"], 4, 0, 5) == 107000
    assert ready.rt.memset(places["d"], 4, 0, 0) == 0


def test_an_async_copy_moves_bytes_only_at_the_synchronise(
    ready: ModuleType, places: dict[str, int]
) -> None:
    ready.rt.memset(places["p"], SIZE, 7, SIZE)
    ready.rt.memset(places["d"], SIZE, 0, SIZE)
    assert ready.rt.memcpy_async(places["d"], SIZE, places["p"], SIZE, H2D, 0) == 0
    assert control.device_bytes(places["d"], 2) == b"\0\0"
    assert ready.rt.synchronize_stream(0) == 0
    assert control.device_bytes(places["d"], 2) == b"\7\7"


def test_async_codes(ready: ModuleType, places: dict[str, int]) -> None:
    rt, p, q, d = ready.rt, places["p"], places["q"], places["d"]
    assert rt.memcpy_async(p, SIZE, q, SIZE, 0, 0) == 207000
    assert rt.memcpy_async(d, SIZE - 1, p, SIZE, H2D, 0) == 107000
    assert rt.memcpy_async(0, SIZE, p, SIZE, H2D, 0) == 100000
    stream, _ = rt.create_stream()
    other, _ = rt.create_context(0)
    assert rt.memcpy_async(d, SIZE, p, SIZE, H2D, stream) == 107003
    rt.destroy_context(other)
    assert rt.memcpy_async(d, SIZE, p, SIZE, H2D, 0) == 107002
    rt.set_device(0)


def test_async_with_pageable_memory_is_a_violation_or_waits(
    ready: ModuleType, places: dict[str, int]
) -> None:
    arguments = (places["d"], SIZE, places["u"], SIZE, H2D, 0)
    with pytest.raises(EmulatorViolation, match="pageable"):
        ready.rt.memcpy_async(*arguments)
    control.pageable_async = "sync"
    assert ready.rt.memcpy_async(*arguments) == 0
    assert control.device_bytes(places["d"], 1) == b"\0"


def test_reading_the_target_of_a_queued_copy_is_a_violation(
    ready: ModuleType, places: dict[str, int]
) -> None:
    ready.rt.memcpy_async(places["d"], SIZE, places["p"], SIZE, H2D, 0)
    with pytest.raises(EmulatorViolation, match="synchronise first"):
        copy(ready, places, "du", D2H)
    with pytest.raises(EmulatorViolation, match="synchronise first"):
        ready.rt.memset(places["p"], SIZE, 0, SIZE)
    with pytest.raises(EmulatorViolation, match="unfinished"):
        ready.rt.free(places["d"])
    assert copy(ready, places, "eu", D2H) == 0
    assert ready.rt.synchronize_stream(0) == 0


def test_memcpy2d_has_no_device_to_device_form(ready: ModuleType, places: dict[str, int]) -> None:
    rt, d, e, u = ready.rt, places["d"], places["e"], places["u"]
    assert rt.memcpy2d(e, 32, d, 32, 16, 4, D2D) == 207000
    assert rt.memcpy2d_async(e, 32, d, 32, 16, 4, D2D, 0) == 100000
    assert rt.memcpy2d(d, 8, u, 32, 16, 4, H2D) == 100000
    assert rt.memcpy2d(d, 32, u, 32, 16, 0, H2D) == 107000
    assert rt.memcpy2d(d, 6_000_000, u, 6_000_000, 5_000_001, 1, H2D) == 107000
    assert rt.memcpy2d(d, 32, u, 16, 16, 4, H2D) == 0
    assert control.counters.bytes["h2d"] == 64


def test_memcpy2d_copies_rows(ready: ModuleType, places: dict[str, int]) -> None:
    rows = np.arange(16, dtype=np.uint8).reshape(4, 4).copy()
    ready.rt.memset(places["d"], SIZE, 0, SIZE)
    assert ready.rt.memcpy2d(places["d"], 8, rows.ctypes.data, 4, 4, 4, H2D) == 0
    seen = download(ready, places["d"], (4, 8), np.uint8)
    assert (seen[:, :4] == rows).all()
    assert not seen[:, 4:].any()


def test_memcpy2d_is_missing_in_rc_form(rc: ModuleType) -> None:
    rc.init()
    rc.rt.set_device(0)
    pointer, _ = rc.rt.malloc(64, 0)
    host = np.zeros(64, np.uint8)
    assert rc.rt.memcpy2d(pointer, 16, host.ctypes.data, 16, 16, 4, H2D) == 207000
    rc.rt.free(pointer)


def test_only_a2_copies_2d_between_device_addresses() -> None:
    from tests.pyacl_emulator.chips import CHIPS

    assert [name for name, chip in CHIPS.items() if chip.memcpy2d_d2d][:1] == ["Ascend910B1"]
    assert not CHIPS["Ascend910B"].memcpy2d_d2d


def test_host_to_host_async_is_a_plain_copy_in_rc_form(rc: ModuleType) -> None:
    rc.init()
    rc.rt.set_device(0)
    first, second = rc.rt.malloc_host(64)[0], rc.rt.malloc_host(64)[0]
    rc.rt.memset(first, 64, 5, 64)
    assert rc.rt.memcpy_async(second, 64, first, 64, 0, 0) == 0
    assert rc.rt.synchronize_stream(0) == 0
    assert rc.util.ptr_to_bytes(second, 64) == b"\5" * 64
    for pointer in (first, second):
        rc.rt.free_host(pointer)
