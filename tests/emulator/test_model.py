"""Loading, describing and executing models: gears, sizes, precision, concurrency."""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.emulator.conftest import WIDTH, save, weights
from tests.emulator.program import download, load, make_side, upload
from tests.pyacl_emulator import EmulatorViolation, control
from tests.pyacl_emulator.compile import Request, compile_model

GEARS = ((1,), (4,), (16,))


def reference(x: np.ndarray) -> np.ndarray:
    """The fp16 build's arithmetic: rounded inputs and weights, fp32 sums, rounded results."""
    half = x.astype(np.float16).astype(np.float32) @ weights().astype(np.float16).astype(np.float32)
    return (half.astype(np.float16).astype(np.float32) + 1).astype(np.float16).astype(np.float32)


def rows(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, WIDTH)).astype(np.float32)


def test_codes_of_loading(ready: ModuleType, linear, tmp_path: Path) -> None:
    good = linear()
    data = good.read_bytes()
    assert ready.mdl.load_from_file(str(tmp_path / "none.om")) == (0, 145002)
    for name, content in (
        ("short", data[:100]), ("magic", b"X" + data[1:]), ("cut", data[:-8]),
        ("long", data + b"12"), ("table", data[:256] + b"\xff" * 8 + data[264:]), ("text", b"not a model" * 50),
    ):  # fmt: skip
        bad = tmp_path / f"{name}.om"
        bad.write_bytes(content)
        assert ready.mdl.load_from_file(str(bad)) == (0, 145006), name
        assert "E10001" in ready.get_recent_err_msg()
    assert ready.mdl.unload(77) == 145003
    assert ready.mdl.execute(77, 0, 0) == 145003
    assert control.live_bytes == 0


def test_a_model_of_another_chip_is_500002(ready: ModuleType, linear) -> None:
    assert ready.mdl.load_from_file(str(linear(soc="Ascend910B4"))) == (0, 500002)
    assert "soc version is not support" in ready.get_recent_err_msg()
    assert control.live_bytes == 0


def test_loading_needs_a_context(acl: ModuleType, linear) -> None:
    acl.init()
    assert acl.mdl.load_from_file(str(linear())) == (0, 107002)


def test_no_memory_for_the_weights_is_245000(ready: ModuleType, linear) -> None:
    control.memory_limit = 1000
    assert ready.mdl.load_from_file(str(linear())) == (0, 245000)
    assert control.live_bytes == 0


def test_ids_start_at_one_and_grow(ready: ModuleType, linear) -> None:
    path = str(linear())
    first, second = (ready.mdl.load_from_file(path)[0] for _ in range(2))
    assert (first, second) == (1, 2)
    ready.mdl.unload(first)
    assert ready.mdl.load_from_file(path)[0] == 3


def test_weights_are_on_the_device_once_in_fp16(ready: ModuleType, linear) -> None:
    path = str(linear("dims", GEARS))
    work, weight, ret = ready.mdl.query_size(path)
    assert ret == 0
    assert weight == WIDTH * WIDTH * 2
    ready.mdl.load_from_file(path)
    assert control.counters.live_device_bytes[0] == weight + 32 + work + 32


def test_load_from_mem_wants_host_memory_in_ep_form(ready: ModuleType, linear) -> None:
    data = linear().read_bytes()
    model_id, ret = ready.mdl.load_from_mem(ready.util.bytes_to_ptr(data), len(data))
    assert ret == 0
    assert ready.mdl.unload(model_id) == 0
    pointer, _ = ready.rt.malloc(len(data), 0)
    upload(ready, pointer, np.frombuffer(data, np.uint8))
    with pytest.raises(EmulatorViolation, match="wants host memory"):
        ready.mdl.load_from_mem(pointer, len(data))
    ready.rt.free(pointer)


def test_load_from_mem_takes_device_or_host_memory_in_rc_form(rc: ModuleType, linear) -> None:
    rc.init()
    rc.rt.set_device(0)
    data = linear(soc="Ascend310B4").read_bytes()
    pointer, _ = rc.rt.malloc(len(data), 0)
    upload(rc, pointer, np.frombuffer(data, np.uint8))
    assert rc.mdl.load_from_mem(pointer, len(data))[1] == 0
    assert rc.rt.free(pointer) == 0
    assert rc.mdl.load_from_mem(rc.util.bytes_to_ptr(data), len(data))[1] == 0


