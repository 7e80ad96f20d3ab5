"""Runs HunyuanOCR on the CPU behind the engine protocol: in PyTorch, but for the llm in 4 or 8
bits, which is a graph of ONNX Runtime (`fallback.quantised_llm`).

Knows the two graphs of the contract and a cache; knows no prompts, images or gears. Activations are
float32 in every precision; a profile decides how the weights lie and multiply (`fallback.kernels`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fallback.checkpoint import Checkpoint
from fallback.chunk import MASKED, Chunk, causal_mask, plan_chunk
from fallback.dims import TextDims
from fallback.errors import EngineUnavailableError, GraphInputError
from fallback.host_array import HostArray, zeroed_pages
from fallback.hunyuanocr import Llm, Vision
from fallback.kernels import BITS, default_precision, linear_for
from fallback.ort_engine import available_cpus
from fallback.quantised_llm import QuantisedCache, QuantisedLlm
from fallback.slots import Slots
from fallback.torchscript import find_packaged, open_packaged

log = logging.getLogger(__name__)

# The past is seen in blocks of so many rows: sums over it then have the same order, and so the same
# last bit, whoever else is in the batch and however long their pasts are.
_ROWS = 64

VISION_INPUTS = ("patches", "pos", "mask")
LLM_INPUTS = ("embeds", "cos", "sin", "past_mask", "chunk_mask", "select")


class TorchKVCache(Slots):
    """Keys and values of `slots` sequences, token-major, allocated once and never moved.

    keys, values: (layers, slots, capacity in whole blocks, K·D) each, zeroed: masked rows must stay
    finite.
    """

    def __init__(self, text: TextDims, slots: int, capacity: int) -> None:
        super().__init__(slots, capacity)
        shape = (text.layers, slots, _in_blocks(capacity), text.kv_width)
        self.keys, self.values = (torch.from_numpy(zeroed_pages(shape)) for _ in range(2))
        # Every step's mask of one sequence is a slice: zeros for its rows, then masked ones.
        self.mask = torch.cat(
            [torch.zeros(1, 1, capacity), torch.full((1, 1, _ROWS), float(MASKED))], -1
        )

    def masked(self, length: int, rows: int) -> Tensor:
        """(1, 1, rows): the first `length` rows count; rows - length is at most _ROWS."""
        start = self.capacity - length
        return self.mask[:, :, start : start + rows]

    def close(self) -> None:
        self.keys = self.values = self.mask = torch.empty(0)


class TorchEngine:
    """The CPU engine: `vision` and `llm` as modules or scripted files, one caller at a time.

    PyTorch's thread count belongs to the process: the last engine opened sets it.
    """

    name = "torch"
    emulated = False
    parallel = 1

    def __init__(
        self,
        vision: Callable[..., Tensor],
        llm: Callable[..., tuple[Tensor, list[Tensor], list[Tensor]]],
        text: TextDims,
        settings: Mapping[str, Any] = MappingProxyType({}),
        threads: int | None = None,
    ) -> None:
        self._vision, self._llm, self._text = vision, llm, text
        self._causal = torch.zeros(1, 1, 1)
        threads = threads or available_cpus()
        torch.set_num_threads(threads)
        self.settings: Mapping[str, Any] = {**settings, "threads": threads}

    @classmethod
    def open(
        cls, model: str | Path | Checkpoint, precision: str = "auto", threads: int | None = None
    ) -> TorchEngine:
        """Opens a checkpoint folder in a precision: auto, fp32, bf16, int8 or int4; or the files
        that `fallback.torchscript` wrote (either file, or their folder), which are fp32.

        Raises a CheckpointError for the folder, EngineUnavailableError for an unknown precision,
        PackagedModelError for a file of another torch version.
        """
        files = None if isinstance(model, Checkpoint) else find_packaged(model)
        if files is not None:
            return cls._open_packaged(*files, precision, threads)
        checkpoint = model if isinstance(model, Checkpoint) else Checkpoint(model)
        chosen = default_precision() if precision == "auto" else precision
        threads = threads or available_cpus()
        linear, dims = linear_for(chosen), checkpoint.dims
        # bf16 weights stay in the mapping; the others are copies, and the mapping is let go of.
        source = checkpoint.tensor if chosen == "bf16" else checkpoint.read_once
        torch.set_num_threads(1)  # packing is serial: the parts are built side by side instead
        try:
            with ThreadPoolExecutor(threads) as pool:
                if chosen in BITS:
                    llm: Future[Any] = pool.submit(
                        QuantisedLlm, source, dims.text, BITS[chosen], threads
                    )
                else:
                    llm = pool.submit(Llm, source, dims, linear)
                vision = pool.submit(Vision, source, dims, linear)
        finally:
            torch.set_num_threads(threads)
        parts = vision.result(), llm.result(), dims.text
        engine = cls(*parts, {"precision": chosen}, threads)
        log.info("torch: opened %s, %s", checkpoint.folder, dict(engine.settings))
        return engine

    @classmethod
    def _open_packaged(
        cls, vision: Path, llm: Path, precision: str, threads: int | None
    ) -> TorchEngine:
        if precision not in ("auto", "fp32"):
            raise EngineUnavailableError(
                f"{llm} holds fp32 weights; precision {precision} needs the checkpoint folder"
            )
        opened = open_packaged(vision, llm)
        settings = {"precision": "fp32", "format": opened.meta["format"]}
        return cls(opened.vision, opened.llm, opened.dims.text, settings, threads)

    def __enter__(self) -> TorchEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def gears(self, graph: str) -> None:
        """None: any shape runs."""
        self._check_graph(graph)

    @torch.inference_mode()
    def run(self, graph: str, inputs: Mapping[str, np.ndarray | HostArray]) -> dict[str, HostArray]:
        """Runs `vision` or `llm` with the contract's inputs; outputs are the caller's to keep."""
        self._check_graph(graph)
        layers = range(self._text.layers)
        pasts = [f"past_{side}.{i}" for side in ("key", "value") for i in layers]
        wanted = VISION_INPUTS if graph == "vision" else (*LLM_INPUTS, *pasts)
        if inputs.keys() != set(wanted):
            missing, extra = set(wanted) - inputs.keys(), inputs.keys() - set(wanted)
            raise GraphInputError(
                f"{graph}: missing inputs {sorted(missing)}, unknown inputs {sorted(extra)}"
            )
        feeds = [_tensor(inputs[name], f"{graph}.{name}") for name in wanted]
        if graph == "vision":
            return {"content": HostArray(self._vision(*feeds).numpy())}
        split = len(LLM_INPUTS)
        keys, values = feeds[split : split + len(layers)], feeds[split + len(layers) :]
        logits, new_keys, new_values = self._llm(*feeds[:split], keys, values)
        outputs = {"logits": logits}
        outputs.update({f"new_key.{i}": new_keys[i] for i in layers})
        outputs.update({f"new_value.{i}": new_values[i] for i in layers})
        return {name: HostArray(tensor.contiguous().numpy()) for name, tensor in outputs.items()}

    def empty(self, shape: Sequence[int], dtype: Any) -> HostArray:
        """Host memory; what is in it is undefined."""
        return HostArray(np.empty(tuple(shape), dtype))

    def kv_cache(self, slots: int, capacity: int) -> TorchKVCache | QuantisedCache:
        """A zeroed cache; memory is taken page by page as rows are written."""
        if slots < 1 or not 0 < capacity <= self._text.max_positions:
            raise GraphInputError(
                f"a cache of {slots} × {capacity} rows: at least one slot, and at most"
                f" {self._text.max_positions} rows, the model's context"
            )
        kind = QuantisedCache if isinstance(self._llm, QuantisedLlm) else TorchKVCache
        return kind(self._text, slots, capacity)

    @torch.inference_mode()
    def extend(
        self,
        cache: TorchKVCache | QuantisedCache,
        first_slot: int,
        counts: Sequence[int],
        embeds: np.ndarray | HostArray,
        cos: np.ndarray,
        sin: np.ndarray,
        select: Sequence[Sequence[int]],
    ) -> np.ndarray:
        """Appends counts[b] rows to slot first_slot + b; returns logits (B, R, V) float32.

        embeds (B, Q, C), cos and sin (B, Q, D); select[b]: R rows of the chunk each.
        """
        rows = _tensor(embeds, "embeds")
        if rows.dim() == 2 and counts:  # an array of all sequences' rows, one after the other
            rows = rows.view(len(counts), -1, rows.shape[1])
        chunk = plan_chunk(
            cache.lengths, cache.capacity, first_slot, counts, tuple(rows.shape), select
        )
        turns = _tensor(cos, "cos"), _tensor(sin, "sin")
        if isinstance(cache, QuantisedCache):
            assert isinstance(self._llm, QuantisedLlm)
            return self._llm.extend(cache, chunk, rows.numpy(), *(turn.numpy() for turn in turns))
        q, b = chunk.q, len(chunk.counts)
        slots = slice(first_slot, first_slot + b)
        seen = _in_blocks(chunk.rows)
        logits, new_keys, new_values = self._llm(
            rows[:, :q],
            *(turn[:, :q] for turn in turns),
            self._past_mask(cache, chunk, seen),
            self._chunk_mask(q).expand(b, q, q),
            torch.from_numpy(chunk.one_hot(q)),
            list(cache.keys[:, slots, :seen]),
            list(cache.values[:, slots, :seen]),
        )
        _append(cache.keys, new_keys, chunk)
        _append(cache.values, new_values, chunk)
        cache.lengths[slots] += chunk.counts.astype(np.int32)
        return logits.numpy()

    def close(self) -> None:
        """Lets go of the weights; idempotent."""
        self._vision = self._llm = _closed

    def _past_mask(self, cache: TorchKVCache, chunk: Chunk, rows: int) -> Tensor:
        if len(chunk.lengths) == 1:
            return cache.masked(int(chunk.lengths[0]), rows)
        return torch.from_numpy(chunk.past_mask(rows))

    def _chunk_mask(self, q: int) -> Tensor:
        if self._causal.shape[1] != q:
            self._causal = torch.from_numpy(causal_mask(q))[None]
        return self._causal

    def _check_graph(self, graph: str) -> None:
        if graph not in ("vision", "llm"):
            raise GraphInputError(f"no graph {graph!r} here (open: vision, llm)")


def _in_blocks(rows: int) -> int:
    return -(-rows // _ROWS) * _ROWS


def _append(slab: Tensor, new: list[Tensor], chunk: Chunk) -> None:
    """Writes each sequence's new rows (B, Q, K·D) behind its own, in every layer."""
    rows = torch.stack(new)  # one copy for all layers costs less than a call for each
    for b in range(len(chunk.counts)):
        slot, start, count = chunk.first + b, int(chunk.lengths[b]), int(chunk.counts[b])
        slab[:, slot, start : start + count] = rows[:, b, :count]


def _tensor(value: np.ndarray | HostArray, name: str) -> Tensor:
    values = value.values if isinstance(value, HostArray) else np.asarray(value)
    if values.dtype != np.float32:
        raise GraphInputError(f"{name}: dtype {values.dtype}, the graph wants float32")
    return torch.from_numpy(values if values.flags.writeable else values.copy())


def _closed(*_: object) -> Any:
    raise EngineUnavailableError("this engine is closed; open a new one")
