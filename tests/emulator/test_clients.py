"""The call patterns of public pyACL programs, one test each; nothing here is copied from them.

C1 … C17 name the clients whose way of calling the test follows: buffers, callbacks, gears, devices.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.emulator.conftest import WIDTH
from tests.emulator.program import D2D, D2H, H2D
from tests.emulator.test_model import GEARS, reference, rows
from tests.pyacl_emulator import EmulatorViolation, control

NPY_FLOAT32 = 11
BYTES = 4 * WIDTH * 4


def outputs_of(acl: ModuleType, desc: int) -> list[int]:
    return [acl.mdl.get_output_size_by_index(desc, i) for i in range(acl.mdl.get_num_outputs(desc))]


def dataset_of(acl: ModuleType, pairs: list[tuple[int, int]]) -> int:
    """A dataset of (pointer, size), the return value of add ignored as C6 and C15 do."""
    dataset = acl.mdl.create_dataset()
    for pointer, size in pairs:
        acl.mdl.add_dataset_buffer(dataset, acl.create_data_buffer(pointer, size))
    return dataset


def close(acl: ModuleType, dataset: int, *, free: bool) -> None:
    """Destroys buffers, memory and dataset through what the dataset says."""
    for index in range(acl.mdl.get_dataset_num_buffers(dataset)):
        buffer = acl.mdl.get_dataset_buffer(dataset, index)
        if free:
            assert acl.rt.free(acl.get_data_buffer_addr(buffer)) == 0
        assert acl.destroy_data_buffer(buffer) == 0
    assert acl.mdl.destroy_dataset(dataset) == 0


def test_c15_the_shortest_program(acl: ModuleType, linear) -> None:
    """Explicit context, no stream, twenty executes; datasets, description, model, memory,
    context."""
    assert acl.init() == 0
    assert acl.rt.set_device(0) == 0
    context, ret = acl.rt.create_context(0)
    assert ret == 0
    model, ret = acl.mdl.load_from_file(str(linear()))
    assert ret == 0
    desc = acl.mdl.create_desc()
    acl.mdl.get_desc(desc, model)
    x = rows(4).tobytes()
    source, _ = acl.rt.malloc(len(x), 0)
    size = acl.mdl.get_output_size_by_index(desc, 0)
    target, _ = acl.rt.malloc(size, 0)
    host, _ = acl.rt.malloc_host(size)
    inputs, outputs = dataset_of(acl, [(source, len(x))]), dataset_of(acl, [(target, size)])
    for _ in range(20):
        assert acl.rt.memcpy(source, len(x), acl.util.bytes_to_ptr(x), len(x), H2D) == 0
        assert acl.mdl.execute(model, inputs, outputs) == 0
        assert acl.rt.memcpy(host, size, target, size, D2H) == 0
    seen = np.frombuffer(acl.util.ptr_to_bytes(host, size), np.float32).reshape(4, WIDTH)
    assert np.abs(seen - reference(rows(4))).max() < 2e-3
    close(acl, inputs, free=False)
    close(acl, outputs, free=False)
    acl.mdl.destroy_desc(desc)
    acl.mdl.unload(model)
    acl.rt.free(source)
    acl.rt.free(target)
    acl.rt.free_host(host)
    acl.rt.destroy_context(context)
    acl.rt.reset_device(0)
    assert acl.finalize() == 0
    assert control.leaks == []
    assert control.violations == []


def test_c1_results_are_copied_into_a_bytes_object(ready: ModuleType, linear) -> None:
    """AclLite: the copy writes into the payload of bytes; buffers are released after the model."""
    model, _ = ready.mdl.load_from_file(str(linear()))
    desc = ready.mdl.create_desc()
    ready.mdl.get_desc(desc, model)
    assert "bytes_to_ptr" in dir(ready.util)
    source, _ = ready.rt.malloc(BYTES, 0)
    target, _ = ready.rt.malloc(BYTES, 0)
    x = rows(4)
    data = x.tobytes()
    ready.rt.memcpy(source, BYTES, ready.util.bytes_to_ptr(data), BYTES, H2D)
    inputs, outputs = dataset_of(ready, [(source, BYTES)]), dataset_of(ready, [(target, BYTES)])
    assert ready.mdl.execute(model, inputs, outputs) == 0
    buffer = ready.mdl.get_dataset_buffer(outputs, 0)
    size = ready.get_data_buffer_size(buffer)
    holder = np.zeros(size, np.uint8).tobytes()
    mode, _ = ready.rt.get_run_mode()
    kind = D2H if mode == 1 else D2D
    pointer = ready.get_data_buffer_addr(buffer)
    assert ready.rt.memcpy(ready.util.bytes_to_ptr(holder), size, pointer, size, kind) == 0
    seen = np.frombuffer(holder, np.float32).reshape(4, WIDTH)
    assert np.abs(seen - reference(x)).max() < 2e-3
    assert ready.mdl.unload(model) == 0
    assert ready.mdl.destroy_desc(desc) == 0
    close(ready, inputs, free=True)
    close(ready, outputs, free=True)
    assert control.live_bytes == 0


def test_c3_async_queue_with_a_callback_thread(acl: ModuleType, linear) -> None:
    """execute_async for several inputs, one callback after them, polled every 50 ms."""
    acl.init()
    acl.rt.set_device(0)
    context, _ = acl.rt.create_context(0)
    stream, _ = acl.rt.create_stream()
    model, _ = acl.mdl.load_from_file(str(linear()))
    assert model
    exit_flag = [False]

    def process(args: list[object]) -> None:
        acl.rt.set_context(args[0])
        while not exit_flag[0]:
            acl.rt.process_report(args[1])

    thread, _ = acl.util.start_thread(process, [context, 50])
    assert acl.rt.subscribe_report(thread, stream) == 0
    batch, results = [], []
    for seed in range(3):
        source, target = (acl.rt.malloc(BYTES, 2)[0] for _ in range(2))
        data = rows(4, seed).tobytes()
        acl.rt.memcpy(source, BYTES, acl.util.bytes_to_ptr(data), BYTES, H2D)
        pair = dataset_of(acl, [(source, BYTES)]), dataset_of(acl, [(target, BYTES)])
        assert acl.mdl.execute_async(model, *pair, stream) == 0
        batch.append(pair)

    def collect(args: list[object]) -> None:
        for _, outputs in args[0]:
            buffer = acl.mdl.get_dataset_buffer(outputs, 0)
            size = acl.get_data_buffer_size_v2(buffer)
            host, _ = acl.rt.malloc_host(size)
            acl.rt.memcpy(host, size, acl.get_data_buffer_addr(buffer), size, D2H)
            results.append(np.frombuffer(acl.util.ptr_to_bytes(host, size), np.float32))
            acl.rt.free_host(host)

    assert acl.rt.launch_callback(collect, [batch], 1, stream) == 0
    assert acl.rt.synchronize_stream(stream) == 0
    assert acl.rt.unsubscribe_report(thread, stream) == 0
    exit_flag[0] = True
    assert acl.util.stop_thread(thread) == 0
    assert acl.mdl.unload(model) == 0
    for pair in batch:
        for dataset in pair:
            close(acl, dataset, free=True)
    assert acl.rt.destroy_stream(stream) == 0
    assert acl.rt.destroy_context(context) == 0
    wanted = [reference(rows(4, seed)).reshape(-1) for seed in range(3)]
    assert all(np.abs(a - b).max() < 2e-3 for a, b in zip(results, wanted, strict=True))


def test_c7_copies_without_a_model(acl: ModuleType) -> None:
    """Host to device to device to host, synchronous and on a stream, with media memory."""
    acl.init()
    acl.rt.set_device(0)
    context, _ = acl.rt.create_context(0)
    stream, _ = acl.rt.create_stream()
    free, total, ret = acl.rt.get_mem_info(1)
    assert ret == 0
    assert 0 < free <= total
    first, _ = acl.rt.malloc(BYTES, 0)
    second, _ = acl.media.dvpp_malloc(BYTES)
    host, back = (acl.rt.malloc_host(BYTES)[0] for _ in range(2))
    assert acl.rt.memset(host, BYTES, 3, BYTES) == 0
    assert acl.rt.memset_async(second, BYTES, 0, BYTES, stream) == 0
    assert acl.rt.memcpy_async(first, BYTES, host, BYTES, H2D, stream) == 0
    assert acl.rt.memcpy_async(second, BYTES, first, BYTES, D2D, stream) == 0
    assert acl.rt.memcpy_async(back, BYTES, second, BYTES, D2H, stream) == 0
    assert acl.rt.synchronize_stream(stream) == 0
    assert acl.util.ptr_to_bytes(back, BYTES) == b"\3" * BYTES
    assert acl.rt.free(first) == 0
    assert acl.media.dvpp_free(second) == 0
    for pointer in (host, back):
        assert acl.rt.free_host(pointer) == 0
    assert acl.rt.destroy_context(context) == 0


def cache_program(acl: ModuleType, path: Path, source: int) -> None:
    """C8/C9: the file in chunks into `source` memory, loaded from there, the copy freed at once."""
    data = path.read_bytes()
    holder = ctypes.create_string_buffer(data, len(data))
    left, offset = len(data), 0
    while left > 0:
        step = min(left, 4096)
        pointer = ctypes.addressof(holder) + offset
        assert acl.rt.memcpy(source + offset, left, pointer, step, H2D) == 0
        left -= step
        offset += step
    model, ret = acl.mdl.load_from_mem(source, len(data))
    assert ret == 0
    assert acl.rt.free(source) == 0
    desc = acl.mdl.create_desc()
    assert acl.mdl.get_desc(desc, model) == 0
    index, ret = acl.mdl.get_input_index_by_name(desc, "ascend_mbatch_shape_data")
    assert ret == 0
    sizes = [acl.mdl.get_input_size_by_index(desc, i) for i in range(acl.mdl.get_num_inputs(desc))]
    inputs = dataset_of(acl, [(acl.rt.malloc(size, 0)[0], size) for size in sizes])
    results = [(acl.rt.malloc(size, 0)[0], size) for size in outputs_of(acl, desc)]
    outputs = dataset_of(acl, results)
    cache = acl.get_data_buffer_addr(acl.mdl.get_dataset_buffer(inputs, 0))
    assert acl.rt.memset(cache, sizes[0], 0, sizes[0]) == 0
    dims = [4, WIDTH]
    gear = {"dimCount": len(dims), "name": "", "dims": dims}
    for step in range(3):
        assert acl.mdl.set_input_dynamic_dims(model, inputs, index, gear) == 0
        assert acl.mdl.execute(model, inputs, outputs) == 0
        row = WIDTH * 4
        assert acl.rt.memcpy(cache + step * row, row, results[0][0], row, D2D) == 0
    acl.mdl.unload(model)


def test_c8_a_model_in_device_memory_and_a_cache_updated_in_place(rc: ModuleType, linear) -> None:
    path = linear("dims", GEARS, soc="Ascend310B4")
    rc.init()
    rc.rt.set_device(0)
    source, _ = rc.rt.malloc(path.stat().st_size, 0)
    cache_program(rc, path, source)
    assert control.counters.copies["d2d"] == 3


def test_c8_the_same_in_ep_form_is_refused(ready: ModuleType, linear) -> None:
    path = linear("dims", GEARS)
    source, _ = ready.rt.malloc(path.stat().st_size, 0)
    with pytest.raises(EmulatorViolation, match="EP form wants host memory"):
        cache_program(ready, path, source)


@pytest.mark.filterwarnings("ignore:acl.util")
def test_c9_views_on_device_memory_in_rc_form(rc: ModuleType, linear) -> None:
    """No copies at all: inputs are written and outputs read through NumPy views."""
    rc.init()
    rc.rt.set_device(0)
    path = linear(soc="Ascend310B4")
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    holder = ctypes.c_char.from_buffer(mapped)
    model, ret = rc.mdl.load_from_mem(ctypes.addressof(holder), len(mapped))
    assert ret == 0
    del holder
    mapped.close()
    desc = rc.mdl.create_desc()
    rc.mdl.get_desc(desc, model)
    shape = tuple(rc.mdl.get_input_dims(desc, 0)[0]["dims"])
    source, target = (rc.rt.malloc(BYTES, 0)[0] for _ in range(2))
    x = rc.util.ptr_to_numpy(source, shape, NPY_FLOAT32)
    y = rc.util.ptr_to_numpy(target, shape, NPY_FLOAT32)
    inputs, outputs = dataset_of(rc, [(source, BYTES)]), dataset_of(rc, [(target, BYTES)])
    for seed in range(2):
        x[:] = rows(4, seed)
        assert rc.mdl.execute(model, inputs, outputs) == 0
        assert np.abs(y - reference(rows(4, seed))).max() < 2e-3
    assert not control.counters.bytes


@pytest.mark.filterwarnings("ignore:acl.util")
def test_c10_numpy_pointers_and_a_device_question_before_init(acl: ModuleType, linear) -> None:
    assert acl.rt.get_device(0)[1] != 0
    acl.init()
    acl.rt.set_device(0)
    assert acl.rt.get_device(0)[1] == 0
    model, _ = acl.mdl.load_from_file(str(linear()))
    desc = acl.mdl.create_desc()
    acl.mdl.get_desc(desc, model)
    assert acl.mdl.get_input_dims(desc, 0)[0]["dims"][1:] == [WIDTH]
    x = rows(4)
    source, target = (acl.rt.malloc(BYTES, 2)[0] for _ in range(2))
    host, _ = acl.rt.malloc_host(BYTES)
    acl.rt.memcpy(source, BYTES, acl.util.numpy_to_ptr(x), BYTES, H2D)
    pair = dataset_of(acl, [(source, BYTES)]), dataset_of(acl, [(target, BYTES)])
    assert acl.mdl.execute(model, *pair) == 0
    acl.rt.memcpy(host, BYTES, target, BYTES, D2H)
    seen = acl.util.ptr_to_numpy(host, (4 * WIDTH,), NPY_FLOAT32).copy()
    assert np.abs(seen.reshape(4, WIDTH) - reference(x)).max() < 2e-3


def test_c11_several_devices_and_threads(acl: ModuleType, linear) -> None:
    """A context, a stream and a model per device, set_context in every method."""
    acl.init()
    count, _ = acl.rt.get_device_count()
    assert count >= 2
    path, results = str(linear()), {}
    sizes = {"in": acl.mdl.get_input_size_by_index, "out": acl.mdl.get_output_size_by_index}

    def work(device: int) -> None:
        acl.rt.set_device(device)
        context, _ = acl.rt.create_context(device)
        stream, _ = acl.rt.create_stream()
        model, ret = acl.mdl.load_from_file(path)
        assert ret == 0
        desc = acl.mdl.create_desc()
        acl.mdl.get_desc(desc, model)
        source = acl.rt.malloc(sizes["in"](desc, 0), 0)[0]
        target = acl.rt.malloc(sizes["out"](desc, 0), 0)[0]
        pair = dataset_of(acl, [(source, BYTES)]), dataset_of(acl, [(target, BYTES)])
        for seed in range(5):
            acl.rt.set_context(context)
            data = rows(4, seed).tobytes()
            acl.rt.memcpy(source, BYTES, acl.util.bytes_to_ptr(data), BYTES, H2D)
            assert acl.mdl.execute_async(model, *pair, stream) == 0
            assert acl.rt.synchronize_device(device) == 0
            host = bytes(BYTES)
            acl.rt.memcpy(acl.util.bytes_to_ptr(host), BYTES, target, BYTES, D2H)
            results[device, seed] = np.frombuffer(host, np.float32).reshape(4, WIDTH)

    threads = [threading.Thread(target=work, args=(device,)) for device in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert control.violations == []
    for (_, seed), seen in results.items():
        assert np.abs(seen - reference(rows(4, seed))).max() < 2e-3
    assert len(results) == 5 * count
    assert control.counters.peak_device_bytes[0] == control.counters.peak_device_bytes[1] > 0


def test_c12_and_c14_ranges_with_huge_outputs(ready: ModuleType, linear) -> None:
    """Tensor descriptions for inputs; an output of 500,000,000 elements, of which few are
    touched."""
    model, _ = ready.mdl.load_from_file(str(linear("range")))
    size = 500_000_000 * 4
    source, target = ready.rt.malloc(BYTES, 0)[0], ready.rt.malloc(size, 0)[0]
    inputs, outputs = dataset_of(ready, [(source, BYTES)]), dataset_of(ready, [(target, size)])
    data = rows(4).tobytes()
    ready.rt.memcpy(source, BYTES, ready.util.bytes_to_ptr(data), BYTES, H2D)
    desc = ready.create_tensor_desc(0, [4, WIDTH], 2)
    dataset, ret = ready.mdl.set_dataset_tensor_desc(inputs, desc, 0)
    assert (dataset, ret) == (inputs, 0)
    assert ready.mdl.execute(model, inputs, outputs) == 0
    shape = ready.mdl.get_dataset_tensor_desc(outputs, 0)
    rank = ready.get_tensor_desc_num_dims(shape)
    assert [ready.get_tensor_desc_dim_v2(shape, i)[0] for i in range(rank)] == [4, WIDTH]
    with pytest.raises(TypeError):
        ready.create_tensor_desc(0, (4, WIDTH), 2)


@pytest.mark.filterwarnings("ignore:acl.util")
def test_c13_gears_without_a_context_of_its_own(ready: ModuleType, linear) -> None:
    """The dict that the model hands out is handed back; contiguous pointers; -1 as an index."""
    model, _ = ready.mdl.load_from_file(str(linear("dims", GEARS)))
    desc = ready.mdl.create_desc()
    ready.mdl.get_desc(desc, model)
    index, ret = ready.mdl.get_input_index_by_name(desc, "ascend_mbatch_shape_data")
    assert ret == 0
    count, ret = ready.mdl.get_input_dynamic_gear_count(desc, -1)
    assert (count, ret) == (3, 0)
    gears, ret = ready.mdl.get_input_dynamic_dims(desc, -1, count)
    assert ret == 0
    stream, _ = ready.rt.create_stream()
    sizes = [ready.mdl.get_input_size_by_index(desc, i) for i in range(2)]
    pointers = [ready.rt.malloc(size, 0)[0] for size in sizes]
    inputs = dataset_of(ready, list(zip(pointers, sizes, strict=True)))
    size = ready.mdl.get_output_size_by_index(desc, 0)
    target, _ = ready.rt.malloc(size, 0)
    outputs = dataset_of(ready, [(target, size)])
    for gear in gears:
        x = rows(gear["dims"][0])
        pointer, kept = ready.util.numpy_contiguous_to_ptr(x)
        ready.rt.memcpy(pointers[0], sizes[0], pointer, kept.nbytes, H2D)
        assert ready.mdl.set_input_dynamic_dims(model, inputs, index, gear) == 0
        assert ready.mdl.execute_async(model, inputs, outputs, stream) == 0
        assert ready.rt.synchronize_stream(stream) == 0
        dims, ret = ready.mdl.get_cur_output_dims(desc, 0)
        assert ret == 0
        host, _ = ready.rt.malloc_host(x.nbytes)
        ready.rt.memcpy(host, x.nbytes, target, x.nbytes, D2H)
        seen = ready.util.ptr_to_numpy(host, tuple(dims["dims"]), NPY_FLOAT32)
        assert np.abs(seen - reference(x)).max() < 2e-3
        ready.rt.free_host(host)


@pytest.mark.parametrize("kind", ["static", "batch", "dims"])
def test_c16_probes_for_the_kind_of_a_model(acl: ModuleType, linear, kind: str) -> None:
    """init and finalize codes tolerated; every probe answers 0 for the kinds that it does not
    fit."""
    acl.init()
    assert acl.init() == 100002
    acl.rt.set_device(0)
    model, _ = acl.mdl.load_from_file(str(linear(kind, GEARS if kind != "static" else ())))
    desc = acl.mdl.create_desc()
    acl.mdl.get_desc(desc, model)
    batch, ret = acl.mdl.get_dynamic_batch(desc)
    assert ret == 0
    count, ret = acl.mdl.get_input_dynamic_gear_count(desc, -1)
    assert ret == 0
    sizes, ret = acl.mdl.get_dynamic_hw(desc, -1)
    assert ret == 0
    gears, ret = acl.mdl.get_input_dynamic_dims(desc, -1, count)
    assert ret == 0
    found = (batch["batchCount"], len(gears), sizes["hwCount"])
    assert found == {"static": (0, 0, 0), "batch": (3, 0, 0), "dims": (0, 3, 0)}[kind]
    assert acl.mdl.get_input_data_type(desc, 0) in (0, 3, 9)
    assert (acl.mdl.get_input_dims(desc, 0)[0]["dims"][0] == -1) == (kind != "static")
    acl.finalize()
    assert acl.finalize() == 100037


def test_c17_no_context_and_memory_found_through_buffers(ready: ModuleType, linear) -> None:
    model, _ = ready.mdl.load_from_file(str(linear()))
    desc = ready.mdl.create_desc()
    ready.mdl.get_desc(desc, model)
    inputs = dataset_of(ready, [(ready.rt.malloc(BYTES, 0)[0], BYTES)])
    outputs = dataset_of(ready, [(ready.rt.malloc(BYTES, 0)[0], BYTES)])
    pointer = ready.get_data_buffer_addr(ready.mdl.get_dataset_buffer(inputs, 0))
    data = rows(4).tobytes()
    ready.rt.memcpy(pointer, BYTES, ready.util.bytes_to_ptr(data), BYTES, H2D)
    assert ready.mdl.execute(model, inputs, outputs) == 0
    close(ready, inputs, free=True)
    close(ready, outputs, free=True)
    ready.mdl.destroy_desc(desc)
    ready.mdl.unload(model)
    assert control.live_bytes == 0