def test_user_memory_is_used_and_checked(ready: ModuleType, linear) -> None:
    path = str(linear())
    work, weight, _ = ready.mdl.query_size(path)
    spaces = [ready.rt.malloc(size, 0)[0] for size in (work, weight)]
    before = control.counters.live_device_bytes[0]
    arguments = (path, spaces[0], work, spaces[1], weight)
    model_id, ret = ready.mdl.load_from_file_with_mem(*arguments)
    assert ret == 0
    assert control.counters.live_device_bytes[0] == before
    assert (
        ready.mdl.load_from_file_with_mem(path, spaces[0], work, spaces[1], weight - 1)[1] == 145000
    )
    ready.mdl.unload(model_id)


def test_load_with_config(ready: ModuleType, linear) -> None:
    handle = ready.mdl.create_config_handle()
    assert ready.mdl.set_config_opt(handle, 1, 1) == 0
    assert ready.mdl.load_with_config(handle) == (0, 100000)
    with pytest.raises(TypeError):
        ready.mdl.set_config_opt(handle, 2, 5)
    assert ready.mdl.set_config_opt(handle, 2, str(linear())) == 0
    assert ready.mdl.load_with_config(handle)[1] == 0
    assert ready.mdl.destroy_config_handle(handle) == 0


def test_the_description_of_a_static_model(ready: ModuleType, linear) -> None:
    model = load(ready, linear())
    mdl, desc = ready.mdl, model.desc
    assert (mdl.get_num_inputs(desc), mdl.get_num_outputs(desc)) == (1, 1)
    dims = {"name": "x", "dimCount": 2, "dims": [4, WIDTH]}
    assert mdl.get_input_dims(desc, 0) == (dims, 0)
    assert mdl.get_input_dims(desc, 1) == ({}, 100000)
    assert mdl.get_output_name_by_index(desc, 0) == "add:0:z"
    assert mdl.get_output_name_by_index(desc, 1) == ""
    assert mdl.get_input_index_by_name(desc, "x") == (0, 0)
    assert mdl.get_input_index_by_name(desc, "ascend_mbatch_shape_data")[1] == 100000
    assert mdl.get_output_size_by_index(desc, 0) == 4 * WIDTH * 4
    assert mdl.get_output_size_by_index(desc, 5) == 0
    assert mdl.get_input_data_type(desc, 0) == 0
    assert mdl.get_input_data_type(desc, 9) == -1
    assert mdl.get_dynamic_batch(desc) == ({"batchCount": 0, "batch": []}, 0)
    assert mdl.get_dynamic_hw(desc, -1) == ({"hwCount": 0, "hw": []}, 0)
    assert mdl.get_input_dynamic_gear_count(desc, -1) == (0, 0)
    assert mdl.get_cur_output_dims(desc, 0)[0]["dims"] == [4, WIDTH]
    model.release()


def test_a_description_outlives_its_model_and_its_file_needs_no_load(
    ready: ModuleType, linear
) -> None:
    path = str(linear())
    desc = ready.mdl.create_desc()
    assert ready.mdl.get_desc_from_file(desc, path) == 0
    assert ready.mdl.get_num_inputs(desc) == 1
    model_id, _ = ready.mdl.load_from_file(path)
    assert ready.mdl.get_desc(desc, model_id) == 0
    ready.mdl.unload(model_id)
    assert ready.mdl.get_num_outputs(desc) == 1
    assert ready.mdl.get_desc(desc, model_id) == 145003


def test_the_description_of_a_dims_model(ready: ModuleType, linear) -> None:
    model = load(ready, linear("dims", GEARS))
    mdl, desc = ready.mdl, model.desc
    assert mdl.get_num_inputs(desc) == 2
    assert mdl.get_input_index_by_name(desc, "ascend_mbatch_shape_data") == (1, 0)
    assert mdl.get_input_dims(desc, 0)[0]["dims"] == [-1, WIDTH]
    assert mdl.get_input_size_by_index(desc, 0) == 16 * WIDTH * 4
    assert mdl.get_output_dims(desc, 0)[0]["dims"] == [16, WIDTH]
    count, _ = mdl.get_input_dynamic_gear_count(desc, -1)
    gears, ret = mdl.get_input_dynamic_dims(desc, -1, count)
    assert ret == 0
    assert [gear["dims"] for gear in gears] == [[1, WIDTH], [4, WIDTH], [16, WIDTH]]
    assert mdl.get_input_dynamic_dims(desc, -1, 5000) == (None, 100000)
    model.release()


