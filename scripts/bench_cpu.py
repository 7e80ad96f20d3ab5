"""How fast HunyuanOCR reads on this CPU, next to transformers and, where it is built, llama.cpp.

    python scripts/bench.py cpu                       # random weights of the full shape
    python scripts/bench.py cpu --profiles int8 int4 --baselines float32
    python scripts/bench.py cpu --stages decode       # a minute: on a past of random rows

All candidates stay open in processes of their own and take turns, measurement by measurement, so a
busy machine slows them alike: trust the ratios. Wall seconds are printed, processor seconds beside
them. The page is 480×640 (1200 patches, prompt of 335 tokens) and 200 answer tokens; "page" is
vision + prefill + 200 × the median decoding step. "Open" is imports and weights, "first token" that
and the first vision and prefill. What takes a candidate longer than a minute (the vision of
transformers in bf16, without bf16 instructions) is its first call alone; the table says so.

llama.cpp: build it natively and convert the same checkpoint, then name the three files:

    cmake -B build -DGGML_NATIVE=ON -DCMAKE_BUILD_TYPE=Release && cmake --build build -j
    python convert_hf_to_gguf.py CHECKPOINT --outfile text.gguf --outtype bf16
    python convert_hf_to_gguf.py CHECKPOINT --mmproj --outfile mmproj.gguf --outtype f16
    build/bin/llama-quantize text.gguf text-q8_0.gguf q8_0
    python scripts/bench.py cpu --llama build/bin/llama-mtmd-cli text-q8_0.gguf mmproj.gguf
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

ANSWER = 200  # tokens of the page that the issue names
STAGES = ("vision", "prefill", "decode")
LONG_S = 60.0  # what takes longer is measured once


@dataclass
class Candidate:
    """One resident worker and what it has measured: stage -> list of {"wall", "cpu"} seconds."""

    name: str
    ours: bool
    process: subprocess.Popen[str]
    open_s: float
    times: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    peak_bytes: int = 0
    first_token_s: float = math.nan
    once: list[str] = field(default_factory=list)  # stages that took too long to repeat

    def ask(self, order: str) -> Any:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"{self.name}: the worker died during {order!r}")
        return json.loads(answer)

    def median(self, stage: str, clock: str = "wall") -> float:
        """NaN for a stage that was left out."""
        measured = self.times.get(stage)
        return statistics.median(t[clock] for t in measured) if measured else math.nan

    @property
    def page(self) -> float:
        return self.median("vision") + self.median("prefill") + ANSWER * self.median("decode")


def start(kind: str, precision: str, folder: Path, threads: int) -> Candidate:
    command = [sys.executable, "-m", "scripts.bench_cpu_worker", kind, precision]
    process = subprocess.Popen(
        [*command, str(folder), str(threads)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent.parent,
    )
    assert process.stdout
    ready = process.stdout.readline()
    if not ready:
        raise SystemExit(f"{kind} {precision}: the worker did not start")
    name = precision if kind == "ours" else f"{kind} {precision}"
    return Candidate(name, kind == "ours", process, json.loads(ready)["open"])


def take_turns(
    candidates: Sequence[Candidate], rounds: int, steps: int, stages: Sequence[str] = STAGES
) -> None:
    """Every round measures every stage on every candidate, one after the other."""
    for candidate in candidates:  # the first call of anything also allocates
        first = {stage: _first(candidate, stage) for stage in stages if stage != "decode"}
        if len(first) == 2:
            candidate.first_token_s = candidate.open_s + sum(first.values())
        if "decode" in stages:
            if "prefill" not in stages:
                candidate.ask("past")
            _first(candidate, "decode")
    for _ in range(rounds):
        for stage in stages:
            for candidate in (c for c in candidates if stage not in c.once):
                count = steps if stage == "decode" else 1
                candidate.times.setdefault(stage, []).extend(candidate.ask(f"{stage} {count}"))
    for candidate in candidates:
        if candidate.ours and "decode" in stages:
            candidate.ask("past_4")
            candidate.times["decode_4"] = candidate.ask(f"decode_4 {steps}")
        candidate.peak_bytes = candidate.ask("memory")


def _first(candidate: Candidate, stage: str) -> float:
    """Wall seconds of the first call; a long one stands for all."""
    [first] = candidate.ask(stage)
    if first["wall"] > LONG_S:
        candidate.once.append(stage)
        candidate.times[stage] = [first]
    return float(first["wall"])


def accuracy(folder: Path, profiles: Sequence[str], threads: int) -> list[str]:
    """A line for each profile against fp32 on one random page, and for each on labelled slips."""
    from scripts.bench_cpu_accuracy import compare_profiles, read_sheet

    costs = list(compare_profiles(folder, profiles, threads).items())
    if (folder / "sheet.json").is_file():
        costs += read_sheet(folder, profiles, threads).items()
    return [
        f"{name}: " + ", ".join(f"{key} {value:.3g}" for key, value in cost.items())
        for name, cost in costs
    ]


def run_llama(binary: Path, model: Path, mmproj: Path, threads: int) -> dict[str, float]:
    """Seconds of llama.cpp on a picture of the same size, from its own report."""
    from PIL import Image

    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.png"
        pixels = np.random.default_rng(0).integers(0, 255, (480, 640, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(page)
        command = [str(binary), "-m", str(model), "--mmproj", str(mmproj), "--image", str(page)]
        options = [
            "-p",
            "OCR",
            "-n",
            str(ANSWER),
            "-t",
            str(threads),
            "--temp",
            "0",
            "--ignore-eos",
        ]
        done = subprocess.run(
            [*command, *options], capture_output=True, text=True, timeout=1800, check=True
        )
    text = done.stdout + done.stderr
    return {
        "vision": _milliseconds(r"image slice encoded in (\d+) ms", text),
        "prefill": _milliseconds(r"prompt eval time =\s*([\d.]+) ms", text),
        "decode": _milliseconds(r"eval time =.*?([\d.]+) ms per token", text, last=True),
    }


def _milliseconds(pattern: str, text: str, last: bool = False) -> float:
    found = re.findall(pattern, text)
    if not found:
        raise SystemExit(f"llama.cpp printed nothing like {pattern!r}")
    return float(found[-1 if last else 0]) / 1000


def table(candidates: Sequence[Candidate], llama: dict[str, float] | None) -> str:
    bases = [c for c in candidates if c.name.startswith("transformers")]
    head = "| | open, first token s | vision s (cpu) | prefill s (cpu) | ms a token (cpu) |"
    head += " tokens/s of 4 | page s | peak GB |"
    ratios = "".join(f" vision, prefill, decode, page: times {base.name} |" for base in bases)
    lines = [head + ratios, ""]
    lines[1] = "|---" * (lines[0].count("|") - 1) + "|"
    for c in candidates:
        cells = [c.name, f"{c.open_s:.1f}, {c.first_token_s:.1f}"]
        for stage, scale in (("vision", 1), ("prefill", 1), ("decode", 1000)):
            wall, cpu = c.median(stage) * scale, c.median(stage, "cpu") * scale
            cells.append(f"{wall:.2f} ({cpu:.2f})" if scale == 1 else f"{wall:.1f} ({cpu:.1f})")
        four = f"{4 / c.median('decode_4'):.1f}" if "decode_4" in c.times else ""
        cells += [four, f"{c.page:.1f}", f"{c.peak_bytes / 1e9:.2f}"]
        for base in bases:
            faster = [base.median(s) / c.median(s) for s in STAGES]
            cells.append(", ".join(f"{r:.2f}" for r in (*faster, base.page / c.page)))
        lines.append("| " + " | ".join(cells).replace("nan", "–") + " |")
    if llama:
        page = llama["vision"] + llama["prefill"] + ANSWER * llama["decode"]
        cells = [f"{llama[s]:.2f}" for s in ("vision", "prefill")]
        lines.append(
            f"| llama.cpp | | {' | '.join(cells)} | {llama['decode'] * 1000:.1f} | | {page:.1f} | |"
        )
    for c in candidates:
        if c.once:
            walls = ", ".join(f"{stage} {c.median(stage):.0f} s" for stage in c.once)
            lines.append(f"\n{c.name}: one call each, the first: {walls}")
    return "\n".join(lines)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.py cpu", description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", type=Path, help="default: random weights, full shape")
    parser.add_argument("--shape", choices=("full", "slice", "tiny"), default="full")
    parser.add_argument("--profiles", nargs="+", default=["int8", "int4", "bf16", "fp32"])
    parser.add_argument("--baselines", nargs="*", default=["bfloat16", "float32"], metavar="DTYPE")
    parser.add_argument("--llama", nargs=3, type=Path, metavar=("CLI", "GGUF", "MMPROJ"))
    parser.add_argument("--threads", type=int)
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=STAGES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8, help="decoding steps a round")
    parser.add_argument(
        "--accuracy",
        action="store_true",
        help="also each profile against fp32 on a random page"
        " and, where the checkpoint has them, on labelled slips",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there too")
    return parser.parse_args(list(argv))


def main(argv: Sequence[str]) -> int:
    from fallback.ort_engine import available_cpus

    args = parse(argv)
    threads = args.threads or available_cpus()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.checkpoint or Path(scratch) / "model"
        if args.checkpoint is None:
            from scripts import make_checkpoint

            make_checkpoint.main([str(folder), "--shape", args.shape])
        candidates: list[Candidate] = []
        try:
            for kind, names in (("transformers", args.baselines), ("ours", args.profiles)):
                candidates += [start(kind, name, folder, threads) for name in names]
            take_turns(candidates, args.rounds, args.steps, args.stages)
        finally:
            for candidate in candidates:
                with candidate.process as process:  # closes its pipes and waits for it
                    process.kill()
        llama = run_llama(*args.llama, threads) if args.llama else None
        costs = accuracy(folder, args.profiles, threads) if args.accuracy else []
    print(f"{threads} threads, {args.rounds} rounds, {folder if args.checkpoint else args.shape}\n")
    print(table(candidates, llama))
    print("\n".join(costs))
    if args.json:
        rows = [{"name": c.name, "open": c.open_s, "times": c.times, "peak": c.peak_bytes}
                for c in candidates]  # fmt: skip
        args.json.write_text(json.dumps({"rows": rows, "llama": llama, "accuracy": costs}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
