"""Long documents: sent, followed, fetched, cancelled; and the end of the whole service."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.serve.running import READY_S, Command, Running, document_of, wait_for


def _finished(server: Running, number: str) -> bool:
    return server.get(f"/v1/jobs/{number}").json()["status"] not in ("waiting", "running")


def test_a_job_reads_more_pages_than_one_request_may(ppocr: Running) -> None:
    pages = document_of(*(f"Page {i}" for i in range(1, 11)))
    refused = ppocr.read(pages, task="text")
    assert refused.status_code == 422 and "/v1/jobs" in refused.json()["error"]["message"]
    made = ppocr.post("/v1/jobs", content=pages, params={"task": "text"})
    assert made.status_code == 202
    place = made.headers["location"]
    early = ppocr.get(place + "/result")
    assert early.status_code in (200, 409)
    wait_for(lambda: _finished(ppocr, made.json()["id"]), READY_S)
    state = ppocr.get(place).json()
    assert (state["status"], state["pages_done"], state["page_count"]) == ("done", 10, 10)
    read = ppocr.get(place + "/result").json()
    assert [page["text"] for page in read] == [f"Page {i}" for i in range(1, 11)]
    lines = ppocr.get(place + "/result", params={"format": "jsonl"}).text.splitlines()
    assert [json.loads(line)["page_index"] for line in lines] == list(range(10))
    assert "Page 7" in ppocr.get(place + "/result", params={"format": "html"}).text
    assert ppocr.http.delete(ppocr.url + place).status_code == 200
    assert ppocr.get(place).status_code == 404


def test_a_job_that_runs_is_cancelled(ppocr: Running) -> None:
    pages = document_of(*(f"Page {i}" for i in range(1, 60)))
    job = ppocr.post("/v1/jobs", content=pages).json()
    place = f"/v1/jobs/{job['id']}"
    wait_for(lambda: ppocr.get(place).json()["pages_done"], READY_S)
    ended = ppocr.http.delete(ppocr.url + place).json()
    assert ended["status"] == "cancelled" and 0 < ended["pages_done"] < 59
    assert ppocr.get(place).status_code == ppocr.get(place + "/result").status_code == 404
    wait_for(lambda: ppocr.get("/readyz").json()["running"] == 0, 60)
    assert ppocr.get("/readyz").json()["queue"] == 0


def test_a_job_that_cannot_be_read_says_why(ppocr: Running) -> None:
    job = ppocr.post("/v1/jobs", content=b"no document").json()
    wait_for(lambda: _finished(ppocr, job["id"]), 60)
    state = ppocr.get(f"/v1/jobs/{job['id']}").json()
    assert state["status"] == "failed" and state["error"]["code"] == "input"
    assert ppocr.get(f"/v1/jobs/{job['id']}/result").status_code == 422


def test_a_job_s_form_and_json_are_taken_too(ppocr: Running, picture: bytes) -> None:
    form = ppocr.post("/v1/jobs", files={"file": ("a.png", picture)}, data={"task": "text"})
    assert form.status_code == 202 and form.json()["source"] == "a.png"
    wait_for(lambda: _finished(ppocr, form.json()["id"]), READY_S)
    result = ppocr.get(form.headers["location"] + "/result").json()
    assert result[0]["text"] == "Invoice 2048\nTotal 73.50"


def test_jobs_outlive_a_service_that_is_killed(document: bytes, tmp_path: Path) -> None:
    pages = document_of(*(f"Page {i}" for i in range(1, 31)))
    first = Command("--jobs-dir", str(tmp_path))
    try:
        short = first.http.post("/v1/jobs", content=document, params={"task": "text"}).json()["id"]
        wait_for(lambda: _state(first, short)["status"] == "done", READY_S)
        long = first.http.post("/v1/jobs", content=pages, params={"task": "text"}).json()["id"]
        wait_for(lambda: _state(first, long)["pages_done"] > 2, READY_S)
    finally:
        first.close()  # SIGKILL
    with open(tmp_path / long / "pages.jsonl", "ab") as cut:
        cut.write(b'{"text": "half a li')
    (tmp_path / "half-sent").mkdir()
    second = Command("--jobs-dir", str(tmp_path))
    try:
        assert _state(second, short)["status"] == "done"
        texts = [page["text"] for page in second.http.get(f"/v1/jobs/{short}/result").json()]
        assert texts == ["First page", "Second page", "Third page"]
        wait_for(lambda: _state(second, long)["status"] == "done", READY_S)
        read = second.http.get(f"/v1/jobs/{long}/result").json()
        assert [page["text"] for page in read] == [f"Page {i}" for i in range(1, 31)]
        assert _state(second, long)["pages_done"] == 30
        assert not (tmp_path / "half-sent").exists()
        assert second.http.delete(f"/v1/jobs/{long}").status_code == 200
        assert not (tmp_path / long).exists()
    finally:
        second.close()


def _state(command: Command, number: str) -> Any:
    return command.http.get(f"/v1/jobs/{number}").json()


@pytest.mark.parametrize(("signals", "code"), [(1, 0), (2, 128 + signal.SIGTERM)])
def test_sigterm_finishes_what_runs_and_a_second_one_does_not_wait(
    document: bytes, signals: int, code: int
) -> None:
    command = Command()
    answers: list[int] = []

    def read() -> None:
        try:
            answers.append(httpx.post(command.url + "/v1/ocr", content=document, timeout=300,
                                      trust_env=False).status_code)  # fmt: skip
        except httpx.HTTPError:
            answers.append(0)

    reader = threading.Thread(target=read)
    try:
        reader.start()
        wait_for(lambda: command.http.get("/readyz").json()["running"], 60)
        for _ in range(signals):
            os.kill(command.process.pid, signal.SIGTERM)
            if signals > 1:  # or the two would be one
                wait_for(lambda: command.process.poll() is not None or _stopping(command), 30)
        assert command.process.wait(60) == code
        reader.join(60)
        assert answers == [200 if signals == 1 else 0]
        gone, alive = psutil.wait_procs(command.workers, timeout=20)
        assert gone and not alive
    finally:
        command.close()


def _stopping(command: Command) -> bool:
    """Whether the listening socket is closed already."""
    try:
        return command.http.get("/readyz").json()["reason"] == "the service is shutting down"
    except httpx.HTTPError:
        return True
