"""HTTP connections that cannot be held open for nothing: uvicorn's protocol with two timers more.

uvicorn waits for ever for the head of a first request, and for a client that does not take its
answer.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 20.0


class TimedProtocol(H11Protocol):
    """Closes a connection whose first request's head is not there in time, or whose client has
    stopped reading for `write_timeout_s`."""

    write_timeout_s = 60.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._stalled: asyncio.TimerHandle | None = None
        self._head = self.loop.call_later(HEAD_S, self._no_head)

    def connection_lost(self, exc: Exception | None) -> None:
        self._head.cancel()
        self._stop_timer()
        super().connection_lost(exc)

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

    def _no_head(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.close()


def protocol_with(write_timeout_s: float) -> type[Any]:
    """The protocol with this patience for a client that does not read."""
    return type("Protocol", (TimedProtocol,), {"write_timeout_s": write_timeout_s})