def test_a_static_model_computes_in_fp16(ready: ModuleType, linear) -> None:
    model = load(ready, linear())
    x = rows(4)
    upload(ready, model.inputs.pointers[0], x)
    assert model.execute() == 0
    seen = download(ready, model.outputs.pointers[0], (4, WIDTH), np.float32)
    assert np.abs(seen - reference(x)).max() < 2e-3
    assert (seen == seen.astype(np.float16)).all()
    assert np.abs(seen - (x @ weights() + 1)).max() > 1e-5
    model.release()


def test_an_origin_build_computes_in_fp32(ready: ModuleType, linear) -> None:
    model = load(ready, linear(precision="origin"))
    x = rows(4)
    upload(ready, model.inputs.pointers[0], x)
    assert model.execute() == 0
    seen = download(ready, model.outputs.pointers[0], (4, WIDTH), np.float32)
    assert np.abs(seen - (x @ weights() + 1)).max() < 1e-5
    model.release()


@pytest.mark.parametrize("gear", GEARS)
def test_each_gear_computes_its_rows(ready: ModuleType, linear, gear: tuple[int]) -> None:
    model = load(ready, linear("dims", GEARS))
    x = rows(gear[0])
    upload(ready, model.inputs.pointers[0], x)
    assert model.set_dims([gear[0], WIDTH]) == 0
    assert model.execute() == 0
    assert ready.mdl.get_cur_output_dims(model.desc, 0)[0]["dims"] == [gear[0], WIDTH]
    seen = download(ready, model.outputs.pointers[0], x.shape, np.float32)
    assert np.abs(seen - reference(x)).max() < 2e-3
    assert control.counters.executes == {("linear_dims_Ascend310P3", gear): 1}
    model.release()


def test_codes_of_setting_a_gear(ready: ModuleType, linear) -> None:
    model = load(ready, linear("dims", GEARS))
    assert model.set_dims([2, WIDTH]) == 145013
    assert model.set_dims([4, WIDTH + 1]) == 145012
    assert model.set_dims([4]) == 145012
    mdl, inputs = ready.mdl, model.inputs
    good = {"dimCount": 2, "name": "", "dims": [4, WIDTH]}
    assert mdl.set_input_dynamic_dims(model.id, inputs.dataset, 0, good) == 100000
    assert mdl.set_input_dynamic_dims(99, inputs.dataset, 1, good) == 145003
    assert mdl.set_dynamic_batch_size(model.id, inputs.dataset, 1, 4) == 100000
    with pytest.raises(TypeError):
        model.set_dims([np.int64(4), WIDTH])  # type: ignore[list-item]
    assert ready.update_data_buffer(inputs.buffers[1], inputs.pointers[1], 2) == 0
    assert model.set_dims([4, WIDTH]) == 145012
    assert ready.update_data_buffer(inputs.buffers[1], 0, 0) == 0
    assert model.set_dims([4, WIDTH]) == 100000


def test_an_unset_gear_is_a_violation_or_the_largest(ready: ModuleType, linear) -> None:
    model = load(ready, linear("dims", GEARS))
    upload(ready, model.inputs.pointers[0], rows(16))
    with pytest.raises(EmulatorViolation, match="no gear set"):
        model.execute()
    control.unset_gear = "largest"
    assert model.execute() == 0
    assert control.counters.executes[("linear_dims_Ascend310P3", (16,))] == 1


def test_a_batch_model(ready: ModuleType, linear) -> None:
    model = load(ready, linear("batch", GEARS))
    assert ready.mdl.get_dynamic_batch(model.desc) == ({"batchCount": 3, "batch": [1, 4, 16]}, 0)
    x = rows(4)
    upload(ready, model.inputs.pointers[0], x)
    setter = ready.mdl.set_dynamic_batch_size
    assert setter(model.id, model.inputs.dataset, 1, 0) == 100000
    assert setter(model.id, model.inputs.dataset, 1, 5) == 145013
    assert setter(model.id, model.inputs.dataset, 1, 4) == 0
    assert model.execute() == 0
    seen = download(ready, model.outputs.pointers[0], x.shape, np.float32)
    assert np.abs(seen - reference(x)).max() < 2e-3


