"""Whatever is sent, the answer is one of the documented ones, and nothing grows."""

from __future__ import annotations

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import httpx
import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ascend.serve.wire import OPTIONS
from tests.serve.running import Command, Running, document_of, picture_of, wait_for

DOCUMENTED = {200, 400, 404, 405, 408, 413, 422, 429, 503, 504}
SEEDS = [picture_of("Seed 1", size=(200, 64)), document_of("Seed 2", "Seed 3")]
SEEDS.append(b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages")

NAMES = "task fields schema pages options format stream timeout_s filename colour".split()
TEXT = st.text(max_size=40)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@st.composite
def damaged_files(draw: st.DrawFn) -> bytes:
    """A real file with some bytes changed, cut or repeated."""
    data = bytearray(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(1, 8))):
        at = draw(st.integers(0, len(data) - 1))
        data[at] = draw(st.integers(0, 255))
    end = draw(st.integers(1, len(data)))
    return bytes(data[:end])


FILES = damaged_files() | st.binary(max_size=300)
QUERIES = st.dictionaries(st.sampled_from(NAMES), TEXT, max_size=3)
CALLS = st.one_of(
    st.fixed_dictionaries({"path": st.just("/v1/ocr"), "content": FILES, "params": QUERIES}),
    st.fixed_dictionaries(
        {
            "path": st.sampled_from(["/v1/ocr", "/v1/chat/completions", "/admin/reload"]),
            "json": JSON
            | st.fixed_dictionaries(
                {"data": TEXT, "model": st.just("ppocr")},
                optional={
                    "messages": JSON,
                    "fields": JSON,
                    "schema": JSON,
                    "options": st.dictionaries(st.sampled_from(sorted(OPTIONS)), JSON, max_size=3),
                    "pages": JSON,
                    "stream": JSON,
                },
            ),
        }
    ),
    st.fixed_dictionaries(
        {
            "path": st.just("/v1/ocr"),
            "content": st.binary(max_size=200),
            "headers": st.sampled_from(
                [
                    {"content-type": "multipart/form-data; boundary=x"},
                    {"content-type": "multipart/form-data"},
                    {"content-type": "application/json"},
                    {"content-type": "application/x-www-form-urlencoded"},
                ]
            ),
        }
    ),
    st.fixed_dictionaries(
        {"path": st.from_regex(r"/v1/(jobs|models|[a-z]{1,4})/[\x20-\x7e]{0,12}", fullmatch=True)}
    ),
)


HEADS = [
    b"POST /v1/ocr HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabcde",
    b"POST /v1/jobs HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    b"GET /livez HTTP/1.1\r\nHost: a\r\nX-Request-Id: one\r\n\r\n",
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\r\n{}",
]


@st.composite
def damaged_requests(draw: st.DrawFn) -> bytes:
    """The bytes of a request with some changed, cut or put in."""
    data = bytearray(draw(st.sampled_from(HEADS)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data) - 1))
        data[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=4))
    return bytes(data[: draw(st.integers(1, len(data)))]) or b"G"


CALLS = CALLS | st.fixed_dictionaries({"wire": damaged_requests()})


def _try(url: str, http: httpx.Client, call: dict[str, Any]) -> None:
    if "wire" in call:
        return _try_wire(url, call["wire"])
    path = httpx.URL(url).copy_with(path=quote(call["path"]))
    body = {k: v for k, v in call.items() if k != "path"}
    if "json" in body:  # as text, for httpx refuses what is no JSON
        body = {"content": _dumped(body["json"]), "headers": {"content-type": "application/json"}}
    answer = http.request("POST" if body else "GET", path, **body)
    assert answer.status_code in DOCUMENTED | {403}, (call, answer.text)
    if answer.status_code >= 400:
        error = answer.json()["error"]
        assert error["code"] and "Traceback" not in error["message"]


def _try_wire(url: str, request: bytes) -> None:
    """Bytes that may be no HTTP: an answer or none, then the end of the connection."""
    address = httpx.URL(url)
    with socket.create_connection((address.host, address.port or 80), timeout=60) as connection:
        answer = b""
        try:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            while block := connection.recv(4096):
                answer += block
        except ConnectionError:  # closed before all was sent
            pass
    if answer:
        status = int(answer.split(b" ", 2)[1])
        assert status in DOCUMENTED | {202, 403}, (request, answer)
        assert b"Traceback" not in answer


def _dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


FUZZING = settings(
    deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None
)


@settings(FUZZING, max_examples=200)
@given(call=CALLS)
def test_bad_inputs_get_documented_answers(ppocr: Running, call: dict[str, Any]) -> None:
    _try(ppocr.url, ppocr.http, call)


@pytest.mark.slow
@pytest.mark.large
@pytest.mark.timeout(3600)
def test_ten_thousand_bad_inputs_leave_no_memory_behind() -> None:
    command = Command()
    try:
        for _ in range(8):  # an engine keeps the room of its largest page: this PDF's
            assert command.http.post("/v1/ocr", content=SEEDS[2][:66]).status_code == 200
        _flood(command, 1000)
        before = _sizes(command)
        _flood(command, 10_000)
        wait_for(lambda: command.http.get("/readyz").json()["running"] == 0, 60)
        after = _sizes(command)
        print(f"web and worker (MiB, files) after 1,000: {before}, after 11,000: {after}")
        assert command.workers == psutil.Process(command.process.pid).children(recursive=True)
        for (size, files), (size_after, files_after) in zip(before, after, strict=True):
            assert size_after - size < 64
            assert files_after <= files + 4
    finally:
        command.close()


def _flood(command: Command, count: int) -> None:
    """`count` inputs, four at a time; raises what the first wrong answer raised."""
    sent = []
    with ThreadPoolExecutor(4) as pool:

        @settings(FUZZING, max_examples=count)
        @given(call=CALLS)
        def draw(call: dict[str, Any]) -> None:
            sent.append(pool.submit(_try, command.url, command.http, call))

        draw()
    for one in sent:
        one.result()
    assert len(sent) >= count


def _sizes(command: Command) -> list[tuple[int, int]]:
    processes = [psutil.Process(command.process.pid), *command.workers]
    return [(p.memory_info().rss >> 20, p.num_fds()) for p in processes]
