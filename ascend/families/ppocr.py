"""PP-OCRv6 as a family: the embedded reader that needs no weights from anybody.

It finds and reads lines; tables, Markdown and fields are made from their geometry. What needs
understanding is refused with the way to HunyuanOCR.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict

import numpy as np
from numpy.typing import NDArray

from ascend.engines import Engine
from ascend.errors import Cancelled, DeadlineExceeded, TaskNotSupported
from ascend.families import ReadRequest
from ascend.families.cascade import Cascade, Sight
from ascend.families.cascade_settings import CascadeSettings
from host_pipeline.extract import extract_fields
from host_pipeline.grid import blocks_markdown, extent, page_blocks
from host_pipeline.order import reading_rows
from host_pipeline.page import Page
from host_pipeline.parse import field_specs
from host_pipeline.result import Field, Line, Model, Notice, Result, Table
from host_pipeline.tasks import task
from profiling.spans import recording, span

TASKS_DONE = (
    "spotting_hunyuan",
    "spotting_json",
    "structured_parse",
    "text",
    "subtitles",
    "doc_parse",
    "table",
    "fields",
)


class PpOcr:
    """The family on one engine with the graphs `det`, `cls` and `rec`; owns the engine."""

    name = "ppocr"
    tasks: tuple[str, ...] = TASKS_DONE

    def __init__(
        self,
        engine: Engine,
        characters: Sequence[str],
        model: Model,
        settings: CascadeSettings | None = None,
    ) -> None:
        self.model = model
        self.engine = engine
        self._cascade = Cascade(engine, characters, settings or CascadeSettings())

    def read(self, page: Page, request: ReadRequest) -> Result:
        """Lines with quads and scores in reading order, and what the task makes of them.

        Raises TaskNotSupported, DeadlineExceeded, Cancelled and the engine's errors."""
        wanted = task(request.task)
        if wanted.name not in TASKS_DONE:
            raise TaskNotSupported(
                f"ppocr cannot do the task {wanted.name}; it can do {', '.join(TASKS_DONE)}. "
                "For the others give HunyuanOCR's weights: --model FOLDER (see `hyocr doctor`)"
            )
        specs = field_specs(request.schema or request.keys) if wanted.needs_fields else ()
        with recording() as record:
            sight = self._cascade.see(page, _checker(request))
            with span("order"):
                rows, lines = _ordered(sight, subtitles=wanted.name == "subtitles")
            notices = [*page.notices, *sight.notices]
            fields: tuple[Field, ...] = ()
            if specs:
                with span("fields"):
                    fields, found = extract_fields(rows, specs)
                    notices.extend(found)
            with span("layout"):
                blocks = page_blocks(rows) if wanted.name in ("doc_parse", "table") else ()
        text = "\n".join("  ".join(line.text for line in row) for row in rows)
        grids = [b for b in blocks if b.is_table]
        if wanted.name == "table":  # the table that is asked for is the page's largest
            grids.sort(key=lambda b: -len(b.rows) * len(b.columns))
        tables = tuple(Table(b.to_html(), b.quad) for b in grids)
        if wanted.name == "table" and not tables:
            notices.append(Notice("no_table", "no table was found on the page"))
        return Result(
            source=page.source,
            page_index=page.index,
            page_count=page.count,
            page_width=sight.page.width,
            page_height=sight.page.height,
            rotation=sight.page.rotation,
            turned=sight.turned,
            task=wanted.name,
            model=self.model,
            engine=self.engine.name,
            emulated=self.engine.emulated,
            lines=lines,
            text=text,
            fields=fields,
            tables=tables,
            markdown=blocks_markdown(blocks) if wanted.name == "doc_parse" else None,
            raw=text,
            unparsed=sight.unread,
            warnings=tuple(notices),
            timings_ms=record.timings_ms(),
            settings={**asdict(self._cascade.settings), **self.engine.settings},
        )

    def stream(self, page: Page, request: ReadRequest) -> Iterator[str | Result]:
        """The page's text at once, then the Result: a cascade has no tokens to stream."""
        result = self.read(page, request)
        yield result.text
        yield result

    def close(self) -> None:
        """Closes the engine; idempotent."""
        self._cascade.close()
        self.engine.close()


def _ordered(sight: Sight, subtitles: bool) -> tuple[list[list[Line]], tuple[Line, ...]]:
    """The rows of the page in reading order, and their lines one after another."""
    found = sight.lines
    if subtitles:
        found = tuple(line for line in found if _is_subtitle(line, sight.page))
    quads: NDArray[np.float32] = np.asarray([line.quad for line in found], np.float32)
    rows = reading_rows(quads.reshape(-1, 4, 2), [line.vertical for line in found])
    grouped = [[found[i] for i in row] for row in rows]
    return grouped, tuple(line for row in grouped for line in row)


def _is_subtitle(line: Line, page: Page) -> bool:
    """Subtitles stand in the lower third of a frame and lie across its middle, or are sung from
    its sides in columns; a strip cut out of a frame holds nothing else."""
    if page.width > 4 * page.height or line.vertical:
        return True
    x0, y0, x1, y1 = extent(line)
    return (y0 + y1) / 2 > 0.66 * page.height and x0 < 0.6 * page.width and x1 > 0.4 * page.width


def _checker(request: ReadRequest) -> Callable[[], None]:
    def check() -> None:
        if request.cancelled is not None and request.cancelled():
            raise Cancelled("the request was cancelled")
        if request.deadline is not None and time.monotonic() > request.deadline:
            raise DeadlineExceeded("the page was not read within its deadline; allow more time")

    return check
