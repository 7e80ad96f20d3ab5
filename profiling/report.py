"""Where the time of a profiled run went: one pass over the profile's rows, whatever their number.

Values only: `report_text`, `report_html` show them, `findings` judges them, `compare` sets two side
by side.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from profiling.findings import find
from profiling.msprof import OpRow, Prof, ProfileError, find_profiles

PROFILE_NAME = "profile.json"
TOP = 20

# A pause on a stream that is longer than any launch gap inside a graph: the device waits for the
# host (an execution's own gaps are about 1 us).
LONG_GAP_US = 20.0

_VECTOR = frozenset({"AI_VECTOR_CORE", "AIV", "MIX_AIV"})
_CUBE = frozenset({"AIC", "MIX_AIC"})
_COPY = ("MEMCPY", "PCIE_DMA", "SDMA")


@dataclass(slots=True)
class OpTotal:
    """Operators of one type on one kind of core, or of one name and shape."""

    name: str
    kind: str
    core: str
    shapes: str = ""
    count: int = 0
    total_us: float = 0.0
    longest_us: float = 0.0
    mac_us: float = 0.0
    memory_bound_us: float = 0.0

    def add(self, row: OpRow, mac: float | None, bound: bool) -> None:
        """Count one execution; `mac` is its cube share (0..1), `bound` whether memory bounds it."""
        self.count += 1
        self.total_us += row.duration_us
        self.longest_us = max(self.longest_us, row.duration_us)
        self.mac_us += row.duration_us * (mac or 0.0)
        self.memory_bound_us += row.duration_us if bound else 0.0


@dataclass(slots=True)
class DeviceTimes:
    """Sums over all devices, in microseconds. `window`: first start to last end of each device;
    `gaps`: between kernels of an execution; `waiting`: longer pauses; `mac`: time of products
    weighted by how busy the matrix unit was."""

    window: float = 0.0
    cube: float = 0.0
    vector: float = 0.0
    ai_cpu: float = 0.0
    copies: float = 0.0
    other: float = 0.0
    gaps: float = 0.0
    waiting: float = 0.0
    mac: float = 0.0
    memory_bound: float = 0.0
    counted: float = 0.0
    fp32: float = 0.0
    conversions: float = 0.0
    rows: int = 0

    @property
    def busy(self) -> float:
        """Time in operators and copies."""
        return self.cube + self.vector + self.ai_cpu + self.copies + self.other


@dataclass(slots=True)
class Totals:
    """What one pass collects; bounded by the number of different operators kept."""

    times: DeviceTimes = field(default_factory=DeviceTimes)
    kinds: dict[tuple[str, str], OpTotal] = field(default_factory=dict)
    names: dict[tuple[str, str], OpTotal] = field(default_factory=dict)
    apis: dict[tuple[str, str], tuple[float, int]] = field(default_factory=dict)

    def kind(self, row: OpRow) -> OpTotal:
        """The total of the row's operator type and core."""
        key = (row.kind, row.core)
        if key not in self.kinds:
            self.kinds[key] = OpTotal(row.kind, row.kind, row.core)
        return self.kinds[key]

    def named(self, row: OpRow) -> OpTotal:
        """The total of the row's operator at its shapes."""
        key = (row.name, row.input_shapes)
        if key not in self.names:
            if len(self.names) >= 50 * TOP * TOP:  # names that never come twice
                self._forget()
            self.names[key] = OpTotal(row.name, row.kind, row.core, row.input_shapes)
        return self.names[key]

    def _forget(self) -> None:
        kept = heapq.nlargest(10 * TOP, self.names.items(), key=lambda item: item[1].total_us)
        self.names = dict(kept)


