"""Writes a PROF folder in the layout of msprof (CANN 8.1), its device times marked as emulated."""

from __future__ import annotations

import csv
import json
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .chips import Chip
from .roofline import Operator, operators_of

if TYPE_CHECKING:
    from .profiler import Recorder

NOTE = (
    "emulated: device times are a roofline estimate of an emulator on a CPU, no measurement of "
    "any NPU."
)
_STREAM = 9
_BASE = (
    "Device_id,Model ID,Task ID,Stream ID,Op Name,OP Type,OP State,Task Type,Task Start Time(us),"
    "Task Duration(us),Task Wait Time(us),Block Dim,{mix}HF32 Eligible,Input Shapes,"
    "Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats"
)
_PIPES = ("vec", "mac", "scalar", "mte1", "mte2", "mte3")
_A2_COLUMNS = (
    "aicore_time(us),aic_total_cycles,aic_mac_time(us),aic_mac_ratio,aic_scalar_time(us),"
    "aic_scalar_ratio,aic_mte1_time(us),aic_mte1_ratio,aic_mte2_time(us),aic_mte2_ratio,"
    "aic_fixpipe_time(us),aic_fixpipe_ratio,aic_icache_miss_rate,aiv_time(us),aiv_total_cycles,"
    "aiv_vec_time(us),aiv_vec_ratio,aiv_scalar_time(us),aiv_scalar_ratio,aiv_mte2_time(us),"
    "aiv_mte2_ratio,aiv_mte3_time(us),aiv_mte3_ratio,aiv_icache_miss_rate,cube_utilization(%)"
)
Row = list[Any]


def _us(value: float) -> str:
    return f"{value:.3f}"


def _clock(value: float) -> str:
    return f"{value:.3f}\t"


def _shapes(tensors: list[tuple[tuple[int, ...], str]]) -> str:
    return '"' + ";".join(",".join(map(str, shape)) for shape, _ in tensors) + '"'


def _labels(tensors: list[tuple[tuple[int, ...], str]]) -> str:
    return ";".join(label for _, label in tensors)


def _formats(tensors: list[tuple[tuple[int, ...], str]]) -> str:
    return ";".join("ND" for _ in tensors)


def _metrics(operator: Operator, chip: Chip) -> Row:
    """Pipe columns: consistent with the relations of the format, no more than that."""
    a2 = chip.short == "910B"
    if operator.core == "AI_CPU":
        return ["N/A"] * (25 if a2 else 16)
    busy = operator.us * 0.93
    cycles = round(busy * chip.cores * chip.mhz)
    mac, memory = min(operator.cube_share, 1.0), min(1.0 - operator.cube_share, 1.0)
    if a2:
        zeros: Row = [0] * 11
        cube = [_us(busy), cycles, _us(mac * busy), _us(mac), 0, 0, 0, 0, _us(memory * busy),
                _us(memory), 0, 0, 0]  # fmt: skip
        return [*cube, *zeros, _us(95.0 * mac)]
    ratios = {"vec": 0.1, "mac": mac, "scalar": 0.05, "mte1": 0.0, "mte2": memory, "mte3": 0.1}
    row: Row = [_us(busy), cycles]
    for pipe in _PIPES:
        row += [f"{ratios[pipe] * busy:.4f}", f"{ratios[pipe]:.4f}"]
    return [*row, "0.0040", f"{memory / max(mac, 0.1):.4f}"]


def _summary_header(chip: Chip) -> list[str]:
    if chip.short == "910B":
        base = _BASE.format(mix="Mix Block Dim,") + ",Context ID"
        return base.split(",") + _A2_COLUMNS.split(",")
    pipes = [f"{pipe}_{kind}" for pipe in _PIPES for kind in ("time(us)", "ratio")]
    tail = ["aicore_time(us)", "total_cycles", *pipes, "icache_miss_rate", "memory_bound"]
    return _BASE.format(mix="").split(",") + tail


def _summary_row(model: int, device: int, task: int, start: float, op: Operator, chip: Chip) -> Row:
    mix: Row = [0] if chip.short == "910B" else []
    context: Row = ["N/A"] if chip.short == "910B" else []
    return [
        device, model, task, _STREAM, op.name, op.kind, "static", op.core, _clock(start),
        _us(op.us), _us(0.5), chip.cores, *mix, "NO",
        _shapes(op.inputs), _labels(op.inputs), _formats(op.inputs),
        _shapes(op.outputs), _labels(op.outputs), _formats(op.outputs), *context,
        *_metrics(op, chip),
    ]  # fmt: skip


