"""What parsing one answer gives, whatever its form."""

from __future__ import annotations

from dataclasses import dataclass

from host_pipeline.result import Field, FinishReason, Line, Notice, Table


@dataclass(frozen=True, slots=True)
class Answer:
    """The parsed parts of one answer, as they enter the `Result` of the page.

    Every visible character of the answer is in `lines`, `text`, `fields` or `markdown`, or in
    `unparsed`. `finish_reason` is the caller's, or "repetition" when a loop was cut off."""

    lines: tuple[Line, ...] = ()
    text: str = ""
    fields: tuple[Field, ...] = ()
    tables: tuple[Table, ...] = ()
    markdown: str | None = None
    unparsed: tuple[str, ...] = ()
    warnings: tuple[Notice, ...] = ()
    finish_reason: FinishReason = "stop"
