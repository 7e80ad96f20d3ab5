"""Workers that die, hang or grow: others take their place and nobody's request is lost."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.serve.running import READY_S, Load, Running, running, wait_for


def test_full_queues_say_when_to_come_again_and_killed_workers_lose_nobody(picture: bytes) -> None:
    with running(max_queue=8) as server:
        _fill_the_queue(server, picture)
        _kill_the_worker(server, picture)


def _fill_the_queue(server: Running, picture: bytes) -> None:
    server.service.stable._worker, worker = None, server.service.stable._worker
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(_read, server.url, picture) for _ in range(8)]
        wait_for(lambda: server.service.stable.waiting == 8, 20)
        refused = server.read(picture)
        server.service.stable._worker = worker
        loop = server.service.loop
        assert loop is not None
        loop.call_soon_threadsafe(server.service.stable._dispatch)
        assert [one.result().status_code for one in waiting] == [200] * 8
    assert refused.status_code == 429 and int(refused.headers["retry-after"]) >= 1


def _kill_the_worker(server: Running, picture: bytes) -> None:
    first = server.worker_pid
    assert first is not None
    with ThreadPoolExecutor(8) as pool:
        reads = [pool.submit(_read, server.url, picture) for _ in range(8)]
        wait_for(lambda: server.service.stable.running, 20)
        os.kill(first, signal.SIGKILL)
        answers = [read.result() for read in reads]
    for answer in answers:
        assert answer.status_code == 200 or answer.json()["error"]["retryable"]
    wait_for(lambda: server.get("/readyz").status_code == 200, READY_S)
    assert server.worker_pid not in (None, first)
    assert server.read(picture).status_code == 200
    assert server.metrics()["hyocr_worker_restarts_total", "died"] == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "reason"),
    [({"worker_requests": 3}, "requests"), ({"worker_growth_bytes": 1}, "memory")],
)
def test_workers_are_replaced_under_load_without_a_lost_request(
    picture: bytes, limit: dict[str, Any], reason: str
) -> None:
    with running(**limit) as server:
        first = server.worker_pid
        with Load(server.url, picture, clients=4) as load:
            wait_for(lambda: server.metrics().get(_restarts(reason), 0) >= 2, READY_S)
        assert set(load.statuses) == {200} and len(load.statuses) > 6
        wait_for(lambda: server.worker_pid not in (None, first), READY_S)
        assert server.read(picture).status_code == 200


@pytest.mark.slow
def test_a_worker_that_hangs_is_ended_and_its_requests_are_read(picture: bytes) -> None:
    with running(hang_s=8.0) as server:
        first = server.worker_pid
        assert first is not None
        os.kill(first, signal.SIGSTOP)
        with ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(lambda _: _read(server.url, picture), range(2)))
        assert [answer.status_code for answer in answers] == [200] * 2
        assert server.metrics()[_restarts("hung")] == 1
        wait_for(lambda: server.get("/readyz").status_code == 200, READY_S)
        assert server.worker_pid not in (None, first)


def _restarts(reason: str) -> tuple[str, str]:
    return "hyocr_worker_restarts_total", reason


def _read(url: str, picture: bytes) -> httpx.Response:
    return httpx.post(url + "/v1/ocr", content=picture, timeout=300, trust_env=False)
