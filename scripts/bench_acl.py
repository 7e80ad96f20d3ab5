"""What the ACL runtime costs, in exact counts from the stand-in's counters and host time of this
CPU.

    python scripts/bench.py acl [--bundle BUNDLE] [--tokens 200] [--labels DIR]

Without --bundle it builds a hollow one: the released model's inputs, outputs and gears with nothing
inside. Kernels take no time in either case (`null_compute`), so no figure here is the speed of an
NPU. Counts do not depend on the machine; times do, and its load of the moment is printed with them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from acl_runtime.engine import AclEngine
from acl_runtime.numeric import require_finite
from ascend.memory_plan import forecast_memory
from ascend.planning.forecast import Forecaster
from ascend.planning.model import chip_limits, open_planned
from atc_configs.manifest import read_manifest
from atc_configs.soc import load_soc
from scripts.bench_drafting import LABELS, MOST, label_rows, reader_rows
from scripts.hollow_bundle import hollow_bundle
from tests.pyacl_emulator import control

PROMPT = 335  # tokens of a 480x640 page with the spotting instruction (spec of the released model)
MB = 1 << 20


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `ok` None: the figure has no bound, or cannot be known here."""

    what: str
    value: str
    bound: str = ""
    ok: bool | None = None

    def text(self) -> str:
        mark = {True: "yes", False: "NO", None: ""}[self.ok]
        return f"| {self.what} | {self.value} | {self.bound} | {mark} |"


def main(argv: list[str]) -> int:
    """Prints the table; 0 when every bound holds."""
    parser = argparse.ArgumentParser(prog="bench.py acl")
    parser.add_argument("--bundle", type=Path, help="a compiled HunyuanOCR bundle")
    parser.add_argument("--tokens", type=int, default=200, help="decoded tokens to time")
    parser.add_argument("--labels", type=Path, default=LABELS, help="folder with labels.jsonl")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as scratch:
        bundle = args.bundle or hollow_bundle(Path(scratch))
        soc = read_manifest(bundle).soc
        control.reset(soc=soc, null_compute=True)
        with AclEngine.open(bundle, acl="tests.pyacl_emulator") as engine:
            rows = [
                *counts(engine, bundle, hollow=args.bundle is None),
                *times(engine, args.tokens),
            ]
        left = (control.live_handles, control.live_bytes)
        rows.append(
            Row(
                "live handles and bytes after close",
                f"{left[0]}, {left[1]}",
                "0, 0",
                left == (0, 0),
            )
        )
        rows += copying_form(bundle)
    rows += drafting(args.labels)
    print(
        f"{bundle if args.bundle else 'hollow bundle'} on the stand-in for {soc}, {os.cpu_count()}"
        f" CPUs, load {os.getloadavg()[0]:.1f}; emulated, kernels take no time"
    )
    print("| what | measured | bound | holds |\n|---|---|---|---|")
    print("\n".join(row.text() for row in rows))
    return int(any(row.ok is False for row in rows))


class Page:
    """A page's calls on one engine: vision, rows laid out on the device, prefill, tokens."""

    def __init__(self, engine: AclEngine) -> None:
        self.engine = engine
        self.dims = engine.contract.dims
        self.dtype = np.dtype(engine.contract.precision)
        self.capacity = max(g["S"] for g in engine.gears("llm") if g["B"] == 1 and g["Q"] == 1)
        self.chunk = max(g["Q"] for g in engine.gears("llm"))
        self._zeros = {n: np.zeros((1, n, self.dims["D"]), np.float32) for n in (1, PROMPT)}
        self._row = np.zeros((1, 1, self.dims["C"]), self.dtype)

    def prompt(self, cache: Any, slot: int = 0) -> None:
        patches = self.engine.gears("vision")[0]["N"]
        feeds = {
            "patches": np.zeros((patches, self.dims["P"]), self.dtype),
            "pos": np.zeros((patches, self.dims["E"]), self.dtype),
            "mask": np.zeros((1, patches), self.dtype),
        }
        content = self.engine.run("vision", feeds)["content"]
        rows = self.engine.empty((PROMPT, self.dims["C"]), self.dtype)
        rows.write(0, np.zeros((PROMPT, self.dims["C"]), self.dtype))
        rows.copy_rows(0, content, 0, min(PROMPT, content.shape[0]))
        for start in range(0, PROMPT, self.chunk):
            count = min(self.chunk, PROMPT - start)
            angles = self._zeros[PROMPT][:, start : start + count]
            last = [count - 1] if start + count == PROMPT else []
            part = rows.rows(start, count)
            self.engine.extend(cache, slot, [count], part, angles, angles, [last])
        rows.close()

    def token(self, cache: Any) -> None:
        self.engine.extend(cache, 0, [1], self._row, self._zeros[1], self._zeros[1], [[0]])


