"""What leaves as the answer of a request: bodies, streams, and noticing that nobody listens."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ascend.serve.errors import BadRequest, ReadFailed, error_body, info_of
from ascend.serve.limits import ClientGone, json_bytes
from ascend.serve.messages import Ask, Began, PageRead, Piece
from ascend.serve.service import Service
from ascend.serve.wire import Format
from host_pipeline.render.html import render_html
from host_pipeline.render.markdown import render_markdown
from host_pipeline.render.text import render_text
from host_pipeline.result import Result

T = TypeVar("T")

Events = AsyncIterator[Began | Piece | PageRead]

# Whatever a page says is shown and never run.
_SANDBOX = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox"}

MEDIA = {
    "text": "text/plain; charset=utf-8",
    "markdown": "text/markdown; charset=utf-8",
    "html": "text/html; charset=utf-8",
}


def json_response(value: Any, status: int = 200) -> Response:
    """A response of `value` as JSON."""
    return Response(json_bytes(value), status, media_type="application/json")


async def until_gone(request: Request, work: Awaitable[T]) -> T:
    """What `work` gives; cancelled, with ClientGone raised, when the client leaves before."""
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientGone
    finally:
        for one in (task, watch):
            one.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)


async def read_all(service: Service, ask: Ask) -> list[PageRead]:
    """Every page. Raises what stopped the request, and the error of a page that is alone."""
    async with contextlib.aclosing(service.read(ask)) as events:
        pages = [event async for event in events if isinstance(event, PageRead)]
    if pages and all(page.error is not None for page in pages):
        first = pages[0].error
        assert first is not None
        raise ReadFailed(first)
    return pages


async def answer(
    request: Request, service: Service, ask: Ask, form: Format, *, stream: bool
) -> Response:
    """The response of our own API to one call."""
    if stream:
        return await stream_lines(request, service, ask)
    pages = await until_gone(request, read_all(service, ask))
    return await render(pages, form)


async def render(pages: Sequence[PageRead], form: Format) -> Response:
    """One page as its Result, several as a list of Results and failures; or a readable form."""
    if form in ("json", "jsonl"):
        values = [page_value(page) for page in pages]
        alone = len(values) == 1 and pages[0].outcome.get("page_count") == 1
        return json_response(values[0] if alone else values)
    results = [Result.from_dict(page.outcome) for page in pages if page.error is None]
    text = await asyncio.to_thread("".join, written(form, results))
    headers = _SANDBOX if form == "html" else {}
    return Response(text.encode("utf-8", "replace"), media_type=MEDIA[form], headers=headers)


async def stream_lines(request: Request, service: Service, ask: Ask) -> Response:
    """JSON lines: each page as soon as it is read. What goes wrong before the first page is an
    error response; later it is the last line."""
    events = service.read(ask)
    first = await until_gone(request, first_of(events, (PageRead,)))
    if isinstance(first, PageRead) and first.error and first.outcome["page_index"] is None:
        raise ReadFailed(first.error)  # not a page, the document
    request_id = request.state.request_id

    async def lines() -> AsyncIterator[bytes]:
        try:
            async for page in chain(first, events):
                if isinstance(page, PageRead):
                    yield json_bytes(page_value(page)) + b"\n"
        except Exception as error:  # the response has begun; the last line tells it
            yield json_bytes(error_body(error, request_id)) + b"\n"

    return streamed(lines(), events, "application/x-ndjson")


def streamed(body: AsyncIterator[bytes], events: Events, media_type: str) -> StreamingResponse:
    """A response of `body` that ends `events` when the client leaves."""

    async def closing() -> AsyncIterator[bytes]:
        try:
            async for piece in body:
                yield piece
        finally:
            await _close(events)

    # Proxies such as nginx collect a stream unless told not to.
    headers = {"x-accel-buffering": "no", "cache-control": "no-store"}
    return StreamingResponse(closing(), media_type=media_type, headers=headers)


async def first_of(events: Events, kinds: tuple[type, ...]) -> Began | Piece | PageRead | None:
    """The first event of these kinds, or None; the iterator is closed when it raises."""
    try:
        async for event in events:
            if isinstance(event, kinds):
                return event
    except BaseException:
        await _close(events)
        raise
    return None


async def chain(first: Began | Piece | PageRead | None, events: Events) -> Events:
    """`first`, then the rest."""
    if first is not None:
        yield first
        async for event in events:
            yield event


def page_value(page: PageRead) -> dict[str, Any]:
    """A page's JSON: the Result, or the failure with its public error."""
    value = dict(page.outcome)
    if page.error is not None:
        info = info_of(ReadFailed(page.error))
        value["error"] = {
            "code": info.code,
            "message": info.message,
            "retryable": info.retryable,
        }
    return value


def stored_pages(path: Path, form: str) -> Response:
    """The pages of a file of JSON lines, one in memory at a time. Raises BadRequest."""
    if form == "jsonl":
        return StreamingResponse(_lines(path), media_type="application/x-ndjson")
    if form == "json":
        return StreamingResponse(_listed(path), media_type="application/json")
    if form not in MEDIA:
        raise BadRequest(f"format must be one of {', '.join(get_args(Format))}")
    pages = (json.loads(line) for line in _lines(path))
    results = (Result.from_dict(page) for page in pages if "error" not in page)
    headers = _SANDBOX if form == "html" else {}
    return StreamingResponse(written(form, results), media_type=MEDIA[form], headers=headers)


def _lines(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as lines:
        yield from lines


def _listed(path: Path) -> Iterator[bytes]:
    opener = b"[\n"
    for line in _lines(path):
        yield opener + line.rstrip(b"\n")
        opener = b",\n"
    yield b"\n]\n"


def written(form: str, results: Iterable[Result]) -> Iterator[str]:
    """The document in pieces, in one of the readable forms."""
    writers: dict[str, Callable[[Iterable[Result]], Iterator[str]]] = {
        "text": render_text,
        "markdown": render_markdown,
        "html": render_html,
    }
    return writers[form](results)


async def _close(events: Events) -> None:
    close = getattr(events, "aclose", None)
    if close is not None:
        await close()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
