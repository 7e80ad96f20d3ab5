"""One model after another: reloads, a candidate for a share of the requests, changed files."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from ascend.serve.canaries import drift_of
from ascend.serve.service import Candidate
from tests.serve.running import READY_S, Running, running, wait_for

ADMIN = {"authorization": "Bearer only-for-the-admin"}


def test_a_model_changes_under_load_and_nobody_notices(
    checkpoint: Path, picture: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HYOCR_ADMIN_KEY", "only-for-the-admin")
    with running(job_keep_s=0.2) as server:
        first = server.worker_pid
        assert server.post("/admin/reload", json={}).status_code == 403
        with _Load(server.url, picture) as load:
            done = server.post("/admin/reload", json={}, headers=ADMIN)
        assert done.status_code == 200 and done.json()["drift"] == 0
        assert load.statuses and set(load.statuses) == {200}
        assert server.worker_pid not in (None, first)
        _another_model_is_refused(server, checkpoint, picture)
        _a_candidate_that_drifts_is_sent_away(server, checkpoint, picture)
        _jobs_expire(server, picture)


def _another_model_is_refused(server: Running, checkpoint: Path, picture: bytes) -> None:
    """One that cannot be opened, and one that reads something else."""
    missing = server.post("/admin/reload", json={"model": "/no/such"}, headers=ADMIN)
    assert missing.status_code == 409 and "/no/such" not in missing.text
    other = server.post("/admin/reload", json={"model": str(checkpoint)}, headers=ADMIN)
    assert other.status_code == 409 and "max_drift" in other.json()["error"]["message"]
    assert server.read(picture).json()["model"]["name"] == "PP-OCRv6-small"


def _a_candidate_that_drifts_is_sent_away(
    server: Running, checkpoint: Path, picture: bytes
) -> None:
    wanted = {"model": str(checkpoint), "weight": 0.5, "force": True}
    assert server.post("/admin/reload", json=wanted, headers=ADMIN).status_code == 200
    assert server.get("/readyz").json()["candidate"]["weight"] == 0.5
    assert server.post("/admin/reload", json={}, headers=ADMIN).status_code == 409
    options = '{"max_tokens": 8}'
    names = [server.read(picture, options=options).json()["model"]["name"] for _ in range(6)]
    assert names.count("PP-OCRv6-small") == 3
    wait_for(lambda: "candidate" not in server.get("/readyz").json(), 60)
    assert 'hyocr_reloads_total{outcome="rolled_back"} 1.0' in server.get("/metrics").text
    assert server.post("/admin/promote", headers=ADMIN).status_code == 404


def _jobs_expire(server: Running, picture: bytes) -> None:
    job = server.post("/v1/jobs", content=picture).json()
    wait_for(lambda: server.get(f"/v1/jobs/{job['id']}").status_code == 404, 60)


def test_changed_files_are_opened(hunyuan: Running, checkpoint: Path) -> None:
    first = hunyuan.worker_pid
    os.utime(checkpoint / "config.json", (1, 1))
    wait_for(lambda: hunyuan.worker_pid not in (None, first), READY_S)
    assert 'hyocr_reloads_total{outcome="switched"} 1.0' in hunyuan.get("/metrics").text


def test_a_candidate_takes_exactly_its_share() -> None:
    candidate = Candidate(deployment=None, weight=0.1)  # type: ignore[arg-type]
    assert [candidate.takes() for _ in range(30)].count(True) == 3


@pytest.mark.parametrize(
    ("one", "other", "drift"),
    [(["a b"], ["a  b\n"], 0.0), (["abcd"], ["wxyz"], 1.0), (["abcd"], ["abxy"], 0.5)],
)
def test_drift_is_the_share_of_other_characters(one: Any, other: Any, drift: float) -> None:
    assert drift_of(one, other) == pytest.approx(drift)


class _Load:
    """A client that asks again and again, beside the test."""

    def __init__(self, url: str, picture: bytes) -> None:
        self._url, self._picture = url, picture
        self._end = threading.Event()
        self.statuses: list[int] = []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> _Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        with httpx.Client(timeout=300, trust_env=False) as http:
            while not self._end.is_set():
                answer = http.post(self._url + "/v1/ocr", content=self._picture)
                self.statuses.append(answer.status_code)


def test_metrics_have_no_label_of_a_client_s_making(ppocr: Running) -> None:
    ppocr.get("/v1/jobs/some-id-of-mine")
    text = ppocr.get("/metrics").text
    assert 'route="/v1/jobs/{number}"' in text and not re.search("some-id", text)
