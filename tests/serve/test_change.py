"""One model after another: reloads, a candidate for a share of the requests, changed files."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Any

import psutil
import pytest

from ascend.serve.canaries import drift_of
from ascend.serve.service import Candidate
from tests.serve.running import READY_S, Load, Running, running, wait_for

ADMIN = {"authorization": "Bearer only-for-the-admin"}


def test_a_model_changes_under_load_and_nobody_notices(
    checkpoint: Path, picture: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HYOCR_ADMIN_KEY", "only-for-the-admin")
    with running(job_keep_s=0.2) as server:
        first = server.worker_pid
        assert server.post("/admin/reload", json={}).status_code == 403
        with Load(server.url, picture, clients=4) as load:
            done = server.post("/admin/reload", json={}, headers=ADMIN)
        assert done.status_code == 200 and done.json()["drift"] == 0
        assert load.statuses and set(load.statuses) == {200}
        assert server.worker_pid not in (None, first)
        _a_candidate_that_reads_alike_is_promoted(server, picture)
        _a_candidate_that_fails_is_sent_away(server, picture)
        _another_model_is_refused(server, checkpoint, picture)
        _a_candidate_that_drifts_is_sent_away(server, checkpoint, picture)
        _jobs_expire(server, picture)


def _a_candidate_that_reads_alike_is_promoted(server: Running, picture: bytes) -> None:
    """By itself, when enough of its answers were the old model's; all requests are its then."""
    before = server.worker_pid
    assert server.post("/admin/reload", json={"weight": 0.5}, headers=ADMIN).status_code == 200
    asked = 0
    while "candidate" in server.get("/readyz").json():
        assert server.read(picture).status_code == 200
        asked += 1
        assert asked < 200, "never promoted"
    assert asked >= 2 * 20, "half of the answers are the candidate's, and 20 of these count"
    wait_for(lambda: server.worker_pid not in (None, before), 20)
    assert server.metrics()["hyocr_reloads_total", "promoted"] == 1


def _a_candidate_that_fails_is_sent_away(server: Running, picture: bytes) -> None:
    """Its requests are read by the old model; nobody is told of an error."""
    before = server.worker_pid
    assert server.post("/admin/reload", json={"weight": 1.0}, headers=ADMIN).status_code == 200
    with Load(server.url, picture) as load:
        while (candidate := server.service.candidate) is not None:
            worker = candidate.deployment.worker
            if worker is not None and candidate.deployment.running:
                with contextlib.suppress(psutil.NoSuchProcess):
                    psutil.Process(worker.pid).kill()
    assert set(load.statuses) == {200} and server.worker_pid == before
    assert server.metrics()["hyocr_reloads_total", "rolled_back"] == 1


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
    assert server.metrics()["hyocr_reloads_total", "rolled_back"] == 2
    assert server.post("/admin/promote", headers=ADMIN).status_code == 404


def _jobs_expire(server: Running, picture: bytes) -> None:
    job = server.post("/v1/jobs", content=picture).json()
    wait_for(lambda: server.get(f"/v1/jobs/{job['id']}").status_code == 404, 60)


def test_changed_files_are_opened(hunyuan: Running, checkpoint: Path) -> None:
    first = hunyuan.worker_pid
    os.utime(checkpoint / "config.json", (1, 1))
    wait_for(lambda: hunyuan.worker_pid not in (None, first), READY_S)
    assert hunyuan.metrics()["hyocr_reloads_total", "switched"] == 1


def test_a_candidate_takes_exactly_its_share() -> None:
    candidate = Candidate(deployment=None, weight=0.1)  # type: ignore[arg-type]
    assert [candidate.takes() for _ in range(30)].count(True) == 3


@pytest.mark.parametrize(
    ("one", "other", "drift"),
    [(["a b"], ["a  b\n"], 0.0), (["abcd"], ["wxyz"], 1.0), (["abcd"], ["abxy"], 0.5)],
)
def test_drift_is_the_share_of_other_characters(one: Any, other: Any, drift: float) -> None:
    assert drift_of(one, other) == pytest.approx(drift)


def test_metrics_have_no_label_of_a_client_s_making(ppocr: Running) -> None:
    ppocr.get("/v1/jobs/some-id-of-mine")
    text = ppocr.get("/metrics").text
    assert 'route="/v1/jobs/{number}"' in text and not re.search("some-id", text)
