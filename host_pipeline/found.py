"""A value found on a page, and how far to trust it."""

from __future__ import annotations

from dataclasses import dataclass

from host_pipeline.grid import extent
from host_pipeline.result import Line, Quad, rectangle


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
        boxes = [extent(line) for line in self.lines]
        return rectangle(
            min(b[0] for b in boxes),
            min(b[1] for b in boxes),
            max(b[2] for b in boxes),
            max(b[3] for b in boxes),
        )

    @property
    def score(self) -> float:
        """The rule's sureness times the worst line's reading score."""
        return round(self.sureness * min((line.score or 0.0) for line in self.lines), 4)
