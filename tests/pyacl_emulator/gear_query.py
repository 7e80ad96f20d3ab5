"""Which gears a model was compiled with."""

from __future__ import annotations

from typing import Any

from .binding import api, code
from .desc import described
from .description import Gear

INVALID = code("INVALID_PARAM")
_MAX_GEARS = 4096


def _gears(handle: int, kind: str) -> tuple[Gear, ...]:
    description = described(handle)
    return description.gears if description is not None and description.kind == kind else ()


@api("acl.mdl.get_dynamic_batch")
def get_dynamic_batch(handle: int) -> tuple[dict[str, Any], int]:
    """The batch gears; count 0 and code 0 for other kinds."""
    if handle == 0:
        return {}, INVALID
    batches = [gear.key[0] for gear in _gears(handle, "batch")]
    return {"batchCount": len(batches), "batch": batches}, 0


@api("acl.mdl.get_dynamic_hw")
def get_dynamic_hw(handle: int, index: int) -> tuple[dict[str, Any], int]:
    """The image gears as lists [h, w]; count 0 and code 0 for other kinds."""
    if handle == 0:
        return {}, INVALID
    sizes = [list(gear.key) for gear in _gears(handle, "image")]
    return {"hwCount": len(sizes), "hw": sizes}, 0


@api("acl.mdl.get_input_dynamic_gear_count")
def get_input_dynamic_gear_count(handle: int, index: int) -> tuple[int, int]:
    """How many dims gears; 0 for other kinds."""
    return (0, INVALID) if handle == 0 else (len(_gears(handle, "dims")), 0)


@api("acl.mdl.get_input_dynamic_dims")
def get_input_dynamic_dims(
    handle: int, index: int, gear_count: int
) -> tuple[list[dict[str, Any]] | None, int]:
    """Every gear as the concatenated dims of all user inputs."""
    if handle == 0 or not 0 <= gear_count <= _MAX_GEARS:
        return None, INVALID
    rows = [[dim for shape in gear.inputs for dim in shape] for gear in _gears(handle, "dims")]
    return [{"name": "", "dimCount": len(row), "dims": row} for row in rows[:gear_count]], 0
