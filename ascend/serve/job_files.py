"""A job and its folder: `source`, the pages read so far, and what a next service must know."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ascend.serve.limits import json_bytes
from ascend.serve.messages import Ask
from host_pipeline.limits import PageLimits

log = logging.getLogger(__name__)

Status = Literal["waiting", "running", "done", "failed", "cancelled"]

_KEPT = ("number", "client", "created", "status", "page_count", "error", "ended")
_ASKED = ("label", "task", "keys", "schema", "pages", "options", "client")


@dataclass(eq=False, slots=True)
class Job:
    """One document and how far it is. `created` and `ended` are wall-clock seconds."""

    number: str
    client: str
    folder: Path
    ask: Ask
    created: float = field(default_factory=time.time)
    status: Status = "waiting"
    page_count: int | None = None
    done: int = 0
    failed: int = 0
    error: dict[str, Any] | None = None
    ended: float | None = None
    task: asyncio.Task[None] | None = None

    @property
    def pages(self) -> Path:
        """JSON lines, one for each page read."""
        return self.folder / "pages.jsonl"

    def to_dict(self) -> dict[str, Any]:
        """What a client may know."""
        return {
            "id": self.number,
            "status": self.status,
            "task": self.ask.task,
            "source": self.ask.label,
            "created": round(self.created, 3),
            "page_count": self.page_count,
            "pages_done": self.done,
            "pages_failed": self.failed,
            "error": self.error,
        }


def save_job(job: Job) -> None:
    """Write `job.json`, whole or not at all. Raises OSError."""
    value = {name: getattr(job, name) for name in _KEPT}
    value["ask"] = {name: getattr(job.ask, name) for name in _ASKED}
    fresh = job.folder / "job.json.new"
    fresh.write_bytes(json_bytes(value))
    os.replace(fresh, job.folder / "job.json")


def load_jobs(folder: Path, limits: PageLimits) -> Iterator[Job]:
    """The jobs that an earlier service left in `folder`, which one service has to itself. What was
    still being sent to it, or cannot be read, is removed with a warning."""
    for place in sorted(path for path in folder.iterdir() if path.is_dir()):
        try:
            job = _load(place, limits)
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("%s is no whole job and is removed: %s", place, error)
            shutil.rmtree(place, ignore_errors=True)
        else:
            yield job


def _load(place: Path, limits: PageLimits) -> Job:
    value = json.loads((place / "job.json").read_bytes())
    asked = value.pop("ask")
    asked["keys"] = tuple(asked["keys"])
    if asked["pages"] is not None:
        asked["pages"] = tuple(asked["pages"])
    ask = Ask(str(place / "source"), limits=limits, **asked)
    job = Job(folder=place, ask=ask, **value)
    with contextlib.suppress(FileNotFoundError):  # none is read yet
        for failed in _whole_lines(job.pages):
            if failed:
                job.failed += 1
            else:
                job.done += 1
    return job


def _whole_lines(pages: Path) -> Iterator[bool]:
    """Whether each page has failed; a last line that was cut is cut off."""
    with open(pages, "r+b") as lines:
        whole = 0
        for line in lines:
            if not line.endswith(b"\n"):
                lines.truncate(whole)
                return
            whole += len(line)
            yield "error" in json.loads(line)
