"""Spans and device tasks as one Chrome trace, which Perfetto and chrome://tracing open.

Format: "Trace Event Format" (Google) as Perfetto's JSON importer reads it: complete events ("X")
of one thread must nest, metadata events ("M") name processes and threads. One clock for all rows:
microseconds since the trace's first event, whose epoch time stands in `otherData`.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profiling.spans import Span, Tracing

Event = dict[str, Any]

DEVICE_PROCESS = 1 << 22  # above any pid of Linux (its limit is 2^22), one number for each device


@dataclass(frozen=True, slots=True)
class DeviceTask:
    """One task that a device ran. start_ns: since 1970, whole, since a float has not enough digits
    for it; `stream` is its row."""

    name: str
    kind: str
    device: int
    stream: int
    start_ns: int
    duration_us: float


def write_trace(
    path: Path,
    tracing: Tracing,
    tasks: Iterable[DeviceTask] = (),
    about: Mapping[str, Any] | None = None,
) -> None:
    """Write host spans and device tasks to `path`, in one step. about: goes into `otherData`."""
    trace = make_trace(tracing, list(tasks), about or {})
    partial = path.with_name(path.name + ".part")
    partial.write_text(json.dumps(trace, ensure_ascii=False), "utf-8")
    partial.replace(path)


def make_trace(
    tracing: Tracing, tasks: Sequence[DeviceTask], about: Mapping[str, Any]
) -> dict[str, Any]:
    """The trace as JSON-ready values."""
    spans = [*tracing.pages, *tracing.spans]
    starts = [s.start_ns + tracing.epoch_ns for s in spans]
    zero_ns = min([*starts, *(t.start_ns for t in tasks)], default=0)
    events = [*_host_events(tracing, zero_ns), *_device_events(tasks, zero_ns)]
    other = {**about, "zero_epoch_ns": str(zero_ns)}
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": other}


def _host_events(tracing: Tracing, zero_ns: int) -> Iterator[Event]:
    """Pages, then the threads that worked on them, then devices as the host saw them."""
    pid = os.getpid()
    names = {t.ident: t.name for t in threading.enumerate()}
    yield _meta("process_name", pid, 0, {"name": "host"})
    yield _meta("process_sort_index", pid, 0, {"sort_index": 0})
    seen: set[int] = set()
    offset_ns = tracing.epoch_ns - zero_ns
    rows: dict[int | str, int] = {}
    for group, spans in (("pages", tracing.pages), ("spans", tracing.spans)):
        for span in spans:
            track: int | str = group if group == "pages" else span.track
            row = rows.setdefault(track, len(rows) + 1)
            if row not in seen:
                seen.add(row)
                label = names.get(span.track, f"thread {span.track}")  # type: ignore[arg-type]
                label = track if isinstance(track, str) else str(label)
                yield _meta("thread_name", pid, row, {"name": label})
                yield _meta("thread_sort_index", pid, row, {"sort_index": row})
            # The name of a page is that of its file, which has slashes of its own.
            name = span.path if group == "pages" else span.name
            yield _complete(span, name, pid, row, offset_ns)


def _complete(span: Span, name: str, pid: int, row: int, offset_ns: int) -> Event:
    start, end = (span.start_ns + offset_ns) / 1e3, (span.end_ns + offset_ns) / 1e3
    event: Event = {"ph": "X", "name": name, "cat": "host", "pid": pid, "tid": row}
    event |= {"ts": round(start, 3), "dur": round(end - start, 3)}
    return event | ({"args": {"path": span.path}} if name != span.path else {})


def _device_events(tasks: Sequence[DeviceTask], zero_ns: int) -> Iterator[Event]:
    named: set[tuple[int, int]] = set()
    for task in sorted(tasks, key=lambda t: t.start_ns):
        pid, row = DEVICE_PROCESS + task.device, task.stream
        if (task.device, -1) not in named:
            named.add((task.device, -1))
            yield _meta("process_name", pid, 0, {"name": f"device {task.device}"})
            yield _meta("process_sort_index", pid, 0, {"sort_index": 1 + task.device})
        if (task.device, row) not in named:
            named.add((task.device, row))
            yield _meta("thread_name", pid, row, {"name": f"stream {row}"})
        event: Event = {"ph": "X", "name": task.name, "cat": task.kind, "pid": pid, "tid": row}
        start = (task.start_ns - zero_ns) / 1e3
        yield event | {"ts": start, "dur": round(task.duration_us, 3), "args": {"type": task.kind}}


def _meta(name: str, pid: int, tid: int, args: Mapping[str, Any]) -> Event:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "args": dict(args)}
