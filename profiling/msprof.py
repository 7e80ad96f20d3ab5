"""Reads what msprof exports: PROF folders of 310P and 910B, of old and new releases.

Tolerant of columns that are not there (a value is None then), strict about those that are: a cell
that should be a number and is not ends with a ProfileError naming file, line and column. Tables
are streamed, since an op_summary has a million rows for each of its slices.

Layouts: CANN 8.1 profiler_tool (file_slice_helper.py, msprof_output_summary.py). New:
mindstudio_profiler_output/TYPE[_slice_N]_TIMESTAMP.csv with a column Device_id. Up to 7.0:
device_N/summary/TYPE_DEVICE_MODEL_ITERATION.csv without it. Times and shapes come with a tab at the
end, and quotes inside quotes.
"""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

OUTPUT = "mindstudio_profiler_output"
_NEW = re.compile(
    r"(?P<kind>[a-z_]+?)(?:_slice_(?P<a>\d+))?_(?P<time>\d{14})(?:_slice_(?P<b>\d+))?"
)
_OLD = re.compile(r"(?P<kind>[a-z_]+?)_(?P<device>\d+)(?:_(?P<model>\d+))?(?:_(?P<iteration>\d+))?")
_EXPORT_S = 1800  # a long run takes msprof minutes
_MISSING = frozenset({"", "N/A", "n/a", "None"})


class ProfileError(ValueError):
    """A profile that cannot be read: names file, what is wrong and the remedy."""


@dataclass(frozen=True, slots=True)
class OpRow:
    """One task of op_summary. Times in nanoseconds since 1970 (start) and microseconds; shapes as
    "1,3,4;5,6"; `metrics`: the counters of the AI core that the run was made with, by column."""

    device: int
    model: int | None
    stream: int | None
    name: str
    kind: str
    core: str
    start_ns: int | None
    duration_us: float
    wait_us: float | None
    block_dim: float | None
    input_shapes: str
    input_types: str
    output_shapes: str
    metrics: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class ApiRow:
    """One line of api_statistic: a function of a level (acl, model, node, runtime) in total."""

    level: str
    name: str
    total_us: float
    count: int


@dataclass(frozen=True, slots=True)
class TaskRow:
    """One line of task_time: everything that ran on a stream, copies too."""

    device: int
    name: str
    kind: str
    stream: int
    start_ns: int
    duration_us: float


class Prof:
    """One PROF folder. `emulated`: its device times are marked as no measurement."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def tables(self) -> Mapping[str, tuple[Path, ...]]:
        """Kind -> its files, slices in order; of several exports the newest."""
        new: dict[tuple[str, str], list[tuple[int, Path]]] = {}
        for path in self.folder.glob(f"{OUTPUT}/*.csv"):
            found = _NEW.fullmatch(path.stem)
            if found:
                part = int(found["a"] or found["b"] or 0)
                new.setdefault((found["kind"], found["time"]), []).append((part, path))
        tables = {kind: tuple(p for _, p in sorted(new[kind, time])) for kind, time in sorted(new)}
        old: dict[str, list[Path]] = {}
        for path in sorted(self.folder.glob("*/summary/*.csv")):
            found = _OLD.fullmatch(path.stem)
            if found:
                old.setdefault(found["kind"], []).append(path)
        return tables or {kind: tuple(paths) for kind, paths in old.items()}

    @cached_property
    def emulated(self) -> bool:
        readme = self.folder / OUTPUT / "README.txt"
        return readme.is_file() and readme.read_text("utf-8", "replace").startswith("emulated")

    def ops(self) -> Iterator[OpRow]:
        """Every row of op_summary, one at a time."""
        for path in self._need("op_summary"):
            table = _Table(path, ("Op Name", "OP Type", "Task Duration(us)"))
            device = _device_of(path)
            for row in table:
                yield _op(row, device)

    def tasks(self) -> Iterator[TaskRow]:
        """Every row of task_time; none when the run did not record it."""
        for path in self.tables.get("task_time", ()):
            table = _Table(path, ())
            if table.has("task_start(us)"):  # else the older form, which has sums only
                device = _device_of(path)
                for row in table:
                    yield TaskRow(
                        row.integer("Device_id", device) or 0, row.text("kernel_name"),
                        row.text("kernel_type"), row.integer("stream_id") or 0,
                        row.time_ns("task_start(us)") or 0, row.number("task_time(us)") or 0.0,
                    )  # fmt: skip

    def apis(self) -> Iterator[ApiRow]:
        """Every row of api_statistic."""
        for path in self.tables.get("api_statistic", ()):
            for row in _Table(path, ("API Name", "Time(us)")):
                name, total = row.text("API Name"), row.number("Time(us)") or 0.0
                yield ApiRow(row.text("Level"), name, total, row.integer("Count") or 0)

    def iterations_us(self) -> list[float]:
        """The times of step_trace's iterations."""
        found = []
        for path in self.tables.get("step_trace", ()):
            for row in _Table(path, ()):
                time = row.number("Iteration Time(us)")
                found += [] if time is None else [time]
        return found

    def _need(self, kind: str) -> tuple[Path, ...]:
        if kind not in self.tables:
            known = ", ".join(self.tables) or "nothing"
            raise ProfileError(
                f"{self.folder}: no {kind} (it has {known}); run `msprof --export=on"
                f" --output={self.folder}` where the CANN toolkit is, or record with task times"
            )
        return self.tables[kind]


