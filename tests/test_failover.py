"""A page that the primary fails is read by the fallback, once, and says so; the primary serves
again only after it has read its canary."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acl_runtime.errors import AclUnavailable, CacheFull, NumericFault, call_error
from ascend.errors import DeadlineExceeded, UsageError
from ascend.failover import Canary, FailoverFamily, FailoverPolicy
from ascend.failover_config import canary_page, open_configured, read_config
from ascend.families import ReadRequest
from host_pipeline.page import Page
from host_pipeline.result import Model, Result

PAGE = Page(np.zeros((8, 8, 3), np.uint8), "page")
REQUEST = ReadRequest("spotting")
AT_ONCE = FailoverPolicy(failures=2, cool_down_s=0.0, longest_cool_down_s=0.01)
NEVER = FailoverPolicy(failures=2, cool_down_s=3600.0)
HANG = call_error("acl.rt.synchronize_stream_with_timeout", 507046)
LOST = call_error("acl.rt.memcpy", 507010)
FULL = call_error("acl.rt.malloc", 207001)


class Reader:
    """A family whose pages fail as told: `faults` are raised one after the other, then it reads."""

    tasks = ("spotting",)

    def __init__(self, engine: str, text: str = "one two", faults: list[Any] | None = None) -> None:
        self.name = f"family on {engine}"
        self.model = Model(engine)
        self.engine, self.text = engine, text
        self.faults = list(faults or [])
        self.pages = 0
        self.closed = 0

    def read(self, page: Page, request: ReadRequest) -> Result:
        return list(self.stream(page, request))[-1]  # type: ignore[return-value]

    def stream(self, page: Page, request: ReadRequest) -> Iterator[str | Result]:
        self.pages += 1
        fault = self.faults.pop(0) if self.faults else None
        words = self.text.split(" ")
        yield words[0]
        if isinstance(fault, BaseException):
            raise fault
        yield from (f" {word}" for word in words[1:])
        finish = fault or "stop"
        yield Result(page.source, 0, 1, 8, 8, 0, request.task, self.model, self.engine,
                     text=self.text, finish_reason=finish)  # fmt: skip

    def close(self) -> None:
        self.closed += 1


def pair(*primaries: Reader | Exception, **given: Any) -> tuple[FailoverFamily, Reader]:
    """A failover over primaries that are opened one after the other, and a sound fallback."""
    queue, fallback = list(primaries), Reader("cpu")

    def open_primary() -> Reader:
        item = queue.pop(0) if queue else AclUnavailable("nothing left")
        if isinstance(item, Exception):
            raise item
        return item

    given.setdefault("policy", NEVER)
    return FailoverFamily(open_primary, fallback, **given), fallback


def test_a_sound_primary_answers_alone() -> None:
    failover, fallback = pair(Reader("npu"))
    result = failover.read(PAGE, REQUEST)
    assert (result.engine, result.fallback_reason, result.warnings) == ("npu", None, ())
    assert fallback.pages == 0
    failover.close()
    assert fallback.closed == 1


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (HANG, "DeviceTimeout: acl.rt.synchronize_stream_with_timeout returned 507046"),
        (LOST, "DeviceFault: acl.rt.memcpy returned 507010"),
        (FULL, "DeviceMemory: acl.rt.malloc returned 207001"),
        (NumericFault("llm.logits: NaN"), "NumericFault: llm.logits"),
        (CacheFull("slot 0"), "CacheFull: slot 0"),
        (MemoryError("host"), "MemoryError: host"),
        ("numeric_fault", "NumericFault: npu gave one constant token"),
    ],
)
def test_what_the_primary_fails_the_fallback_reads_once_and_says_so(fault: Any, said: str) -> None:
    failover, fallback = pair(Reader("npu", faults=[fault]))
    result = failover.read(PAGE, REQUEST)
    failover.close()
    assert (result.engine, result.text, fallback.pages) == ("cpu", "one two", 1)
    assert result.fallback_reason is not None and result.fallback_reason.startswith(said)
    assert [notice.code for notice in result.warnings] == ["fallback"]


@pytest.mark.parametrize("error", [UsageError("wrong task"), DeadlineExceeded("late")])
def test_what_another_engine_cannot_mend_is_raised(error: Exception) -> None:
    failover, fallback = pair(Reader("npu", faults=[error]))
    with pytest.raises(type(error)):
        failover.read(PAGE, REQUEST)
    assert (failover.state, fallback.pages) == ("closed", 0)
    failover.close()


def test_a_device_fault_opens_the_circuit_at_once() -> None:
    npu = Reader("npu", faults=[LOST])
    failover, fallback = pair(npu)
    failover.read(PAGE, REQUEST)
    result = failover.read(PAGE, REQUEST)
    failover.close()
    assert (failover.state, npu.pages, fallback.pages) == ("open", 1, 2)
    assert result.fallback_reason == failover.reason and "507010" in str(failover.reason)
    assert npu.closed == 1


def test_lesser_faults_must_add_up_and_success_forgives_them() -> None:
    npu = Reader("npu", faults=[FULL, None, FULL, FULL])
    failover, _ = pair(npu)
    states = [(failover.read(PAGE, REQUEST), failover.state)[1] for _ in range(4)]
    failover.close()
    assert states == ["closed", "closed", "closed", "open"]


def test_a_page_too_long_for_the_cache_never_opens_the_circuit() -> None:
    failover, _ = pair(Reader("npu", faults=[CacheFull("slot 0")] * 5))
    for _ in range(5):
        assert failover.read(PAGE, REQUEST).engine == "cpu"
    assert failover.state == "closed"
    failover.close()


def test_the_primary_serves_again_after_its_canary() -> None:
    fresh = Reader("npu")
    failover, fallback = pair(
        Reader("npu", faults=[LOST]), fresh, canary=Canary(canary_page()), policy=AT_ONCE
    )
    assert failover.read(PAGE, REQUEST).engine == "cpu"
    assert failover.wait_for_primary(10)
    assert failover.read(PAGE, REQUEST).engine == "npu"
    assert (fresh.pages, fallback.pages) == (2, 2)  # a canary and a page each
    assert failover.reason is None
    failover.close()
    assert fresh.closed == 1


def test_a_primary_that_misreads_its_canary_is_closed_and_the_next_one_tried() -> None:
    wrong, right = Reader("npu", text="one tvvo"), Reader("npu")
    queue = [Reader("npu", faults=[LOST]), wrong, AclUnavailable("driver is loading"), right]
    failover, _ = pair(*queue, canary=Canary(canary_page(), text="one  two"), policy=AT_ONCE)
    failover.read(PAGE, REQUEST)
    assert failover.wait_for_primary(10)
    assert (wrong.closed, right.closed) == (1, 0)
    assert failover.read(PAGE, REQUEST).engine == "npu"
    failover.close()


def test_without_an_npu_everything_is_read_by_the_fallback() -> None:
    failover, _ = pair(AclUnavailable("no pyACL"))
    result = failover.read(PAGE, REQUEST)
    assert (result.engine, result.fallback_reason) == ("cpu", "AclUnavailable: no pyACL")
    assert failover.name == "family on cpu"
    failover.close()
    failover.close()


def test_a_stream_goes_on_where_the_primary_stopped() -> None:
    failover, _ = pair(Reader("npu", faults=[HANG]))
    *pieces, result = failover.stream(PAGE, REQUEST)
    failover.close()
    assert pieces == ["one", " two"]
    assert isinstance(result, Result) and result.engine == "cpu"
    assert [notice.code for notice in result.warnings] == ["fallback"]


def test_a_stream_that_began_differently_says_so() -> None:
    failover, _ = pair(Reader("npu", text="0ne two", faults=[HANG]))
    *pieces, result = failover.stream(PAGE, REQUEST)
    failover.close()
    assert pieces == ["0ne", " two"]
    assert isinstance(result, Result)
    assert [notice.code for notice in result.warnings] == ["fallback", "stream_diverged"]


def test_many_threads_meet_one_fault_and_all_get_their_page() -> None:
    class Dying(Reader):
        def stream(self, page: Page, request: ReadRequest) -> Iterator[str | Result]:
            raise LOST
            yield

    dying, results = Dying("npu"), []
    failover, fallback = pair(dying)
    threads = [
        threading.Thread(target=lambda: results.append(failover.read(PAGE, REQUEST)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    failover.close()
    assert [r.engine for r in results] == ["cpu"] * 8
    assert (dying.closed, fallback.pages, fallback.closed) == (1, 8, 1)


class Shared(Reader):
    """One page breaks the device; who reads another meanwhile is cut when the family is closed."""

    def __init__(self, ending: Any) -> None:
        super().__init__("npu")
        self.ending = ending
        self.reading, self.shut = threading.Event(), threading.Event()

    def stream(self, page: Page, request: ReadRequest) -> Iterator[str | Result]:
        if page is PAGE:
            self.reading.wait(30)
            raise LOST
        self.reading.set()
        yield "one"
        self.shut.wait(30)
        if isinstance(self.ending, Exception):
            raise self.ending
        yield Result(page.source, 0, 1, 8, 8, 0, request.task, self.model, self.engine,
                     text="one", finish_reason=self.ending)  # fmt: skip

    def close(self) -> None:
        super().close()
        self.shut.set()


@pytest.mark.parametrize("way", ["read", "stream"])
@pytest.mark.parametrize("ending", ["cancelled", UsageError("the model is closed"), LOST])
def test_who_reads_while_the_primary_is_given_up_gets_the_whole_page(ending: Any, way: str) -> None:
    shared = Shared(ending)
    failover, _ = pair(shared)
    other, results = Page(PAGE.pixels, "other"), []

    def read() -> None:
        if way == "read":
            results.append(failover.read(other, REQUEST))
        else:
            *pieces, result = failover.stream(other, REQUEST)
            assert "".join(pieces) == result.text  # type: ignore[arg-type, union-attr]
            results.append(result)

    thread = threading.Thread(target=read)
    thread.start()
    assert failover.read(PAGE, REQUEST).engine == "cpu"
    thread.join(30)
    failover.close()
    assert [(r.engine, r.text, r.finish_reason) for r in results] == [("cpu", "one two", "stop")]
    assert results[0].fallback_reason


def test_a_page_that_was_cancelled_or_closed_on_purpose_is_not_read_again() -> None:
    shared = Shared("cancelled")
    failover, fallback = pair(shared)
    results: list[Result] = []
    other = Page(PAGE.pixels, "other")
    thread = threading.Thread(target=lambda: results.append(failover.read(other, REQUEST)))
    thread.start()
    shared.reading.wait(30)
    failover.close()
    thread.join(30)
    unwanted = ReadRequest("spotting", cancelled=lambda: True)
    failover, fallback_of_second = pair(second := Shared("cancelled"))
    second.reading.set()
    second.shut.set()
    results.append(failover.read(other, unwanted))
    failover.close()
    assert [r.finish_reason for r in results] == ["cancelled", "cancelled"]
    assert fallback.pages == fallback_of_second.pages == 0


CONFIG = """
ocr_engine:
  primary: {engine: acl, model: bundle, device: 1}
  fallback: torch
  model: checkpoint
  timeout_ms: 900
  cool_down_s: 3600
