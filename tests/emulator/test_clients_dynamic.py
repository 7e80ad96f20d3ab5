"""The call patterns of public pyACL programs with gears, ranges and caches; nothing is copied."""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.emulator.conftest import WIDTH
from tests.emulator.program import (
    BYTES,
    D2D,
    D2H,
    GEARS,
    H2D,
    NPY_FLOAT32,
    dataset_of,
    download,
    load,
    outputs_of,
    reference,
    rows,
    upload,
)
from tests.pyacl_emulator import EmulatorViolation, control


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


def test_c4_the_size_of_a_picture_is_looked_up_among_the_gears(ready: ModuleType, image) -> None:
    """`[h, w] in hw_info["hw"]`, the gear set at the input of that name, dims after the run."""
    model = load(ready, image("image", ((8, 16), (32, 32)), (1, 3, -1, -1)))
    index, ret = ready.mdl.get_input_index_by_name(model.desc, "ascend_mbatch_shape_data")
    assert ret == 0
    known, ret = ready.mdl.get_dynamic_hw(model.desc, index)
    assert ret == 0
    for height, width in ((32, 32), (8, 16)):
        assert [height, width] in known["hw"]
        x = np.random.default_rng(height).integers(0, 9, (1, 3, height, width)).astype(np.float32)
        upload(ready, model.inputs.pointers[0], x)
        setter = ready.mdl.set_dynamic_hw_size
        assert setter(model.id, model.inputs.dataset, index, height, width) == 0
        assert model.execute() == 0
        assert ready.mdl.get_cur_output_dims(model.desc, 0)[0]["dims"] == list(x.shape)
        assert (download(ready, model.outputs.pointers[0], x.shape, np.float32) == 2 * x).all()
    assert [16, 8] not in known["hw"]
    model.release()


def test_c5_pictures_in_batches_that_the_model_has(ready: ModuleType, linear) -> None:
    """AclLite's batches: the gears asked once, one buffer for the gear, the last batch smaller."""
    model = load(ready, linear("batch", GEARS))
    batches = ready.mdl.get_dynamic_batch(model.desc)[0]["batch"]
    index, _ = ready.mdl.get_input_index_by_name(model.desc, "ascend_mbatch_shape_data")
    for count in (16, 4, 1):
        assert count in batches
        x = rows(count)
        upload(ready, model.inputs.pointers[0], x)
        assert ready.mdl.set_dynamic_batch_size(model.id, model.inputs.dataset, index, count) == 0
        assert model.execute() == 0
        seen = download(ready, model.outputs.pointers[0], x.shape, np.float32)
        assert np.abs(seen - reference(x)).max() < 2e-3
    model.release()
    assert control.live_bytes == 0