def make_report(folder: Path) -> dict[str, Any]:
    """The report of a folder that `hyocr profile` or msprof wrote, JSON-ready.

    Raises ProfileError for a folder without a profile, or with one that cannot be read."""
    pages = _pages(folder)
    try:
        profiles = find_profiles(folder)
    except ProfileError:
        if pages is None:
            raise
        profiles = []  # a CPU engine has no device to profile; its stages are known all the same
    totals = Totals()
    for prof in profiles:
        collect(prof, totals)
    times = totals.times
    ops = sorted(totals.names.values(), key=lambda op: -op.total_us)
    report: dict[str, Any] = {
        "folder": folder.name,
        "emulated": any(p.emulated for p in profiles) or bool(pages and pages.get("emulated")),
        "profiles": [p.folder.name for p in profiles],
        "about": {k: v for k, v in (pages or {}).items() if k not in ("pages", "format")},
        "device": _device(times),
        "by_type": [_total(op, times) for op in _ranked(totals.kinds.values())],
        "top_ops": [_total(op, times) for op in ops[:TOP]],
        "ai_cpu_ops": [_total(op, times) for op in ops if op.core == "AI_CPU"][:TOP],
        "apis": [
            {"level": level, "name": name, "total_us": total, "count": count}
            for (level, name), (total, count) in sorted(
                totals.apis.items(), key=lambda item: -item[1][0]
            )
        ][:TOP],
        "stages": _stages((pages or {}).get("pages", [])),
    }
    report["findings"] = [asdict(finding) for finding in find(report)]
    return report


def collect(prof: Prof, totals: Totals) -> None:
    """Adds one profile to `totals`, row by row."""
    times, seen = totals.times, _Windows()
    for row in prof.ops():
        mac, vec, bound = _use(row)
        place = _place(row, mac, vec)
        setattr(times, place, getattr(times, place) + row.duration_us)
        times.rows += 1
        memory_bound = bound is not None and bound > 1.0
        if place == "cube" and mac is not None:
            times.mac += row.duration_us * mac
            times.counted += row.duration_us
        times.memory_bound += row.duration_us if memory_bound else 0.0
        # FLOAT is fp32; FLOAT16 and BF16 are not.
        if "FLOAT" in row.input_types.replace("DT_", "").split(";") and place != "ai_cpu":
            times.fp32 += row.duration_us
        if row.kind in ("Cast", "TransData"):
            times.conversions += row.duration_us
        totals.kind(row).add(row, mac, memory_bound)
        totals.named(row).add(row, mac, memory_bound)
        seen.add(row.device, row.start_ns, row.duration_us)
    for task in prof.tasks():
        if task.kind.upper().startswith(_COPY):
            times.copies += task.duration_us
            seen.add(task.device, task.start_ns, task.duration_us)
    times.window += seen.window_us
    times.gaps += seen.gaps_us
    times.waiting += seen.waiting_us
    for api in prof.apis():
        total, count = totals.apis.get((api.level, api.name), (0.0, 0))
        totals.apis[api.level, api.name] = (total + api.total_us, count + api.count)


class _Windows:
    """Pauses on each device, from rows in any order that is nearly that of time."""

    def __init__(self) -> None:
        self._first: dict[int, int] = {}
        self._end: dict[int, int] = {}
        self.gaps_us = self.waiting_us = 0.0

    def add(self, device: int, start_ns: int | None, duration_us: float) -> None:
        if start_ns is None:
            return
        end = start_ns + round(duration_us * 1e3)
        before = self._end.get(device)
        if before is not None and start_ns > before:
            pause = (start_ns - before) / 1e3
            if pause > LONG_GAP_US:
                self.waiting_us += pause
            else:
                self.gaps_us += pause
        self._first[device] = min(self._first.get(device, start_ns), start_ns)
        self._end[device] = max(before or end, end)

    @property
    def window_us(self) -> float:
        return sum(self._end[device] - self._first[device] for device in self._first) / 1e3


def _use(row: OpRow) -> tuple[float | None, float | None, float | None]:
    """(matrix unit, vector unit, memory over compute) of one row, the first two 0..1; None when
    the run did not count them. memory_bound = mte2_ratio / max(mac_ratio, vec_ratio), as msprof
    has it."""
    m = row.metrics
    mac = m.get("mac_ratio", m.get("aic_mac_ratio"))
    vec = m.get("vec_ratio", m.get("aiv_vec_ratio"))
    bound = m.get("memory_bound")
    if bound is None and "aic_mte2_ratio" in m:
        moved = max(m.get("aic_mte2_ratio") or 0.0, m.get("aiv_mte2_ratio") or 0.0)
        bound = moved / max(mac or 0.0, vec or 0.0, 1e-3)
    return mac, vec, bound


