"""A value found on a page, and how far to trust it."""

from __future__ import annotations

from dataclasses import dataclass

from host_pipeline.grid import around
from host_pipeline.result import Line, Quad


@dataclass(frozen=True, slots=True)
class Found:
    """A value on the page: its text, the lines it came from, and how sure the rule is (0..1)."""

    text: str
    lines: tuple[Line, ...]
    sureness: float

    @property
    def quad(self) -> Quad | None:
        """The upright rectangle around the lines, page pixels; the quad itself for one line."""
        if len(self.lines) == 1:
            return self.lines[0].quad
        return around(self.lines)

    @property
    def score(self) -> float:
        """The rule's sureness times the worst line's reading score."""
        return round(self.sureness * min((line.score or 0.0) for line in self.lines), 4)
