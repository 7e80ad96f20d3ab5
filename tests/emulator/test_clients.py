"""The call patterns of public pyACL programs on static models; nothing here is copied from them.

C1 … C17 name the clients whose way of calling a test follows.
"""

from __future__ import annotations

import threading
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.emulator.conftest import WIDTH
from tests.emulator.program import (
    BYTES,
    D2D,
    D2H,
    H2D,
    NPY_FLOAT32,
    close,
    dataset_of,
    download,
    reference,
    rows,
    upload,
)
from tests.pyacl_emulator import control
from tests.pyacl_emulator.bundle import write_bundle


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


def test_c2_shapes_of_a_static_model_are_asked_after_the_run(ready: ModuleType, linear) -> None:
    """Host memory for every output, and the current dims of a model that has no gears."""
    model, _ = ready.mdl.load_from_file(str(linear()))
    desc = ready.mdl.create_desc()
    ready.mdl.get_desc(desc, model)
    sizes = [ready.mdl.get_input_size_by_index(desc, i)
             for i in range(ready.mdl.get_num_inputs(desc))]  # fmt: skip
    inputs = dataset_of(ready, [(ready.rt.malloc(size, 0)[0], size) for size in sizes])
    outputs = dataset_of(ready, [(ready.rt.malloc(BYTES, 0)[0], BYTES)])
    data = rows(4).tobytes()
    pointer = ready.get_data_buffer_addr(ready.mdl.get_dataset_buffer(inputs, 0))
    ready.rt.memcpy(pointer, BYTES, ready.util.bytes_to_ptr(data), BYTES, H2D)
    assert ready.mdl.execute(model, inputs, outputs) == 0
    dims, ret = ready.mdl.get_cur_output_dims(desc, 0)
    assert (dims["dims"], dims["dimCount"], ret) == ([4, WIDTH], 2, 0)
    host, _ = ready.rt.malloc_host(BYTES)
    target = ready.get_data_buffer_addr(ready.mdl.get_dataset_buffer(outputs, 0))
    ready.rt.memcpy(host, BYTES, target, BYTES, D2H)
    seen = np.frombuffer(ready.util.ptr_to_bytes(host, BYTES), np.float32).reshape(dims["dims"])
    assert np.abs(seen - reference(rows(4))).max() < 2e-3
    ready.rt.free_host(host)
    for dataset in (inputs, outputs):
        close(ready, dataset, free=True)
    assert ready.mdl.destroy_desc(desc) == 0
    assert ready.mdl.unload(model) == 0
    assert control.live_bytes == 0


def test_c6_a_stream_that_is_never_used(acl: ModuleType, linear) -> None:
    """The stream goes with its context; host memory is as large as the output's buffer says."""
    acl.init()
    acl.rt.set_device(0)
    context, _ = acl.rt.create_context(0)
    _, ret = acl.rt.create_stream()
    assert ret == 0
    model, _ = acl.mdl.load_from_file(str(linear()))
    desc = acl.mdl.create_desc()
    acl.mdl.get_desc(desc, model)
    inputs, outputs = (dataset_of(acl, [(acl.rt.malloc(BYTES, 2)[0], BYTES)]) for _ in range(2))
    data = rows(4).tobytes()
    assert len(data) == acl.mdl.get_input_size_by_index(desc, 0)
    source = acl.get_data_buffer_addr(acl.mdl.get_dataset_buffer(inputs, 0))
    acl.rt.memcpy(source, BYTES, acl.util.bytes_to_ptr(data), len(data), H2D)
    assert acl.mdl.execute(model, inputs, outputs) == 0
    buffer = acl.mdl.get_dataset_buffer(outputs, 0)
    size = acl.get_data_buffer_size(buffer)
    host, _ = acl.rt.malloc_host(size)
    acl.rt.memcpy(host, size, acl.get_data_buffer_addr(buffer), size, D2H)
    seen = np.frombuffer(acl.util.ptr_to_bytes(host, size), np.float32)
    assert np.abs(seen.reshape(4, WIDTH) - reference(rows(4))).max() < 2e-3
    acl.rt.free_host(host)
    assert acl.mdl.destroy_desc(desc) == 0
    assert acl.mdl.unload(model) == 0
    for dataset in (inputs, outputs):
        close(acl, dataset, free=True)
    assert acl.rt.destroy_context(context) == 0
    assert acl.rt.reset_device(0) == 0
    assert acl.finalize() == 0
    assert control.violations == []


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


def test_c17_every_model_of_a_bundle_runs(ready: ModuleType, linear, tmp_path: Path) -> None:
    path = tmp_path / "bundle.om"
    write_bundle(path, [linear(), linear(rows=8, name="eight.om")])
    bundle, ret = ready.mdl.bundle_load_from_file(str(path))
    assert ret == 0
    for index, count in enumerate((4, 8)):
        model, ret = ready.mdl.bundle_get_model_id(bundle, index)
        assert ret == 0
        x = rows(count)
        pair = [dataset_of(ready, [(ready.rt.malloc(x.nbytes, 0)[0], x.nbytes)]) for _ in range(2)]
        source, target = (
            ready.get_data_buffer_addr(ready.mdl.get_dataset_buffer(side, 0)) for side in pair
        )
        upload(ready, source, x)
        assert ready.mdl.execute(model, *pair) == 0
        assert np.abs(download(ready, target, x.shape, np.float32) - reference(x)).max() < 2e-3
        for side in pair:
            close(ready, side, free=True)
    assert ready.mdl.bundle_unload(bundle) == 0
    assert control.live_bytes == 0
