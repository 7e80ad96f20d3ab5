"""The worker process: opens the model, reads what it is told to, says how it is.

It is the only process that computes. It ends with the connection, so that none outlives its
service, and leaves signals to the web process, which drains it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

from acl_runtime.errors import AclError
from ascend.api import OCR, PageFailure
from ascend.errors import ErrorInfo, describe
from ascend.failover import FailoverFamily
from ascend.failover_config import canary_page, read_config
from ascend.families import Family, ReadRequest
from ascend.opening import EngineName
from ascend.profile_run import record_device
from ascend.serve.messages import (
    Ask,
    Beat,
    Began,
    Cancel,
    Ended,
    EngineState,
    Opened,
    OpenFailed,
    PageRead,
    Piece,
    Profile,
    Profiled,
    Read,
    Stop,
    WorkerSpec,
)
from atc_configs.contract import load_contract
from atc_configs.manifest import MANIFEST_NAME, read_manifest
from host_pipeline.errors import PageTooLarge

BEAT_S = 1.0
_DEFAULT_SLOTS = 4
# The start-up page is only to see the engine answer; random weights would talk on for minutes.
_CANARY_TOKENS = 16
_TRIM_EVERY = 16  # pages between two times that freed memory goes back to the system


def run_worker(connection: Connection, spec: WorkerSpec) -> None:
    """The process's main function: serves until `Stop`, or until the connection ends."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    try:
        worker = Worker(connection, spec)
    except Exception as error:  # whatever it is, the web process says it and decides
        connection.send(OpenFailed(describe(error)))
        return
    worker.serve()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # a thread that still computes for nobody must not keep the process


class Worker:
    """One opened model behind one connection, which both belong to it."""

    def __init__(self, connection: Connection, spec: WorkerSpec) -> None:
        self._connection, self._spec = connection, spec
        slots = spec.slots or _slots_for(spec.model)
        engine = cast(EngineName, spec.engine)
        self._ocr = OCR(spec.model, engine, slots=slots, **spec.settings)
        self._lock = threading.Lock()
        self._cancelled: dict[int, threading.Event] = {}
        self._progress = 0
        self._ended = threading.Event()
        family = self._family
        result = family.read(canary_page(), ReadRequest("spotting", options=_short(family)))
        self._engine = result.engine
        streams = family.name == "hunyuanocr"
        # One more than the slots: its page is decoded while theirs are read.
        self._at_once = slots + 1 if streams else _parallel(family)
        opened = Opened(
            family.name,
            family.model.name,
            family.model.digest,
            tuple(family.tasks),
            self._at_once,
            streams,
            self._engines(),
            result.emulated,
            _rss(),
        )
        self._send(opened)

    @property
    def _family(self) -> Family:
        return self._ocr.family

    def serve(self) -> None:
        """Work on orders until `Stop` or the end of the connection."""
        beats = threading.Thread(target=self._beat, name="beat", daemon=True)
        beats.start()
        pool = ThreadPoolExecutor(self._at_once, "read")
        try:
            while not isinstance(order := self._connection.recv(), Stop):
                if isinstance(order, Cancel):
                    self._event(order.number).set()
                elif isinstance(order, Profile):
                    threading.Thread(target=self._profile, args=(order,), daemon=True).start()
                elif isinstance(order, Read):
                    self._event(order.number)
                    pool.submit(self._read, order.number, order.ask)
        except (EOFError, OSError):
            return  # the service is gone, and with it everybody who waits
        pool.shutdown()
        self._ended.set()
        self._ocr.close()

    def _profile(self, order: Profile) -> None:
        """Record the device while requests go on; started and ended between two of its steps."""
        try:
            engine = getattr(self._family, "engine", None) or getattr(self._family, "_engine", None)
            record_device(engine, order.seconds, Path(order.folder), order.metrics, self._ended)
        except Exception as problem:  # of whoever asked for a profile; requests go on
            self._send(Profiled(describe(problem)))
        else:
            self._send(Profiled())

    def _event(self, number: int) -> threading.Event:
        with self._lock:
            return self._cancelled.setdefault(number, threading.Event())

    def _read(self, number: int, ask: Ask) -> None:
        error: ErrorInfo | None = None
        try:
            self._pages(number, ask)
        except Exception as problem:  # the request's end; the worker goes on with the others
            error = describe(problem)
            if error.internal:
                _log_bug(problem)
        with self._lock:
            self._cancelled.pop(number, None)
        self._send(Ended(number, error))

    def _pages(self, number: int, ask: Ask) -> None:
        def on_open(count: int) -> None:
            self._send(Began(number, count))
            if ask.pages is None and ask.max_pages is not None and count > ask.max_pages:
                raise PageTooLarge(
                    f"the document has {count} pages, one request reads {ask.max_pages}; name "
                    "`pages`, or send it to /v1/jobs",
                    ask.label,
                )

        def on_text(text: str) -> None:
            self._progress += 1
            self._send(Piece(number, text))

        outcomes = self._ocr.read_pages(
            ask.source,
            ask.task,
            pages=ask.pages,
            keys=ask.keys,
            schema=ask.schema,
            limits=ask.limits,
            label=ask.label,
            on_open=on_open,
            on_text=on_text if ask.live else None,
            cancelled=self._event(number).is_set,
            deadline=ask.deadline,
            **ask.options,
        )
        for outcome in outcomes:
            self._progress += 1
            error = describe(outcome.error) if isinstance(outcome, PageFailure) else None
            self._send(PageRead(number, outcome.to_dict(), error))
            if self._progress % _TRIM_EVERY == 0:
                _trim()

    def _send(self, message: object) -> None:
        try:
            with self._lock:
                self._connection.send(message)
        except OSError:  # the service is gone; `serve` notices it and ends
            self._ended.set()

    def _beat(self) -> None:
        while not self._ended.wait(BEAT_S):
            active, waiting, slots, tokens = self._load()
            memory = _device_memory(self._family)
            progress = self._progress + tokens
            engines = self._engines()
            self._send(Beat(_rss(), progress, active, waiting, slots, engines, *memory))

    def _load(self) -> tuple[int, int, int, int]:
        scheduler = getattr(self._family, "scheduler", None)
        if scheduler is None:  # a cascade: a page is a sequence
            return min(len(self._cancelled), self._at_once), 0, self._at_once, 0
        load = scheduler.load()
        return load.active, load.waiting, load.slots, load.decoded_tokens

    def _engines(self) -> tuple[EngineState, ...]:
        family = self._family
        if not isinstance(family, FailoverFamily):
            return (EngineState("primary", self._engine, True),)
        config = read_config(self._spec.model)
        primary = family.state == "closed"
        return (
            EngineState("primary", config.primary.engine, primary, family.reason),
            EngineState("fallback", config.fallback.engine, not primary),
        )


