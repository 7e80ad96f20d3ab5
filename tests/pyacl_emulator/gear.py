"""Choosing a gear: the set_dynamic_* functions write it where the device reads it."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

from .binding import api, code
from .context import current
from .dataset import Dataset
from .description import Gear
from .machine import MACHINE
from .model import Model, find
from .stream import require_idle
from .violation import EmulatorViolation

INVALID = code("INVALID_PARAM")
BAD_LENGTH = code("GE_DYNAMIC_INPUT_LENGTH_INVALID")
BAD_GEAR = code("GE_DYNAMIC_BATCH_SIZE_INVALID")


def _place(model: Model, handle: int, index: int) -> tuple[Dataset, int, int] | int:
    """(dataset, pointer, size) of the hidden input, or the code."""
    description = model.description
    dataset = MACHINE.handles.get(handle, Dataset)
    if not description.has_gears or index != len(description.inputs):
        return MACHINE.report(INVALID, f"E19999: input {index} does not carry the gear")
    if index >= len(dataset.buffers):
        return MACHINE.report(INVALID, f"E19999: the dataset has no buffer {index}")
    if dataset.descs:
        raise EmulatorViolation(
            "a gear is set on a dataset with tensor descriptions",
            "aclmdlSetDatasetTensorDesc.md: mutually exclusive with the set_dynamic_* functions",
        )
    buffer = dataset.buffers[index]
    if not buffer.live:
        raise EmulatorViolation(
            "the gear's data buffer was destroyed", "aclDestroyDataBuffer.md: not while in use"
        )
    if buffer.address == 0:
        return MACHINE.report(INVALID, "E19999: the gear's buffer has no memory")
    return dataset, buffer.address, buffer.size


def _apply(model_id: int, handle: int, index: int, kind: str, key: tuple[int, ...]) -> int:
    context = current()
    if isinstance(context, int):
        return context
    model = find(model_id)
    if isinstance(model, int):
        return model
    if handle == 0 or model.description.kind != kind:
        return MACHINE.report(INVALID, f"E19999: model {model_id} has no {kind} gears")
    place = _place(model, handle, index)
    if isinstance(place, int):
        return place
    dataset, address, size = place
    if size < 4 * len(key):
        return MACHINE.report(BAD_LENGTH, f"E19999: gear buffer of {size} bytes is too small")
    gear = model.description.by_key.get(key)
    if gear is None:
        return MACHINE.report(BAD_GEAR, f"E19999: {key} is not a compiled gear")
    write_gear(gear, address, size)
    dataset.gear = (model.id, gear)
    model.gear = gear
    return 0


def write_gear(gear: Gear, address: int, size: int) -> None:
    """The gear's numbers into device memory: uint64 when the buffer has room, else uint32."""
    letter = "Q" if size >= 8 * len(gear.key) else "I"
    data = struct.pack(f"<{len(gear.key)}{letter}", *gear.key)
    require_idle((), ((address, address + len(data)),), "setting a gear")
    host = MACHINE.memory.host_address(address, len(data), "the gear's buffer")
    ctypes.memmove(host, data, len(data))


@api("acl.mdl.set_dynamic_batch_size")
def set_dynamic_batch_size(model_id: int, dataset: int, index: int, batch: int) -> int:
    """Chooses a batch gear; index is that of ascend_mbatch_shape_data."""
    if batch == 0:
        return INVALID
    return _apply(model_id, dataset, index, "batch", (batch,))


@api("acl.mdl.set_dynamic_hw_size")
def set_dynamic_hw_size(model_id: int, dataset: int, index: int, height: int, width: int) -> int:
    """Chooses an image gear."""
    if height == 0 or width == 0:
        return INVALID
    return _apply(model_id, dataset, index, "image", (height, width))


@api("acl.mdl.set_input_dynamic_dims")
def set_input_dynamic_dims(model_id: int, dataset: int, index: int, dims: dict[str, Any]) -> int:
    """Chooses a dims gear; dims are those of all user inputs, one after another."""
    numbers, count = dims.get("dims"), dims.get("dimCount")
    if type(numbers) is not list or not all(type(number) is int for number in numbers):
        raise TypeError("acl.mdl.set_input_dynamic_dims args parse failed")
    model = find(model_id)
    if isinstance(model, int):
        return model
    flat = model.description.flat
    if count != len(numbers) or len(numbers) != len(flat):
        return MACHINE.report(
            BAD_LENGTH, f"E19999: {len(numbers)} dims, the inputs have {len(flat)}"
        )
    if any(fixed not in (-1, given) for fixed, given in zip(flat, numbers, strict=True)):
        return MACHINE.report(BAD_LENGTH, "E19999: a static dim does not match")
    key = tuple(given for fixed, given in zip(flat, numbers, strict=True) if fixed == -1)
    return _apply(model_id, dataset, index, "dims", key)
