"""Whatever is sent, the answer is one of the documented ones, and nothing grows."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import httpx
import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ascend.serve.wire import OPTIONS
from tests.serve.running import Running, document_of, picture_of

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


def _try(server: Running, call: dict[str, Any]) -> None:
    path = httpx.URL(server.url).copy_with(path=quote(call["path"]))
    body = {k: v for k, v in call.items() if k != "path"}
    if "json" in body:  # as text, for httpx refuses what is no JSON
        body = {"content": _dumped(body["json"]), "headers": {"content-type": "application/json"}}
    answer = server.http.request("POST" if body else "GET", path, **body)
    assert answer.status_code in DOCUMENTED | {403}, (call, answer.text)
    if answer.status_code >= 400:
        error = answer.json()["error"]
        assert error["code"] and "Traceback" not in error["message"]


def _dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


FUZZING = settings(
    deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None
)


@settings(FUZZING, max_examples=120)
@given(call=CALLS)
def test_bad_inputs_get_documented_answers(ppocr: Running, call: dict[str, Any]) -> None:
    _try(ppocr, call)


@pytest.mark.slow
@pytest.mark.large
@pytest.mark.timeout(3600)
def test_ten_thousand_bad_inputs_leave_no_memory_behind(ppocr: Running) -> None:
    @settings(FUZZING, max_examples=10_000)
    @given(call=CALLS)
    def flood(call: dict[str, Any]) -> None:
        _try(ppocr, call)

    first = ppocr.worker_pid
    assert first is not None
    flood_once = settings(FUZZING, max_examples=500)(
        given(call=CALLS)(lambda call: _try(ppocr, call))
    )
    flood_once()  # what the first ones allocate stays
    worker = psutil.Process(first)
    before = worker.memory_info().rss
    flood()
    assert ppocr.worker_pid == first, "the worker died"
    assert worker.memory_info().rss - before < 96 << 20
