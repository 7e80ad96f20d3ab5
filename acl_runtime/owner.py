"""The one thread that talks to a device: ACL contexts belong to threads, and a model must not run
twice at once.

Callers from any thread queue up and wait. A job that does not come back within its limit is given
up together with the thread, so that no caller hangs on a dead device. Knows nothing of ACL.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from queue import SimpleQueue
from typing import Any, TypeVar

from acl_runtime.errors import HOST_DEADLINE, EngineClosed, call_error

T = TypeVar("T")

_WATCH_S = 0.25  # how often a waiting caller looks whether the thread is stuck


class OwnerThread:
    """Runs jobs one after the other on a thread of its own. The owner of this object calls
    `stop`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._jobs: SimpleQueue[tuple[Callable[[], Any], float, Future[Any]] | None] = SimpleQueue()
        self._until: float | None = None  # when the running job has to be done
        self._limit_s = 0.0
        self._closed = False
        self._door = threading.Lock()
        self.stuck = False
        # A daemon: a device call that never returns must not keep the process from ending.
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def call(self, job: Callable[[], T], limit_s: float) -> T:
        """The result of `job`, run on the thread; whatever it raises is raised here.

        limit_s counts from the start of the job (or its last `progress`), not from the queue.
        Raises DeviceTimeout when the thread is stuck in this or an earlier job, EngineClosed after
        `stop`.
        """
        if threading.current_thread() is self._thread:
            return job()
        done: Future[T] = Future()
        with self._door:
            if self._closed:
                raise EngineClosed(f"{self.name} is closed")
            self._jobs.put((job, limit_s, done))
        while True:
            try:
                return done.result(timeout=_WATCH_S)
            except FutureTimeout:
                if done.done():
                    return done.result()  # it ended just now, or raised a TimeoutError of its own
                if self._overdue():
                    self.stuck = True
                    raise call_error(self.name, HOST_DEADLINE, "a call never came back") from None

    def progress(self) -> None:
        """Called by a job that is getting on: its limit counts from now."""
        self._until = time.monotonic() + self._limit_s

    def stop(self) -> None:
        """Ends the thread once the queue is empty; a stuck thread is left behind. Idempotent."""
        with self._door:
            if not self._closed:
                self._closed = True
                self._jobs.put(None)
        if not self.stuck and threading.current_thread() is not self._thread:
            self._thread.join()

    def _overdue(self) -> bool:
        until = self._until
        return self.stuck or (until is not None and time.monotonic() > until)

    def _work(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, limit_s, done = item
            self._limit_s = limit_s
            self.progress()
            try:
                result = job()
            except BaseException as error:
                done.set_exception(error)
            else:
                done.set_result(result)
            finally:
                self._until = None
            del item, job, done  # results can be large; do not hold them while waiting
