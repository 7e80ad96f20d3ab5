"""Long documents: sent once, read page by page beside the other requests, fetched when done.

The file and the pages read so far lie in a folder of the job's own. Those folders go when the
service ends; with `jobs_dir` they stay, and the next service goes on where this one was ended. A
page whose worker died is read again, so a job of a thousand pages survives any one of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import secrets
import shutil
import tempfile
import time
from collections import deque
from pathlib import Path

from fastapi import APIRouter, Request, Response

from ascend.errors import DeadlineExceeded
from ascend.serve.answers import json_response, page_value, stored_pages
from ascend.serve.errors import (
    Conflict,
    NotFound,
    QueueFull,
    ReadFailed,
    ServiceError,
    ShuttingDown,
    error_body,
    info_of,
)
from ascend.serve.job_files import Job, load_jobs, save_job
from ascend.serve.limits import json_bytes
from ascend.serve.messages import Ask, Began, PageRead
from ascend.serve.openapi import OCR_BODY
from ascend.serve.service import Service
from ascend.serve.wire import Call, read_call
from host_pipeline.limits import PageLimits

_AHEAD = 4  # pages of a job that are asked for at once, so that an engine with slots fills them
_TRIES = 5
_SWEEP_S = 5.0


class JobStore:
    """All jobs of one service. `start` before use; `close` ends them, and removes them unless they
    have a folder to stay in."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._jobs: dict[str, Job] = {}
        self._folder: Path | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self._closing = False

    def start(self) -> None:
        """Make the folder of the jobs, or go on with those that are in it; sweep expired ones."""
        kept = self.service.config.jobs_dir
        if kept is None:
            self._folder = Path(tempfile.mkdtemp(prefix="hyocr-jobs-"))
        else:
            self._folder = Path(kept)
            self._folder.mkdir(0o700, parents=True, exist_ok=True)
            for job in load_jobs(self._folder, self._limits()):
                self._jobs[job.number] = job
                if job.ended is None:
                    job.task = asyncio.ensure_future(self._run(job))
        self._sweeper = asyncio.ensure_future(self._sweep())

    async def close(self) -> None:
        """Ends every job; idempotent."""
        self._closing = True
        tasks = [self._sweeper, *(job.task for job in self._jobs.values())]
        for task in filter(None, tasks):
            task.cancel()
        await asyncio.gather(*filter(None, tasks), return_exceptions=True)
        if self._folder is not None and self.service.config.jobs_dir is None:
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def create(self, request: Request) -> Job:
        """A job of the request's document. Raises QueueFull and what a request can have wrong."""
        limit = self.service.config.job_max_count
        if len(self._jobs) >= limit:
            raise QueueFull(f"there are {limit} jobs already (job_max_count)", 30.0)
        if self.service.stopping or self._folder is None:
            raise ShuttingDown("the service is shutting down", 5.0)
        number = secrets.token_urlsafe(18)
        folder = self._folder / number
        folder.mkdir()
        try:
            call = await read_call(request, self.service, folder / "source")
            job = await self._made(number, folder, call, request.state.client)
            save_job(job)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self._jobs[number] = job
        job.task = asyncio.ensure_future(self._run(job))
        return job

    def get(self, number: str, client: str) -> Job:
        """Raises NotFound, for another client's job too."""
        job = self._jobs.get(number)
        if job is None or job.client != client:
            raise NotFound("there is no such job; it may have expired")
        return job

    async def remove(self, job: Job) -> None:
        """End a job and forget it."""
        self._jobs.pop(job.number, None)
        if job.task is not None:
            job.task.cancel()
            await asyncio.gather(job.task, return_exceptions=True)
        if job.status in ("waiting", "running"):
            job.status = "cancelled"
        await asyncio.to_thread(shutil.rmtree, job.folder, ignore_errors=True)

    async def _made(self, number: str, folder: Path, call: Call, client: str) -> Job:
        source = folder / "source"
        if isinstance(call.ask.source, bytes):  # it came as JSON
            await asyncio.to_thread(source.write_bytes, call.ask.source)
        ask = dataclasses.replace(
            call.ask,
            source=str(source),
            limits=self._limits(),
            max_pages=None,
            deadline=None,
            client=f"job {number}",
        )
        return Job(number, client, folder, ask)

    def _limits(self) -> PageLimits:
        return self.service.config.page_limits(self.service.config.job_max_body_bytes)

    # -- one job

    async def _run(self, job: Job) -> None:
        job.status = "running"
        try:
            await self._read_pages(job)
            job.status = "failed" if job.done == 0 and job.failed else "done"
        except asyncio.CancelledError:
            job.status = "cancelled"
            raise
        except Exception as error:  # it is told to whoever asks for the job
            job.status, job.error = "failed", error_body(error, "")["error"]
        finally:
            if not self._closing:  # else it goes on in the next service, if it has a folder
                job.ended = time.time()
                with contextlib.suppress(FileNotFoundError):  # the job is being removed
                    save_job(job)

    async def _read_pages(self, job: Job) -> None:
        """Read and write the pages that are not there yet in order, a few of them at a time."""
        wanted = job.ask.pages
        if not job.done + job.failed:
            page = await self._read_page(job, wanted[0] if wanted else 0)
            save_job(job)  # with the number of its pages
            self._keep(job, page)
        every = range(job.page_count or 1) if wanted is None else wanted
        under_way: deque[asyncio.Task[PageRead]] = deque()
        pages = iter(every[job.done + job.failed :])
        try:
            for index in itertools.islice(pages, _AHEAD):
                under_way.append(asyncio.ensure_future(self._read_page(job, index)))
            while under_way:
                self._keep(job, await under_way[0])
                under_way.popleft()
                for index in itertools.islice(pages, 1):
                    under_way.append(asyncio.ensure_future(self._read_page(job, index)))
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def _read_page(self, job: Job, index: int) -> PageRead:
        """One page, tried again while the error says that this may help."""
        for trial in range(1, _TRIES + 1):
            ask = dataclasses.replace(job.ask, pages=(index,), deadline=self.service.deadline())
            try:
                return await self._try_page(job, ask)
            except (ReadFailed, ServiceError, DeadlineExceeded) as error:
                info = info_of(error)
                if not info.retryable or trial == _TRIES or self.service.stopping:
                    if info.http_status < 500:
                        raise
                    failure = {"code": info.code, "message": info.message, "retryable": True}
                    about = {"source": ask.label, "page_index": index, "error": failure}
                    return PageRead(0, about, info)
                wait = error.retry_after_s if isinstance(error, ServiceError) else None
                await asyncio.sleep(min(30.0, wait or 2.0**trial))
        raise AssertionError("the last trial returns or raises")

    async def _try_page(self, job: Job, ask: Ask) -> PageRead:
        async with contextlib.aclosing(self.service.read(ask)) as events:
            async for event in events:
                if isinstance(event, Began):
                    job.page_count = event.page_count
                elif isinstance(event, PageRead):
                    if event.outcome.get("page_index") is None:  # the document, not a page
                        assert event.error is not None
                        raise ReadFailed(event.error)
                    return event
        raise AssertionError("a reading without a page ends with an error")

    def _keep(self, job: Job, page: PageRead) -> None:
        with open(job.pages, "ab") as out:
            out.write(json_bytes(page_value(page)) + b"\n")
        if page.error is None:
            job.done += 1
        else:
            job.failed += 1

    async def _sweep(self) -> None:
        """Forgets jobs that ended long ago."""
        while True:
            await asyncio.sleep(min(_SWEEP_S, max(0.05, self.service.config.job_keep_s / 4)))
            old = time.time() - self.service.config.job_keep_s
            for job in [j for j in self._jobs.values() if j.ended is not None and j.ended < old]:
                await self.remove(job)


