"""Model descriptions: what a program can ask about inputs, outputs and gears of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .binding import api, code
from .description import MBATCH, Description, Tensor, parse_description
from .machine import MACHINE
from .model import Model, find, read_file, read_memory

INVALID = code("INVALID_PARAM")
UNDEFINED = -1
_INT32, _ND = 3, 2
Dims = tuple[dict[str, Any], int]


@dataclass(slots=True, eq=False)
class ModelDesc:
    """A handle that get_desc fills; it stays readable after the model is unloaded."""

    description: Description | None = None
    model: Model | None = None


@api("acl.mdl.create_desc")
def create_desc() -> int:
    """An empty description."""
    return MACHINE.handles.add(ModelDesc())


@api("acl.mdl.destroy_desc")
def destroy_desc(handle: int) -> int:
    """Destroys it."""
    if handle == 0:
        return INVALID
    MACHINE.handles.pop(handle, ModelDesc)
    return 0


@api("acl.mdl.get_desc")
def get_desc(handle: int, model_id: int) -> int:
    """Fills the description of a loaded model."""
    if handle == 0:
        return INVALID
    desc = MACHINE.handles.get(handle, ModelDesc)
    model = find(model_id)
    if isinstance(model, int):
        return model
    desc.description, desc.model = model.description, model
    return 0


@api("acl.mdl.get_desc_from_file")
def get_desc_from_file(handle: int, path: str) -> int:
    """Fills the description from a file without loading it."""
    file = read_file(path)
    if handle == 0 or isinstance(file, int):
        return INVALID if handle == 0 else file  # type: ignore[return-value]
    MACHINE.handles.get(handle, ModelDesc).description = parse_description(file.description)
    return 0


@api("acl.mdl.get_desc_from_mem")
def get_desc_from_mem(handle: int, address: int, size: int) -> int:
    """Fills the description from memory."""
    file = read_memory(address, size, "get_desc_from_mem")
    if handle == 0 or isinstance(file, int):
        return INVALID if handle == 0 else file  # type: ignore[return-value]
    MACHINE.handles.get(handle, ModelDesc).description = parse_description(file.description)
    return 0


def described(handle: int) -> Description | None:
    """The description behind a handle; None for null or unfilled ones."""
    return MACHINE.handles.get(handle, ModelDesc).description if handle else None


def input_of(description: Description, index: int) -> Tensor | None:
    """An input, the hidden one included; None on a bad index."""
    if 0 <= index < len(description.inputs):
        return description.inputs[index]
    if description.has_gears and index == len(description.inputs):
        size = (len(description.gears[0].key),)
        return Tensor(MBATCH, "", _INT32, _ND, size, size)
    return None


def _output(handle: int, index: int) -> Tensor | None:
    description = described(handle)
    if description is None or not 0 <= index < len(description.outputs):
        return None
    return description.outputs[index]


def _input(handle: int, index: int) -> Tensor | None:
    description = described(handle)
    return None if description is None else input_of(description, index)


def _dims(name: str, shape: tuple[int, ...]) -> Dims:
    return {"name": name, "dimCount": len(shape), "dims": list(shape)}, 0


@api("acl.mdl.get_num_inputs")
def get_num_inputs(handle: int) -> int:
    """Inputs, `ascend_mbatch_shape_data` included."""
    description = described(handle)
    return 0 if description is None else description.num_inputs


@api("acl.mdl.get_num_outputs")
def get_num_outputs(handle: int) -> int:
    """Outputs."""
    description = described(handle)
    return 0 if description is None else len(description.outputs)


@api("acl.mdl.get_input_size_by_index")
def get_input_size_by_index(handle: int, index: int) -> int:
    """Bytes at the largest gear; 0 when a range leaves it open or the index is bad."""
    tensor = _input(handle, index)
    return 0 if tensor is None else tensor.nbytes


@api("acl.mdl.get_output_size_by_index")
def get_output_size_by_index(handle: int, index: int) -> int:
    """Unpadded bytes at the largest gear; 0 when open."""
    tensor = _output(handle, index)
    return 0 if tensor is None else tensor.nbytes


@api("acl.mdl.get_input_dims")
def get_input_dims(handle: int, index: int) -> Dims:
    """Dims with -1 on dynamic axes; those of the image for a model with static AIPP."""
    description = described(handle)
    tensor = _input(handle, index)
    if tensor is None or description is None:
        return {}, INVALID
    image = description.raw.get("image_dims", {}).get(tensor.name)
    return _dims(tensor.name, tuple(image) if image else tensor.shape)


@api("acl.mdl.get_input_dims_v2")
def get_input_dims_v2(handle: int, index: int) -> Dims:
    """Storage dims: with static AIPP those of the bytes, e.g. (n, 1.5 h, w, 1) for YUV420SP."""
    tensor = _input(handle, index)
    return ({}, INVALID) if tensor is None else _dims(tensor.name, tensor.shape)


@api("acl.mdl.get_output_dims")
def get_output_dims(handle: int, index: int) -> Dims:
    """Dims at the largest gear; -1 where a range leaves them open."""
    tensor = _output(handle, index)
    return ({}, INVALID) if tensor is None else _dims(tensor.name, tensor.largest)


@api("acl.mdl.get_cur_output_dims")
def get_cur_output_dims(handle: int, index: int) -> Dims:
    """Dims under the gear that was set last."""
    description = described(handle)
    tensor = _output(handle, index)
    if tensor is None or description is None:
        return {}, INVALID
    if description.kind == "range":
        return {}, MACHINE.report(code("API_NOT_SUPPORT"), "E19999: not for dynamic shapes")
    model = MACHINE.handles.get(handle, ModelDesc).model
    gear = None if model is None else model.gear
    if gear is None:
        return _dims(tensor.name, tensor.largest)
    return _dims(tensor.name, gear.outputs[index])


@api("acl.mdl.get_input_dims_range")
def get_input_dims_range(handle: int, index: int) -> tuple[dict[str, Any], int]:
    """[min, max] of each axis (-1: no maximum)."""
    tensor = _input(handle, index)
    description = described(handle)
    if tensor is None or description is None:
        return {}, INVALID
    known = description.raw.get("ranges", {}).get(tensor.name)
    ranges = known or [[dim, dim] if dim >= 0 else [1, -1] for dim in tensor.shape]
    return {"rangeCount": len(ranges), "range": [list(pair) for pair in ranges]}, 0


@api("acl.mdl.get_input_name_by_index")
def get_input_name_by_index(handle: int, index: int) -> str:
    """ "" on a bad index."""
    tensor = _input(handle, index)
    return "" if tensor is None else tensor.name


@api("acl.mdl.get_output_name_by_index")
def get_output_name_by_index(handle: int, index: int) -> str:
    """ "<node>:<index>:<tensor>"; "" on a bad index."""
    tensor = _output(handle, index)
    return "" if tensor is None else tensor.name


@api("acl.mdl.get_input_index_by_name")
def get_input_index_by_name(handle: int, name: str) -> tuple[int, int]:
    """(index, 0), or (0, 100000)."""
    description = described(handle)
    for index in range(0 if description is None else description.num_inputs):
        tensor = input_of(description, index)  # type: ignore[arg-type]
        if tensor is not None and tensor.name == name:
            return index, 0
    return 0, MACHINE.report(INVALID, f"E19999: no input is called {name}")


@api("acl.mdl.get_output_index_by_name")
def get_output_index_by_name(handle: int, name: str) -> tuple[int, int]:
    """(index, 0), or (0, 100000)."""
    description = described(handle)
    for index, tensor in enumerate(() if description is None else description.outputs):
        if tensor.name == name:
            return index, 0
    return 0, MACHINE.report(INVALID, f"E19999: no output is called {name}")


@api("acl.mdl.get_input_data_type")
def get_input_data_type(handle: int, index: int) -> int:
    """aclDataType, -1 on a bad index."""
    tensor = _input(handle, index)
    return UNDEFINED if tensor is None else tensor.dtype


@api("acl.mdl.get_input_format")
def get_input_format(handle: int, index: int) -> int:
    """aclFormat, -1 on a bad index."""
    tensor = _input(handle, index)
    return UNDEFINED if tensor is None else tensor.format


@api("acl.mdl.get_output_data_type")
def get_output_data_type(handle: int, index: int) -> int:
    """aclDataType, -1 on a bad index."""
    tensor = _output(handle, index)
    return UNDEFINED if tensor is None else tensor.dtype


@api("acl.mdl.get_output_format")
def get_output_format(handle: int, index: int) -> int:
    """aclFormat, -1 on a bad index."""
    tensor = _output(handle, index)
    return UNDEFINED if tensor is None else tensor.format


@api("acl.mdl.get_tensor_real_name")
def get_tensor_real_name(handle: int, name: str) -> str | None:
    """The full name behind a rewritten one; names are never rewritten here."""
    description = described(handle)
    tensors = () if description is None else description.inputs + description.outputs
    return name if any(tensor.name == name for tensor in tensors) else None


@api("acl.mdl.get_op_attr")
def get_op_attr(handle: int, op_name: str, attr: str) -> str:
    """Only _datadump_original_op_names exists: an operator's original names."""
    return f"[{len(op_name)}]{op_name}" if attr == "_datadump_original_op_names" else ""
