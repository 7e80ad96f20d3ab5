"""One worker process as the event loop sees it: start, orders, events, end.

Two threads stand between the loop and the pipe, because either end of a pipe may block; nothing
else here waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import queue
import threading
import time
from collections.abc import Callable

from ascend.serve.errors import ReadFailed, WorkerLost
from ascend.serve.messages import (
    Beat,
    Event,
    Opened,
    OpenFailed,
    Profile,
    Profiled,
    Stop,
    WorkerSpec,
)
from ascend.serve.worker import run_worker

log = logging.getLogger(__name__)


class WorkerProcess:
    """A spawned worker. `start` it, `send` it orders, `stop` or `kill` it.

    on_event: called on the loop with every event of a request; on_gone: called on the loop once,
    when the process has ended after it was open."""

    def __init__(
        self,
        spec: WorkerSpec,
        on_event: Callable[[WorkerProcess, Event], None],
        on_gone: Callable[[WorkerProcess], None],
    ) -> None:
        self.spec = spec
        self.opened: Opened | None = None
        self.beat: Beat | None = None
        self.progressed = time.monotonic()
        self.served = 0
        self._on_event, self._on_gone = on_event, on_gone
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[Opened] = self._loop.create_future()
        self._gone = asyncio.Event()
        self._profiled: asyncio.Future[Profiled] | None = None
        self._orders: queue.SimpleQueue[object] = queue.SimpleQueue()
        context = multiprocessing.get_context("spawn")
        self._pipe, self._theirs = context.Pipe()
        self._process = context.Process(
            target=run_worker, args=(self._theirs, spec), name="hyocr-worker", daemon=True
        )

    @property
    def pid(self) -> int | None:
        return self._process.pid

    async def start(self, timeout_s: float) -> Opened:
        """The open worker. Raises ReadFailed with the reason it gave, or WorkerLost."""
        self._process.start()
        self._theirs.close()
        for target in (self._receive, self._deliver):
            threading.Thread(target=target, name=target.__name__, daemon=True).start()
        try:
            self.opened = await asyncio.wait_for(asyncio.shield(self._ready), timeout_s)
        except asyncio.TimeoutError:
            self.kill()
            raise WorkerLost(f"the model was not open after {timeout_s:g} s") from None
        except BaseException:
            self.kill()
            raise
        return self.opened

    def send(self, order: object) -> None:
        """Queue an order; returns at once."""
        self._orders.put(order)

    async def profile(self, order: Profile, timeout_s: float) -> None:
        """Record the worker's device. Raises ReadFailed with its reason, WorkerLost."""
        if self._profiled is not None and not self._profiled.done():
            raise WorkerLost("a profile is being recorded already; ask again when it has ended")
        self._profiled = self._loop.create_future()
        self.send(order)
        try:
            done = await asyncio.wait_for(self._profiled, timeout_s)
        except asyncio.TimeoutError:
            raise WorkerLost(f"the profile was not there after {timeout_s:g} s") from None
        if done.error is not None:
            raise ReadFailed(done.error)

    async def stop(self, timeout_s: float) -> None:
        """Let what runs end, then end the process; kill it when that takes too long."""
        self.send(Stop())
        try:
            await asyncio.wait_for(self._gone.wait(), timeout_s)
        except asyncio.TimeoutError:
            log.warning("worker %s did not stop in %g s", self.pid, timeout_s)
            self.kill()
            await self._gone.wait()

    def kill(self) -> None:
        """End the process at once; idempotent."""
        if self._process.pid is not None and self._process.is_alive():
            self._process.kill()

    def _receive(self) -> None:
        """Thread: hand the worker's messages to the loop until the pipe ends."""
        with contextlib.suppress(EOFError, OSError):
            while True:
                self._to_loop(self._take, self._pipe.recv())
        self._orders.put(None)
        self._process.join()
        self._to_loop(self._end)

    def _deliver(self) -> None:
        """Thread: write orders, which may be large, to the pipe."""
        with contextlib.suppress(OSError):
            while (order := self._orders.get()) is not None:
                self._pipe.send(order)

    def _to_loop(self, call: Callable[..., None], *given: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the service has ended
            self._loop.call_soon_threadsafe(call, *given)

    def _take(self, message: object) -> None:
        if isinstance(message, Beat):
            if message.progress > (self.beat.progress if self.beat else 0):
                self.progressed = time.monotonic()
            self.beat = message
        elif isinstance(message, Opened):
            self.progressed = time.monotonic()
            if not self._ready.done():
                self._ready.set_result(message)
        elif isinstance(message, Profiled):
            if self._profiled is not None and not self._profiled.done():
                self._profiled.set_result(message)
        elif isinstance(message, OpenFailed):
            if not self._ready.done():
                self._ready.set_exception(ReadFailed(message.error))
        else:
            assert isinstance(message, Event)
            self._on_event(self, message)

    def _end(self) -> None:
        self._pipe.close()
        self._gone.set()
        if not self._ready.done():
            code = self._process.exitcode
            self._ready.set_exception(WorkerLost(f"the worker ended with {code} while opening"))
            self._ready.exception()  # whoever started it may have given up already
        elif self.opened is not None:
            self._on_gone(self)
