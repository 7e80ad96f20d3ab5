"""From an HTTP request, whatever its form, to what is asked of the reader."""

from __future__ import annotations

import argparse
import asyncio
import base64
import binascii
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

from starlette.datastructures import UploadFile
from starlette.requests import Request

from ascend.commands.read import page_list
from ascend.serve.errors import BadRequest
from ascend.serve.messages import Ask
from ascend.serve.service import Service
from host_pipeline.tasks import task as task_named

Format = Literal["json", "jsonl", "text", "markdown", "html"]

# What a client may set of a reading (ascend.families.hunyuanocr_options).
OPTIONS = frozenset(
    "profile resize budget tile draft retry temperature top_k top_p repetition_penalty max_tokens "
    "seed".split()
)
_PARAMETERS = frozenset("task fields schema pages options format stream timeout_s filename".split())
_SMALL = 1 << 16  # bytes of base64 that are decoded on the event loop; more go to a thread
_LABEL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Call:
    """One request of our own API: what is asked, and how the answer is wanted."""

    ask: Ask
    format: Format
    stream: bool


async def read_call(request: Request, service: Service, spool: Path | None = None) -> Call:
    """The call in a multipart form, a JSON object or a raw body with its parameters in the query.

    spool: a file that takes a raw or multipart body instead of memory; the source is its path then.
    Raises BadRequest, TaskError and what the border raises while the body comes."""
    given: dict[str, Any] = dict(request.query_params)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    source: bytes | str
    if kind == "multipart/form-data":
        source = await _from_form(request, given, spool)
    elif kind == "application/json":
        source = await _from_json(request, given)
    elif kind == "application/x-www-form-urlencoded":
        raise BadRequest("send a file as multipart/form-data, as raw bytes, or as JSON with base64")
    else:
        source = await _raw(request, spool)
    if not source or (isinstance(source, str) and not Path(source).stat().st_size):
        raise BadRequest("there is no file in the request")
    return _call(given, source, service, request.state.client)


