"""Two families, one service: the primary (an NPU) reads, the fallback (a CPU) answers when it
fails.

A request that the primary fails is read again, once, by the fallback, and its Result says so. After
a device fault the primary is opened anew in the background; it serves again when it has read a
known page as the fallback does (a circuit breaker with a half-open canary). Knows families and
errors; knows no device, no graph and no HTTP.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from acl_runtime.errors import AclError, CacheFull, DeviceFault, EngineClosed, EngineDegraded
from acl_runtime.errors import NumericFault as AclNumericFault
from ascend.errors import EngineUnavailable, NumericFault
from ascend.families import Family, ReadRequest
from host_pipeline.page import Page
from host_pipeline.result import Model, Notice, Result

log = logging.getLogger(__name__)

State = Literal["closed", "open", "half_open"]

# What another engine can still answer. Wrong input, a wrong task and a passed deadline are not.
REPLAYED = (AclError, EngineUnavailable, NumericFault, MemoryError)
# After these the primary is not asked again before it has been reopened; others must add up.
_BROKEN = (DeviceFault, EngineDegraded, EngineClosed, AclNumericFault, NumericFault)


@dataclass(frozen=True, slots=True)
class FailoverPolicy:
    """When the primary is given up and tried again.

    failures: faults in a row that open the circuit (a device fault opens it at once);
    cool_down_s: before the first try to reopen, doubled after each that fails up to
    longest_cool_down_s."""

    failures: int = 3
    cool_down_s: float = 10.0
    longest_cool_down_s: float = 600.0


@dataclass(frozen=True, slots=True)
class Canary:
    """A page whose answer is known: `text` None takes the fallback's answer as the right one."""

    page: Page
    request: ReadRequest = field(default_factory=lambda: ReadRequest("spotting"))
    text: str | None = None


