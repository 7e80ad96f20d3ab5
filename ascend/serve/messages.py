"""What the web process and a worker process say to each other; plain values that pickle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ascend.errors import ErrorInfo
from host_pipeline.limits import PageLimits


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """Which model a worker opens; `settings` go to `ascend.opening.open_family`. slots None: as
    many sequences at once as the model's files allow, four where they set no limit."""

    model: str
    engine: str = "auto"
    slots: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ask:
    """What one client wants read: `source` is the file's bytes, or the path of a file that the
    service itself wrote. `pages` are 0-based, None reads all, which `max_pages` limits; `deadline`
    is on `time.monotonic` (one clock for all processes of a machine); `live`: the text is wanted
    while it is made; `client` shares the queue with others in turn."""

    source: bytes | str
    label: str = "upload"
    task: str = "spotting"
    keys: tuple[str, ...] = ()
    schema: Mapping[str, Any] | None = None
    pages: tuple[int, ...] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    limits: PageLimits = field(default_factory=PageLimits)
    max_pages: int | None = None
    deadline: float | None = None
    live: bool = False
    client: str = ""


@dataclass(frozen=True, slots=True)
class Read:
    """To the worker: begin with `ask`; every answer carries its number."""

    number: int
    ask: Ask


@dataclass(frozen=True, slots=True)
class Cancel:
    """To the worker: nobody wants this answer any more; it ends within a step."""

    number: int


@dataclass(frozen=True, slots=True)
class Profile:
    """To the worker: record the device for `seconds` into the existing folder `folder`."""

    seconds: float
    folder: str
    metrics: str


@dataclass(frozen=True, slots=True)
class Profiled:
    """From the worker: the recording has ended, or why there is none."""

    error: ErrorInfo | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """To the worker: end when what runs has ended."""


@dataclass(frozen=True, slots=True)
class EngineState:
    """One engine of the model: `role` is primary or fallback, `serving` whether it answers now,
    `reason` why not."""

    role: str
    engine: str
    serving: bool
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """From the worker, once: the model is open and has read a page. `at_once`: requests that it
    works on at the same time; `streams`: whether text comes token by token."""

    family: str
    model: str
    digest: str | None
    tasks: tuple[str, ...]
    at_once: int
    streams: bool
    engines: tuple[EngineState, ...]
    emulated: bool
    rss_bytes: int


@dataclass(frozen=True, slots=True)
class OpenFailed:
    """From the worker, instead of Opened; it ends then."""

    error: ErrorInfo


@dataclass(frozen=True, slots=True)
class Began:
    """The document is open and has so many pages."""

    number: int
    page_count: int


@dataclass(frozen=True, slots=True)
class Piece:
    """Text of the page that is being read."""

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class PageRead:
    """One page: `Result.to_dict()`, or where it failed `PageFailure.to_dict()` and its error."""

    number: int
    outcome: Mapping[str, Any]
    error: ErrorInfo | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """All pages are through, or `error` stopped the whole request."""

    number: int
    error: ErrorInfo | None = None


@dataclass(frozen=True, slots=True)
class Beat:
    """How the worker is. `progress` grows with every page and token, so that one that hangs can be
    told from one that works; `active` of `slots` sequences run; device memory in bytes."""

    rss_bytes: int
    progress: int
    active: int
    waiting: int
    slots: int
    engines: tuple[EngineState, ...]
    device_free: int | None = None
    device_total: int | None = None


Event = Began | Piece | PageRead | Ended