class _Tables:
    """Rows of the tables, collected run by run."""

    def __init__(self, chip: Chip) -> None:
        self.chip = chip
        self.summary: list[Row] = []
        self.tasks: list[Row] = []
        self.steps: list[Row] = []
        self.times: dict[tuple[int, str, str], list[float]] = defaultdict(list)
        self.trace: list[dict[str, Any]] = []
        self.cache: dict[tuple[int, Any], list[Operator]] = {}

    def add(self, index: int, run: Any) -> None:
        """One execution, its operators laid out from its start."""
        key = (run.model.id, run.gear.key if run.gear else None)
        if key not in self.cache:
            self.cache[key] = operators_of(run.model, run.gear, self.chip)
        device = run.model.device.index
        begin = at = run.start * 1e6
        for task, op in enumerate(self.cache[key], start=3):
            self.summary.append(_summary_row(run.model.id, device, task, at, op, self.chip))
            self.tasks.append([device, op.name, op.core, _STREAM, task, _us(op.us), _clock(at),
                               _clock(at + op.us)])  # fmt: skip
            self.times[(device, op.kind, op.core)].append(op.us)
            args = {"Model Id": run.model.id, "Task Type": op.core, "Physic Stream Id": _STREAM,
                    "Task Id": task, "Batch Id": 0, "Subtask Id": 4294967295,
                    "connection_id": index}  # fmt: skip
            self.trace.append({"name": op.name, "pid": 2, "tid": _STREAM, "ts": _us(at),
                               "dur": op.us, "ph": "X", "args": args})  # fmt: skip
            at += op.us + 0.5
        self.steps.append([device, index + 1, "N/A", "N/A", _clock(at), _us(at - begin), "N/A",
                           "N/A", "N/A", run.model.id])  # fmt: skip

    def statistics(self) -> list[Row]:
        """op_statistic rows, most expensive first."""
        whole = sum(sum(values) for values in self.times.values()) or 1.0
        rows = []
        for (device, kind, core), us in sorted(self.times.items(), key=lambda kv: -sum(kv[1])):
            total = sum(us)
            mean = total / len(us)
            rows.append([device, kind, core, len(us), _us(total), _us(min(us)), _us(mean),
                         _us(max(us)), _us(100 * total / whole)])  # fmt: skip
        return rows


def _api_rows(recorder: Recorder) -> list[Row]:
    rows = []
    for name, seen in sorted(recorder.apis.items(), key=lambda kv: -kv[1].total):
        mean = seen.total / seen.count
        spread = max(seen.squares / seen.count - mean * mean, 0.0)
        rows.append(["host", "acl", c_name(name), _us(seen.total), seen.count, _us(mean),
                     _us(seen.least), _us(seen.most), _us(spread)])  # fmt: skip
    return rows


def c_name(name: str) -> str:
    """acl.mdl.execute_async -> aclmdlExecuteAsync."""
    parts = name.split(".")
    group = parts[1] if len(parts) == 3 else ""
    camel = "".join(word.capitalize() for word in parts[-1].split("_"))
    return f"acl{group}{camel}"


def _csv(folder: Path, kind: str, stamp: str, header: Sequence[str], rows: Iterable[Row]) -> None:
    with (folder / f"{kind}_{stamp}.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def write(parent: Path, recorder: Recorder, chip: Chip) -> Path:
    """Makes PROF_<n>_<time>_ACLEMULATOR… below `parent` and returns it."""
    stamp = time.strftime("%Y%m%d%H%M%S")
    number = len(list(parent.glob("PROF_*"))) + 1
    letters = "".join(chr(65 + (number // 26**i) % 26) for i in reversed(range(5)))
    folder = parent / f"PROF_{number:06d}_{stamp}000_ACLEMULATOR{letters}"
    out = folder / "mindstudio_profiler_output"
    devices = sorted({run.model.device.index for run in recorder.executions}) or [0]
    for part in ["host/data", "mindstudio_profiler_log", *(f"device_{d}/data" for d in devices)]:
        (folder / part).mkdir(parents=True)
    out.mkdir()
    tables = _Tables(chip)
    for index, run in enumerate(recorder.executions):
        tables.add(index, run)
    _csv(out, "op_summary", stamp, _summary_header(chip), tables.summary)
    _csv(out, "op_statistic", stamp, (
        "Device_id", "OP Type", "Core Type", "Count", "Total Time(us)", "Min Time(us)",
        "Avg Time(us)", "Max Time(us)", "Ratio(%)"), tables.statistics())  # fmt: skip
    _csv(out, "task_time", stamp, (
        "Device_id", "kernel_name", "kernel_type", "stream_id", "task_id", "task_time(us)",
        "task_start(us)", "task_stop(us)"), tables.tasks)  # fmt: skip
    _csv(out, "step_trace", stamp, (
        "Device_id", "Iteration ID", "FP Start(us)", "BP End(us)", "Iteration End(us)",
        "Iteration Time(us)", "FP to BP Time(us)", "Iteration Refresh(us)", "Data Aug Bound(us)",
        "Model ID"), tables.steps)  # fmt: skip
    _csv(out, "api_statistic", stamp, (
        "Device_id", "Level", "API Name", "Time(us)", "Count", "Avg(us)", "Min(us)", "Max(us)",
        "Variance"), _api_rows(recorder))  # fmt: skip
    (out / f"msprof_{stamp}.json").write_text(json.dumps(_trace(tables.trace)))
    (out / "README.txt").write_text(f"{NOTE}\n1.msprof_{{timestamp}}.json: Timeline report.\n")
    return folder


def _trace(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A chrome trace as a list; process 1 is the host, process 2 the device."""
    head = []
    for pid, name, label, order in ((1, "CANN", "CPU", 7), (2, "Ascend Hardware", "NPU", 13)):
        for kind, args in (("process_name", {"name": f"{name} (emulated)"}),
                           ("process_labels", {"labels": label}),
                           ("process_sort_index", {"sort_index": order})):  # fmt: skip
            head.append({"name": kind, "pid": pid, "tid": 0, "ph": "M", "args": args})
    head.append({"name": "thread_name", "pid": 1, "tid": os.getpid(), "ph": "M",
                 "args": {"name": f"Thread {os.getpid()}"}})  # fmt: skip
    head.append({"name": "thread_name", "pid": 2, "tid": _STREAM, "ph": "M",
                 "args": {"name": f"Stream {_STREAM}"}})  # fmt: skip
    return head + events