"""


def test_a_configuration_file_names_both_sides(tmp_path: Path) -> None:
    (tmp_path / "bundle").mkdir()
    (tmp_path / "ocr.yaml").write_text(CONFIG)
    opened: list[Any] = []

    def open_family(model: str, engine: str, **options: Any) -> Reader:
        opened.append((model, engine, options))
        return Reader(engine)

    failover = open_configured(tmp_path / "ocr.yaml", open_family, slots=4)
    assert failover.read(PAGE, REQUEST).engine == "acl"
    failover.close()
    assert opened == [
        ("checkpoint", "torch", {"slots": 4}),
        (str(tmp_path / "bundle"), "acl", {"slots": 4, "device": 1, "timeout_ms": 900}),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1", "no section ocr_engine"),
        ("ocr_engine: {primary: acl, fallbak: torch}", "unknown key 'fallbak'"),
        ("ocr_engine: {primary: acl, fallback: torch}", "ocr_engine.primary: no model"),
        ("ocr_engine: {fallback: torch, model: x}", "ocr_engine.primary: an engine, or a mapping"),
        ("ocr_engine: {primary: acl, fallback: ort, model: x, timeout_ms: 0}", "timeout_ms 0"),
        ("ocr_engine: {primary: {engine: acl, device: 0, x: 1}}", "unknown key 'x'"),
        ("ocr_engine: [", "ocr.yaml"),
    ],
)
def test_a_wrong_configuration_names_file_and_key(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "ocr.yaml").write_text(text)
    with pytest.raises(UsageError, match=said):
        read_config(tmp_path / "ocr.yaml")


def test_the_canary_page_is_print_on_white() -> None:
    page = canary_page()
    assert (page.width, page.height) == (320, 96)
    assert 0.02 < (page.pixels < 128).mean() < 0.3
