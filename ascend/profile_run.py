"""Reading pages under the profilers: host spans always, the device's where the engine is an NPU."""

from __future__ import annotations

import importlib
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ascend.api import OCR, PageFailure
from ascend.errors import UsageError
from atc_configs.manifest import MANIFEST_NAME, read_manifest
from host_pipeline.result import Result
from profiling.acl_prof import aicore_profile, check_choice
from profiling.msprof import OUTPUT, Prof, ProfileError
from profiling.report import PROFILE_NAME
from profiling.spans import Recording, Tracing, span, tracing
from profiling.trace import DeviceTask, write_trace

TRACE_NAME = "trace.json"
_PATCH = 16
_MOST_TASKS = 200_000  # of a device in one trace: Perfetto opens such a file in seconds


def traced_pages(
    trace: Tracing, outcomes: Iterator[Result | PageFailure]
) -> Iterator[tuple[Result | PageFailure, list[Recording]]]:
    """Each outcome, timed as a page of `trace`, with the recordings that were made for it."""
    while True:
        before = len(trace.recordings)
        with trace.page("page"):
            outcome = next(outcomes, None)
            if isinstance(outcome, Result):
                with span("json"):
                    json.dumps(outcome.to_dict(), ensure_ascii=False)
        if outcome is None:
            del trace.pages[-1], trace.recordings[before:]  # only the end of the document
            return
        name = f"{outcome.source} page {(outcome.page_index or 0) + 1}"
        trace.pages[-1] = replace(trace.pages[-1], path=name)
        yield outcome, trace.recordings[before:]


@contextmanager
def traced(path: Path | None) -> Iterator[Tracing | None]:
    """Keep the spans of what runs meanwhile and write them to `path`, whatever ends the block;
    nothing at all for None."""
    if path is None:
        yield None
        return
    with tracing() as trace:
        try:
            yield trace
        finally:
            write_trace(path, trace)


def profile_pages(
    ocr: OCR,
    model: str,
    sources: Sequence[str],
    folder: Path,
    *,
    metrics: str,
    flags: Sequence[str],
    request: Mapping[str, Any],
    warm: bool = True,
) -> dict[str, Any]:
    """Read `sources` and write profile.json, trace.json and, on an NPU, PROF_* into `folder`.

    warm: read the first page once before, so that what is allocated once is not in it. Returns what
    profile.json holds. Raises UsageError for a folder that has a profile, ProfilerError, and
    what stops reading."""
    check_choice(metrics, flags)
    if (folder / PROFILE_NAME).exists() or any(folder.glob("PROF_*")):
        raise UsageError(f"{folder} holds a profile; give another folder")
    folder.mkdir(parents=True, exist_ok=True)
    first = ocr.read(sources[0], **request) if warm else None
    pages: list[dict[str, Any]] = []
    with ExitStack() as stack:
        trace = stack.enter_context(tracing())
        engine = getattr(ocr.family, "engine", None) or getattr(ocr.family, "_engine", None)
        if engine is not None and "acl" in engine.settings:
            _start_device(stack, engine.settings, folder, metrics, flags)
        for source in sources:
            outcomes = ocr.read_pages(source, **request)
            for outcome, recordings in traced_pages(trace, outcomes):
                if isinstance(outcome, PageFailure):
                    raise outcome.error
                pages.append(_page(outcome, trace, recordings, _vision_gears(model)))
                first = outcome
    assert first is not None
    profile = {**_about(first, metrics), "pages": pages}
    (folder / PROFILE_NAME).write_text(json.dumps(profile, ensure_ascii=False, indent=1), "utf-8")
    write_trace(folder / TRACE_NAME, trace, _device_tasks(folder), _about(first, metrics))
    return profile


def record_device(
    engine: Any, seconds: float, folder: Path, metrics: str, stop: threading.Event
) -> None:
    """Record what `engine` runs for `seconds`, or until `stop`, into `folder`; other threads go on
    using it. Raises UsageError for an engine without a device, ProfilerError."""
    name = engine.settings.get("acl") if engine is not None else None
    if name is None:
        raise UsageError("only the engine acl has a device to profile; it is not what serves here")
    devices = (int(engine.settings.get("device", 0)),)
    profile = aicore_profile(
        importlib.import_module(name), folder, devices=devices, metrics=metrics
    )
    # ACL wants an idle device where recording begins and ends.
    engine.between_steps(profile.__enter__)
    try:
        stop.wait(seconds)
    finally:
        engine.between_steps(lambda: profile.__exit__(None, None, None))


def _start_device(
    stack: ExitStack,
    settings: Mapping[str, Any],
    folder: Path,
    metrics: str,
    flags: Sequence[str],
) -> None:
    chosen = tuple(f for f in flags if metrics != "None" or f != "aicore_metrics")
    devices = (int(settings.get("device", 0)),)
    module = importlib.import_module(settings["acl"])
    stack.enter_context(
        aicore_profile(module, folder, devices=devices, metrics=metrics, flags=chosen)
    )


def _about(result: Result, metrics: str) -> dict[str, Any]:
    settings = result.settings
    return {
        "format": 1,
        "model": result.model.name,
        "task": result.task,
        "engine": result.engine,
        "emulated": result.emulated,
        "soc": settings.get("soc", ""),
        "cann": settings.get("cann") or "",
        "metrics": metrics if result.engine == "acl" else "",
    }


def _page(
    result: Result, trace: Tracing, recordings: Sequence[Recording], gears: Sequence[int]
) -> dict[str, Any]:
    whole = trace.pages[-1]
    timings: dict[str, float] = {}
    counts: dict[str, int] = {}
    for record in recordings:
        for path, ms in record.timings_ms().items():
            timings[path] = timings.get(path, 0.0) + ms
        for path, count in record.counts().items():
            counts[path] = counts.get(path, 0) + count
    used = sum(h * w // _PATCH**2 for h, w in result.settings.get("canvases", []))
    gear = next((g for g in sorted(gears) if g >= used), None)
    return {
        # A number, not the file's name: a support bundle may hold this and no page content.
        "page": len(trace.pages),
        "page_ms": round((whole.end_ns - whole.start_ns) / 1e6, 3),
        "timings_ms": timings,
        "counts": counts,
        "usage": dict(result.usage),
        "patches": {"used": used, "gear": gear} if used and gear else None,
    }


def _vision_gears(model: str) -> list[int]:
    path = Path(model)
    if not (path / MANIFEST_NAME).is_file():
        return []
    return [gear[0] for gear in read_manifest(path).gears.get("vision", ())]


def _device_tasks(folder: Path) -> list[DeviceTask]:
    """The device's tasks for the trace, if msprof has exported them already."""
    tasks: list[DeviceTask] = []
    for path in sorted(folder.glob("PROF_*")):
        if not (path / OUTPUT).is_dir():
            continue
        try:
            for row in Prof(path).ops():
                if row.start_ns is not None and len(tasks) < _MOST_TASKS:
                    kind, stream = f"{row.kind} on {row.core}", row.stream or 0
                    start, duration = row.start_ns, row.duration_us
                    tasks.append(DeviceTask(row.name, kind, row.device, stream, start, duration))
        except ProfileError:
            continue  # the report says what is wrong with it
    return tasks
