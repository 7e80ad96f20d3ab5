"""The shortest honest pyACL program: what every test needs around one call."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

import numpy as np

from tests.emulator.conftest import WIDTH, weights

H2D, D2H, D2D = 1, 2, 3
GEARS = ((1,), (4,), (16,))
NPY_FLOAT32 = 11
BYTES = 4 * WIDTH * 4


def upload(acl: ModuleType, pointer: int, array: np.ndarray) -> None:
    """Synchronous copy of an array to the device."""
    data = np.ascontiguousarray(array).tobytes()
    size = len(data)
    assert acl.rt.memcpy(pointer, size, acl.util.bytes_to_ptr(data), size, H2D) == 0


def download(acl: ModuleType, pointer: int, shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """Synchronous copy of an array from the device."""
    result = np.empty(shape, dtype)
    size = result.nbytes
    assert acl.rt.memcpy(result.ctypes.data, size, pointer, size, D2H) == 0
    return result


@dataclass(slots=True)
class Side:
    """A dataset with its device memory."""

    dataset: int
    pointers: list[int]
    buffers: list[int]


def make_side(acl: ModuleType, sizes: list[int]) -> Side:
    """A dataset with one device buffer per size."""
    side = Side(acl.mdl.create_dataset(), [], [])
    for size in sizes:
        pointer, ret = acl.rt.malloc(size, 0)
        assert ret == 0
        buffer = acl.create_data_buffer(pointer, size)
        _, ret = acl.mdl.add_dataset_buffer(side.dataset, buffer)
        assert ret == 0
        side.pointers.append(pointer)
        side.buffers.append(buffer)
    return side


@dataclass(slots=True)
class Loaded:
    """A model with datasets of its declared sizes."""

    acl: ModuleType
    id: int
    desc: int
    inputs: Side
    outputs: Side

    def release(self) -> None:
        """Gives everything back in the usual order."""
        acl = self.acl
        assert acl.mdl.unload(self.id) == 0
        assert acl.mdl.destroy_desc(self.desc) == 0
        for side in (self.inputs, self.outputs):
            for buffer, pointer in zip(side.buffers, side.pointers, strict=True):
                assert acl.destroy_data_buffer(buffer) == 0
                assert acl.rt.free(pointer) == 0
            assert acl.mdl.destroy_dataset(side.dataset) == 0

    def set_dims(self, dims: list[int]) -> int:
        """set_input_dynamic_dims with the usual dict."""
        index, ret = self.acl.mdl.get_input_index_by_name(self.desc, "ascend_mbatch_shape_data")
        assert ret == 0
        gear = {"dimCount": len(dims), "name": "", "dims": dims}
        return self.acl.mdl.set_input_dynamic_dims(self.id, self.inputs.dataset, index, gear)

    def execute(self) -> int:
        """Blocking execute."""
        return self.acl.mdl.execute(self.id, self.inputs.dataset, self.outputs.dataset)

    def execute_async(self, stream: int) -> int:
        """Queued execute."""
        return self.acl.mdl.execute_async(
            self.id, self.inputs.dataset, self.outputs.dataset, stream
        )


def load(acl: ModuleType, path: object) -> Loaded:
    """Loads an .om and makes its datasets."""
    model_id, ret = acl.mdl.load_from_file(str(path))
    assert ret == 0, acl.get_recent_err_msg()
    desc = acl.mdl.create_desc()
    assert acl.mdl.get_desc(desc, model_id) == 0
    count, results = acl.mdl.get_num_inputs(desc), acl.mdl.get_num_outputs(desc)
    inputs = make_side(acl, [acl.mdl.get_input_size_by_index(desc, i) for i in range(count)])
    outputs = make_side(acl, [acl.mdl.get_output_size_by_index(desc, i) for i in range(results)])
    return Loaded(acl, model_id, desc, inputs, outputs)


def reference(x: np.ndarray) -> np.ndarray:
    """The fp16 build's arithmetic: rounded inputs and weights, fp32 sums, rounded results."""
    half = x.astype(np.float16).astype(np.float32) @ weights().astype(np.float16).astype(np.float32)
    return (half.astype(np.float16).astype(np.float32) + 1).astype(np.float16).astype(np.float32)


def rows(count: int, seed: int = 0) -> np.ndarray:
    """Random rows for the linear model."""
    return np.random.default_rng(seed).standard_normal((count, WIDTH)).astype(np.float32)


def outputs_of(acl: ModuleType, desc: int) -> list[int]:
    """Sizes of all outputs."""
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
