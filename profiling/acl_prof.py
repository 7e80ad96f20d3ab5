"""The AICORE profiler around a run: acl.prof, off until somebody asks.

Takes the module `acl` as it is; knows no engine. One recording at a time in a process: ACL has one
result folder. Call order and flags: runtime docs, Profiling (init, create_config, start, stop,
destroy_config, finalize); enums aclprofAicoreMetrics and ACL_PROF_* of acl_prof.h.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

log = logging.getLogger(__name__)

METRICS: Mapping[str, int] = MappingProxyType(
    {
        "ArithmeticUtilization": 0,
        "PipeUtilization": 1,
        "Memory": 2,
        "MemoryL0": 3,
        "ResourceConflictRatio": 4,
        "MemoryUB": 5,
        "L2Cache": 6,
        "PipelineExecuteUtilization": 7,
        "MemoryAccess": 8,
        "None": 0xFF,
    }
)
FLAGS: Mapping[str, int] = MappingProxyType(
    {
        "acl_api": 0x1,
        "task_time": 0x2,
        "aicore_metrics": 0x4,
        "aicpu": 0x8,
        "l2cache": 0x10,
        "hccl_trace": 0x20,
        "training_trace": 0x40,
        "msproftx": 0x80,
        "runtime_api": 0x100,
    }
)
DEFAULT_FLAGS = ("acl_api", "task_time", "aicore_metrics", "aicpu")

_REASONS = {
    100042: "profiling is on already, in this process or by acl.json",
    100043: "profiling is not on",
    148046: "the model has a subscriber already",
    148047: "msprof or acl.json records at the same time; end that first",
}
_MAX_PATH = 4096  # bytes, aclprofInit
_MAX_MARK = 127  # characters, aclprofSetStampTraceMessage


class ProfilerError(RuntimeError):
    """The profiler refused: names the call, its code and what to do."""


@dataclass(frozen=True, slots=True)
class OpRecord:
    """One operator of a subscribed model; nanoseconds on the device's clock."""

    model: int
    name: str
    kind: str
    start_ns: int
    end_ns: int
    duration_ns: int


def check_choice(metrics: str, flags: Sequence[str]) -> tuple[int, int]:
    """The numbers of a metric group and of flags by name. Raises ProfilerError listing the known
    ones."""
    if metrics not in METRICS:
        raise ProfilerError(f"no metrics {metrics!r}; there are {', '.join(METRICS)}")
    unknown = [flag for flag in flags if flag not in FLAGS]
    if unknown:
        raise ProfilerError(f"no flag {unknown[0]!r}; there are {', '.join(FLAGS)}")
    return METRICS[metrics], sum(FLAGS[flag] for flag in dict.fromkeys(flags))


@contextmanager
def aicore_profile(
    acl: Any,
    folder: Path,
    *,
    devices: Sequence[int] = (0,),
    metrics: str = "PipeUtilization",
    flags: Sequence[str] = DEFAULT_FLAGS,
) -> Iterator[None]:
    """Record what runs meanwhile; a PROF_* folder is in `folder` afterwards.

    acl: the module, initialised, with `devices` set. Before the block and at its end nothing may
    be running on them. Raises ProfilerError; what was begun is ended in any case."""
    group, switches = check_choice(metrics, flags)
    folder.mkdir(parents=True, exist_ok=True)
    path = str(folder.resolve())
    if len(path.encode()) > _MAX_PATH:
        raise ProfilerError(f"the result folder's path has more than {_MAX_PATH} bytes")
    prof = acl.prof
    with ExitStack() as undo:
        _check("acl.prof.init", prof.init(path))
        undo.callback(_end, "acl.prof.finalize", prof.finalize)
        config = prof.create_config(list(devices), group, 0, switches)
        if not config:
            raise ProfilerError(
                f"acl.prof.create_config gave nothing for devices {list(devices)}, {metrics} and"
                f" flags {switches:#x}: not every chip has every metric group"
            )
        undo.callback(_end, "acl.prof.destroy_config", prof.destroy_config, config)
        _check("acl.prof.start", prof.start(config))
        undo.callback(_end, "acl.prof.stop", prof.stop, config)
        yield


@contextmanager
def subscribed(
    acl: Any, model_id: int, metrics: str = "PipeUtilization"
) -> Iterator[list[OpRecord]]:
    """The operators of one loaded model while it runs; the list is whole when the block ends. Not
    together with `aicore_profile`."""
    group, _ = check_choice(metrics, ())
    prof, records = acl.prof, []  # type: ignore[var-annotated]
    size, code = prof.get_op_desc_size()
    _check("acl.prof.get_op_desc_size", code)
    reading, writing = os.pipe()
    with ExitStack() as undo:
        reader = threading.Thread(target=_read_records, args=(acl, reading, size, records))
        undo.callback(os.close, reading)
        undo.callback(reader.join)
        undo.callback(os.close, writing)  # the reader ends with the pipe
        reader.start()
        config = prof.create_subscribe_config(1, group, writing)
        if not config:
            raise ProfilerError("acl.prof.create_subscribe_config gave nothing")
        undo.callback(_end, "destroy_subscribe_config", prof.destroy_subscribe_config, config)
        _check("acl.prof.model_subscribe", prof.model_subscribe(model_id, config))
        undo.callback(_end, "acl.prof.model_un_subscribe", prof.model_un_subscribe, model_id)
        yield records


@contextmanager
def step_mark(acl: Any, text: str) -> Iterator[None]:
    """A named range in the profile (msproftx): a page, a prefill. Only the first 127 characters of
    `text` are kept."""
    prof = acl.prof
    stamp = prof.create_stamp()
    if not stamp:
        raise ProfilerError("acl.prof.create_stamp gave nothing; record with the flag msproftx")
    with ExitStack() as undo:
        undo.callback(prof.destroy_stamp, stamp)
        text = text[:_MAX_MARK]
        _check("set_stamp_trace_message", prof.set_stamp_trace_message(stamp, text, len(text)))
        number, code = prof.range_start(stamp)
        _check("acl.prof.range_start", code)
        undo.callback(_end, "acl.prof.range_stop", prof.range_stop, number)
        yield


def _read_records(acl: Any, reading: int, size: int, records: list[OpRecord]) -> None:
    """Until the pipe is closed. A read may end in the middle of a record."""
    left = b""
    while data := os.read(reading, size * 256):
        data = left + data
        whole = len(data) // size * size
        left, part = data[whole:], data[:whole]
        if part:
            records.extend(_decode(acl, part))


def _decode(acl: Any, data: bytes) -> Iterator[OpRecord]:
    prof, pointer, length = acl.prof, acl.util.bytes_to_ptr(data), len(data)
    count, code = prof.get_op_num(pointer, length)
    _check("acl.prof.get_op_num", code)
    for index in range(count):
        where = (pointer, length, index)
        yield OpRecord(
            model=prof.get_model_id(*where),
            name=prof.get_op_name_v2(*where)[0],
            kind=prof.get_op_type_v2(*where)[0],
            start_ns=prof.get_op_start(*where),
            end_ns=prof.get_op_end(*where),
            duration_ns=prof.get_op_duration(*where),
        )


def _check(call: str, code: int) -> None:
    if code:
        reason = _REASONS.get(code, "see the log in ~/ascend/log")
        raise ProfilerError(f"{call} returned {code}: {reason}")


def _end(call: str, function: Any, *args: Any) -> None:
    """Releasing never hides the error that led to it."""
    code = function(*args)
    if code:
        log.warning("%s returned %d", call, code)
