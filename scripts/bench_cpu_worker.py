"""One engine of the CPU benchmark in a process of its own, told what to measure on stdin.

    python -m scripts.bench_cpu_worker ours int8 FOLDER THREADS
    python -m scripts.bench_cpu_worker transformers bfloat16 FOLDER THREADS

Each line of stdin is a measurement (vision, prefill, past, decode N, past_4, decode_4 N, memory);
each answer is one JSON line of seconds. Being resident, engines can be measured in turns, so that a
busy machine slows all alike.
"""

from __future__ import annotations

import json
import resource
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

GRID = (30, 40)  # 480×640 pixels, 1200 patches
INSTRUCTION = 14  # tokens of the spotting instruction and the end of the turn


class Candidate(Protocol):
    def vision(self) -> None: ...

    def prefill(self) -> None:
        """A prompt into an empty cache; decoding goes on from it."""

    def past(self) -> None:
        """A prompt's rows, or as many random ones: steps on them cost the same."""

    def decode(self) -> None: ...


class Ours:
    """This project's PyTorch engine in one precision."""

    def __init__(self, precision: str, folder: Path, threads: int) -> None:
        from fallback.checkpoint import Checkpoint
        from fallback.torch_engine import TorchEngine
        from host_pipeline.positions import image_tokens, inv_freq, position_ids, rotary

        checkpoint = Checkpoint(folder)
        t, v = checkpoint.dims.text, checkpoint.dims.vision
        self._engine = TorchEngine.open(checkpoint, precision, threads)
        rng, n = np.random.default_rng(0), GRID[0] * GRID[1]
        self._patches = {
            "patches": rng.standard_normal((n, v.patch_width), np.float32),
            "pos": rng.standard_normal((n, v.hidden), np.float32) * np.float32(0.1),
            "mask": np.zeros((1, n), np.float32),
        }
        self.length = 4 + image_tokens(*GRID) + INSTRUCTION
        rows = position_ids(self.length, [(3, *GRID)])
        frequencies = inv_freq(t.rope_theta, t.rope_alpha, t.head_dim)
        cos, sin = rotary(rows, frequencies, t.rope_sections)
        embeds = rng.standard_normal((1, self.length, t.hidden), np.float32)
        self._prompt = embeds, cos[None], sin[None]
        self._cache = self._engine.kv_cache(1, 2048)
        self._four = self._engine.kv_cache(4, 512)

    def vision(self) -> None:
        self._engine.run("vision", self._patches)

    def prefill(self) -> None:
        self._cache.truncate(0, 0)
        last = [[self.length - 1]]
        self._engine.extend(self._cache, 0, [self.length], *self._prompt, last)

    def past(self) -> None:
        self.prefill()

    def past_4(self) -> None:
        """A prompt for each of four sequences."""
        last = [[self.length - 1]]
        for slot in range(4):
            self._four.truncate(slot, 0)
            self._engine.extend(self._four, slot, [self.length], *self._prompt, last)

    def decode(self) -> None:
        step = (part[:, -1:] for part in self._prompt)
        self._engine.extend(self._cache, 0, [1], *step, [[0]])

    def decode_4(self) -> None:
        """One token for each of four sequences."""
        step = (part[:, -1:].repeat(4, 0) for part in self._prompt)
        self._engine.extend(self._four, 0, [1] * 4, *step, [[0]] * 4)


class Transformers:
    """transformers' model of the same files, scaled dot-product attention."""

    def __init__(self, dtype: str, folder: Path, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        warnings.simplefilter("ignore")
        from transformers import HunYuanVLForConditionalGeneration as Model

        self._torch = torch
        self._model = Model.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa").eval()
        kind, n = self._model.dtype, GRID[0] * GRID[1]
        self._patches = torch.randn(n, 768).to(kind)
        self._grid = torch.tensor([[1, *GRID]])
        slots = GRID[0] // 2 * (GRID[1] // 2 + 1) + 2
        image = self._model.config.image_token_id
        ids = torch.tensor([[0, 1, 2] + [image] * slots + [3] * (1 + INSTRUCTION)])
        self._positions, _ = self._model.model.get_rope_index(
            ids, mm_token_type_ids=(ids == image).int(), image_grid_thw=self._grid
        )
        hidden = self._model.config.text_config.hidden_size
        self._embeds = torch.randn(1, ids.shape[1], hidden).to(kind)
        self._past: Any = None

    def vision(self) -> None:
        with self._torch.inference_mode():
            self._model.get_image_features(self._patches, self._grid)

    def prefill(self) -> None:
        with self._torch.inference_mode():
            out = self._model(
                inputs_embeds=self._embeds,
                position_ids=self._positions,
                use_cache=True,
                logits_to_keep=1,
            )
        self._past = out.past_key_values

    def past(self) -> None:
        from transformers import DynamicCache

        text = self._model.config.text_config
        shape = 1, text.num_key_value_heads, self._embeds.shape[1], text.head_dim
        self._past = DynamicCache(config=text)
        for layer in range(text.num_hidden_layers):
            rows = (self._torch.randn(shape).to(self._model.dtype) for _ in range(2))
            self._past.update(*rows, layer)

    def decode(self) -> None:
        with self._torch.inference_mode():
            token = self._torch.tensor([[5]])
            out = self._model(
                input_ids=token, past_key_values=self._past, use_cache=True, logits_to_keep=1
            )
        self._past = out.past_key_values


KINDS: dict[str, Callable[[str, Path, int], Candidate]] = {
    "ours": Ours,
    "transformers": Transformers,
}


def seconds(work: Callable[[], None]) -> dict[str, float]:
    """Wall and processor seconds of one call."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


def measure(candidate: Candidate, what: str, count: int) -> Any:
    if what == "memory":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return [seconds(getattr(candidate, what)) for _ in range(count)]


def main(argv: list[str]) -> int:
    kind, precision, folder, threads = argv
    start = time.perf_counter()
    candidate = KINDS[kind](precision, Path(folder), int(threads))
    print(json.dumps({"open": time.perf_counter() - start}), flush=True)
    for line in sys.stdin:
        what, _, count = line.strip().partition(" ")
        print(json.dumps(measure(candidate, what, int(count or 1))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
