"""The public way in: `OCR` opens a model once and reads pictures and documents with it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
from PIL import Image

from ascend.errors import DeadlineExceeded, describe
from ascend.families import Family, ReadRequest
from ascend.opening import EMBEDDED, EngineName, open_family
from host_pipeline.errors import InputError
from host_pipeline.page import DEFAULT_LIMITS, Document, Page, PageLimits, open_document
from host_pipeline.result import Result
from profiling.spans import recording, span

Source = str | os.PathLike[str] | bytes | BinaryIO | np.ndarray | Image.Image
"""A path, "-" for standard input, encoded bytes, a binary file, or pixels (RGB)."""


@dataclass(frozen=True, slots=True)
class PageFailure:
    """A page that could not be read: the others of its source go on. `page_index` is None when
    the source itself could not be opened."""

    source: str
    page_index: int | None
    error: Exception

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: source, page_index and the error's stable code and text."""
        info = describe(self.error)
        error = {"code": info.code, "message": info.message, "retryable": info.retryable}
        return {"source": self.source, "page_index": self.page_index, "error": error}


class OCR:
    """One opened model. `with OCR() as ocr: result = ocr.read("page.png")`.

    model, engine and settings: see `ascend.opening.open_family`. Close it, or use `with`.
    """

    def __init__(self, model: str = EMBEDDED, engine: EngineName = "auto", **settings: Any) -> None:
        self.family: Family = open_family(model, engine, **settings)

    def read(self, source: Source, task: str = "spotting", **request: Any) -> Result:
        """The Result of a source of one page (of its first page if there are more).

        request: keys or schema for the task `fields`, and the family's options. Raises what stops
        the page: InputError and the errors of `ascend.errors`."""
        for outcome in self.read_pages(source, task, pages=(0,), **request):
            if isinstance(outcome, PageFailure):
                raise outcome.error
            return outcome
        raise InputError("there is no page to read", None)

    def read_pages(
        self,
        source: Source,
        task: str = "spotting",
        *,
        pages: Sequence[int] | None = None,
        keys: Sequence[str] = (),
        schema: Mapping[str, Any] | None = None,
        limits: PageLimits = DEFAULT_LIMITS,
        label: str | None = None,
        on_open: Callable[[int], None] | None = None,
        on_text: Callable[[str], None] | None = None,
        cancelled: Callable[[], bool] | None = None,
        deadline: float | None = None,
        **options: Any,
    ) -> Iterator[Result | PageFailure]:
        """One Result or PageFailure for each page, as soon as it is done, one page in memory at a
        time. `pages` are 0-based; None reads all. `on_open` is told the document's number of
        pages, `on_text` is given pieces of the answer's text while it is made. `cancelled` and
        `deadline`: see ReadRequest. Errors of the call itself (an unknown task, an engine that
        fails for good) are raised."""
        request = ReadRequest(task, tuple(keys), schema, options, cancelled, deadline)
        try:
            document = open_document(source, label=label, limits=limits)
        except InputError as error:
            yield PageFailure(label or _name(source), None, error)
            return
        with document:
            if on_open is not None:
                on_open(len(document))
            for index in range(len(document)) if pages is None else pages:
                yield self._read_page(document, index, request, on_text)

    def close(self) -> None:
        """Release the model; idempotent."""
        self.family.close()

    def __enter__(self) -> OCR:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _read_page(
        self,
        document: Document,
        index: int,
        request: ReadRequest,
        on_text: Callable[[str], None] | None,
    ) -> Result | PageFailure:
        try:
            if not 0 <= index < len(document):
                raise InputError(f"no page {index + 1}: it has {len(document)}", document.source)
            with recording() as record, span("decode"):
                page = document.load_page(index)
            if on_text is None:
                result = self.family.read(page, request)
            else:
                result = _follow(self.family, page, request, on_text)
        except (InputError, DeadlineExceeded, MemoryError) as error:
            return PageFailure(document.source, index, error)
        return _with_timings(result, record.timings_ms())


def _follow(
    family: Family, page: Page, request: ReadRequest, on_text: Callable[[str], None]
) -> Result:
    for piece in family.stream(page, request):
        if isinstance(piece, Result):
            return piece
        on_text(piece)
    raise AssertionError("a family's stream ends with its Result")


def _with_timings(result: Result, before: Mapping[str, float]) -> Result:
    return dataclasses.replace(result, timings_ms={**before, **result.timings_ms})


def _name(source: Source) -> str:
    return os.fspath(source) if isinstance(source, (str, os.PathLike)) else "<memory>"
