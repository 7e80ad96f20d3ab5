"""A server to test, on a free port of this host's loopback, and pages to send it."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
from PIL import Image, ImageDraw, ImageFont
from prometheus_client.parser import text_string_to_metric_families

from ascend.serve.config import ServeConfig
from ascend.serve.server import ServiceServer, listen

ROOT = Path(__file__).parent.parent.parent
READY_S = 240.0  # on a machine that is busy with other tests


class Running:
    """A server in a thread of the test process; its worker is a process as in real life."""

    def __init__(self, tracer: Any = None, **given: Any) -> None:
        given = {"threads": 1, "port": 0, **given}
        self.config = ServeConfig(**given)
        self.server = ServiceServer(self.config, listen("127.0.0.1", 0), ui=False)
        self.service = self.server.service
        if tracer is not None:
            self.service.tracer = tracer
        self.thread = threading.Thread(target=self.server.serve_all, name="server")
        self.thread.start()
        self.http = httpx.Client(timeout=120.0, trust_env=False)

    @property
    def url(self) -> str:
        return self.server.url

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.http.get(self.url + path, **more)

    def post(self, path: str, **more: Any) -> httpx.Response:
        return self.http.post(self.url + path, **more)

    def read(self, picture: bytes, **query: Any) -> httpx.Response:
        headers = {"content-type": "application/octet-stream"}
        return self.post("/v1/ocr", content=picture, params=query, headers=headers)

    def wait_ready(self) -> Running:
        wait_for(lambda: self.server.started or not self.thread.is_alive(), READY_S)
        wait_for(lambda: self.get("/readyz").status_code == 200, READY_S)
        return self

    def metrics(self) -> dict[tuple[str, ...], float]:
        """Every sample of /metrics: (name, label values in their names' order) -> value."""
        return {
            (sample.name, *(sample.labels[name] for name in sorted(sample.labels))): sample.value
            for family in text_string_to_metric_families(self.get("/metrics").text)
            for sample in family.samples
        }

    @property
    def worker_pid(self) -> int | None:
        worker = self.service.stable.worker
        return worker.pid if worker is not None else None

    def stop(self) -> None:
        self.http.close()
        self.server.should_exit = True
        self.thread.join(60)
        assert not self.thread.is_alive(), "the server did not end"


class Command:
    """`hyocr serve` as a process with a worker of its own."""

    def __init__(self, *options: str) -> None:
        command = [sys.executable, "-m", "ascend.cli", "serve", "--port", "0", "--no-ui"]
        self.process = subprocess.Popen(
            [*command, "--threads", "1", *options], stderr=subprocess.PIPE, text=True, cwd=ROOT
        )
        assert self.process.stderr is not None
        lines = iter(self.process.stderr.readline, "")
        found = next(filter(None, (re.search(r"http://\S+", line) for line in lines)), None)
        assert found is not None, "the service did not start"
        self.url = found.group()
        self._rest = threading.Thread(target=self.process.stderr.read)  # or its pipe fills
        self._rest.start()
        self.http = httpx.Client(base_url=self.url, timeout=300, trust_env=False)
        wait_for(lambda: self.http.get("/readyz").status_code == 200, READY_S)
        self.workers = psutil.Process(self.process.pid).children(recursive=True)

    def close(self) -> None:
        self.http.close()
        self.process.kill()
        self.process.wait()
        self._rest.join()
        assert self.process.stderr is not None
        self.process.stderr.close()


class Load:
    """Clients that ask again and again, beside the test; `statuses` of all their answers."""

    def __init__(self, url: str, picture: bytes, clients: int = 1) -> None:
        self._url, self._picture = url, picture
        self._end = threading.Event()
        self.statuses: list[int] = []
        self._threads = [threading.Thread(target=self._run) for _ in range(clients)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        with httpx.Client(timeout=300, trust_env=False) as http:
            while not self._end.is_set():
                answer = http.post(self._url + "/v1/ocr", content=self._picture)
                self.statuses.append(answer.status_code)


def wait_for(true: Callable[[], Any], seconds: float) -> None:
    """Returns when `true()` is; fails after `seconds`. Polls: what is awaited is another
    process."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.05)


@contextmanager
def running(**given: Any) -> Iterator[Running]:
    server = Running(**given)
    try:
        yield server.wait_ready()
    finally:
        server.stop()


def picture_of(*lines: str, size: tuple[int, int] = (420, 0)) -> bytes:
    """A PNG with printed lines."""
    height = size[1] or 20 + 48 * len(lines)
    image = Image.new("RGB", (size[0], height), "white")
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(30)
    for i, line in enumerate(lines):
        draw.text((16, 10 + 48 * i), line, "black", font)
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def document_of(*pages: str) -> bytes:
    """A TIFF of several pages, one printed line each."""
    images = [Image.open(io.BytesIO(picture_of(text))) for text in pages]
    buffer = io.BytesIO()
    images[0].save(buffer, "TIFF", save_all=True, append_images=images[1:])
    return buffer.getvalue()
