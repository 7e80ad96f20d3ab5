"""One model that serves: its queue, its worker process, and what happens when that one dies.

Everything here runs on the event loop; only the worker computes. A request whose worker died before
it said anything is read again, once, by the next worker.

Longer than most files: queue and workers change each other's state in every step.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from ascend.errors import DeadlineExceeded
from ascend.serve.config import ServeConfig
from ascend.serve.errors import (
    NotReady,
    QueueFull,
    ReadFailed,
    ServiceError,
    ShuttingDown,
    WorkerLost,
)
from ascend.serve.messages import (
    Ask,
    Began,
    Cancel,
    Ended,
    EngineState,
    Event,
    Opened,
    PageRead,
    Piece,
    Profile,
    Read,
    WorkerSpec,
)
from ascend.serve.metrics import Metrics
from ascend.serve.process import WorkerProcess
from ascend.serve.queueing import FairQueue

log = logging.getLogger(__name__)

_ATTEMPTS = 2
_LONGEST_PAUSE_S = 30.0
_WATCH_S = 1.0
_FIRST_GUESS_S = 1.0  # of a request's time, before any has ended
_WORKER_STOP_S = 5.0
_PROFILE_ENDS_S = 60.0  # writing what was recorded


@dataclass(eq=False, slots=True)
class Reading:
    """One request on its way. Iterate it for its events; what ended it badly is raised there."""

    number: int
    ask: Ask
    queued: float
    worker: WorkerProcess | None = None
    sent: float = 0.0
    attempts: int = 0
    said: bool = False  # something has been handed on, so it cannot begin again
    closed: bool = False
    timer: asyncio.TimerHandle | None = None
    _events: asyncio.Queue[Event | BaseException] = field(default_factory=asyncio.Queue)

    async def __aiter__(self) -> AsyncIterator[Began | Piece | PageRead]:
        while True:
            event = await self._events.get()
            if isinstance(event, BaseException):
                raise event
            if isinstance(event, Ended):
                if event.error is not None:
                    raise ReadFailed(event.error)
                return
            yield event

    def tell(self, event: Event | BaseException) -> None:
        """Hand an event on; the last one closes."""
        if self.closed:
            return
        self.said = self.said or isinstance(event, (Piece, PageRead))
        self._events.put_nowait(event)
        if isinstance(event, (Ended, BaseException)):
            self.close()

    def close(self) -> None:
        """Nobody is told anything any more."""
        self.closed = True
        if self.timer is not None:
            self.timer.cancel()


class Deployment:
    """One model, served by one worker at a time. `start` before use, `close` at the end."""

    def __init__(self, spec: WorkerSpec, config: ServeConfig, metrics: Metrics) -> None:
        self.spec = spec
        self.opened: Opened | None = None
        self.last_answer = time.monotonic()
        self._config, self._metrics = config, metrics
        self._numbers = itertools.count(1)
        self._waiting: FairQueue[Reading] = FairQueue()
        self._running: dict[int, Reading] = {}
        self._worker: WorkerProcess | None = None
        self._retiring: set[WorkerProcess] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._refusing: ServiceError | None = None
        self._closed = False
        self._recycling = False
        self._mean_s = _FIRST_GUESS_S

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> int:
        return len(self._running)

    async def profile(self, order: Profile) -> None:
        """Record the device of the worker that serves. Raises NotReady, ReadFailed, WorkerLost."""
        if self._worker is None:
            raise NotReady("no worker is open; ask again when the service is ready")
        await self._worker.profile(order, order.seconds + _PROFILE_ENDS_S)

    @property
    def worker(self) -> WorkerProcess | None:
        """The worker that new requests go to, or None while there is none."""
        return self._worker

    @property
    def engines(self) -> tuple[EngineState, ...]:
        worker = self._worker
        if worker is None:
            return ()
        if worker.beat is not None:
            return worker.beat.engines
        return worker.opened.engines if worker.opened else ()

    def answer_age_s(self) -> float:
        """How long ago the engine last gave anything."""
        progressed = self._worker.progressed if self._worker is not None else 0.0
        return time.monotonic() - max(self.last_answer, progressed)

    async def start(self) -> Opened:
        """Open the model and see it read a page. Raises ReadFailed or WorkerLost."""
        worker = self._new_worker()
        opened = await worker.start(self._config.start_timeout_s)
        self._install(worker)
        self._spawn(self._watch())
        return opened

    def submit(self, ask: Ask) -> Reading:
        """Queue a request. Raises QueueFull, or why nothing is taken any more."""
        if self._refusing is not None:
            raise self._refusing
        if self.waiting >= self._config.max_queue:
            raise QueueFull(
                f"{self.waiting} requests wait already (max_queue); try again later",
                self._wait_s(),
            )
        reading = Reading(next(self._numbers), ask, time.monotonic())
        if ask.deadline is not None:
            loop = asyncio.get_running_loop()
            delay = max(0.0, ask.deadline - time.monotonic())
            reading.timer = loop.call_later(delay, self._expire, reading)
        self._waiting.push(ask.client, reading)
        self._dispatch()
        return reading

    def cancel(self, reading: Reading, error: BaseException | None = None) -> None:
        """End a request: its waiter is told `error`, its sequence leaves within a step."""
        if error is not None:
            reading.tell(error)
        reading.close()
        self._waiting.remove(reading.ask.client, reading)
        if reading.number in self._running and reading.worker is not None:
            reading.worker.send(Cancel(reading.number))

    def refuse(self, error: ServiceError) -> None:
        """Take no new requests."""
        self._refusing = error

    async def drain(self, grace_s: float) -> bool:
        """Wait until nothing waits or runs; False when the grace was too short."""
        end = time.monotonic() + grace_s
        while self._waiting or self._running:
            if time.monotonic() >= end:
                return False
            await asyncio.sleep(0.02)
        return True

    def fail_all(self, error: ServiceError) -> None:
        """End everything that waits or runs with `error`."""
        while (reading := self._waiting.pop()) is not None:
            reading.tell(error)
        for reading in list(self._running.values()):
            self.cancel(reading, error)

    async def close(self) -> None:
        """End the worker and everything that waits; idempotent."""
        self._closed = True
        self.refuse(self._refusing or ShuttingDown("this model is no longer served; try again"))
        self.fail_all(ShuttingDown("the service ends; send the request again"))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        workers = [*self._retiring, *([self._worker] if self._worker else [])]
        self._worker = None
        await asyncio.gather(*(worker.stop(_WORKER_STOP_S) for worker in workers))

    def kill(self) -> None:
        """End the worker processes at once; for a service that must end now."""
        self._closed = True
        for worker in [*self._retiring, *([self._worker] if self._worker else [])]:
            worker.kill()

    # -- requests

    def _dispatch(self) -> None:
        worker = self._worker
        if worker is None or worker.opened is None:
            return
        busy = sum(reading.worker is worker for reading in self._running.values())
        while busy < worker.opened.at_once and (reading := self._waiting.pop()) is not None:
            reading.worker, reading.sent = worker, time.monotonic()
            reading.attempts += 1
            self._running[reading.number] = reading
            self._metrics.waited(reading.sent - reading.queued)
            worker.send(Read(reading.number, reading.ask))
            busy += 1

    def _expire(self, reading: Reading) -> None:
        where = "being read" if reading.worker else f"waiting behind {self.waiting - 1} others"
        self.cancel(reading, DeadlineExceeded(f"the deadline passed while it was {where}"))

    def _on_event(self, worker: WorkerProcess, event: Event) -> None:
        reading = self._running.get(event.number)
        if reading is None or reading.worker is not worker:
            return
        if isinstance(event, PageRead) and event.error is None:
            self.last_answer = time.monotonic()
            self._metrics.page(event.outcome)
        reading.tell(event)
        if isinstance(event, Ended):
            del self._running[event.number]
            self._mean_s += 0.1 * (time.monotonic() - reading.sent - self._mean_s)
            worker.served += 1
            self._recycle_if_due(worker)
            self._dispatch()

    def _wait_s(self) -> float:
        """A guess of the time until the queue has room."""
        at_once = self.opened.at_once if self.opened else 1
        return min(60.0, max(1.0, self.waiting * self._mean_s / at_once))

    # -- workers

    def _new_worker(self) -> WorkerProcess:
        return WorkerProcess(self.spec, self._on_event, self._on_gone)

    def _install(self, worker: WorkerProcess) -> None:
        self._worker, self.opened = worker, worker.opened
        self.last_answer = time.monotonic()
        log.info("worker %s serves %s", worker.pid, self.spec.model)
        self._dispatch()

    def _on_gone(self, worker: WorkerProcess) -> None:
        lost = [r for r in self._running.values() if r.worker is worker]
        for reading in lost:
            del self._running[reading.number]
            if reading.closed:
                continue
            if reading.said or reading.attempts >= _ATTEMPTS:
                reading.tell(WorkerLost("the process that read this died; send it again", 1.0))
            else:
                reading.worker = None
                self._waiting.push(reading.ask.client, reading, first=True)
        self._retiring.discard(worker)
        if worker is self._worker and not self._closed:
            log.error("worker %s died; %d requests were with it", worker.pid, len(lost))
            self._worker = None
            self._metrics.restarted("died")
            self._spawn(self._restart())

    async def _restart(self) -> None:
        pause_s = 0.0
        while not self._closed:
            await asyncio.sleep(pause_s)
            pause_s = min(_LONGEST_PAUSE_S, max(1.0, 2 * pause_s))
            worker = self._new_worker()
            try:
                await worker.start(self._config.start_timeout_s)
            except (ReadFailed, WorkerLost) as error:
                log.error("no worker: %s; again in %g s", error, pause_s)
                continue
            self._install(worker)
            return

    def _recycle_if_due(self, worker: WorkerProcess) -> None:
        if worker is not self._worker or self._recycling or self._closed:
            return
        config, grown = self._config, 0
        if worker.beat is not None and worker.opened is not None:
            grown = worker.beat.rss_bytes - worker.opened.rss_bytes
        if config.worker_growth_bytes and grown > config.worker_growth_bytes:
            reason = "memory"
        elif config.worker_requests and worker.served >= config.worker_requests:
            reason = "requests"
        else:
            return
        self._recycling = True
        self._metrics.restarted(reason)
        log.info("worker %s is replaced (%s)", worker.pid, reason)
        self._spawn(self._recycle(worker))

    async def _recycle(self, old: WorkerProcess) -> None:
        """A new worker beside the old one, or where there is no room for two, after it."""
        new = self._new_worker()
        fresh: WorkerProcess | None = new
        try:
            await new.start(self._config.start_timeout_s)
        except (ReadFailed, WorkerLost) as error:
            log.warning("no second worker beside the first (%s); one after the other", error)
            fresh = None
        if self._worker is old:  # else it died meanwhile and has a successor
            self._retiring.add(old)
            self._worker = None
            if fresh is not None:
                self._install(fresh)
            while any(reading.worker is old for reading in self._running.values()):
                await asyncio.sleep(0.02)
            await old.stop(_WORKER_STOP_S)
            if fresh is None:
                await self._restart()
        elif fresh is not None:
            await fresh.stop(_WORKER_STOP_S)
        self._recycling = False

    async def _watch(self) -> None:
        """Ends a worker that has work and makes no progress."""
        while not self._closed:
            await asyncio.sleep(_WATCH_S)
            worker = self._worker
            sent = [r.sent for r in self._running.values() if r.worker is worker]
            if worker is None or not sent:
                continue
            silent = time.monotonic() - max(worker.progressed, min(sent))
            if silent > self._config.hang_s:
                log.error("worker %s made no progress for %.0f s; it is ended", worker.pid, silent)
                self._metrics.restarted("hung")
                worker.kill()

    def _spawn(self, work: object) -> None:
        task: asyncio.Task[None] = asyncio.ensure_future(work)  # type: ignore[call-overload]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def not_ready(self) -> NotReady | None:
        """Why nothing can be read now, or None."""
        if self._worker is None:
            return NotReady("the model is being opened", 2.0)
        age, limit = self.answer_age_s(), self._config.ready_interval_s
        if age > limit:
            return NotReady(f"no inference for {age:.0f} s; the limit is {limit:g} s", 2.0)
        return None
