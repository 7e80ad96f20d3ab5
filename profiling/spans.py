"""Nestable time spans of one page, kept apart by thread. Standard library only.

`span("decode")` costs next to nothing until a `recording()` is open in the same context. A
recording adds up; it keeps single spans only while a `tracing()` is open around it, so that an
answer of thousands of steps costs no memory.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import get_ident
from time import perf_counter_ns
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Span:
    """One closed span: `path` is its name behind those of the spans around it ("vision/h2d");
    `start_ns` and `end_ns` on `time.perf_counter_ns`; `track` is the row of a trace that it is
    drawn in: a thread by number, or a device by name."""

    path: str
    start_ns: int
    end_ns: int
    track: int | str

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]


class _Lane:
    """What one thread puts into one recording; no other thread writes to it."""

    __slots__ = ("kept", "path", "thread", "totals")

    def __init__(self, thread: int, keep: bool) -> None:
        self.thread = thread
        self.path = ""
        self.totals: dict[str, list[int]] = {}  # path -> [ns, count]
        self.kept: list[Span] | None = [] if keep else None

    def open(self, name: str) -> str:
        """Go below `name`; returns the path to go back to."""
        outer = self.path
        self.path = f"{outer}/{name}" if outer else name
        return outer

    def close(self, outer: str, start: int, end: int) -> None:
        """Count the path that was opened, and go back."""
        path = self.path
        self.path = outer
        total = self.totals.get(path)
        if total is None:
            self.totals[path] = [end - start, 1]
        else:
            total[0] += end - start
            total[1] += 1
        if self.kept is not None:
            self.kept.append(Span(path, start, end, self.thread))

    def keep(self, span: Span) -> None:
        if self.kept is not None:
            self.kept.append(span)


class _Lanes:
    """The lanes of several recordings, used as one."""

    __slots__ = ("_lanes",)

    def __init__(self, lanes: Sequence[_Lane]) -> None:
        self._lanes = lanes

    @property
    def path(self) -> tuple[str, ...]:
        return tuple(lane.path for lane in self._lanes)

    @path.setter
    def path(self, paths: tuple[str, ...]) -> None:
        for lane, path in zip(self._lanes, paths, strict=True):
            lane.path = path

    def open(self, name: str) -> tuple[str, ...]:
        return tuple(lane.open(name) for lane in self._lanes)

    def close(self, outer: tuple[str, ...], start: int, end: int) -> None:
        for lane, path in zip(self._lanes, outer, strict=True):
            lane.close(path, start, end)

    def keep(self, span: Span) -> None:
        for lane in self._lanes:
            lane.keep(span)


class Recording:
    """Times by path. Any number of threads may add to it (see `carried`) and read from it."""

    __slots__ = ("_keep", "_lanes")

    def __init__(self, keep: bool = False) -> None:
        self._keep = keep
        self._lanes: dict[int, _Lane] = {}

    @property
    def spans(self) -> list[Span]:
        """Every single span so far, by start; empty unless they are kept."""
        kept = [s for lane in list(self._lanes.values()) for s in list(lane.kept or ())]
        return sorted(kept, key=lambda s: (s.start_ns, -s.end_ns))

    def timings_ms(self) -> dict[str, float]:
        """Milliseconds by path, rounded to a microsecond. Paths without a slash do not overlap
        within a thread: they sum to the page. "vision/h2d" is a part of "vision"."""
        return {path: round(ns / 1e6, 3) for path, (ns, _) in self._totals().items()}

    def counts(self) -> dict[str, int]:
        """How often each path was closed."""
        return {path: count for path, (_, count) in self._totals().items()}

    def lane(self) -> _Lane:
        """The calling thread's, for `span`."""
        thread = get_ident()
        lane = self._lanes.get(thread)
        if lane is None:
            lane = self._lanes[thread] = _Lane(thread, self._keep)
        return lane

    def _totals(self) -> dict[str, tuple[int, int]]:
        totals: dict[str, tuple[int, int]] = {}
        for lane in list(self._lanes.values()):
            for path, (ns, count) in list(lane.totals.items()):
                before = totals.get(path, (0, 0))
                totals[path] = (before[0] + ns, before[1] + count)
        return totals


