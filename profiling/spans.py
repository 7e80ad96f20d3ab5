"""Nestable time spans of one page. Standard library only; knows nothing of the rest.

`span("decode")` costs next to nothing until a `recording()` is open in the same context.
"""

from __future__ import annotations

import contextlib
import contextvars
import time
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class Span:
    """One closed span: `start_ns` and `end_ns` on `time.perf_counter_ns`, `depth` 0 outermost."""

    name: str
    start_ns: int
    end_ns: int
    depth: int


@dataclass(slots=True)
class Recording:
    """The spans of one recording, in the order in which they ended."""

    spans: list[Span] = field(default_factory=list)
    depth: int = 0

    def timings_ms(self) -> dict[str, float]:
        """Milliseconds by span name, equal names summed, rounded to a microsecond."""
        totals: dict[str, float] = {}
        for s in self.spans:
            totals[s.name] = totals.get(s.name, 0.0) + (s.end_ns - s.start_ns) / 1e6
        return {name: round(ms, 3) for name, ms in totals.items()}


_current: contextvars.ContextVar[Recording | None] = contextvars.ContextVar("spans", default=None)


@contextlib.contextmanager
def recording() -> Iterator[Recording]:
    """Collect the spans that this context closes; recordings do not nest into each other."""
    record = Recording()
    token = _current.set(record)
    try:
        yield record
    finally:
        _current.reset(token)


class span:
    """`with span("vision"):` adds the block's wall time to the open recording, if there is one."""

    __slots__ = ("_name", "_record", "_start")

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        self._record = _current.get()
        if self._record is not None:
            self._record.depth += 1
            self._start = time.perf_counter_ns()

    def __exit__(self, *exc: object) -> None:
        record = self._record
        if record is not None:
            record.depth -= 1
            end = time.perf_counter_ns()
            record.spans.append(Span(self._name, self._start, end, record.depth))
