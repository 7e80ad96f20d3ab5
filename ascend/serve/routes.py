"""Our own API: read a document, and what there is to ask for; and the probes."""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter, Request, Response

from ascend.serve.answers import answer, json_response
from ascend.serve.errors import ModelNotFound
from ascend.serve.openapi import OCR_BODY, OCR_RESPONSES
from ascend.serve.service import Service
from ascend.serve.wire import read_call
from host_pipeline.result import result_schema
from host_pipeline.tasks import ALIASES, TASKS

# Under these names vLLM's users know the model; a HunyuanOCR that serves answers to them.
_VLLM_NAMES = ("tencent/HunyuanOCR", "HunyuanOCR")


def served_names(service: Service) -> list[str]:
    """The names under which clients may ask for the model that serves, its own first."""
    opened = service.stable.opened
    names = list(service.config.served_names)
    if opened is not None:
        names += [opened.model, opened.family]
        names += _VLLM_NAMES if opened.family == "hunyuanocr" else ()
    return list(dict.fromkeys(names))


def reading_routes(service: Service) -> APIRouter:
    """/v1/ocr, /v1/tasks, /v1/schema and /v1/models."""
    router = APIRouter()

    @router.post("/v1/ocr", openapi_extra=OCR_BODY, responses=OCR_RESPONSES, tags=["ocr"])
    async def ocr(request: Request) -> Response:
        """Read a picture or document: a Result for one page, a list for several."""
        call = await read_call(request, service)
        return await answer(request, service, call.ask, call.format, stream=call.stream)

    @router.get("/v1/tasks", tags=["ocr"])
    async def tasks() -> Response:
        """Every task, and whether the model that serves can do it."""
        opened = service.stable.opened
        able = opened.tasks if opened is not None else ()
        listed = [
            {
                "name": task.name,
                "title": task.title,
                "instruction": task.instruction,
                "english": task.english,
                "aliases": [alias for alias, name in ALIASES.items() if name == task.name],
                "needs_fields": task.needs_fields,
                "max_tokens": task.max_tokens,
                "supported": task.name in able,
            }
            for task in TASKS.values()
        ]
        return json_response({"tasks": listed})

    @router.get("/v1/schema", tags=["ocr"])
    async def schema() -> Response:
        """The JSON Schema of a Result."""
        return json_response(result_schema())

    @router.get("/v1/models", tags=["openai"])
    async def models() -> Response:
        """The model that serves, once for each of its names, as OpenAI's API lists them."""
        data = [_model(name, service) for name in served_names(service)]
        return json_response({"object": "list", "data": data})

    @router.get("/v1/models/{name:path}", tags=["openai"])
    async def model(name: str) -> Response:
        """One of those names."""
        check_model(name, service)
        return json_response(_model(name, service))

    return router


def probe_routes(service: Service) -> APIRouter:
    """/livez, /readyz and /metrics: none of them asks the engine, so they answer at once."""
    router = APIRouter(tags=["probes"])

    @router.get("/livez")
    async def livez() -> Response:
        """The process answers."""
        return json_response({"status": "ok"})

    @router.get("/readyz")
    async def readyz() -> Response:
        """200 when the engine has read something within the last interval, 503 else."""
        value = readiness(service)
        return json_response(value, 200 if value["ready"] else 503)

    @router.get("/metrics")
    async def metrics() -> Response:
        """Prometheus' text form."""
        return Response(service.metrics.text(), media_type="text/plain; version=0.0.4")

    return router


def readiness(service: Service) -> dict[str, Any]:
    """Whether requests are read, by what, and since when not."""
    stable = service.stable
    problem = stable.not_ready()
    opened, candidate = stable.opened, service.candidate
    reason = "the service is shutting down" if service.stopping else None
    if reason is None and problem is not None:
        reason = str(problem)
    value: dict[str, Any] = {
        "ready": reason is None,
        "reason": reason,
        "model": opened.model if opened else None,
        "digest": opened.digest if opened else None,
        "emulated": opened.emulated if opened else None,
        "engines": [
            {"role": e.role, "engine": e.engine, "serving": e.serving, "reason": e.reason}
            for e in stable.engines
        ],
        "last_answer_age_s": round(stable.answer_age_s(), 3),
        "queue": stable.waiting,
        "running": stable.running,
        "uptime_s": round(time.time() - service.started, 1),
    }
    if candidate is not None:
        value["candidate"] = {
            "model": candidate.deployment.spec.model,
            "weight": candidate.weight,
            "answers": candidate.answers,
            "compared": candidate.compared,
            "drift": round(candidate.drift, 4),
        }
    return value


def check_model(name: Any, service: Service) -> str:
    """`name` when the model that serves is known by it. Raises ModelNotFound with its names."""
    names = served_names(service)
    if name not in names:
        raise ModelNotFound(f"there is no model {name!r} here; there are {', '.join(names)}")
    return str(name)


def _model(name: str, service: Service) -> dict[str, Any]:
    opened = service.stable.opened
    return {
        "id": name,
        "object": "model",
        "created": int(service.started),
        "owned_by": "hunyuanocr-ascend",
        "root": opened.model if opened else None,
        "family": opened.family if opened else None,
        "digest": opened.digest if opened else None,
    }
