"""Data buffers, datasets and tensor descriptions: the typed envelopes of execute."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from .binding import api, code
from .description import DTYPES, Gear
from .machine import MACHINE
from .violation import EmulatorViolation


@dataclass(slots=True, eq=False)
class DataBuffer:
    """A pointer and a size; owns neither."""

    address: int
    size: int
    live: bool = True


@dataclass(slots=True, eq=False)
class TensorDesc:
    """Type, format and dims of a tensor."""

    dtype: int
    format: int
    dims: list[int]
    name: str = ""
    owned: bool = False  # made by the runtime for an output; goes with its dataset

    @property
    def explicit(self) -> bool:
        return not self.owned


@dataclass(slots=True, eq=False)
class Dataset:
    """Buffers in order, and the gear or the shapes that were set for them."""

    buffers: list[DataBuffer] = field(default_factory=list)
    handles: list[int] = field(default_factory=list)
    descs: dict[int, int] = field(default_factory=dict)
    gear: tuple[int, Gear] | None = None  # with the id of the model that it was set for


INVALID = code("INVALID_PARAM")


@api("acl.create_data_buffer")
def create_data_buffer(address: int, size: int) -> int:
    """Wraps a pointer; (0, 0) lets a synchronous execute allocate an output."""
    return MACHINE.handles.add(DataBuffer(address, size))


@api("acl.destroy_data_buffer")
def destroy_data_buffer(handle: int) -> int:
    """Destroys the envelope, not the memory."""
    if handle == 0:
        return INVALID
    MACHINE.handles.pop(handle, DataBuffer).live = False
    return 0


@api("acl.get_data_buffer_addr")
def get_data_buffer_addr(handle: int) -> int:
    """The pointer; 0 on null."""
    return MACHINE.handles.get(handle, DataBuffer).address if handle else 0


@api("acl.get_data_buffer_size")
def get_data_buffer_size(handle: int) -> int:
    """The size as uint32 (deprecated)."""
    return MACHINE.handles.get(handle, DataBuffer).size & 0xFFFFFFFF if handle else 0


@api("acl.get_data_buffer_size_v2")
def get_data_buffer_size_v2(handle: int) -> int:
    """The size."""
    return MACHINE.handles.get(handle, DataBuffer).size if handle else 0


@api("acl.update_data_buffer")
def update_data_buffer(handle: int, address: int, size: int) -> int:
    """Binds the envelope to other memory; frees nothing."""
    if handle == 0:
        return INVALID
    buffer = MACHINE.handles.get(handle, DataBuffer)
    buffer.address, buffer.size = address, size
    return 0


@api("acl.mdl.create_dataset")
def create_dataset() -> int:
    """An empty dataset."""
    return MACHINE.handles.add(Dataset())


@api("acl.mdl.destroy_dataset")
def destroy_dataset(handle: int) -> int:
    """Destroys the list, not its buffers and not their memory."""
    if handle == 0:
        return INVALID
    dataset = MACHINE.handles.pop(handle, Dataset)
    for desc in dataset.descs.values():
        thing = MACHINE.handles.live.get(desc)
        if type(thing) is TensorDesc and thing.owned:
            del MACHINE.handles.live[desc]
    return 0


@api("acl.mdl.add_dataset_buffer")
def add_dataset_buffer(handle: int, buffer: int) -> tuple[int, int]:
    """Appends a buffer; returns (dataset, code), not a code."""
    if handle == 0 or buffer == 0:
        return handle, INVALID
    dataset = MACHINE.handles.get(handle, Dataset)
    dataset.buffers.append(MACHINE.handles.get(buffer, DataBuffer))
    dataset.handles.append(buffer)
    return handle, 0


@api("acl.mdl.get_dataset_num_buffers")
def get_dataset_num_buffers(handle: int) -> int:
    """How many buffers; 0 on null."""
    return len(MACHINE.handles.get(handle, Dataset).buffers) if handle else 0


@api("acl.mdl.get_dataset_buffer")
def get_dataset_buffer(handle: int, index: int) -> int:
    """The buffer at an index; 0 on a bad one."""
    if handle == 0:
        return 0
    handles = MACHINE.handles.get(handle, Dataset).handles
    return handles[index] if 0 <= index < len(handles) else 0


@api("acl.mdl.set_dataset_tensor_desc")
def set_dataset_tensor_desc(handle: int, desc: int, index: int) -> tuple[int, int]:
    """Gives a shape to a tensor of a range-dynamic model; returns (dataset, code)."""
    if handle == 0 or desc == 0:
        return handle, INVALID
    dataset = MACHINE.handles.get(handle, Dataset)
    if not 0 <= index < len(dataset.buffers):
        return handle, INVALID
    if dataset.gear is not None:
        raise EmulatorViolation(
            "set_dataset_tensor_desc on a dataset with a gear",
            "aclmdlSetDatasetTensorDesc.md: mutually exclusive with the set_dynamic_* functions",
        )
    MACHINE.handles.get(desc, TensorDesc)
    dataset.descs[index] = desc
    return handle, 0


@api("acl.mdl.get_dataset_tensor_desc")
def get_dataset_tensor_desc(handle: int, index: int) -> int:
    """The shape set on, or after execute produced for, a tensor; 0 if none."""
    return MACHINE.handles.get(handle, Dataset).descs.get(index, 0) if handle else 0


@api("acl.create_tensor_desc")
def create_tensor_desc(dtype: int, dims: list[int], layout: int) -> int:
    """Type, dims (a list of Python int) and format."""
    if any(type(dim) is not int for dim in dims):
        raise TypeError("acl.create_tensor_desc args parse failed")
    return MACHINE.handles.add(TensorDesc(dtype, layout, list(dims)))


@api("acl.destroy_tensor_desc")
def destroy_tensor_desc(handle: int) -> None:
    """Destroys; returns nothing."""
    if handle:
        MACHINE.handles.pop(handle, TensorDesc)


@api("acl.get_tensor_desc_type")
def get_tensor_desc_type(handle: int) -> int:
    """aclDataType."""
    return MACHINE.handles.get(handle, TensorDesc).dtype if handle else -1


@api("acl.get_tensor_desc_format")
def get_tensor_desc_format(handle: int) -> int:
    """aclFormat."""
    return MACHINE.handles.get(handle, TensorDesc).format if handle else -1


@api("acl.get_tensor_desc_element_count")
def get_tensor_desc_element_count(handle: int) -> int:
    """Number of elements."""
    return math.prod(MACHINE.handles.get(handle, TensorDesc).dims) if handle else 0


@api("acl.get_tensor_desc_size")
def get_tensor_desc_size(handle: int) -> int:
    """Bytes."""
    if not handle:
        return 0
    desc = MACHINE.handles.get(handle, TensorDesc)
    return math.prod(desc.dims) * DTYPES.get(desc.dtype, ("", 0))[1]


@api("acl.get_tensor_desc_num_dims")
def get_tensor_desc_num_dims(handle: int) -> int:
    """Rank."""
    return len(MACHINE.handles.get(handle, TensorDesc).dims) if handle else 0


@api("acl.get_tensor_desc_dim_v2")
def get_tensor_desc_dim_v2(handle: int, index: int) -> tuple[int, int]:
    """(dim, code)."""
    if not handle:
        return 0, INVALID
    dims = MACHINE.handles.get(handle, TensorDesc).dims
    return (dims[index], 0) if 0 <= index < len(dims) else (0, INVALID)


@api("acl.get_tensor_desc_dim")
def get_tensor_desc_dim(handle: int, index: int) -> int:
    """One dim (deprecated); -1 on a bad index."""
    dims = MACHINE.handles.get(handle, TensorDesc).dims if handle else []
    return dims[index] if 0 <= index < len(dims) else -1


@api("acl.set_tensor_desc_name")
def set_tensor_desc_name(handle: int, name: str) -> None:
    """Names a tensor."""
    if handle:
        MACHINE.handles.get(handle, TensorDesc).name = name
