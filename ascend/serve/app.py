"""The web application: the routes over one Service, behind one border."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import HTMLResponse

from ascend.serve.admin import admin_routes
from ascend.serve.answers import json_response
from ascend.serve.chat import chat_routes
from ascend.serve.config import ServeConfig
from ascend.serve.errors import HttpError, error_body
from ascend.serve.fetch import Fetcher
from ascend.serve.jobs import JobStore, job_routes
from ascend.serve.keys import KeyRing
from ascend.serve.limits import Border
from ascend.serve.openapi import docs_page
from ascend.serve.routes import probe_routes, reading_routes
from ascend.serve.service import Service

_ABOUT = "Pictures and documents in, checked JSON out. Every error has one shape."


def create_app(
    config: ServeConfig,
    keys: KeyRing | None = None,
    on_failed: Callable[[BaseException], None] | None = None,
) -> FastAPI:
    """The application; `app.state.service` is its Service, which the lifespan opens and closes.

    keys: those of the configuration and the environment when not given. on_failed: with it the
    model opens while the probes answer already, and it is told when that fails; without it the
    application starts when the model is open."""
    service = Service(config)
    jobs = JobStore(service)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        opening = asyncio.ensure_future(service.start())
        try:
            jobs.start()
            if on_failed is None:
                await opening
            else:
                opening.add_done_callback(functools.partial(_tell_failure, on_failed))
            yield
        finally:
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
            await jobs.close()
            await service.shut_down()

    app = FastAPI(
        title="HunyuanOCR on Ascend",
        description=_ABOUT,
        lifespan=lifespan,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
    )
    app.state.service = service
    for router in (
        probe_routes(service),
        reading_routes(service),
        chat_routes(service, Fetcher(config)),
        job_routes(jobs),
        admin_routes(service),
    ):
        app.include_router(router)
    app.get("/docs", include_in_schema=False)(_docs)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    if config.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(config.cors_origins),
            allow_methods=["*"],
            allow_headers=["*"],
        )
    app.add_middleware(Border, service=service, keys=keys or KeyRing.of(config))
    return app


def _tell_failure(
    on_failed: Callable[[BaseException], None], opening: asyncio.Future[None]
) -> None:
    error = None if opening.cancelled() else opening.exception()
    if error is not None:
        on_failed(error)


async def _docs(request: Request) -> Response:
    return HTMLResponse(docs_page(request.app.openapi()))


async def _http_error(request: Request, error: Exception) -> Response:
    """What the router itself refuses (no such path, another method), in our shape."""
    assert isinstance(error, HTTPException)
    told = HttpError(error.status_code, str(error.detail))
    response = json_response(error_body(told, request.state.request_id), error.status_code)
    response.headers.update(error.headers or {})
    return response


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    told = HttpError(400, f"{where}: {first['msg']}")
    return json_response(error_body(told, request.state.request_id), 400)
