"""The service's configuration: every knob, its default and its meaning, from a file and options.

    serve:
      model: ppocr
      port: 8000
      max_queue: 64
      canaries: pages/      # pictures that a new model must read as the old one did
      api_keys: keys.txt    # one "name:key" or "name:key:requests-a-minute" a line

A file that also has `ocr_engine` (ascend.failover_config) serves that primary and fallback.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

import yaml

from ascend.errors import UsageError
from ascend.opening import EMBEDDED
from ascend.serve.messages import WorkerSpec
from host_pipeline.limits import PageLimits


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """Seconds, bytes and counts are in the names; 0 switches a limit that says so off.

    model, engine, slots, threads, device, precision: what the worker opens (`hyocr read --help`).
    served_names: other names of the model for OpenAI's clients. max_body_bytes to max_pages: limits
    of one request; body_timeout_s: for all of its bytes to come (and, 20 at most, for its head),
    write_timeout_s: for a client that stops reading. max_queue: requests that may wait; deadline_s:
    longest time of one request, waiting included. ready_interval_s: how old the last real inference
    may be. worker_growth_bytes: a worker that has grown by so much is replaced, as one after
    worker_requests requests (0: never). hang_s: without any progress for so long, a worker that has
    work is ended. shutdown_grace_s: for what runs when the service ends. canaries: folder of
    pictures that a new model reads like the old one (beside "a.png", "a.txt" holds its true text if
    there is any); max_drift: by how much texts may differ, 0 to 1. watch_s: how often the model's
    files are looked at for a change (0: never). api_keys: file; else the variable HYOCR_API_KEYS,
    and HYOCR_ADMIN_KEY for /admin. fetch_urls: whether pictures of chat messages may be http(s)
    addresses, and fetch_hosts which (none: any public). cors_origins: web pages that may call.
    job_*: limits of the long-running jobs, and jobs_dir: where they outlive the service (one each;
    none: they end with it). otel_endpoint: OTLP collector."""

    model: str = EMBEDDED
    engine: str = "auto"
    slots: int | None = None
    threads: int | None = None
    device: int = 0
    precision: str = "auto"
    served_names: tuple[str, ...] = ()
    host: str = "127.0.0.1"
    port: int = 8000
    ui_port: int = 7860
    max_body_bytes: int = 64 << 20
    max_pixels: int = 100_000_000
    max_pages: int = 64
    body_timeout_s: float = 60.0
    write_timeout_s: float = 60.0
    max_connections: int = 1024
    max_queue: int = 256
    deadline_s: float = 300.0
    ready_interval_s: float = 60.0
    start_timeout_s: float = 600.0
    worker_growth_bytes: int = 2 << 30
    worker_requests: int = 0
    hang_s: float = 300.0
    shutdown_grace_s: float = 30.0
    canaries: str | None = None
    max_drift: float = 0.1
    watch_s: float = 0.0
    api_keys: str | None = None
    fetch_urls: bool = False
    fetch_hosts: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    job_max_count: int = 64
    job_max_body_bytes: int = 1 << 30
    job_keep_s: float = 3600.0
    jobs_dir: str | None = None
    otel_endpoint: str | None = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, (int, float)) and not isinstance(value, bool) and value < 0:
                raise UsageError(f"serve: {field.name} is {value!r}; give 0 or more")
        if not 0 <= self.max_drift <= 1:
            raise UsageError(f"serve: max_drift is {self.max_drift!r}; give 0 to 1")

    def worker(self, model: str | None = None, engine: str | None = None) -> WorkerSpec:
        """What a worker opens: the configured model, or another one in its place."""
        settings = {"device": self.device, "precision": self.precision}
        if self.threads is not None:
            settings["threads"] = self.threads
        return WorkerSpec(model or self.model, engine or self.engine, self.slots, settings)

    def page_limits(self, max_bytes: int | None = None) -> PageLimits:
        """Limits that hold before a page is decoded."""
        return PageLimits(self.max_pixels, max_bytes=max_bytes or self.max_body_bytes)


def read_config(path: str | Path | None, given: Mapping[str, Any]) -> ServeConfig:
    """The configuration of a file (None: defaults), with the values of `given` that are not None
    over it. Raises UsageError naming file, key and what is allowed."""
    section: dict[str, Any] = {}
    if path is not None:
        section = _section(Path(path))
    section |= {name: value for name, value in given.items() if value is not None}
    return ServeConfig(**section)


def _section(file: Path) -> dict[str, Any]:
    try:
        raw = yaml.safe_load(file.read_text("utf-8")) or {}
    except (OSError, yaml.YAMLError) as error:
        raise UsageError(f"{file}: {error}") from error
    if not isinstance(raw, dict) or not isinstance(raw.get("serve", {}), dict):
        raise UsageError(f"{file}: no mapping `serve:` with the options of the service")
    section = dict(raw.get("serve") or {})
    if "ocr_engine" in raw:
        section.setdefault("model", str(file))
    hints = get_type_hints(ServeConfig)
    for name, value in section.items():
        if name not in hints:
            raise UsageError(f"{file}: serve: unknown key {name!r}; {', '.join(hints)}")
        section[name] = _typed(file, name, value, hints[name])
    for name in ("canaries", "api_keys", "jobs_dir"):  # as in the file: relative to it
        if section.get(name):
            section[name] = os.fspath(file.parent / section[name])
    return section


def _typed(file: Path, name: str, value: Any, hint: Any) -> Any:
    if hint == tuple[str, ...] and isinstance(value, list) and all(map(_is_text, value)):
        return tuple(value)
    kinds: dict[Any, Any] = {int: int, float: (int, float), bool: bool, str: str}
    plain = kinds.get(hint)
    if plain is None and value is None:
        return None
    if plain is None:
        plain = {"int | None": int, "str | None": str}.get(str(hint).replace("typing.", ""))
    if (
        plain is None
        or not isinstance(value, plain)
        or (isinstance(value, bool) and hint is not bool)
    ):
        wanted = getattr(hint, "__name__", str(hint))
        raise UsageError(f"{file}: serve: {name} is {value!r}; give {wanted}")
    return value


def _is_text(value: Any) -> bool:
    return isinstance(value, str)
