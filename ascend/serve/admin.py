"""Changing the model of a service that runs; wants the administrator's key."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from ascend.serve.answers import json_response
from ascend.serve.messages import Profile
from ascend.serve.routes import readiness
from ascend.serve.service import Service
from profiling.report import make_report


class Reload(BaseModel):
    """model, engine: as of `hyocr serve`; what is not given stays. weight: the share of requests
    that the new model serves first, until it is promoted or rolled back; without one it takes over
    at once. force: whatever its texts of the canary pages are."""

    model_config = ConfigDict(extra="forbid")
    model: str | None = None
    engine: str | None = None
    weight: Annotated[float, Field(gt=0, le=1)] | None = None
    force: bool = False


def admin_routes(service: Service) -> APIRouter:
    """/admin/reload, /admin/promote, /admin/rollback and /admin/profile."""
    router = APIRouter(prefix="/admin", tags=["admin"])

    @router.post("/reload")
    async def reload(wanted: Reload) -> Response:
        """Open a model beside the one that serves, compare the two, and switch."""
        done = await service.reload(wanted.model, wanted.engine, wanted.weight, wanted.force)
        return json_response({**done, "service": readiness(service)})

    @router.post("/promote")
    async def promote() -> Response:
        """Give all requests to the model that is being tried."""
        await service.promote()
        return json_response({"state": "serving", "service": readiness(service)})

    @router.post("/rollback")
    async def rollback() -> Response:
        """Send the model that is being tried away."""
        await service.roll_back("asked for")
        return json_response({"state": "rolled back", "service": readiness(service)})

    @router.post("/profile")
    async def profile(
        seconds: Annotated[float, Query(gt=0, le=300)] = 10.0, metrics: str = "PipeUtilization"
    ) -> Response:
        """Record the device while requests go on, and report on it; the folder stays."""
        folder = Path(tempfile.mkdtemp(prefix="hyocr-profile-"))
        await service.stable.profile(Profile(seconds, str(folder), metrics))
        report = await asyncio.to_thread(make_report, folder)
        return json_response({"folder": str(folder), "report": report})

    return router