def counts(engine: AclEngine, bundle: Path, hollow: bool) -> Iterator[Row]:
    """Calls, bytes and allocations of one token and one page, exactly."""
    counters, page = control.counters, Page(engine)
    layers = engine.contract.dims["L"]
    cache = engine.kv_cache(1, page.capacity)
    page.prompt(cache)
    for _ in range(3):
        page.token(cache)
    counters.clear()
    page.token(cache)
    h2d, calls = counters.bytes["h2d"], counters.total_calls
    yield Row("host→device bytes per token, B = 1", f"{h2d}", "≤ 8192", h2d <= 8192)
    logits = engine.contract.dims["V"] * 4
    d2h = counters.bytes["d2h"]
    yield Row("device→host bytes per token", f"{d2h}", f"logits only ({logits})", d2h == logits)
    named = ", ".join(f"{n.removeprefix('acl.')} {c}" for n, c in sorted(counters.calls.items()))
    bound = 2 * layers + 16
    yield Row("ACL calls per token, bind form", f"{calls} ({named})", f"≤ {bound}", calls <= bound)
    d2d = counters.copies["d2d"]
    yield Row("device→device copies per token, bind form", f"{d2d}", "0", d2d == 0)
    allocated = counters.allocations + counters.host_allocations
    yield Row("allocations per token", f"{allocated}", "0", allocated == 0)
    cache.truncate(0, 0)
    counters.clear()
    page.prompt(cache)
    page.token(cache)
    allocated = counters.allocations + counters.host_allocations
    yield Row("allocations per page after warm-up", f"{allocated}", "0", allocated == 0)
    cache.close()
    yield from _memory(engine, bundle, page, hollow)


def _memory(engine: AclEngine, bundle: Path, page: Page, hollow: bool) -> Iterator[Row]:
    """Weights once, and the peak at the largest gears against its forecast."""
    manifest, dims = read_manifest(bundle), engine.contract.dims
    work, weights = zip(
        *(_model_bytes(bundle / g.file) for g in manifest.graphs.values()), strict=True
    )
    if hollow:
        yield Row("device bytes for weights", "none in a hollow bundle", "≤ 1.02 × parameters")
    else:
        unique = 2 * unique_parameters(dims)
        ratio = sum(weights) / unique
        yield Row(
            "device bytes for weights",
            f"{sum(weights)} = {ratio:.4f} × {unique}",
            "≤ 1.02",
            ratio <= 1.02,
        )
    cache = _largest_gears(engine, page)
    peak = control.counters.peak_device_bytes[0]
    if hollow:  # of nothing inside there is no forecast
        wanted = forecast_memory(
            engine.contract,
            weights=dict(zip(manifest.graphs, weights, strict=True)),
            work=dict(zip(manifest.graphs, work, strict=True)),
            capacity=page.capacity,
            prompt_rows=PROMPT,
        ).total
    else:
        forecaster = Forecaster(open_planned(str(bundle)), chip_limits(load_soc(manifest.soc)))
        wanted = forecaster.memory(engine.contract, 1, page.capacity, PROMPT).total
    off = abs(peak - wanted) / peak
    yield Row(
        f"peak device memory, {page.capacity} rows, {engine.gears('vision')[-1]['N']} patches",
        f"{peak / MB:.1f} MB (work {sum(work) / MB:.1f}, weights {sum(weights) / MB:.1f})",
        f"{'counted' if hollow else '`hyocr plan`'} {wanted / MB:.1f} MB ± 5 %",
        off <= 0.05,
    )
    cache.close()


