"""OpenAI's chat completions, as clients of vLLM's HunyuanOCR server send them: one picture, one
instruction.

An instruction is one of the model's own (Chinese or English) or a task's name; anything else is
refused, since this model answers nothing else well.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from fastapi import APIRouter, Request, Response

from ascend.serve.answers import (
    Events,
    chain,
    first_of,
    json_response,
    read_all,
    streamed,
    until_gone,
)
from ascend.serve.chat_request import ChatCall, read_chat
from ascend.serve.errors import ReadFailed, error_body
from ascend.serve.fetch import Fetcher
from ascend.serve.limits import json_bytes
from ascend.serve.messages import PageRead, Piece
from ascend.serve.openapi import CHAT_BODY
from ascend.serve.service import Service
from ascend.serve.speak import finish_of, speak

_WORST = ("stop", "content_filter", "length")  # of several pages, the last of these is told


def chat_routes(service: Service, fetcher: Fetcher) -> APIRouter:
    """/v1/chat/completions."""
    router = APIRouter(tags=["openai"])

    @router.post("/v1/chat/completions", openapi_extra=CHAT_BODY)
    async def completions(request: Request) -> Response:
        """Read a picture as OpenAI's clients ask for it; `stream` gives server-sent events."""
        call = await read_chat(request, service, fetcher)
        if call.stream:
            return await _stream(request, service, call)
        pages = await until_gone(request, read_all(service, call.ask))
        return json_response(_completion(call, pages))

    return router


def _completion(call: ChatCall, pages: Sequence[PageRead]) -> dict[str, Any]:
    outcomes = [page.outcome for page in pages if page.error is None]
    choice = {
        "index": 0,
        "message": {
            "role": "assistant",
            "content": "\n\n".join(speak(outcome, call.speaks) for outcome in outcomes),
            "refusal": None,
        },
        "logprobs": None,
        "finish_reason": _finish(outcomes),
    }
    head = _head(call, "chat.completion", _new_id())
    return {**head, "choices": [choice], "usage": _usage(outcomes), "hyocr": _about(outcomes)}


async def _stream(request: Request, service: Service, call: ChatCall) -> Response:
    events = service.read(call.ask)
    first = await until_gone(request, first_of(events, (Piece, PageRead)))
    if isinstance(first, PageRead) and first.error is not None and not _many(first):
        raise ReadFailed(first.error)
    request_id = request.state.request_id

    async def body() -> AsyncIterator[bytes]:
        try:
            async for chunk in _chunks(call, chain(first, events)):
                yield b"data: " + json_bytes(chunk) + b"\n\n"
        except Exception as error:  # the response has begun; this event tells it
            yield b"data: " + json_bytes(error_body(error, request_id)) + b"\n\n"
        yield b"data: [DONE]\n\n"

    return streamed(body(), events, "text/event-stream")


async def _chunks(call: ChatCall, events: Events) -> AsyncIterator[dict[str, Any]]:
    """OpenAI's chunks: the role, the text as it is made, the reason of its end, the usage."""
    head = _head(call, "chat.completion.chunk", _new_id())
    yield _chunk(head, {"role": "assistant", "content": ""})
    outcomes: list[Mapping[str, Any]] = []
    said = ""
    async for event in events:
        if isinstance(event, Piece):
            said += event.text
            yield _chunk(head, {"content": event.text})
        elif isinstance(event, PageRead):
            if event.error is not None:
                raise ReadFailed(event.error)
            whole = speak(event.outcome, call.speaks)
            rest = whole[len(said) :] if whole.startswith(said) else ""
            outcomes.append(event.outcome)
            if rest:
                yield _chunk(head, {"content": rest})
            said = ""
            if event.outcome["page_index"] + 1 < event.outcome["page_count"]:
                yield _chunk(head, {"content": "\n\n"})
    yield {**_chunk(head, {}, _finish(outcomes)), "hyocr": _about(outcomes)}
    if call.include_usage:
        yield {**head, "choices": [], "usage": _usage(outcomes)}


def _chunk(head: Mapping[str, Any], delta: Any, finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {**head, "choices": [choice]}


def _head(call: ChatCall, kind: str, number: str) -> dict[str, Any]:
    return {"id": number, "object": kind, "created": int(time.time()), "model": call.model}


def _new_id() -> str:
    return f"chatcmpl-{uuid.uuid4().hex}"


def _finish(outcomes: Sequence[Mapping[str, Any]]) -> str:
    reasons = [finish_of(outcome) for outcome in outcomes] or ["stop"]
    return max(reasons, key=_WORST.index)


def _usage(outcomes: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Token counts; a reader without tokens has none."""
    prompt = sum(outcome["usage"].get("prompt_tokens", 0) for outcome in outcomes)
    made = sum(outcome["usage"].get("completion_tokens", 0) for outcome in outcomes)
    return {"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made}


def _about(outcomes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What OpenAI's shape has no place for: who read it, with which settings, and what is amiss."""
    if not outcomes:
        return {}
    names = ("task", "model", "engine", "emulated", "fallback_reason", "finish_reason", "settings")
    about = {name: outcomes[0][name] for name in names}
    return {**about, "warnings": [notice for o in outcomes for notice in o["warnings"]]}


def _many(page: PageRead) -> bool:
    return bool(page.outcome.get("page_count", 1) != 1)
