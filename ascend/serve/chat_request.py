"""Reads the body of a chat completion: the picture, the instruction and the sampling in it."""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from ascend.serve.errors import BadRequest
from ascend.serve.fetch import Fetcher
from ascend.serve.messages import Ask
from ascend.serve.routes import check_model
from ascend.serve.service import Service
from ascend.serve.wire import decode_base64, parse_json
from host_pipeline.tasks import ALIASES, TASKS

# Of these the service has one way only; another value would be silently something else.
_FIXED: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "stop": ([], ""),
    "logprobs": (False,),
    "tools": ([],),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "skip_special_tokens": (True,),
    "echo": (False,),
}
_SAMPLING = ("temperature", "top_p", "top_k", "repetition_penalty", "seed")
_NAMES = re.compile(r"\[.*\]", re.DOTALL)
_LONGEST_LIST = 1 << 16  # characters
_BEFORE, _AFTER = TASKS["fields"].instruction.split("{keys}")


@dataclass(frozen=True, slots=True)
class ChatCall:
    """A chat request. speaks: whether the model's own words are the answer."""

    ask: Ask
    model: str
    stream: bool
    include_usage: bool
    speaks: bool


async def read_chat(request: Request, service: Service, fetcher: Fetcher) -> ChatCall:
    """Raises BadRequest, ModelNotFound, Forbidden and what the border raises."""
    raw = await request.body()
    body = await asyncio.to_thread(parse_json, raw, "the body")
    if not isinstance(body, dict):
        raise BadRequest("the body must be a JSON object")
    model = check_model(body.get("model"), service)
    for name, allowed in _FIXED.items():
        if body.get(name) is not None and body[name] not in allowed:
            raise BadRequest(f"{name}={body[name]!r} is not supported; leave it away")
    text, url = _content(body.get("messages"))
    task, keys = task_of(text)
    schema = _schema(body.get("response_format"))
    opened = service.stable.opened
    streams = opened is not None and opened.streams
    stream = body.get("stream") or False
    if not isinstance(stream, bool):
        raise BadRequest("stream must be true or false")
    usage = body.get("stream_options") or {}
    ask = Ask(
        await _picture(url, fetcher),
        label="picture",
        task=task,
        keys=keys,
        schema=schema if task == "fields" else None,
        options=_options(body),
        limits=service.config.page_limits(),
        max_pages=service.config.max_pages,
        deadline=service.deadline(),
        live=stream and streams,
        client=request.state.client,
    )
    include = isinstance(usage, dict) and bool(usage.get("include_usage"))
    return ChatCall(ask, model, stream, include, streams)


def task_of(text: str) -> tuple[str, tuple[str, ...]]:
    """The task that `text` names or instructs, and the fields that it asks for. Raises BadRequest
    with what would be understood."""
    plain = _squeezed(text)
    if plain in TASKS or plain in ALIASES:
        return ALIASES.get(plain, plain), ()
    for task in TASKS.values():
        if not task.needs_fields and plain in (
            _squeezed(task.instruction),
            _squeezed(task.english),
        ):
            return task.name, ()
    name, colon, rest = plain.partition(":")
    if colon and ALIASES.get(name, name) == "fields":  # "fields: total, date"
        return "fields", tuple(key.strip() for key in rest.split(",") if key.strip())
    if plain.startswith(_squeezed(_BEFORE)) and plain.endswith(_squeezed(_AFTER)):
        return "fields", _listed(text)
    raise BadRequest(
        "the instruction is none of the model's; send one of /v1/tasks to the letter, or a task's "
        f"name: {', '.join(TASKS)}"
    )


def _listed(text: str) -> tuple[str, ...]:
    """The names in an instruction's list, as Python or JSON writes one."""
    found = _NAMES.search(text) if len(text) <= _LONGEST_LIST else None
    try:
        names = ast.literal_eval(found.group()) if found else None
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise BadRequest("the fields of the instruction must be a list of names: ['a', 'b']")
    return tuple(names)


def _squeezed(text: str) -> str:
    return " ".join(text.split())


def _content(messages: Any) -> tuple[str, str]:
    """The last user message's instruction and the address of its picture."""
    if not isinstance(messages, list) or not all(isinstance(m, dict) for m in messages):
        raise BadRequest("messages must be a list of objects")
    for message in messages:
        if message.get("role") == "system" and _text_of(message.get("content")).strip():
            raise BadRequest("the model was trained with an empty system message; leave it empty")
    users = [m for m in messages if m.get("role") == "user"]
    if not users:
        raise BadRequest("there is no message of the role user")
    parts = users[-1].get("content")
    urls = list(_pictures(parts))
    if len(urls) != 1:
        raise BadRequest(f"the message has {len(urls)} pictures; send exactly one image_url part")
    return _text_of(parts), urls[0]


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    texts = [p["text"] for p in _parts(content) if isinstance(p.get("text"), str)]
    return "\n".join(texts)


def _pictures(content: Any) -> Iterator[str]:
    for part in _parts(content):
        given = part.get("image_url") or part.get("image")
        url = given.get("url") if isinstance(given, dict) else given
        if isinstance(url, str):
            yield url


def _parts(content: Any) -> Sequence[Mapping[str, Any]]:
    return [p for p in content if isinstance(p, dict)] if isinstance(content, list) else []


async def _picture(url: str, fetcher: Fetcher) -> bytes:
    if not url.startswith("data:"):
        return await fetcher.fetch(url)
    head, comma, data = url.partition(",")
    if not comma or not head.endswith(";base64"):
        raise BadRequest("a picture's data URL must be data:TYPE;base64,DATA")
    picture = await decode_base64(data, "the picture's data URL")
    if not picture:
        raise BadRequest("the picture's data URL is empty")
    return picture


def _schema(wanted: Any) -> Mapping[str, Any] | None:
    """The JSON Schema of `response_format`, as OpenAI's clients send one."""
    if not isinstance(wanted, dict) or wanted.get("type") in (None, "text", "json_object"):
        return None
    inner = wanted.get("json_schema")
    schema = inner.get("schema") if isinstance(inner, dict) else None
    if wanted.get("type") != "json_schema" or not isinstance(schema, dict):
        raise BadRequest("response_format must be text, json_object, or json_schema with a schema")
    return schema


def _options(body: Mapping[str, Any]) -> dict[str, Any]:
    options = {name: body[name] for name in _SAMPLING if body.get(name) is not None}
    most = body.get("max_completion_tokens")
    most = body.get("max_tokens") if most is None else most
    if most is not None:
        options["max_tokens"] = most
    # The options' types are checked where they are used; these are the ones that could not travel.
    if any(isinstance(value, (dict, list)) for value in options.values()):
        raise BadRequest("sampling parameters must be numbers")
    return options