def parse_json(text: str | bytes, what: str) -> Any:
    """JSON without NaN and Infinity. Raises BadRequest."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"{what} is no JSON: {error}") from None


async def decode_base64(text: str, what: str) -> bytes:
    """Raises BadRequest for what is no base64. Line breaks are allowed."""
    return (
        _decoded(text, what)
        if len(text) < _SMALL
        else await asyncio.to_thread(_decoded, text, what)
    )


async def _from_form(request: Request, given: dict[str, Any], spool: Path | None) -> bytes | str:
    source: bytes | str = b""
    async with request.form(max_files=1, max_fields=32, max_part_size=_BLOCK) as form:
        for name, value in form.multi_items():
            if not isinstance(value, UploadFile):
                given[name] = value
                continue
            given.setdefault("filename", value.filename)
            if spool is None:
                source = await value.read()
                continue
            with open(spool, "wb") as out:
                while block := await value.read(_BLOCK):
                    await asyncio.to_thread(out.write, block)
            source = str(spool)
    return source


async def _from_json(request: Request, given: dict[str, Any]) -> bytes:
    raw = await request.body()
    body = await asyncio.to_thread(parse_json, raw, "the body")
    if not isinstance(body, dict):
        raise BadRequest("the JSON body must be an object")
    data = body.pop("data", None)
    if not isinstance(data, str):
        raise BadRequest("`data` must hold the file in base64")
    given.update(body)
    if data.startswith("data:"):
        data = data.partition(",")[2]
    return await decode_base64(data, "`data`")


async def _raw(request: Request, spool: Path | None) -> bytes | str:
    if spool is None:
        return await request.body()
    with open(spool, "wb") as out:
        async for block in request.stream():
            await asyncio.to_thread(out.write, block)
    return str(spool)


def _call(given: Mapping[str, Any], source: bytes | str, service: Service, client: str) -> Call:
    unknown = sorted(given.keys() - _PARAMETERS)
    if unknown:
        known = ", ".join(sorted(_PARAMETERS))
        raise BadRequest(f"unknown parameter {unknown[0]!r}; there are {known}")
    keys, schema = _keys(given.get("fields")), _object(given.get("schema"), "schema")
    default = "fields" if keys or schema else "spotting"
    task = given.get("task") or default
    if not isinstance(task, str):
        raise BadRequest(f"task must be a name, not {type(task).__name__}")
    wanted = given.get("format", "json")
    if wanted not in get_args(Format):
        raise BadRequest(f"format must be one of {', '.join(get_args(Format))}")
    config = service.config
    ask = Ask(
        source,
        label=_label(given.get("filename")),
        task=task_named(task).name,
        keys=keys,
        schema=schema,
        pages=_pages(given.get("pages"), config.max_pages),
        options=check_options(_object(given.get("options"), "options") or {}),
        limits=config.page_limits(),
        max_pages=config.max_pages,
        deadline=service.deadline(_seconds(given.get("timeout_s"))),
        client=client,
    )
    return Call(ask, cast(Format, wanted), wanted == "jsonl" or _flag(given.get("stream")))


def check_options(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """`options` as they are. Raises BadRequest for a name that no model has."""
    unknown = sorted(options.keys() - OPTIONS)
    if unknown:
        raise BadRequest(f"unknown option {unknown[0]!r}; there are {', '.join(sorted(OPTIONS))}")
    return options


def _keys(raw: Any) -> tuple[str, ...]:
    """Names of fields: a list, its JSON, or names with commas between."""
    if raw is None or raw == "":
        return ()
    if isinstance(raw, str):
        raw = parse_json(raw, "fields") if raw.lstrip().startswith("[") else raw.split(",")
    if not isinstance(raw, list) or not all(isinstance(key, str) for key in raw):
        raise BadRequest("fields must be names: a list, or a text with commas")
    return tuple(key.strip() for key in raw if key.strip())


def _object(raw: Any, name: str) -> Mapping[str, Any] | None:
    if raw is None or raw == "":
        return None
    if isinstance(raw, str):
        raw = parse_json(raw, name)
    if not isinstance(raw, dict):
        raise BadRequest(f"{name} must be a JSON object")
    return raw


def _pages(raw: Any, most: int) -> tuple[int, ...] | None:
    """0-based pages from "1-3,7" or a list that counts from 1; no more than `most`."""
    if raw is None or raw == "":
        return None
    if isinstance(raw, list):
        raw = ",".join(map(str, raw))
    # A range is counted before it is spelt out: "1-999999999" must not fill the memory.
    spans = re.findall(r"(\d{1,9})\s*-\s*(\d{1,9})", str(raw))
    if sum(int(last) - int(first) for first, last in spans) >= most or len(str(raw)) > 8192:
        raise BadRequest(f"one request reads {most} pages; name fewer, or use /v1/jobs")
    try:
        pages = page_list(str(raw))
    except argparse.ArgumentTypeError as error:
        raise BadRequest(f"pages: {error}") from None
    if len(pages) > most:
        raise BadRequest(f"one request reads {most} pages; name fewer, or use /v1/jobs")
    return pages


def _seconds(raw: Any) -> float | None:
    if raw is None or raw == "":
        return None
    try:
        seconds = float(raw)
    except (TypeError, ValueError):
        seconds = math.nan
    if not seconds > 0:
        raise BadRequest("timeout_s must be a number of seconds over 0")
    return seconds


def _flag(raw: Any) -> bool:
    if isinstance(raw, bool):
        return raw
    if raw in (None, "", "0", "false", "no"):
        return False
    if raw in ("1", "true", "yes"):
        return True
    raise BadRequest("stream must be true or false")


def _label(raw: Any) -> str:
    """A file's name as the client calls it, fit to be shown: no folder, no control characters."""
    if not isinstance(raw, str):
        return "upload"
    name = _LABEL.sub("", raw.replace("\\", "/").rpartition("/")[2]).strip()
    return name[:128] or "upload"


def _decoded(text: str, what: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        raise BadRequest(f"{what} is no base64") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")