def test_an_image_model(ready: ModuleType, image) -> None:
    model = load(ready, image("image", ((8, 16), (32, 32)), (1, 3, -1, -1)))
    hw, ret = ready.mdl.get_dynamic_hw(model.desc, 1)
    assert (hw, ret) == ({"hwCount": 2, "hw": [[8, 16], [32, 32]]}, 0)
    assert [8, 16] in hw["hw"]
    x = np.random.default_rng(1).integers(0, 9, (1, 3, 8, 16)).astype(np.float32)
    upload(ready, model.inputs.pointers[0], x)
    setter = ready.mdl.set_dynamic_hw_size
    assert setter(model.id, model.inputs.dataset, 1, 16, 8) == 145013
    assert setter(model.id, model.inputs.dataset, 1, 8, 16) == 0
    assert model.execute() == 0
    seen = download(ready, model.outputs.pointers[0], x.shape, np.float32)
    assert (seen == 2 * x).all()


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


def test_use_after_unload(ready: ModuleType, linear) -> None:
    model = load(ready, linear())
    ready.mdl.unload(model.id)
    assert model.execute() == 145003
    assert ready.mdl.unload(model.id) == 145003


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


def test_another_context_is_a_violation(ready: ModuleType, linear) -> None:
    model = load(ready, linear())
    ready.rt.create_context(0)
    with pytest.raises(EmulatorViolation, match="same context"):
        model.execute()
    with pytest.raises(EmulatorViolation, match="same context"):
        ready.mdl.unload(model.id)


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


def chain_onnx(path: Path, dtype: int = TensorProto.FLOAT) -> None:
    """z = sqrt(x * x): overflows fp16 in the middle for x > 255."""
    value = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["square"], name="square"),
        helper.make_node("Sqrt", ["square"], ["z"], name="root"),
    ]
    graph = helper.make_graph(nodes, "chain", [value("x", dtype, [4])], [value("z", dtype, [4])])
    save(graph, path)


@pytest.mark.parametrize(
    ("soc", "keep", "expected"),
    [("Ascend310P3", (), np.sqrt(np.float32(65504))), ("Ascend910B4", (), np.inf),
     ("Ascend310P3", ("square",), np.sqrt(np.float32(65504))),
     ("Ascend310P3", ("square", "root"), 300.0)],
)  # fmt: skip
def test_fp16_overflows_inside_the_graph_as_the_chip_does(
    acl: ModuleType, tmp_path: Path, soc: str, keep: tuple[str, ...], expected: float
) -> None:
    control.reset(soc=soc)
    acl.init()
    acl.rt.set_device(0)
    source, target = tmp_path / "chain.onnx", tmp_path / "chain.om"
    chain_onnx(source)
    compile_model(Request(source, target, soc, {"x": (4,)}, keep=frozenset(keep)))
    model = load(acl, target)
    upload(acl, model.inputs.pointers[0], np.array([300, 3, 0, 1], np.float32))
    assert model.execute() == 0
    seen = download(acl, model.outputs.pointers[0], (4,), np.float32)
    assert seen[1:].tolist() == [3, 0, 1]
    assert seen[0] == np.float32(expected) or abs(seen[0] - expected) < 0.2


def test_an_fp16_graph_rounds_between_its_operators(ready: ModuleType, tmp_path: Path) -> None:
    source, target = tmp_path / "chain.onnx", tmp_path / "chain.om"
    chain_onnx(source, TensorProto.FLOAT16)
    compile_model(Request(source, target, "Ascend310P3", {"x": (4,)}, precision="origin"))
    model = load(ready, target)
    assert ready.mdl.get_input_data_type(model.desc, 0) == 1
    upload(ready, model.inputs.pointers[0], np.array([300, 3, 0, 1], np.float16))
    assert model.execute() == 0
    seen = download(ready, model.outputs.pointers[0], (4,), np.float16)
    assert abs(float(seen[0]) - 255.94) < 0.2
    assert seen[1:].tolist() == [3, 0, 1]


def test_poison_in_an_input_reaches_the_output(ready: ModuleType, linear) -> None:
    model = load(ready, linear())
    assert model.execute() == 0
    assert np.isnan(download(ready, model.outputs.pointers[0], (4, WIDTH), np.float32)).all()