class FailoverFamily:
    """A Family over two others, both of which it owns. Any thread may read.

    open_primary: called at once and again for every reopening; what it raises sends everything to
    the fallback. canary: without one, a primary that opens counts as well."""

    def __init__(
        self,
        open_primary: Callable[[], Family],
        fallback: Family,
        *,
        canary: Canary | None = None,
        policy: FailoverPolicy | None = None,
    ) -> None:
        self._open_primary = open_primary
        self._fallback = fallback
        self._canary = canary
        self._policy = policy or FailoverPolicy()
        self._lock = threading.Condition()
        self._primary: Family | None = None
        self._state: State = "closed"
        self._reason = ""
        self._faults = 0
        self._ending = threading.Event()
        self._mender: threading.Thread | None = None
        try:
            self._primary = open_primary()
        except REPLAYED as error:
            self._give_up(None, error)

    @property
    def name(self) -> str:
        return self._current().name

    @property
    def tasks(self) -> tuple[str, ...]:
        return self._current().tasks

    @property
    def model(self) -> Model:
        return self._current().model

    @property
    def state(self) -> State:
        """closed: the primary serves; open: the fallback does; half_open: a canary is being
        read."""
        return self._state

    @property
    def reason(self) -> str | None:
        """Why the primary does not serve, or None."""
        return self._reason or None

    def read(self, page: Page, request: ReadRequest) -> Result:
        """The primary's Result, or the fallback's with `fallback_reason`. Raises what is wrong
        with the request, and the fallback's own errors."""
        primary = self._primary
        if primary is None:
            return self._instead(self._fallback.read(page, request), self._reason)
        try:
            result = primary.read(page, request)
            self._require_answer(primary, request, result)
        except Exception as error:
            if not isinstance(error, REPLAYED) and not self._abandoned(primary, request):
                raise
            self._failed(primary, error)
            return self._instead(self._fallback.read(page, request), _text(error))
        self._succeeded()
        return result

    def stream(self, page: Page, request: ReadRequest) -> Iterator[str | Result]:
        """As `read`, in pieces. What the primary said before it failed is not said again: the
        fallback goes on from there."""
        primary, said = self._primary, ""
        reason = self._reason
        if primary is not None:
            try:
                for piece in primary.stream(page, request):
                    if isinstance(piece, Result):
                        self._require_answer(primary, request, piece)
                        self._succeeded()
                        yield piece
                        return
                    said += piece
                    yield piece
            except Exception as error:
                if not isinstance(error, REPLAYED) and not self._abandoned(primary, request):
                    raise
                self._failed(primary, error)
                reason = _text(error)
        yield from self._go_on(page, request, said, reason)

    def wait_for_primary(self, timeout_s: float) -> bool:
        """Whether the primary serves, after waiting up to `timeout_s` for it."""
        with self._lock:
            return self._lock.wait_for(lambda: self._state == "closed", timeout_s)

    def close(self) -> None:
        """Ends the reopening, then closes both families; idempotent."""
        with self._lock:
            self._ending.set()
            primary, self._primary = self._primary, None
        if self._mender is not None:
            self._mender.join()
        if primary is not None:
            primary.close()
        self._fallback.close()

    def _current(self) -> Family:
        return self._primary or self._fallback

    def _go_on(
        self, page: Page, request: ReadRequest, said: str, reason: str
    ) -> Iterator[str | Result]:
        """The fallback's stream without the first len(said) characters, which are out already."""
        text, out = "", len(said)
        for piece in self._fallback.stream(page, request):
            if isinstance(piece, Result):
                result = self._instead(piece, reason)
                if said and not text.startswith(said):
                    result = _with_notice(
                        result, "stream_diverged", "the text streamed before the fault differs"
                    )
                yield result
                return
            text += piece
            if len(text) > out:
                yield text[out:]
                out = len(text)

    def _abandoned(self, primary: Family, request: ReadRequest) -> bool:
        """Whether another reader's fault took `primary` away from a request that is still wanted:
        what it says when it was closed tells nothing of the request."""
        wanted = request.cancelled is None or not request.cancelled()
        return wanted and self._primary is not primary and not self._ending.is_set()

    def _require_answer(self, primary: Family, request: ReadRequest, result: Result) -> None:
        """Refuses what is a fault of the engine: broken numbers, or an end by closing it."""
        if result.finish_reason == "numeric_fault":
            raise NumericFault(f"{result.engine} gave one constant token from the start")
        if result.finish_reason == "cancelled" and self._abandoned(primary, request):
            raise EngineClosed(f"{result.engine} was given up while it read this page")

    def _instead(self, result: Result, reason: str) -> Result:
        result = dataclasses.replace(result, fallback_reason=reason)
        return _with_notice(result, "fallback", f"read by {result.engine}: {reason}")

    def _succeeded(self) -> None:
        if self._faults:
            with self._lock:
                self._faults = 0

    def _failed(self, primary: Family, error: BaseException) -> None:
        log.warning("the primary failed, the fallback reads: %s", _text(error))
        if isinstance(error, CacheFull):  # the request's own fault: the next may well be fine
            return
        with self._lock:
            if self._primary is not primary:  # given up already; the next one starts afresh
                return
            self._faults += 1
            broken = isinstance(error, _BROKEN) or self._faults >= self._policy.failures
        if broken:
            self._give_up(primary, error)

    def _give_up(self, primary: Family | None, error: BaseException) -> None:
        """Opens the circuit, once for each primary, and starts mending it."""
        with self._lock:
            if self._ending.is_set() or self._primary is not primary:
                return
            self._primary, self._state, self._faults = None, "open", 0
            self._reason = _text(error)
            # A daemon, so that a program which forgets `close` can still end.
            self._mender = threading.Thread(
                target=self._mend, args=(primary,), name="failover", daemon=True
            )
            self._mender.start()

    def _mend(self, broken: Family | None) -> None:
        """Closes what is broken and opens the primary anew until it reads its canary."""
        if broken is not None:
            broken.close()
        cool_down_s = self._policy.cool_down_s
        while not self._ending.wait(cool_down_s):
            self._set("half_open")
            fresh = self._try_primary()
            if fresh is not None:
                self._serve(fresh)
                return
            self._set("open")
            cool_down_s = min(2 * cool_down_s, self._policy.longest_cool_down_s)

    def _try_primary(self) -> Family | None:
        """A primary that has read its canary rightly, or None with the reason set."""
        fresh = None
        try:
            fresh = self._open_primary()
            problem = self._canary_problem(fresh)
        except Exception as error:  # whatever it is, it is a reason to stay with the fallback
            log.debug("opening the primary", exc_info=True)
            problem = _text(error)
        if problem is None:
            return fresh
        log.warning("the primary stays out: %s", problem)
        self._reason = problem
        if fresh is not None:
            fresh.close()
        return None

    def _canary_problem(self, fresh: Family) -> str | None:
        if (canary := self._canary) is None:
            return None
        wanted = canary.text
        if wanted is None:
            wanted = self._fallback.read(canary.page, canary.request).text
            self._canary = dataclasses.replace(canary, text=wanted)
        got = fresh.read(canary.page, canary.request).text
        if got.split() == wanted.split():
            return None
        return f"the canary page was read as {got[:60]!r} instead of {wanted[:60]!r}"

    def _serve(self, fresh: Family) -> None:
        with self._lock:
            ending = self._ending.is_set()
            if not ending:
                self._primary, self._reason = fresh, ""
        if ending:
            fresh.close()
        else:
            log.warning("the primary serves again")
            self._set("closed")

    def _set(self, state: State) -> None:
        with self._lock:
            self._state = state
            self._lock.notify_all()


def _with_notice(result: Result, code: str, text: str) -> Result:
    return dataclasses.replace(result, warnings=(*result.warnings, Notice(code, text)))


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
