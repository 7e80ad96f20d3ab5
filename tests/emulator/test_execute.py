"""Executing models: what is bound, when it runs, who may run it."""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.emulator.conftest import WIDTH, save
from tests.emulator.program import GEARS, download, load, reference, rows, upload
from tests.pyacl_emulator import EmulatorViolation, control
from tests.pyacl_emulator.compile import Request, compile_model


def test_sizes_are_checked_with_the_documented_slack(ready: ModuleType, linear) -> None:
    model = load(ready, linear())
    need = 4 * WIDTH * 4
    upload(ready, model.inputs.pointers[0], rows(4))
    update = ready.update_data_buffer
    pointer = model.inputs.pointers[0]
    assert update(model.inputs.buffers[0], pointer, need - 65) == 0
    assert model.execute() == 145000
    assert update(model.inputs.buffers[0], pointer, need - 64) == 0
    assert model.execute() == 0
    assert update(model.outputs.buffers[0], model.outputs.pointers[0], need - 1) == 0
    assert model.execute() == 145000
    assert "E13025" in ready.get_recent_err_msg()
    assert update(model.outputs.buffers[0], model.outputs.pointers[0] + 64, need) == 0
    with pytest.raises(EmulatorViolation, match="past a"):
        model.execute()


def test_the_number_of_buffers_is_checked(ready: ModuleType, linear) -> None:
    model = load(ready, linear())
    empty = ready.mdl.create_dataset()
    assert ready.mdl.execute(model.id, empty, model.outputs.dataset) == 145000
    assert ready.mdl.execute(model.id, 0, model.outputs.dataset) == 100000
    assert ready.mdl.add_dataset_buffer(empty, 0) == (empty, 100000)


def test_host_memory_in_a_dataset_is_a_violation(ready: ModuleType, linear) -> None:
    model = load(ready, linear())
    pinned, _ = ready.rt.malloc_host(4 * WIDTH * 4)
    ready.update_data_buffer(model.inputs.buffers[0], pinned, 4 * WIDTH * 4)
    with pytest.raises(EmulatorViolation, match="is host memory"):
        model.execute()
    host = np.zeros((4, WIDTH), np.float32)
    ready.update_data_buffer(model.inputs.buffers[0], host.ctypes.data, host.nbytes)
    with pytest.raises(EmulatorViolation, match="device address"):
        model.execute()


def test_a_destroyed_buffer_in_a_dataset_is_a_violation(ready: ModuleType, linear) -> None:
    model = load(ready, linear())
    ready.destroy_data_buffer(model.outputs.buffers[0])
    with pytest.raises(EmulatorViolation, match="was destroyed"):
        model.execute()


def test_outputs_given_as_null_are_allocated_by_the_library(ready: ModuleType, linear) -> None:
    model = load(ready, linear())
    upload(ready, model.inputs.pointers[0], rows(4))
    ready.update_data_buffer(model.outputs.buffers[0], 0, 0)
    assert model.execute_async(0) == 100000
    assert model.execute() == 0
    pointer = ready.get_data_buffer_addr(model.outputs.buffers[0])
    assert ready.get_data_buffer_size_v2(model.outputs.buffers[0]) == 4 * WIDTH * 4
    assert np.isfinite(download(ready, pointer, (4, WIDTH), np.float32)).all()
    assert ready.rt.free(pointer) == 0


def test_bindings_are_captured_and_data_is_read_at_run_time(ready: ModuleType, linear) -> None:
    model = load(ready, linear())
    other, _ = ready.rt.malloc(4 * WIDTH * 4, 0)
    first, second = rows(4, 1), rows(4, 2)
    upload(ready, model.inputs.pointers[0], first)
    upload(ready, other, second)
    assert model.execute_async(0) == 0
    ready.update_data_buffer(model.inputs.buffers[0], other, 4 * WIDTH * 4)
    assert ready.rt.synchronize_stream(0) == 0
    seen = download(ready, model.outputs.pointers[0], (4, WIDTH), np.float32)
    assert np.abs(seen - reference(first)).max() < 2e-3
    assert model.execute() == 0
    seen = download(ready, model.outputs.pointers[0], (4, WIDTH), np.float32)
    assert np.abs(seen - reference(second)).max() < 2e-3


def test_a_missing_synchronise_is_a_violation(ready: ModuleType, linear) -> None:
    model = load(ready, linear("dims", GEARS))
    upload(ready, model.inputs.pointers[0], rows(4))
    model.set_dims([4, WIDTH])
    model.execute_async(0)
    with pytest.raises(EmulatorViolation, match="synchronise first"):
        download(ready, model.outputs.pointers[0], (4, WIDTH), np.float32)
    with pytest.raises(EmulatorViolation, match="synchronise first"):
        upload(ready, model.inputs.pointers[0], rows(4))
    with pytest.raises(EmulatorViolation, match="setting a gear"):
        model.set_dims([16, WIDTH])
    with pytest.raises(EmulatorViolation, match="unfinished"):
        ready.mdl.unload(model.id)
    assert ready.rt.synchronize_stream(0) == 0
    assert len(control.violations) == 4


def test_one_model_on_two_streams_is_a_violation(ready: ModuleType, linear) -> None:
    model = load(ready, linear())
    upload(ready, model.inputs.pointers[0], rows(4))
    streams = [ready.rt.create_stream()[0] for _ in range(2)]
    assert model.execute_async(streams[0]) == 0
    with pytest.raises(EmulatorViolation, match="must not be executed concurrently"):
        model.execute_async(streams[1])
    with pytest.raises(EmulatorViolation, match="must not be executed concurrently"):
        model.execute()
    assert ready.rt.synchronize_device() == 0
    assert model.execute_async(streams[1]) == 0
    assert ready.rt.synchronize_device() == 0


