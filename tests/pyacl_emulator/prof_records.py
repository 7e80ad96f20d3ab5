"""The records that a subscriber of acl.prof reads from its pipe."""

from __future__ import annotations

import ctypes
from typing import Any

from .binding import api, code
from .prof_subscribe import RECORD

INVALID = code("INVALID_PARAM")


def _record(info: int, length: int, index: int) -> tuple[Any, ...] | None:
    if info == 0 or index < 0 or (index + 1) * RECORD.size > length:
        return None
    return RECORD.unpack(ctypes.string_at(info + index * RECORD.size, RECORD.size))


def _text(info: int, length: int, index: int, column: int) -> tuple[str, int]:
    record = _record(info, length, index)
    return ("", INVALID) if record is None else (record[column].rstrip(b"\0").decode(), 0)


def _number(info: int, length: int, index: int, column: int) -> int:
    record = _record(info, length, index)
    return 0 if record is None else int(record[column])


@api("acl.prof.get_op_desc_size")
def get_op_desc_size() -> tuple[int, int]:
    """(bytes of one record, 0)."""
    return RECORD.size, 0


@api("acl.prof.get_op_num")
def get_op_num(info: int, length: int) -> tuple[int, int]:
    """(records in the buffer, 0)."""
    if info == 0 or length <= 0 or length % RECORD.size:
        return 0, INVALID
    return length // RECORD.size, 0


@api("acl.prof.get_op_type_v2")
def get_op_type_v2(info: int, length: int, index: int) -> tuple[str, int]:
    """(operator type, 0)."""
    return _text(info, length, index, 5)


@api("acl.prof.get_op_name_v2")
def get_op_name_v2(info: int, length: int, index: int) -> tuple[str, int]:
    """(operator name, 0)."""
    return _text(info, length, index, 6)


@api("acl.prof.get_op_start")
def get_op_start(info: int, length: int, index: int) -> int:
    """Start in ns."""
    return _number(info, length, index, 2)


@api("acl.prof.get_op_end")
def get_op_end(info: int, length: int, index: int) -> int:
    """End in ns."""
    return _number(info, length, index, 3)


@api("acl.prof.get_op_duration")
def get_op_duration(info: int, length: int, index: int) -> int:
    """Duration in ns."""
    return _number(info, length, index, 4)


@api("acl.prof.get_model_id")
def get_model_id(info: int, length: int, index: int) -> int:
    """The model."""
    return _number(info, length, index, 0)
