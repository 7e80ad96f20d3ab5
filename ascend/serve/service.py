"""The service behind the routes: which model reads a request, and how one model follows another.

A new model opens beside the old one, must read the canary pages as that one does, and then takes
all requests, or a share of them first: what it fails is read by the old one, and errors or
drifting texts send it away again. Nobody's request is lost by a change.

Longer than most files: the states between two models only make sense side by side.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ascend.errors import DeadlineExceeded
from ascend.serve.canaries import CanaryPage, drift_of, load_canaries, page_text_of
from ascend.serve.config import ServeConfig
from ascend.serve.deployment import Deployment
from ascend.serve.errors import (
    Conflict,
    NotFound,
    ReadFailed,
    ReloadRefused,
    ServiceError,
    ShuttingDown,
    WorkerLost,
    info_of,
)
from ascend.serve.messages import Ask, Began, PageRead, Piece, WorkerSpec
from ascend.serve.metrics import Metrics
from ascend.serve.tracing import open_tracer

log = logging.getLogger(__name__)

_CANARY_TOKENS = 512
_DRIFT_AFTER = 3  # compared answers before their mean drift counts
_PROMOTE_AFTER = 20  # answers of a candidate compared and found the same


@dataclass(slots=True)
class Candidate:
    """A new model that serves a share of the requests, and how it does."""

    deployment: Deployment
    weight: float
    owed: float = 0.0
    answers: int = 0
    compared: int = 0
    drift: float = 0.0

    def takes(self) -> bool:
        """Whether the next request is its turn: exactly `weight` of them are."""
        self.owed += self.weight
        if self.owed < 1.0 - 1e-9:
            return False
        self.owed -= 1.0
        return True


class Service:
    """All of it but HTTP. `start`, then `read`; `shut_down` at the end."""

    def __init__(self, config: ServeConfig) -> None:
        self.config = config
        self.metrics = Metrics()
        self.tracer = open_tracer(config.otel_endpoint)
        self.stable = Deployment(config.worker(), config, self.metrics)
        self.candidate: Candidate | None = None
        self.stopping = False
        self.loop: asyncio.AbstractEventLoop | None = None
        self.started = time.time()
        self._canaries: tuple[CanaryPage, ...] = ()
        self._changing = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self.metrics.watch(self)

    async def start(self) -> None:
        """Open the model. Raises ReadFailed or WorkerLost when it cannot be."""
        self.loop = asyncio.get_running_loop()
        self._canaries = await asyncio.to_thread(load_canaries, self.config.canaries)
        await self.stable.start()
        self._spawn(self._probe())
        if self.config.watch_s:
            self._spawn(self._watch_files())

    async def read(self, ask: Ask) -> AsyncGenerator[Began | Piece | PageRead, None]:
        """The events of one request; closing the iterator cancels it. Raises what stops it."""
        candidate = self.candidate
        if candidate is None or not candidate.takes():
            async with contextlib.aclosing(self._read_by(self.stable, ask)) as events:
                async for event in events:
                    yield event
            return
        said, texts = False, []
        try:
            async with contextlib.aclosing(self._read_by(candidate.deployment, ask)) as events:
                async for event in events:
                    said = said or not isinstance(event, Began)
                    if isinstance(event, PageRead):
                        texts.append(page_text_of(event.outcome))
                    yield event
        except (ReadFailed, WorkerLost, ShuttingDown) as error:
            if said or not _own_fault(error):
                raise
            await self._candidate_failed(candidate, error)
            async with contextlib.aclosing(self._read_by(self.stable, ask)) as events:
                async for event in events:
                    yield event
            return
        candidate.answers += 1
        self._spawn(self._compare(candidate, ask, texts))

    async def read_text(self, deployment: Deployment, ask: Ask) -> list[str]:
        """The text of every page as `deployment` reads it."""
        events = self._read_by(deployment, ask)
        return [page_text_of(e.outcome) async for e in events if isinstance(e, PageRead)]

    async def reload(
        self,
        model: str | None = None,
        engine: str | None = None,
        weight: float | None = None,
        force: bool = False,
    ) -> dict[str, Any]:
        """Put another model (or the same files anew) in the place of the one that serves; with a
        `weight` it serves that share first. Raises Conflict while another change is under way, and
        ReloadRefused with the old model untouched."""
        if self._changing.locked() or self.candidate is not None:
            raise Conflict("a change of the model is under way; promote it or roll it back", 5.0)
        async with self._changing:
            old = self.stable.spec
            spec = WorkerSpec(model or old.model, engine or old.engine, old.slots, old.settings)
            fresh = Deployment(spec, self.config, self.metrics)
            drift = await self._try(fresh, force)
            if weight is None:
                await self._switch(fresh)
                self.metrics.reloaded("switched")
            else:
                self.candidate = Candidate(fresh, weight)
                self.metrics.reloaded("candidate")
        return {"state": "serving" if weight is None else "candidate", "drift": drift}

    async def promote(self) -> None:
        """Give the candidate all requests. Raises NotFound when there is none."""
        candidate = self._take_candidate()
        async with self._changing:
            await self._switch(candidate.deployment)
        self.metrics.reloaded("promoted")

    async def roll_back(self, reason: str) -> None:
        """Send the candidate away; what it still reads, it finishes. NotFound: there is none."""
        candidate = self._take_candidate()
        log.warning("the candidate is rolled back: %s", reason)
        self.metrics.reloaded("rolled_back")
        self._spawn(self._retire(candidate.deployment))

    def begin_shutdown(self) -> None:
        """Take no new requests."""
        self.stopping = True
        for deployment in self._deployments():
            deployment.refuse(ShuttingDown("the service is shutting down", 5.0))

    def cut_off(self) -> None:
        """End what still runs, with an error that says so."""
        for deployment in self._deployments():
            deployment.fail_all(
                ShuttingDown("the service was shut down before this was read; send it again", 5.0)
            )

    async def shut_down(self) -> None:
        """End workers and tasks; idempotent."""
        self.begin_shutdown()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(deployment.close() for deployment in self._deployments()))
        self.tracer.close()

    def kill(self) -> None:
        """End the worker processes at once."""
        for deployment in self._deployments():
            deployment.kill()

    def deadline(self, wanted_s: float | None = None) -> float:
        """On `time.monotonic`: in `wanted_s`, and no later than the service allows."""
        limit = self.config.deadline_s
        return time.monotonic() + (limit if wanted_s is None else min(wanted_s, limit))

    # -- one request

    async def _read_by(
        self, deployment: Deployment, ask: Ask
    ) -> AsyncGenerator[Began | Piece | PageRead, None]:
        reading = deployment.submit(ask)
        try:
            async for event in reading:
                if isinstance(event, PageRead):
                    self.tracer.page(event.outcome)
                yield event
        finally:
            deployment.cancel(reading)

    async def _compare(self, candidate: Candidate, ask: Ask, texts: list[str]) -> None:
        """Let the old model read the same, when it has time, and judge the candidate by it."""
        if self.stable.waiting or self.candidate is not candidate:
            return
        again = dataclasses.replace(ask, live=False, client="compare", deadline=self.deadline())
        try:
            before = await self.read_text(self.stable, again)
        except (ReadFailed, ServiceError, DeadlineExceeded):
            return  # nothing to compare with
        candidate.compared += 1
        candidate.drift += (drift_of(texts, before) - candidate.drift) / candidate.compared
        if self.candidate is not candidate or candidate.compared < _DRIFT_AFTER:
            return
        if candidate.drift > self.config.max_drift:
            await self._send_away(candidate, f"its texts differ by {candidate.drift:.3f}")
        elif candidate.compared >= _PROMOTE_AFTER:
            log.info("the candidate has read %d pages alike", candidate.compared)
            with contextlib.suppress(NotFound, Conflict):
                await self.promote()

    async def _candidate_failed(self, candidate: Candidate, error: BaseException) -> None:
        await self._send_away(candidate, info_of(error).code)

    async def _send_away(self, candidate: Candidate, reason: str) -> None:
        if self.candidate is candidate:
            await self.roll_back(reason)

    # -- changes of the model

    async def _try(self, fresh: Deployment, force: bool) -> float:
        """Open `fresh` and compare; returns the drift. Closes it and raises ReloadRefused when it
        will not do."""
        try:
            await fresh.start()
            drift = await self._canary_drift(fresh)
            if drift > self.config.max_drift and not force:
                raise ReloadRefused(
                    f"its texts of the canary pages differ by {drift:.3f}, the limit is "
                    f"{self.config.max_drift:g} (max_drift); the old model serves on"
                )
            return drift
        except BaseException as error:
            self.metrics.reloaded("refused")
            await fresh.close()
            if isinstance(error, (ReadFailed, WorkerLost)):
                log.error("the new model was refused: %s", error)
                text = f"the new model cannot be opened ({info_of(error).code}); see the log"
                raise ReloadRefused(f"{text}; the old model serves on") from error
            raise

    async def _canary_drift(self, fresh: Deployment) -> float:
        """How far `fresh` is worse than the model that serves, over the canary pages: against
        the true text where it is known, else against what the old model reads."""
        worst = 0.0
        for page in self._canaries:
            ask = self._canary_ask(page)
            new = await self.read_text(fresh, ask)
            old = await self.read_text(self.stable, dataclasses.replace(ask, deadline=None))
            if page.truth is None:
                worst = max(worst, drift_of(new, old))
            else:
                worst = max(worst, drift_of(new, [page.truth]) - drift_of(old, [page.truth]))
        return worst

    def _canary_ask(self, page: CanaryPage) -> Ask:
        opened = self.stable.opened
        options = {"max_tokens": _CANARY_TOKENS} if opened is not None and opened.streams else {}
        return Ask(page.data, "canary", options=options, client="canary")

    async def _switch(self, fresh: Deployment) -> None:
        old, self.stable = self.stable, fresh
        self._spawn(self._retire(old))

    async def _retire(self, old: Deployment) -> None:
        """Let `old` finish what it has, then end it."""
        try:
            await old.drain(self.config.deadline_s)
        finally:
            await old.close()

    def _take_candidate(self) -> Candidate:
        candidate, self.candidate = self.candidate, None
        if candidate is None:
            raise NotFound("no new model is being tried")
        return candidate

    # -- what runs beside the requests

    async def _probe(self) -> None:
        """An idle engine reads a page now and then, so that `ready` is never a guess."""
        interval = self.config.ready_interval_s
        page = self._canaries[0]
        while True:
            await asyncio.sleep(interval / 8)
            if self.stable.answer_age_s() < interval / 2 or self.stable.waiting:
                continue
            options = {"max_tokens": 1} if self.stable.opened and self.stable.opened.streams else {}
            ask = Ask(page.data, "probe", options=options, deadline=self.deadline(interval))
            try:
                await self.read_text(self.stable, ask)
            except (ReadFailed, ServiceError, DeadlineExceeded) as error:
                log.warning("the probe was not read: %s", error)

    async def _watch_files(self) -> None:
        """Reloads when the model's files have changed and rest."""
        seen = settled = await asyncio.to_thread(_fingerprint, self.stable.spec.model)
        while True:
            await asyncio.sleep(self.config.watch_s)
            now = await asyncio.to_thread(_fingerprint, self.stable.spec.model)
            if now != settled and now == seen:  # changed, and the same twice: written whole
                settled = now
                log.info("the model's files have changed")
                try:
                    await self.reload()
                except ServiceError as error:
                    log.error("the changed model does not serve: %s", error)
            seen = now

    def _deployments(self) -> list[Deployment]:
        more = [self.candidate.deployment] if self.candidate is not None else []
        return [self.stable, *more]

    def _spawn(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _own_fault(error: BaseException) -> bool:
    """Whether the model, and not the request, is at fault."""
    return info_of(error).http_status >= 500


def _fingerprint(model: str) -> tuple[tuple[str, int, int], ...]:
    """Names, sizes and times of a model's files; empty for a model without any."""
    path = Path(model)
    files = sorted(path.rglob("*")) if path.is_dir() else [path] if path.is_file() else []
    found = []
    for file in files:
        with contextlib.suppress(OSError):  # removed while we look
            about = file.stat()
            found.append((str(file), about.st_size, about.st_mtime_ns))
    return tuple(found)
