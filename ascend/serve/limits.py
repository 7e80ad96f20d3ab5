"""The border of HTTP: who may ask, how often, how much may come in and how long that may take.

Pure ASGI around everything else, so that a limit holds before any byte is parsed and every error
leaves in one shape.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
import uuid
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ascend.serve.errors import (
    BodyTimeout,
    BodyTooLarge,
    error_body,
    info_of,
    retry_after_s,
)
from ascend.serve.keys import KeyRing
from ascend.serve.service import Service

log = logging.getLogger(__name__)

_OPEN = frozenset({"/", "/livez", "/readyz", "/metrics", "/docs", "/openapi.json"})
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_CLIENT_GONE = 499  # nginx's number for a client that left; nobody is there to read it


class ClientGone(Exception):
    """The client closed the connection; there is nobody to answer."""


def json_bytes(value: Any) -> bytes:
    """UTF-8 JSON; a text with half a surrogate pair, which UTF-8 cannot hold, is escaped."""
    try:
        return json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(value).encode("ascii")


class Border:
    """ASGI middleware: identifies the request, checks its key, limits its body, shapes errors."""

    def __init__(self, app: ASGIApp, service: Service, keys: KeyRing) -> None:
        self._app, self._keys = app, keys
        self._config, self._metrics = service.config, service.metrics
        self._tracer = service.tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, headers = time.monotonic(), Headers(scope=scope)
        request_id = headers.get("x-request-id", "")
        if not _REQUEST_ID.fullmatch(request_id):
            request_id = uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        answer = _Answer(send, request_id)
        try:
            scope["state"]["client"] = self._admit(scope, headers)
            body = _Body(receive, self._most(scope["path"]), self._config.body_timeout_s)
            body.check_announced(headers)
            with self._tracer.request(scope["method"], scope["path"], request_id):
                await self._app(scope, body.receive, answer.send)
        except ClientGone:
            answer.status = answer.status or _CLIENT_GONE
        except Exception as error:  # the last border: whatever it is, it leaves in one shape
            await self._tell(error, answer, request_id)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self._metrics.request(route, answer.status, time.monotonic() - begun)

    def _admit(self, scope: Scope, headers: Headers) -> str:
        path = scope["path"]
        token = headers.get("x-api-key")
        kind, _, value = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            token = value.strip()
        if path.startswith("/admin"):
            self._keys.check_admin(token)
            return "admin"
        if path in _OPEN or path.startswith("/docs/") or scope["method"] == "OPTIONS":
            return ""
        return self._keys.client(token)

    def _most(self, path: str) -> int:
        config = self._config
        return config.job_max_body_bytes if path == "/v1/jobs" else config.max_body_bytes

    async def _tell(self, error: Exception, answer: _Answer, request_id: str) -> None:
        info = info_of(error)
        if info.internal:
            log.error("request %s", request_id, exc_info=error)
        elif info.http_status >= 500:
            log.warning("request %s: %s: %s", request_id, info.code, error)
        if answer.status:  # too late to say anything: the broken body says it
            raise error
        body = json_bytes(error_body(error, request_id))
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        wait = retry_after_s(error)
        if wait is not None:
            headers.append((b"retry-after", b"%d" % wait))
        if info.http_status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        if isinstance(error, (BodyTimeout, BodyTooLarge)):  # the rest of the body is not read
            headers.append((b"connection", b"close"))
        await answer.send(
            {"type": "http.response.start", "status": info.http_status, "headers": headers}
        )
        await answer.send({"type": "http.response.body", "body": body})


class _Answer:
    """The way out: adds headers and notes the status."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send, self._request_id = send, request_id
        self.status = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["x-request-id"] = self._request_id
            headers["x-content-type-options"] = "nosniff"
            headers.setdefault("cache-control", "no-store")
        await self._send(message)


class _Body:
    """The way in: no more than `most` bytes, within `seconds`."""

    def __init__(self, receive: Receive, most: int, seconds: float) -> None:
        self._receive, self._most, self._seconds = receive, most, seconds
        self._end = time.monotonic() + seconds
        self._taken = 0
        self._done = False

    def check_announced(self, headers: Headers) -> None:
        announced = headers.get("content-length", "")
        if announced.isdecimal() and int(announced) > self._most:
            raise self._too_large()

    async def receive(self) -> Message:
        if self._done:
            return await self._receive()
        try:
            wait = max(0.001, self._end - time.monotonic())
            message = await asyncio.wait_for(self._receive(), wait)
        except asyncio.TimeoutError:
            raise BodyTimeout(f"the body was not complete after {self._seconds:g} s") from None
        if message["type"] == "http.disconnect":
            raise ClientGone
        self._taken += len(message.get("body", b""))
        if self._taken > self._most:
            raise self._too_large()
        self._done = not message.get("more_body", False)
        return message

    def _too_large(self) -> BodyTooLarge:
        return BodyTooLarge(f"the body has more than {self._most} bytes, the limit")