def _largest_gears(engine: AclEngine, page: Page) -> Any:
    """Runs the largest vision gear and fills a cache of the longest gear; the caller closes it."""
    vision, dims = engine.contract.graph("vision"), engine.contract.dims
    shapes = vision.input_shapes(vision.gears[-1])
    engine.run("vision", {n: np.zeros(s, page.dtype) for n, s in shapes.items()})
    cache = engine.kv_cache(1, page.capacity)
    for _ in range(page.capacity // page.chunk):
        angles = np.zeros((1, page.chunk, dims["D"]), np.float32)
        rows = np.zeros((1, page.chunk, dims["C"]), page.dtype)
        engine.extend(cache, 0, [page.chunk], rows, angles, angles, [[]])
    return cache


def unique_parameters(dims: Any) -> int:
    """Parameters that must be on the device: all but the vision position table, the embedding (it
    is the head) once. From the model's own shapes."""
    from math import prod

    from fallback.dims import FULL
    from fallback.tensor_names import tensor_shapes

    assert (FULL.text.hidden, FULL.text.layers) == (dims["C"], dims["L"]), "not the released shape"
    return sum(
        prod(shape)
        for name, shape in tensor_shapes(FULL).items()
        if "position_embedding" not in name and name != "lm_head.weight"
    )


def _model_bytes(path: Path) -> tuple[int, int]:
    from tests import pyacl_emulator as acl

    work, weights, code = acl.mdl.query_size(str(path))  # type: ignore[attr-defined]
    assert code == 0, path
    return work, weights


def times(engine: AclEngine, tokens: int) -> Iterator[Row]:
    """Host time of a token: the whole, and where it goes."""
    page = Page(engine)
    cache = engine.kv_cache(1, page.capacity)
    page.prompt(cache)
    for _ in range(20):
        page.token(cache)
    whole, cpu = _timed(tokens, lambda: page.token(cache))
    _, hop = _timed(tokens, lambda: engine._device.call(lambda: None))
    with vendor_clock() as spent:
        for _ in range(tokens):
            page.token(cache)
    vendor = sum(spent) / tokens * 1e3
    logits = np.zeros((1, 1, engine.contract.dims["V"]), np.float32)
    _, check = _timed(tokens, lambda: require_finite(logits.copy(), "logits"))
    cache.close()
    bound = "≤ 1.0 ms"
    yield Row("host time per token, null_compute, median", f"{whole:.3f} ms", bound, whole <= 1.0)
    yield Row("CPU time of the process per token, mean", f"{cpu:.3f} ms", bound)
    yield Row("- inside the stand-in's calls", f"{vendor:.3f} ms")
    yield Row("- of the product alone (CPU time less that)", f"{cpu - vendor:.3f} ms, of which")
    yield Row("  - to the owner thread and back", f"{hop:.3f} ms")
    yield Row("  - logits copied and checked", f"{check:.3f} ms")
    yield Row("  - bindings, masks, staging (the rest)", f"{cpu - vendor - hop - check:.3f} ms")


@contextmanager
def vendor_clock() -> Iterator[list[float]]:
    """CPU seconds of every call that enters the stand-in, while open."""
    from tests.pyacl_emulator.machine import MACHINE

    spent: list[float] = []

    class Clock:
        def timed(self, name: str, run: Any, args: Any) -> Any:
            started = time.thread_time()
            try:
                return run(args)
            finally:
                spent.append(time.thread_time() - started)

    before, MACHINE.recorder = MACHINE.recorder, Clock()
    try:
        yield spent
    finally:
        MACHINE.recorder = before


def copying_form(bundle: Path) -> Iterator[Row]:
    """The switch for hardware that does not take an output inside an input's buffer."""
    control.reset(soc=read_manifest(bundle).soc, null_compute=True, alias="violation")
    with AclEngine.open(bundle, acl="tests.pyacl_emulator", append="copy") as engine:
        page, cache = Page(engine), engine.kv_cache(1, 512)
        for _ in range(3):
            page.token(cache)
        control.counters.clear()
        page.token(cache)
        calls, copies = control.counters.total_calls, control.counters.copies["d2d"]
        yield Row("ACL calls per token, copying form", f"{calls}, of which {copies} copies")
        batch = max((g["B"] for g in engine.gears("llm")), default=1)
        if batch > 1:
            shared = engine.kv_cache(batch, 512)
            dims, rows = engine.contract.dims, (batch, 1)
            given = [np.zeros((*rows, dims[n]), np.float32) for n in "CDD"]
            for clear in (False, True):
                if clear:
                    control.counters.clear()
                engine.extend(shared, 0, [1] * batch, *given, [[0]] * batch)
            calls, copies = control.counters.total_calls, control.counters.copies["d2d"]
            text = f"{calls} for {batch} tokens, of which {copies} copies"
            yield Row(f"ACL calls per step, {batch} sequences", text)


def drafting(labels: Path) -> Iterator[Row]:
    """Tokens a step with prompt lookup, by kind of answer."""
    for row in (*reader_rows(), *label_rows(labels)):
        yield Row(f"tokens per step with drafts of {MOST}, {row.kind}", row.text())


def _timed(count: int, act: Any) -> tuple[float, float]:
    """(median wall milliseconds, mean CPU milliseconds of all threads) of `act`."""
    taken = []
    cpu = time.process_time()
    for _ in range(count):
        started = time.perf_counter()
        act()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken) * 1e3, (time.process_time() - cpu) / count * 1e3


if __name__ == "__main__":
    import sys

    sys.exit(main(sys.argv[1:]))
