"""What keeps a service up: probes, limits, deadlines, clients that leave, workers that die."""

from __future__ import annotations

import io
import json
import statistics
import struct
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from PIL import Image

from ascend.serve.config import ServeConfig
from ascend.serve.errors import RateLimited, Unauthorized
from ascend.serve.keys import KeyRing
from ascend.serve.queueing import FairQueue
from tests.serve.running import Running, picture_of, wait_for


def test_ready_names_the_engines_and_the_last_answer(ppocr: Running) -> None:
    value = ppocr.get("/readyz").json()
    assert value["ready"] and value["reason"] is None
    assert value["engines"] == [
        {"role": "primary", "engine": "ort", "serving": True, "reason": None}
    ]
    assert value["last_answer_age_s"] < ppocr.config.ready_interval_s


def test_probes_answer_at_once_while_the_engine_works(ppocr: Running) -> None:
    busy = picture_of(*(f"Line number {i} of a page" for i in range(12)), size=(900, 700))
    with ThreadPoolExecutor(4) as pool:
        reads = [pool.submit(_read, ppocr.url, busy) for _ in range(4)]
        times = []
        with httpx.Client(trust_env=False) as http:
            http.get(ppocr.url + "/livez")
            while not all(read.done() for read in reads) and len(times) < 60:
                begun = time.perf_counter()
                assert http.get(ppocr.url + "/livez").status_code == 200
                times.append(time.perf_counter() - begun)
                assert http.get(ppocr.url + "/readyz").status_code == 200
    assert [read.result().status_code for read in reads] == [200] * 4
    # The quickest quarter: the others may have waited for a CPU that all of us share.
    assert statistics.quantiles(times, n=4)[0] < 0.05


def test_metrics_count_what_was_done(ppocr: Running, picture: bytes) -> None:
    before = ppocr.metrics()
    assert [ppocr.read(picture, task="text").status_code for _ in range(2)] == [200] * 2
    assert ppocr.read(b"no picture").status_code == 422
    assert ppocr.get("/nowhere").status_code == 404
    after = ppocr.metrics()

    def grown(*sample: str) -> float:
        return after[sample] - before.get(sample, 0.0)

    assert grown("hyocr_requests_total", "/v1/ocr", "200") == 2
    assert grown("hyocr_requests_total", "/v1/ocr", "422") == 1
    assert grown("hyocr_requests_total", "other", "404") == 1
    assert grown("hyocr_request_seconds_count", "/v1/ocr") == 3
    assert grown("hyocr_pages_total", "ort", "stop", "text") == 2
    assert grown("hyocr_queue_seconds_count") >= 3  # and a probe, if one was due
    assert grown("hyocr_stage_seconds_count", "det") >= 2
    assert (
        0 < grown("hyocr_stage_seconds_sum", "det") < grown("hyocr_request_seconds_sum", "/v1/ocr")
    )
    assert grown("hyocr_fallbacks_total") == 0
    assert after["hyocr_ready",] == after["hyocr_engine_serving", "ort", "primary"] == 1
    assert after["hyocr_queue_depth",] == after["hyocr_running",] == 0
    wait_for(lambda: ppocr.metrics().get(("hyocr_batch_slots",)), 60)  # the worker's first beat
    after = ppocr.metrics()
    assert after["hyocr_worker_rss_bytes",] > 10e6


def test_tokens_are_counted_by_kind(hunyuan: Running, picture: bytes) -> None:
    before = hunyuan.metrics()
    usage = hunyuan.read(picture, options='{"max_tokens": 7, "retry": false}').json()["usage"]
    after = hunyuan.metrics()
    for kind in ("prompt", "completion"):
        sample = "hyocr_tokens_total", kind
        assert after[sample] - before.get(sample, 0) == usage[f"{kind}_tokens"] > 0
    wait_for(lambda: hunyuan.metrics().get(("hyocr_batch_slots",)) == 4, 60)  # the worker's beat


def test_the_dashboard_asks_for_metrics_that_there_are(ppocr: Running) -> None:
    import json
    import re

    import ascend.serve

    text = Path(ascend.serve.__file__).with_name("grafana.json").read_text("utf-8")
    asked = set(re.findall(r"hyocr_[a-z_]+", " ".join(_expressions(json.loads(text)))))
    there = set(re.findall(r"^# TYPE (hyocr_[a-z_]+)", ppocr.get("/metrics").text, re.M))
    names = there | {f"{name}_{end}" for name in there for end in ("bucket", "count", "sum")}
    assert asked and asked <= names | {"hyocr_device_used_bytes", "hyocr_device_total_bytes"}


def test_a_large_body_is_refused_before_it_is_read(ppocr: Running) -> None:
    answer = ppocr.read(b"x" * ((4 << 20) + 1))
    assert answer.status_code == 413 and answer.json()["error"]["code"] == "body_too_large"

    def endless() -> object:
        for _ in range(5):
            yield b"x" * (1 << 20)

    assert ppocr.post("/v1/ocr", content=endless()).status_code == 413