def job_routes(store: JobStore) -> APIRouter:
    """/v1/jobs."""
    router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

    @router.post("", status_code=202, openapi_extra=OCR_BODY)
    async def create(request: Request) -> Response:
        """Take a long document; answers at once with the job's id."""
        job = await store.create(request)
        response = json_response(job.to_dict(), 202)
        response.headers["location"] = f"/v1/jobs/{job.number}"
        return response

    @router.get("/{number}")
    async def status(number: str, request: Request) -> Response:
        """How far it is."""
        return json_response(store.get(number, request.state.client).to_dict())

    @router.get("/{number}/result")
    async def result(number: str, request: Request) -> Response:
        """The pages: a JSON list, or with ?format= JSON lines, text, Markdown or HTML."""
        job = store.get(number, request.state.client)
        if job.error is not None:
            return json_response({"error": job.error}, 422)
        if job.status not in ("done", "failed"):
            raise Conflict(f"the job is {job.status}, {job.done} pages are read", 1.0)
        return stored_pages(job.pages, request.query_params.get("format", "json"))

    @router.delete("/{number}")
    async def remove(number: str, request: Request) -> Response:
        """Cancel it if it runs; forget it."""
        job = store.get(number, request.state.client)
        await store.remove(job)
        return json_response(job.to_dict())

    return router
