"""The service under many clients, next to a plain server that reads one picture after the other.

    python scripts/bench.py serve [--clients 1 8 32 128] [--requests 64]
    python scripts/bench.py serve --model tiny --slots 1 4 8      # batching of HunyuanOCR
    python scripts/bench.py serve --model full --slots 1 4 8      # random weights, real shape
    python scripts/bench.py serve --model FOLDER --slots 1 4 8    # a checkpoint that is there

Both servers run all the time and take turns, level by level, on the same picture and threads; the
plain one is RapidOCR behind Python's own http.server with one lock. Latency is the client's, from
the first byte sent to the last one received. Answers 429 are counted apart and not timed. Beside
each level of ours /livez and /readyz are asked in turn, twenty times a second.
Use a real page: RapidOCR enlarges small pictures until their short side has 736 pixels, whatever
that makes of the other one, and a strip of one line then costs it many times what a page does.
"""

from __future__ import annotations

import argparse
import asyncio
import http.server
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).parent.parent
SAMPLE = Path(__file__).with_name("sample_page.png")
ANSWER = 64  # tokens of a batching measurement, all of them made: random weights stop nowhere
READY_S = 600.0
PROBE_S = 0.05


@dataclass
class Load:
    """What one level of load gave: seconds of the requests that were read, statuses of all."""

    wall_s: float = 0.0
    seconds: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    tokens: int = 0
    probes: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Requests read in a second."""
        return len(self.seconds) / self.wall_s

    @property
    def errors(self) -> int:
        """Answers that are neither 200 nor 429."""
        return sum(n for status, n in self.statuses.items() if status not in (200, 429))

    def percentile(self, percent: int) -> float:
        return percentile(self.seconds, percent)


def percentile(values: Sequence[float], percent: int) -> float:
    if len(values) < 2:
        return values[0] if values else float("nan")
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def main(argv: list[str]) -> int:
    """Print a table; 0 when no request failed."""
    parser = argparse.ArgumentParser(prog="bench.py serve")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32, 128])
    parser.add_argument(
        "--requests", type=int, default=64, help="of a level, at least one a client or slot"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--picture", type=Path, default=SAMPLE)
    parser.add_argument("--model", help="batching of HunyuanOCR instead: tiny, full or a folder")
    parser.add_argument("--slots", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--plain", type=int, metavar="THREADS", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.plain is not None:
        return serve_plainly(args.plain)
    if args.model is not None:
        return batching(args.model, args.slots, args.threads, args.requests)
    return embedded(args.clients, args.requests, args.threads, args.picture.read_bytes())


def embedded(clients: Sequence[int], requests: int, threads: int, picture: bytes) -> int:
    """The embedded reader against the plain server."""
    plain = [sys.executable, __file__, "--plain", str(threads)]
    errors = 0
    with ExitStack() as stack:
        ours = stack.enter_context(served(["--threads", str(threads)]))
        theirs = stack.enter_context(process(plain))
        for url in (ours, theirs):  # the first call of anything also allocates
            asyncio.run(load(url, picture, 1, 2))
        print(f"{'clients':>7}  {'server':8} {'pages/s':>8} {'p50 s':>8} {'p99 s':>8}  429  errors")
        for count in clients:
            total = max(requests, count)
            done = {
                "ours": asyncio.run(load(ours, picture, count, total, probed=True)),
                "plain": asyncio.run(load(theirs, picture, count, total)),
            }
            for name, one in done.items():
                print(
                    f"{count:7}  {name:8} {one.rate:8.2f} {one.percentile(50):8.3f} "
                    f"{one.percentile(99):8.3f} {one.statuses[429]:4} {one.errors:7}"
                )
                errors += one.errors
            ratio = done["ours"].rate / done["plain"].rate
            p50, p99 = (1000 * percentile(done["ours"].probes, p) for p in (50, 99))
            print(f"{count:7}  ours / plain: {ratio:.2f} pages/s")
            print(f"{count:7}  probes: p50 {p50:.1f} ms, p99 {p99:.1f} ms", flush=True)
    return 1 if errors else 0


def batching(shape: str, slots: Sequence[int], threads: int, requests: int) -> int:
    """Tokens a second of HunyuanOCR by the number of slots, each with as many clients."""
    from scripts.make_checkpoint import main as make_checkpoint

    errors = 0
    with tempfile.TemporaryDirectory() as folder:
        if Path(shape).is_dir():
            folder = shape
        elif make_checkpoint([folder, "--shape", shape, "--seed", "1"]):
            return 1
        options = {
            "task": "spotting",
            "options": f'{{"max_tokens": {ANSWER}, "retry": false, "draft": false, '
            '"tile": false, "budget": 1200}',
        }
        print(f"{'slots':>5} {'tokens/s':>9} {'s a page':>9}  gain  errors ({shape} shape)")
        base = 0.0
        for count in slots:
            server = ["--model", folder, "--engine", "torch", "--slots", str(count)]
            with served([*server, "--threads", str(threads)]) as url:
                asyncio.run(load(url, SAMPLE.read_bytes(), 1, 1, options))
                one = asyncio.run(
                    load(url, SAMPLE.read_bytes(), count, max(requests, count), options)
                )
            rate = one.tokens / one.wall_s
            base = base or rate
            page = one.percentile(50)
            print(
                f"{count:5} {rate:9.1f} {page:9.2f} {rate / base:5.2f} {one.errors:7}", flush=True
            )
            errors += one.errors
    return 1 if errors else 0


async def load(
    url: str,
    picture: bytes,
    clients: int,
    total: int,
    query: dict[str, str] | None = None,
    *,
    probed: bool = False,
) -> Load:
    """`total` requests by `clients` clients, each sending its next one when it has its answer;
    `probed`: with the probes timed beside them."""
    done, left = Load(), iter(range(total))
    limits = httpx.Limits(max_connections=clients, max_keepalive_connections=clients)
    async with httpx.AsyncClient(limits=limits, timeout=900, trust_env=False) as http:

        async def client() -> None:
            for _ in left:
                begun = time.perf_counter()
                try:
                    answer = await http.post(url + "/v1/ocr", content=picture, params=query)
                except httpx.HTTPError:
                    done.statuses[0] += 1
                    continue
                done.statuses[answer.status_code] += 1
                if answer.status_code == 200:
                    done.seconds.append(time.perf_counter() - begun)
                    usage = answer.json().get("usage") or {}
                    done.tokens += usage.get("completion_tokens", 0)

        begun = time.perf_counter()
        prober = asyncio.ensure_future(probe(url, done.probes)) if probed else None
        await asyncio.gather(*(client() for _ in range(clients)))
        done.wall_s = time.perf_counter() - begun
        if prober is not None:
            prober.cancel()
            await asyncio.gather(prober, return_exceptions=True)
    return done


async def probe(url: str, seconds: list[float]) -> None:
    """Ask both probes until cancelled, on a connection of their own, as an orchestrator does."""
    async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
        while True:
            for path in ("/livez", "/readyz"):
                begun = time.perf_counter()
                (await http.get(url + path)).raise_for_status()
                seconds.append(time.perf_counter() - begun)
                await asyncio.sleep(PROBE_S)


@contextmanager
def served(options: Sequence[str]) -> Iterator[str]:
    """`hyocr serve` with a model that is open; yields its address."""
    command = [sys.executable, "-m", "ascend.cli", "serve", "--port", "0", "--no-ui"]
    with process([*command, *options]) as url:
        end = time.monotonic() + READY_S
        while httpx.get(url + "/readyz", timeout=60, trust_env=False).status_code != 200:
            if time.monotonic() > end:
                raise SystemExit(f"the model was not open after {READY_S:g} s")
            time.sleep(0.2)
        yield url


@contextmanager
def process(command: Sequence[str]) -> Iterator[str]:
    """A server that says its address on stderr; ended afterwards."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT) as server:
        try:
            assert server.stderr is not None
            lines = iter(server.stderr.readline, "")
            found = next(filter(None, (re.search(r"http://\S+", line) for line in lines)), None)
            if found is None:
                raise SystemExit(f"{command[:4]} did not start")
            threading.Thread(target=server.stderr.read, daemon=True).start()
            yield found.group()
        finally:
            server.terminate()
            try:
                server.wait(60)
            except subprocess.TimeoutExpired:
                server.kill()


def serve_plainly(threads: int) -> int:
    """RapidOCR behind one lock, as a few lines of Python serve it."""
    from rapidocr import RapidOCR

    reader = RapidOCR(params={"EngineConfig.onnxruntime.intra_op_num_threads": threads})
    lock = threading.Lock()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            picture = self.rfile.read(int(self.headers["content-length"]))
            with lock:
                found = reader(picture)
            body = "\n".join(found.txts or ()).encode()
            body = b'{"text": "%d letters"}' % len(body)
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    class Server(http.server.ThreadingHTTPServer):
        request_queue_size = 256
        daemon_threads = True

    server = Server(("127.0.0.1", 0), Handler)
    print(f"http://127.0.0.1:{server.server_address[1]}", file=sys.stderr, flush=True)
    server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main(sys.argv[1:]))