def _place(row: OpRow, mac: float | None, vec: float | None) -> str:
    """Which part of the device a row kept busy."""
    if row.core == "AI_CPU":
        return "ai_cpu"
    if row.core in _VECTOR:
        return "vector"
    if row.core in _CUBE:
        return "cube"
    if row.core.upper().startswith(_COPY):
        return "copies"
    if row.core != "AI_CORE":
        return "other"
    if mac is not None and vec is not None:  # one core has both units on 310P and 910A
        return "cube" if mac > 0 and mac >= vec else "vector"
    return "cube" if "MatMul" in row.kind or "Conv" in row.kind else "vector"


def _device(times: DeviceTimes) -> dict[str, Any]:
    window = times.window or times.busy
    parts = ("cube", "vector", "ai_cpu", "copies", "other", "gaps", "waiting")
    return {
        **{f"{part}_us": round(getattr(times, part), 3) for part in parts},
        "window_us": round(window, 3),
        "busy_us": round(times.busy, 3),
        "rows": times.rows,
        "matrix_use": times.mac / times.counted if times.counted else None,
        "memory_bound_share": times.memory_bound / times.busy if times.busy else 0.0,
        "fp32_share": times.fp32 / times.busy if times.busy else 0.0,
        "conversion_share": times.conversions / times.busy if times.busy else 0.0,
    }


def _ranked(ops: Iterable[OpTotal]) -> list[OpTotal]:
    return sorted(ops, key=lambda op: -op.total_us)[:TOP]


def _total(op: OpTotal, times: DeviceTimes) -> dict[str, Any]:
    return {
        "name": op.name,
        "type": op.kind,
        "core": op.core,
        "shapes": op.shapes,
        "count": op.count,
        "total_us": round(op.total_us, 3),
        "mean_us": round(op.total_us / op.count, 3),
        "longest_us": round(op.longest_us, 3),
        "share": op.total_us / times.busy if times.busy else 0.0,
        "matrix_use": op.mac_us / op.total_us if op.total_us else 0.0,
        "memory_bound_share": op.memory_bound_us / op.total_us if op.total_us else 0.0,
    }


def _pages(folder: Path) -> dict[str, Any] | None:
    path = folder / PROFILE_NAME
    if not path.is_file():
        return None
    try:
        data = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ProfileError(f"{path}: {error}; profile again") from error
    if not isinstance(data, dict) or data.get("format") != 1:
        raise ProfileError(f"{path}: not a profile of this release; profile again")
    return data


def _stages(pages: list[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The host's stages over all pages, how much of the pages they explain, and one token."""
    if not pages:
        return None
    whole = sum(page["page_ms"] for page in pages)
    ms: dict[str, float] = {}
    counts: dict[str, int] = {}
    for page in pages:
        for path, value in page["timings_ms"].items():
            ms[path] = ms.get(path, 0.0) + value
        for path, count in page["counts"].items():
            counts[path] = counts.get(path, 0) + count
    explained = sum(value for path, value in ms.items() if "/" not in path)
    rows = [
        {"path": path, "ms": round(value, 3), "share": value / whole if whole else 0.0,
         "count": counts.get(path, 1)}
        for path, value in sorted(ms.items(), key=lambda item: _order(item, ms))
    ]  # fmt: skip
    tokens = sum(page.get("usage", {}).get("completion_tokens", 0) for page in pages)
    return {
        "pages": len(pages),
        "whole_ms": round(whole, 3),
        "explained": explained / whole if whole else 0.0,
        "rows": rows,
        "tokens": tokens,
        "token": _token(ms, tokens),
        "patches": [page.get("patches") for page in pages if page.get("patches")],
    }


def _order(item: tuple[str, float], ms: Mapping[str, float]) -> tuple[Any, ...]:
    """Stages by time, parts below their stage by time."""
    parts = item[0].split("/")
    return tuple((-ms.get("/".join(parts[: i + 1]), 0.0), part) for i, part in enumerate(parts))


def _token(ms: Mapping[str, float], tokens: int) -> dict[str, float]:
    """Milliseconds of one answer token by part."""
    if not tokens:
        return {}
    parts = {
        path: value for path, value in ms.items()
        if path.split("/")[0] in ("decode_step", "embed", "sampling")
    }  # fmt: skip
    return {path: round(value / tokens, 4) for path, value in parts.items()}