def test_two_threads_executing_one_model_is_a_violation(ready: ModuleType, linear) -> None:
    model = load(ready, linear())
    upload(ready, model.inputs.pointers[0], rows(4))
    context, _ = ready.rt.get_context()
    control.hang_limit_s = 60.0
    control.faults.inject("acl.mdl.execute", kind="hang")
    results: list[object] = []

    def first() -> None:
        ready.rt.set_context(context)
        results.append(model.execute())

    worker = threading.Thread(target=first)
    worker.start()
    while not control.counters.calls["acl.mdl.execute"] or not control.faults.planted[0].hits:
        worker.join(0.001)
    while not results:
        try:
            model.execute()
        except EmulatorViolation as violation:
            results.append(violation)
    control.release_hangs()
    worker.join()
    assert "concurrently" in str(results[0])
    assert results[1] == 507014


def append_onnx(path: Path) -> None:
    """score = q · past^T; new = q + 1: the shape of an attention step with its cache as an
    input."""
    nodes = [
        helper.make_node("Transpose", ["past"], ["pastT"], perm=[1, 0], name="transpose"),
        helper.make_node("MatMul", ["q", "pastT"], ["score"], name="score"),
        helper.make_node("Add", ["q", "one"], ["new"], name="new"),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "append",
        [value("q", TensorProto.FLOAT, [1, 8]), value("past", TensorProto.FLOAT, ["s", 8])],
        [value("score", TensorProto.FLOAT, [1, "s"]), value("new", TensorProto.FLOAT, [1, 8])],
        [numpy_helper.from_array(np.ones(8, np.float32), "one")],
    )  # fmt: skip
    save(graph, path)


@pytest.mark.parametrize("alias", ["allow", "violation"])
def test_an_output_inside_an_inputs_buffer(ready: ModuleType, tmp_path: Path, alias: str) -> None:
    source, target = tmp_path / "append.onnx", tmp_path / "append.om"
    append_onnx(source)
    shapes = {"q": (1, 8), "past": (-1, 8)}
    compile_model(
        Request(source, target, "Ascend310P3", shapes, "dims", ((4,), (8,)), precision="origin")
    )
    model = load(ready, target)
    control.alias = alias
    slab = np.zeros((8, 8), np.float32)
    slab[:3] = np.arange(24).reshape(3, 8)
    upload(ready, model.inputs.pointers[1], slab)
    q = np.full((1, 8), 2, np.float32)
    upload(ready, model.inputs.pointers[0], q)
    ready.update_data_buffer(model.outputs.buffers[1], model.inputs.pointers[1] + 3 * 32, 32)
    assert model.set_dims([1, 8, 4, 8]) == 0
    if alias == "violation":
        with pytest.raises(EmulatorViolation, match="inside an input's buffer"):
            model.execute()
        return
    assert model.execute() == 0
    seen = download(ready, model.inputs.pointers[1], (8, 8), np.float32)
    assert (seen[3] == 3).all()
    assert (seen[:3] == slab[:3]).all()
    assert not seen[4:].any()
    score = download(ready, model.outputs.pointers[0], (1, 4), np.float32)
    assert score[0, :3].tolist() == (q @ slab[:3].T)[0].tolist()


def test_null_compute_checks_everything_and_computes_nothing(ready: ModuleType, linear) -> None:
    control.null_compute = True
    model = load(ready, linear("dims", GEARS))
    with pytest.raises(EmulatorViolation, match="no gear set"):
        model.execute()
    model.set_dims([4, WIDTH])
    assert model.execute() == 0
    assert not download(ready, model.outputs.pointers[0], (4, WIDTH), np.float32).any()


def test_execute_v2_has_a_deadline(ready: ModuleType, linear) -> None:
    control.time_scale = 0.0
    model = load(ready, linear())
    upload(ready, model.inputs.pointers[0], rows(4))
    handle = ready.mdl.create_exec_config_handle()
    assert ready.mdl.set_exec_config_opt(handle, 0, 100) == 0
    arguments = (model.id, model.inputs.dataset, model.outputs.dataset, 0, handle)
    assert ready.mdl.execute_v2(*arguments) == 0
    control.faults.inject("device.execute", kind="hang")
    assert ready.mdl.execute_v2(*arguments) == 507046
    assert ready.mdl.destroy_exec_config_handle(handle) == 0


def test_dangling_host_pointers_do_not_crash(ready: ModuleType) -> None:
    pointer, _ = ready.rt.malloc(64, 0)
    size = 64
    assert ready.rt.memcpy(pointer, size, ready.util.bytes_to_ptr(bytes(range(64))), size, 1) == 0
    buffer = ctypes.create_string_buffer(64)
    assert ready.rt.memcpy(ctypes.addressof(buffer), size, pointer, size, 2) == 0


def test_buffers_of_another_device_are_a_violation(ready: ModuleType, linear) -> None:
    model = load(ready, linear())
    first, _ = ready.rt.get_context()
    ready.rt.set_device(1)
    other, _ = ready.rt.malloc(4 * WIDTH * 4, 0)
    ready.rt.set_context(first)
    with pytest.raises(EmulatorViolation, match="from device 0 to device 1"):
        ready.rt.memcpy(other, 16, model.inputs.pointers[0], 16, 3)
    ready.update_data_buffer(model.inputs.buffers[0], other, 4 * WIDTH * 4)
    with pytest.raises(EmulatorViolation, match="is on device 1, the model on device 0"):
        model.execute()
