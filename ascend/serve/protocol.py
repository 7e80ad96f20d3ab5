"""HTTP connections that cannot be held open for nothing: uvicorn's protocol with two timers more.

uvicorn waits for ever for a request's head once a byte of it is there, and for a client that does
not take its answer.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from ascend.serve.errors import HttpError, error_body

LONGEST_HEAD_S = 20.0


class TimedProtocol(H11Protocol):
    """Closes a connection on which the head of a request is not whole within `head_s`, or whose
    client has stopped reading for `write_timeout_s`."""

    head_s = LONGEST_HEAD_S
    write_timeout_s = 60.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._stalled: asyncio.TimerHandle | None = None
        self._head: asyncio.TimerHandle | None = self.loop.call_later(self.head_s, self._no_head)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head()
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self._between_requests():
            self._stop_head()
        elif self._head is None:  # the first bytes of the next head; more of them win no time
            self._head = self.loop.call_later(self.head_s, self._no_head)

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP gets the error's JSON shape too."""
        error = error_body(HttpError(400, msg), uuid.uuid4().hex)
        body = json.dumps(error).encode("ascii")
        headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
        headers.append((b"content-length", b"%d" % len(body)))
        head = h11.Response(status_code=400, headers=headers, reason=b"Bad Request")
        for event in (head, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stop_timer()
        self._stalled = self.loop.call_later(self.write_timeout_s, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop_timer()
        super().resume_writing()

    def _stop_timer(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _stop_head(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _no_head(self) -> None:
        if self._between_requests() and not self.transport.is_closing():
            self.transport.close()


def protocol_with(head_s: float, write_timeout_s: float) -> type[Any]:
    """The protocol with this patience for a head that does not end and a client that does not
    read."""
    times = {"head_s": min(head_s, LONGEST_HEAD_S), "write_timeout_s": write_timeout_s}
    return type("Protocol", (TimedProtocol,), times)
