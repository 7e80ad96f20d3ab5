"""Loading, describing and unloading models."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.emulator.conftest import WIDTH
from tests.emulator.program import GEARS, load, upload
from tests.pyacl_emulator import EmulatorViolation, control


def test_codes_of_loading(ready: ModuleType, linear, tmp_path: Path) -> None:
    good = linear()
    data = good.read_bytes()
    assert ready.mdl.load_from_file(str(tmp_path / "none.om")) == (0, 145002)
    for name, content in (
        ("short", data[:100]), ("magic", b"X" + data[1:]), ("cut", data[:-8]),
        ("long", data + b"12"), ("text", b"not a model" * 50),
        ("table", data[:256] + b"\xff" * 8 + data[264:]),
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


def test_use_after_unload(ready: ModuleType, linear) -> None:
    model = load(ready, linear())
    ready.mdl.unload(model.id)
    assert model.execute() == 145003
    assert ready.mdl.unload(model.id) == 145003


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


def test_another_context_is_a_violation(ready: ModuleType, linear) -> None:
    model = load(ready, linear())
    ready.rt.create_context(0)
    with pytest.raises(EmulatorViolation, match="same context"):
        model.execute()
    with pytest.raises(EmulatorViolation, match="same context"):
        ready.mdl.unload(model.id)