def test_many_pixels_are_refused_before_they_are_decoded(ppocr: Running) -> None:
    bomb = _png_of(width=20_000, height=20_000)
    answer = ppocr.read(bomb)
    assert answer.status_code == 422 and "max_pixels" in answer.json()["error"]["message"]


def test_a_deadline_that_passes_is_a_504(ppocr: Running) -> None:
    answer = ppocr.read(picture_of("late"), timeout_s="0.001")
    assert answer.status_code == 504 and answer.json()["error"]["retryable"]


def test_a_client_that_leaves_frees_its_slot(hunyuan: Running, picture: bytes) -> None:
    count = 30  # of half a second each
    page, document = Image.open(io.BytesIO(picture)), io.BytesIO()
    page.save(document, "TIFF", save_all=True, append_images=[page] * (count - 1))
    before, query = pages_read(hunyuan), {"stream": "true"}
    with hunyuan.http.stream(
        "POST", hunyuan.url + "/v1/ocr", content=document.getvalue(), params=query
    ) as answer:
        assert json.loads(next(answer.iter_lines()))["page_index"] == 0
    wait_for(lambda: hunyuan.service.stable.running == 0, 10)
    assert 1 <= pages_read(hunyuan) - before < count


def pages_read(server: Running) -> float:
    """To their ends: what is cancelled counts as a page of its own kind."""
    pages = {n: v for n, v in server.metrics().items() if n[0] == "hyocr_pages_total"}
    return sum(value for name, value in pages.items() if "cancelled" not in name)


def test_answers_do_not_depend_on_what_else_runs(hunyuan: Running) -> None:
    pages = [picture_of(f"Page {i}", size=(120 + 32 * (i % 5), 64)) for i in range(32)]
    _same_together_and_alone(hunyuan, pages, [6 + 5 * (i % 6) for i in range(32)])


def test_trained_weights_answer_the_same_in_a_crowd(reader: Running) -> None:
    pages = [
        picture_of(f"Total: ${i}7.{i}0", f"Date {i}-{i * i}", size=(320, 96)) for i in range(32)
    ]
    _same_together_and_alone(reader, pages, [20 + 7 * (i % 9) for i in range(32)])


def _same_together_and_alone(server: Running, pages: list[bytes], limits: list[int]) -> None:
    """The model's own words for 32 pages at once, and for one after the other."""

    def read(i: int) -> str:
        query = {
            "task": ("spotting", "text")[i % 2],
            "options": f'{{"max_tokens": {limits[i]}, "retry": false}}',
        }
        url = server.url + "/v1/ocr"
        answer = httpx.post(url, content=pages[i], params=query, timeout=300, trust_env=False)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["raw"])

    with ThreadPoolExecutor(len(pages)) as pool:
        together = list(pool.map(read, range(len(pages))))
    assert together == [read(i) for i in range(len(pages))]
    assert len(set(together)) > 8, "the answers differ from each other"


def test_keys_are_asked_for_and_their_rate_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# who\nalice:alice-secret\nbob:bob-secret:2\n")
    keys = KeyRing.of(ServeConfig(api_keys=str(file)))
    assert keys.client("alice-secret") == "alice"
    for wrong in (None, "", "alice-secre", "alice:alice-secret", "\udce9"):
        with pytest.raises(Unauthorized):
            keys.client(wrong)
    assert [keys.client("bob-secret") for _ in range(2)] == ["bob", "bob"]
    with pytest.raises(RateLimited) as limited:
        keys.client("bob-secret")
    assert 0 < (limited.value.retry_after_s or 0) <= 30


def test_clients_take_turns() -> None:
    queue: FairQueue[str] = FairQueue()
    for item in ("a1", "a2", "a3"):
        queue.push("a", item)
    queue.push("b", "b1")
    queue.push("a", "a0", first=True)
    assert queue.remove("a", "a2") and not queue.remove("b", "b2")
    assert [queue.pop() for _ in range(len(queue) + 1)] == ["a0", "b1", "a1", "a3", None]


def _png_of(width: int, height: int) -> bytes:
    """A PNG that only says how large it is."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = (chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(b"")), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def _read(url: str, picture: bytes) -> httpx.Response:
    return httpx.post(url + "/v1/ocr", content=picture, timeout=300, trust_env=False)


def _expressions(value: object) -> list[str]:
    """Every PromQL expression of a dashboard."""
    if isinstance(value, dict):
        own = [value["expr"]] if isinstance(value.get("expr"), str) else []
        return own + [e for v in value.values() for e in _expressions(v)]
    if isinstance(value, list):
        return [e for v in value for e in _expressions(v)]
    return []
