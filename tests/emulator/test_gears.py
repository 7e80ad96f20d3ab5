"""Gears: setting them, computing under them, and what goes wrong when they are not set."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from tests.emulator.conftest import WIDTH
from tests.emulator.program import GEARS, download, load, make_side, reference, rows, upload
from tests.pyacl_emulator import EmulatorViolation, control


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


def test_the_gear_is_what_the_device_finds_in_its_buffer(ready: ModuleType, linear) -> None:
    model = load(ready, linear("dims", GEARS))
    upload(ready, model.inputs.pointers[0], rows(4))
    model.set_dims([4, WIDTH])
    upload(ready, model.inputs.pointers[1], np.array([16], np.int32))
    with pytest.raises(EmulatorViolation, match="the gear's buffer holds"):
        model.execute()


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
