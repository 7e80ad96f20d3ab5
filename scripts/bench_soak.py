"""Hours of good and bad requests against one service; does its memory stay where it is?

    python scripts/bench.py soak --minutes 120
    python scripts/bench.py soak --pages 200            # a short one

Sends pages of changing size, files that are no pictures, half bodies and clients that leave, one
after the other, and samples the memory (RSS) of the web process and of the worker. What the first
third allocated counts as warm-up; over the rest a line is fitted. Fails when either process grows
faster than --limit, or when any answer is not what it should be.
"""

from __future__ import annotations

import argparse
import io
import random
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import httpx
import numpy as np
import psutil
from PIL import Image, ImageDraw, ImageFont

from scripts.bench_serve import served

_SAMPLE_S = 2.0
_SEED = 7


@dataclass
class Trace:
    """Memory of one process: (seconds, bytes) by sample."""

    name: str
    samples: list[tuple[float, int]] = field(default_factory=list)

    def slope(self) -> float:
        """Bytes an hour over the last two thirds, by least squares."""
        kept = self.samples[len(self.samples) // 3 :]
        if len(kept) < 3:
            return float("nan")
        seconds, sizes = np.array(kept, np.float64).T
        return float(np.polyfit(seconds, sizes, 1)[0]) * 3600

    def grown(self) -> int:
        """Bytes between the end of the warm-up and the end."""
        kept = self.samples[len(self.samples) // 3 :]
        return kept[-1][1] - kept[0][1]


def main(argv: list[str]) -> int:
    """Print both slopes; 0 when they and all answers are as they should be."""
    parser = argparse.ArgumentParser(prog="bench.py soak")
    parser.add_argument("--minutes", type=float, default=10.0, help="longest time")
    parser.add_argument("--pages", type=int, default=1_000_000, help="most requests")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--limit", type=float, default=64.0, help="MiB grown after the warm-up")
    args = parser.parse_args(argv)
    with served(["--threads", str(args.threads)]) as url:
        web = next(p for p in psutil.Process().children() if _is_service(p))
        traces = Trace("web"), Trace("worker")
        wrong, counts = _soak(url, web, traces, args.minutes * 60, args.pages)
    print(f"requests: {sum(counts.values())} ({_listed(counts)}), wrong answers: {wrong}")
    failed = wrong > 0
    for trace in traces:
        grown = trace.grown() / 2**20
        print(
            f"{trace.name:7} {trace.samples[-1][1] / 2**20:8.1f} MiB at the end, {grown:+.1f} MiB "
            f"after the warm-up, slope {trace.slope() / 2**20:+.1f} MiB/h"
        )
        failed = failed or grown > args.limit
    return 1 if failed else 0


def _soak(
    url: str, web: psutil.Process, traces: tuple[Trace, Trace], seconds: float, most: int
) -> tuple[int, Counter[str]]:
    """Sends until either limit; returns how many answers were wrong, and requests by kind."""
    end, begun, sampled = time.monotonic() + seconds, time.monotonic(), 0.0
    counts: Counter[str] = Counter()
    wrong = 0
    with httpx.Client(timeout=300, trust_env=False) as http:
        for kind, body in _requests(random.Random(_SEED)):
            now = time.monotonic()
            if now > end or sum(counts.values()) >= most:
                return wrong, counts
            if now - sampled > _SAMPLE_S:
                sampled = now
                _sample(web, traces, now - begun)
            counts[kind] += 1
            wrong += not _as_it_should_be(http, url, kind, body)
    return wrong, counts


def _requests(dice: random.Random) -> Iterator[tuple[str, bytes]]:
    """Eight good pages, then one of each bad kind, for ever."""
    while True:
        for _ in range(8):
            yield "page", _page(dice)
        yield "noise", dice.randbytes(dice.randrange(1, 60_000))
        yield "cut", _page(dice)[: dice.randrange(40, 400)]
        yield "half", b""
        yield "leaver", _page(dice)


def _as_it_should_be(http: httpx.Client, url: str, kind: str, body: bytes) -> bool:
    if kind == "half":
        _half_a_body(url)
        return True
    if kind == "leaver":
        try:
            http.post(url + "/v1/ocr", content=body, timeout=0.02)
        except httpx.TimeoutException:
            pass
        return True
    answer = http.post(url + "/v1/ocr", content=body)
    if kind == "page":
        return answer.status_code == 200
    return answer.status_code in (200, 422)  # a cut PNG may still show its first rows


def _half_a_body(url: str) -> None:
    parts = urlsplit(url)
    assert parts.hostname and parts.port
    with socket.create_connection((parts.hostname, parts.port)) as connection:
        connection.sendall(b"POST /v1/ocr HTTP/1.1\r\nHost: x\r\nContent-Length: 999\r\n\r\nabc")


def _page(dice: random.Random) -> bytes:
    size = dice.randrange(200, 1000), dice.randrange(60, 400)
    image = Image.new("RGB", size, "white")
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(24)
    for y in range(8, size[1] - 30, 36):
        draw.text((8, y), f"Line {dice.randrange(10**9)}", "black", font)
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def _sample(web: psutil.Process, traces: tuple[Trace, Trace], at: float) -> None:
    traces[0].samples.append((at, web.memory_info().rss))
    workers = [child.memory_info().rss for child in web.children()]
    traces[1].samples.append((at, max(workers, default=0)))


def _is_service(process: psutil.Process) -> bool:
    return "serve" in process.cmdline()


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{n} {kind}" for kind, n in counts.items())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
