"""The functions of dynamic AIPP: typed handles, checked values, and questions about models.

The compiler stand-in builds static AIPP only, so set_input_aipp always finds a model without a
dynamic AIPP input and answers with the documented code.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .binding import api, code
from .dataset import Dataset
from .machine import MACHINE
from .model import find

INVALID = code("INVALID_PARAM")
NOT_DYNAMIC = code("GE_AIPP_NOT_EXIST")
_FORMATS = range(1, 11)
_HEAD_BYTES, _BATCH_BYTES = 64, 96  # kAippDynamicPara and one kAippDynamicBatchPara


@dataclass(slots=True, eq=False)
class AippHandle:
    """Parameters for a number of images."""

    batch: int
    values: dict[str, tuple[float, ...]] = field(default_factory=dict)


def _set(handle: int, key: str, valid: bool, *values: float) -> int:
    if handle == 0 or not valid:
        return INVALID
    MACHINE.handles.get(handle, AippHandle).values[key] = values
    return 0


def _batch_ok(handle: int, index: int) -> bool:
    return handle != 0 and 0 <= index < MACHINE.handles.get(handle, AippHandle).batch


@api("acl.mdl.create_aipp")
def create_aipp(batch_size: int) -> int:
    """Parameters for `batch_size` images; 0 on a bad size."""
    return MACHINE.handles.add(AippHandle(batch_size)) if batch_size > 0 else 0


@api("acl.mdl.destroy_aipp")
def destroy_aipp(handle: int) -> int:
    """Destroys them."""
    if handle == 0:
        return INVALID
    MACHINE.handles.pop(handle, AippHandle)
    return 0


@api("acl.mdl.set_aipp_input_format")
def set_aipp_input_format(handle: int, layout: int) -> int:
    """aclAippInputFormat."""
    return _set(handle, "format", layout in _FORMATS, layout)


@api("acl.mdl.set_aipp_src_image_size")
def set_aipp_src_image_size(handle: int, width: int, height: int) -> int:
    """Order (width, height); up to 4096."""
    return _set(handle, "size", 0 < width <= 4096 and 0 < height <= 4096, width, height)


@api("acl.mdl.set_aipp_csc_params")
def set_aipp_csc_params(handle: int, switch: int, *values: int) -> int:
    """Nine matrix entries, three output and three input biases."""
    return _set(handle, "csc", switch in (0, 1), switch, *values)


@api("acl.mdl.set_aipp_rbuv_swap_switch")
def set_aipp_rbuv_swap_switch(handle: int, switch: int) -> int:
    """Swaps R and B, or U and V."""
    return _set(handle, "rbuv", switch in (0, 1), switch)


@api("acl.mdl.set_aipp_ax_swap_switch")
def set_aipp_ax_swap_switch(handle: int, switch: int) -> int:
    """ARGB to RGBA."""
    return _set(handle, "ax", switch in (0, 1), switch)


@api("acl.mdl.set_aipp_crop_params")
def set_aipp_crop_params(
    handle: int, switch: int, start_w: int, start_h: int, crop_w: int, crop_h: int, batch: int
) -> int:
    """The crop of one image."""
    valid = switch in (0, 1) and min(start_w, start_h) >= 0 and _batch_ok(handle, batch)
    return _set(handle, f"crop{batch}", valid, switch, start_w, start_h, crop_w, crop_h)


@api("acl.mdl.set_aipp_padding_params")
def set_aipp_padding_params(
    handle: int, switch: int, top: int, bottom: int, left: int, right: int, batch: int
) -> int:
    """The border of one image; each side up to 32."""
    sides = (top, bottom, left, right)
    valid = switch in (0, 1) and all(0 <= side <= 32 for side in sides) and _batch_ok(handle, batch)
    return _set(handle, f"padding{batch}", valid, switch, *sides)


@api("acl.mdl.set_aipp_dtc_pixel_mean")
def set_aipp_dtc_pixel_mean(handle: int, c0: int, c1: int, c2: int, c3: int, batch: int) -> int:
    """Means of the channels."""
    valid = all(0 <= mean <= 255 for mean in (c0, c1, c2, c3)) and _batch_ok(handle, batch)
    return _set(handle, f"mean{batch}", valid, c0, c1, c2, c3)


@api("acl.mdl.set_aipp_dtc_pixel_min")
def set_aipp_dtc_pixel_min(
    handle: int, c0: float, c1: float, c2: float, c3: float, batch: int
) -> int:
    """Minima of the channels."""
    return _set(handle, f"min{batch}", _batch_ok(handle, batch), c0, c1, c2, c3)


@api("acl.mdl.set_aipp_pixel_var_reci")
def set_aipp_pixel_var_reci(
    handle: int, c0: float, c1: float, c2: float, c3: float, batch: int
) -> int:
    """Reciprocal variances of the channels."""
    return _set(handle, f"var{batch}", _batch_ok(handle, batch), c0, c1, c2, c3)


def _attach(model_id: int, dataset: int, handle: int) -> int:
    model = find(model_id)
    if isinstance(model, int):
        return model
    if dataset == 0 or handle == 0:
        return INVALID
    MACHINE.handles.get(dataset, Dataset)
    MACHINE.handles.get(handle, AippHandle)
    return MACHINE.report(NOT_DYNAMIC, f"E19999: model {model_id} has no dynamic AIPP input")


@api("acl.mdl.set_input_aipp")
def set_input_aipp(model_id: int, dataset: int, index: int, handle: int) -> int:
    """145015 on a model without dynamic AIPP."""
    return _attach(model_id, dataset, handle)


@api("acl.mdl.set_aipp_by_input_index")
def set_aipp_by_input_index(model_id: int, dataset: int, index: int, handle: int) -> int:
    """145015 on a model without dynamic AIPP."""
    return _attach(model_id, dataset, handle)


@api("acl.mdl.get_aipp_type")
def get_aipp_type(model_id: int, index: int) -> tuple[int, int, int]:
    """(0 none | 1 static, attached index, 0)."""
    model = find(model_id)
    if isinstance(model, int):
        return 0, 0, model
    if not 0 <= index < model.description.num_inputs:
        return 0, 0, INVALID
    return int(_is_image(model.description.raw, index)), 0xFFFFFFFF, 0


def _is_image(raw: dict[str, Any], index: int) -> bool:
    return index < len(raw["inputs"]) and raw["inputs"][index]["name"] in raw.get("image_dims", {})


@api("acl.mdl.get_aipp_data_size")
def get_aipp_data_size(batch_size: int) -> tuple[int, int]:
    """(bytes of ascend_dynamic_aipp_data, 0)."""
    if batch_size <= 0:
        return 0, INVALID
    return _HEAD_BYTES + _BATCH_BYTES * batch_size, 0


@api("acl.mdl.get_first_aipp_info")
def get_first_aipp_info(model_id: int, index: int) -> tuple[dict[str, Any] | None, int]:
    """(format, image size, dims of the static AIPP, 0), or (None, 100038)."""
    model = find(model_id)
    if isinstance(model, int):
        return None, model
    raw = model.description.raw
    if not 0 <= index < model.description.num_inputs or not _is_image(raw, index):
        return None, code("NOT_STATIC_AIPP")
    entry = raw["inputs"][index]
    dims = raw["image_dims"][entry["name"]]
    return {"inputFormat": raw["image_format"], "srcImageSizeW": dims[2], "srcImageSizeH": dims[1],
            "srcDatatype": entry["dtype"], "srcDimNum": len(dims), "shapeCount": 1}, 0  # fmt: skip