def _slots_for(model: str) -> int:
    """The widest batch that a compiled bundle has a gear for; elsewhere any number will do."""
    if model.endswith((".yaml", ".yml")):
        config = read_config(model)
        return min(_slots_for(config.primary.model), _slots_for(config.fallback.model))
    folder = Path(model)
    if not (folder / MANIFEST_NAME).is_file():
        return _DEFAULT_SLOTS
    manifest = read_manifest(folder)
    gears = manifest.gears.get("llm", ())
    if not gears:
        return 1
    batch = list(load_contract(manifest.family).graph("llm").symbols).index("B")
    return max(gear[batch] for gear in gears)


def _short(family: Family) -> Mapping[str, Any]:
    return {"max_tokens": _CANARY_TOKENS} if family.name == "hunyuanocr" else {}


def _parallel(family: Family) -> int:
    """Pages at once in a cascade: as many as its engine runs graphs at once."""
    engine = getattr(family, "engine", None)
    return max(1, int(getattr(engine, "parallel", 1)))


def _device_memory(family: Family) -> tuple[int | None, int | None]:
    """(free, total) bytes of the device, where the engine has one."""
    engine = getattr(family, "engine", None) or getattr(family, "_engine", None)
    memory: Callable[[], tuple[int, int]] | None = getattr(engine, "memory", None)
    if memory is None:
        return None, None
    try:
        return memory()
    except AclError:  # a device that failed; its requests say so, and the beats must go on
        return None, None


def _rss() -> int:
    import psutil

    return int(psutil.Process().memory_info().rss)


def _trim() -> None:
    """Give freed memory back: glibc keeps it in its arenas, and a service that lives for weeks
    looks like a leak (MinerU issue 5313)."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def _log_bug(problem: Exception) -> None:
    import logging

    logging.getLogger(__name__).error("internal error", exc_info=problem)