def find_profiles(folder: Path) -> list[Prof]:
    """The PROF folders in `folder`, or `folder` itself. One that is not exported yet is exported
    when `msprof` is there. Raises ProfileError when there is none."""
    if not folder.is_dir():
        raise ProfileError(f"{folder}: no such folder")
    own = folder.name.startswith("PROF_") or (folder / OUTPUT).is_dir()
    found = [folder] if own else sorted(p for p in folder.glob("PROF_*") if p.is_dir())
    if not found:
        raise ProfileError(f"{folder}: no PROF_* folder in it; make one with `hyocr profile`")
    profiles = []
    for path in found:
        prof = Prof(path)
        if not prof.tables and shutil.which("msprof"):
            _export(path)
            prof = Prof(path)
        profiles.append(prof)
    return profiles


def _export(folder: Path) -> None:
    command = ["msprof", "--export=on", f"--output={folder}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_EXPORT_S)
    except subprocess.TimeoutExpired as error:
        raise ProfileError(f"{' '.join(command)}: not done after {_EXPORT_S} s") from error
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise ProfileError(f"{' '.join(command)} ended with {done.returncode}: {''.join(last)}")


class _Table:
    """Rows of one CSV, read as they are asked for. wanted: columns without which it is useless."""

    def __init__(self, path: Path, wanted: Sequence[str]) -> None:
        self.path = path
        with path.open(newline="", encoding="utf-8-sig") as file:
            header = next(csv.reader(file), [])
        self.names = [name.strip() for name in header]
        self.columns = {_key(name): i for i, name in enumerate(self.names)}
        missing = [name for name in wanted if _key(name) not in self.columns]
        if missing:
            raise ProfileError(
                f"{path}: no column {missing[0]!r}; it has {', '.join(self.names) or 'none'}"
            )
        # Counters of the AI core stand behind the descriptive columns.
        self.metrics = [(n, i) for i, n in enumerate(self.names) if _is_metric(n)]

    def has(self, name: str) -> bool:
        return _key(name) in self.columns

    def __iter__(self) -> Iterator[_Row]:
        with self.path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            next(reader, None)
            for cells in reader:
                if cells:
                    yield _Row(self, reader.line_num, cells)


class _Row:
    """One line of a table, by column name."""

    __slots__ = ("cells", "line", "table")

    def __init__(self, table: _Table, line: int, cells: list[str]) -> None:
        self.table, self.line, self.cells = table, line, cells

    def text(self, name: str) -> str:
        """Without the tab and the inner quotes; "" if it is missing."""
        at = self.table.columns.get(_key(name))
        cell = self.cells[at] if at is not None and at < len(self.cells) else ""
        cell = cell.strip().strip('"')
        return "" if cell in _MISSING else cell

    def number(self, name: str) -> float | None:
        """None if it is missing or not available."""
        return self.as_number(name, self.text(name))

    def as_number(self, name: str, cell: str) -> float | None:
        if not cell:
            return None
        try:
            return float(cell)
        except ValueError:
            raise ProfileError(
                f"{self.table.path}:{self.line}: {name} is {cell!r}, not a number"
            ) from None

    def integer(self, name: str, default: int | None = None) -> int | None:
        value = self.number(name)
        return default if value is None else int(value)

    def time_ns(self, name: str) -> int | None:
        """Microseconds with decimals as whole nanoseconds: a float would lose the last digits."""
        whole, _, part = self.text(name).partition(".")
        if not whole:
            return None
        try:
            return int(whole) * 1000 + int((part + "000")[:3])
        except ValueError:
            raise ProfileError(
                f"{self.table.path}:{self.line}: {name} is {whole}.{part}, not a time"
            ) from None


def _op(row: _Row, device: int) -> OpRow:
    cells, table = row.cells, row.table
    metrics = {}
    for name, at in table.metrics:
        cell = cells[at].strip() if at < len(cells) else ""
        metrics[name] = None if cell in _MISSING else row.as_number(name, cell)
    duration = row.number("Task Duration(us)")
    if duration is None:
        raise ProfileError(f"{table.path}:{row.line}: no Task Duration(us)")
    return OpRow(
        device=row.integer("Device_id", device) or 0,
        model=row.integer("Model ID"),
        stream=row.integer("Stream ID"),
        name=row.text("Op Name"),
        kind=row.text("OP Type"),
        core=row.text("Task Type"),
        start_ns=row.time_ns("Task Start Time(us)"),
        duration_us=duration,
        wait_us=row.number("Task Wait Time(us)"),
        block_dim=row.number("Block Dim"),
        input_shapes=row.text("Input Shapes"),
        input_types=row.text("Input Data Types"),
        output_shapes=row.text("Output Shapes"),
        metrics=metrics,
    )


def _device_of(path: Path) -> int:
    """The device in an old name: device_1/summary/op_summary_1_3_1.csv."""
    found = re.search(r"device_(\d+)", str(path.parent))
    return int(found[1]) if found else 0


def _key(name: str) -> str:
    """Spelling of columns differs in case and blanks between releases."""
    return name.replace(" ", "").replace("_", "").lower()


def _is_metric(name: str) -> bool:
    ends = ("_ratio", "_cycles", "_rate", "_bound", "_bw(GB/s)", "_fops", "cube_utilization(%)")
    return name.endswith(ends) or (name.endswith("time(us)") and not name.startswith("Task"))