class _Together:
    """Several recordings that take part in the same work."""

    __slots__ = ("_records",)

    def __init__(self, records: Sequence[Recording]) -> None:
        self._records = records

    def lane(self) -> _Lanes:
        return _Lanes([record.lane() for record in self._records])


@dataclass(slots=True)
class Tracing:
    """Recordings that are kept span by span, and `pages`: the whole time of each page, by source.
    `epoch_ns` turns `perf_counter_ns` into nanoseconds since 1970, the clock that msprof writes."""

    recordings: list[Recording] = field(default_factory=list)
    pages: list[Span] = field(default_factory=list)
    epoch_ns: int = field(default_factory=lambda: time.time_ns() - perf_counter_ns())

    @property
    def spans(self) -> list[Span]:
        """Every span of every recording, each once, by start."""
        seen = {
            (s.path, s.start_ns, s.end_ns, s.track): s for r in self.recordings for s in r.spans
        }
        return sorted(seen.values(), key=lambda s: (s.start_ns, -s.end_ns))

    @contextlib.contextmanager
    def page(self, name: str) -> Iterator[Recording]:
        """Time a whole page, and what is done for it outside of any other recording."""
        start = perf_counter_ns()
        try:
            with recording() as record:
                yield record
        finally:
            self.pages.append(Span(name, start, perf_counter_ns(), get_ident()))


_current: contextvars.ContextVar[Recording | _Together | None] = contextvars.ContextVar(
    "spans", default=None
)
_tracing: contextvars.ContextVar[Tracing | None] = contextvars.ContextVar("tracing", default=None)


@contextlib.contextmanager
def recording() -> Iterator[Recording]:
    """Collect the spans that this context closes; recordings do not nest into each other."""
    tracing = _tracing.get()
    record = Recording(keep=tracing is not None)
    if tracing is not None:
        tracing.recordings.append(record)
    token = _current.set(record)
    try:
        yield record
    finally:
        _current.reset(token)


@contextlib.contextmanager
def tracing() -> Iterator[Tracing]:
    """Keep every span of the recordings that are opened in this context and in copies of it."""
    kept = Tracing()
    token = _tracing.set(kept)
    try:
        yield kept
    finally:
        _tracing.reset(token)


def current() -> Recording | None:
    """The recording that is open in this context."""
    record = _current.get()
    return record if isinstance(record, Recording) else None


@contextlib.contextmanager
def together(records: Sequence[Recording | None]) -> Iterator[None]:
    """Spans of this context go into each of `records`: work that several pages share."""
    token = _current.set(_Together([r for r in records if r is not None]))
    try:
        yield
    finally:
        _current.reset(token)


def carried(job: Callable[P, T]) -> Callable[P, T]:
    """`job` for another thread, so that its spans go into the recording that is open here and
    below the span that is open here. `job` itself when nothing is recorded."""
    record = _current.get()
    if record is None:
        return job
    path: Any = record.lane().path

    @functools.wraps(job)
    def carrying(*args: P.args, **kwargs: P.kwargs) -> T:
        lane: Any = record.lane()
        before = lane.path
        token = _current.set(record)
        lane.path = path
        try:
            return job(*args, **kwargs)
        finally:
            _current.reset(token)
            lane.path = before

    return carrying


class span:
    """`with span("vision"):` adds the block's wall time to the open recording, if there is one."""

    __slots__ = ("_lane", "_name", "_outer", "_start")

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        record = _current.get()
        if record is None:
            self._lane: Any = None
        else:
            self._lane = lane = record.lane()
            self._outer: Any = lane.open(self._name)
            self._start = perf_counter_ns()

    def __exit__(self, *exc: object) -> None:
        if self._lane is not None:
            self._lane.close(self._outer, self._start, perf_counter_ns())


def device_span(name: str, device: int, start_ns: int) -> None:
    """What a device did from `start_ns` (`perf_counter_ns`) until now: a row of its own in a trace,
    no part of the totals, since the host's spans have the same time."""
    record = _current.get()
    if record is not None:
        record.lane().keep(Span(name, start_ns, perf_counter_ns(), f"device {device}"))