def test_external_weights_are_packed_once(ready: ModuleType, tmp_path: Path) -> None:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "W"], ["z"], name="mm")], "external",
        [value("x", TensorProto.FLOAT, ["n", WIDTH])],
        [value("z", TensorProto.FLOAT, ["n", WIDTH])],
        [numpy_helper.from_array(weights(), "W")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    source, target = tmp_path / "external.onnx", tmp_path / "external.om"
    onnx.save(model, source, save_as_external_data=True, location="external.bin", size_threshold=0)
    compile_model(Request(source, target, "Ascend310P3", {"x": (-1, WIDTH)}, "dims", GEARS))
    (tmp_path / "external.bin").unlink()
    assert target.stat().st_size < WIDTH * WIDTH * 2 + 4096
    loaded = load(ready, target)
    x = rows(4)
    upload(ready, loaded.inputs.pointers[0], x)
    loaded.set_dims([4, WIDTH])
    assert loaded.execute() == 0
    seen = download(ready, loaded.outputs.pointers[0], x.shape, np.float32)
    assert np.abs(seen - (reference(x) - 1)).max() < 2e-3


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


def test_a_range_model_takes_its_shapes_from_descriptions(ready: ModuleType, linear) -> None:
    path = linear("range")
    model_id, ret = ready.mdl.load_from_file(str(path))
    assert ret == 0
    desc = ready.mdl.create_desc()
    ready.mdl.get_desc(desc, model_id)
    assert ready.mdl.get_num_inputs(desc) == 1
    assert ready.mdl.get_input_size_by_index(desc, 0) == 0
    assert ready.mdl.get_output_size_by_index(desc, 0) == 0
    inputs, outputs = make_side(ready, [3 * WIDTH * 4]), make_side(ready, [500_000_000 * 4])
    x = rows(3)
    upload(ready, inputs.pointers[0], x)
    execute = ready.mdl.execute
    assert execute(model_id, inputs.dataset, outputs.dataset) == 145000
    handle = ready.create_tensor_desc(0, [3, WIDTH], 2)
    assert ready.mdl.set_dataset_tensor_desc(inputs.dataset, handle, 0) == (inputs.dataset, 0)
    assert execute(model_id, inputs.dataset, outputs.dataset) == 0
    result = ready.mdl.get_dataset_tensor_desc(outputs.dataset, 0)
    assert ready.get_tensor_desc_num_dims(result) == 2
    assert [ready.get_tensor_desc_dim_v2(result, i) for i in range(2)] == [(3, 0), (WIDTH, 0)]
    seen = download(ready, outputs.pointers[0], (3, WIDTH), np.float32)
    assert np.abs(seen - reference(x)).max() < 2e-3
    assert ready.mdl.get_cur_output_dims(desc, 0) == ({}, 200001)


def test_a_bundle_loads_all_of_its_models(ready: ModuleType, linear, tmp_path: Path) -> None:
    from tests.pyacl_emulator.bundle import write_bundle

    path = tmp_path / "bundle.om"
    write_bundle(path, [linear(), linear("dims", GEARS)])
    assert ready.mdl.load_from_file(str(path)) == (0, 145006)
    bundle, ret = ready.mdl.bundle_load_from_file(str(path))
    assert ret == 0
    assert ready.mdl.bundle_get_model_num(bundle) == (2, 0)
    ids = [ready.mdl.bundle_get_model_id(bundle, index)[0] for index in range(2)]
    assert ready.mdl.bundle_get_model_id(bundle, 2)[1] == 100000
    desc = ready.mdl.create_desc()
    assert [ready.mdl.get_desc(desc, model_id) for model_id in ids] == [0, 0]
    assert ready.mdl.unload(ids[0]) == 100000
    assert ready.mdl.bundle_unload(bundle) == 0
    assert ready.mdl.bundle_unload(bundle) == 148053
    assert control.live_bytes == 0


def test_dangling_host_pointers_do_not_crash(ready: ModuleType) -> None:
    pointer, _ = ready.rt.malloc(64, 0)
    size = 64
    assert ready.rt.memcpy(pointer, size, ready.util.bytes_to_ptr(bytes(range(64))), size, 1) == 0
    buffer = ctypes.create_string_buffer(64)
    assert ready.rt.memcpy(ctypes.addressof(buffer), size, pointer, size, 2) == 0


def test_the_gear_is_what_the_device_finds_in_its_buffer(ready: ModuleType, linear) -> None:
    model = load(ready, linear("dims", GEARS))
    upload(ready, model.inputs.pointers[0], rows(4))
    model.set_dims([4, WIDTH])
    upload(ready, model.inputs.pointers[1], np.array([16], np.int32))
    with pytest.raises(EmulatorViolation, match="the gear's buffer holds"):
        model.execute()


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
