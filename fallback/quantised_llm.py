"""The llm with weights in 4 or 8 bits as one ONNX Runtime graph: prompts, drafts, single tokens.

For one token PyTorch's operators cost more to call than to compute. Here a step is one call, whose
threads stay awake from its first product to its last, on a cache that it extends in place.

Axes as in `fallback.hunyuanocr`: B sequences, Q new rows, C hidden, H heads, K kv heads, D head
size, S cache rows, R wanted rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fallback.chunk import Chunk, causal_mask, plan_chunk
from fallback.dims import TextDims
from fallback.errors import GraphInputError
from fallback.host_array import zeroed_pages
from fallback.hunyuanocr import Source
from fallback.nbits import Graph
from fallback.slots import Slots

_ROWS_AT_ONCE = 256  # of a prompt: bounds the scores, H·Q·S, that are held at a time
_SIGNS = np.array([[-1], [1]], np.float32)  # (x1, x2) turns into x1·cos - x2·sin, x2·cos + x1·sin
_MICROSOFT = {"domain": "com.microsoft"}


class QuantisedCache(Slots):
    """keys and values (layers, slots, K, capacity + 1, D) float32, head by head as the graph's
    attention reads them; allocated once and never moved.

    The row more is where a sequence writes that has nothing to say in a batch.
    """

    def __init__(self, text: TextDims, slots: int, capacity: int) -> None:
        super().__init__(slots, capacity)
        shape = (text.layers, slots, text.kv_heads, capacity + 1, text.head_dim)
        self.keys, self.values = zeroed_pages(shape), zeroed_pages(shape)
        self.bindings: dict[tuple[int, int], Any] = {}  # by first slot and number of sequences

    def close(self) -> None:
        self.keys = self.values = np.empty(0, np.float32)
        self.bindings.clear()


class QuantisedLlm:
    """Steps on a cache. A sequence gets the same numbers to the bit whoever else is in the batch:
    where the kernels for one row and for several differ, sequences take turns.

    One caller at a time. Raises EngineUnavailableError without onnx or onnxruntime.
    """

    def __init__(self, w: Source, t: TextDims, bits: int, threads: int) -> None:
        self._text = t
        self._session = _graph(w, t, bits).open(threads)
        self._together = True
        self._together = self._rows_are_invariant()

    def __call__(
        self,
        embeds: Tensor,
        cos: Tensor,
        sin: Tensor,
        past_mask: Tensor,
        chunk_mask: Tensor,
        select: Tensor,
        past_keys: list[Tensor],
        past_values: list[Tensor],
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        """The graph by its contract (`fallback.hunyuanocr.Llm.forward`), on a copy of the past.

        Raises GraphInputError for masks that are not those of a past's first rows and a causal
        chunk: there are no others in the attention used here.
        """
        (b, q, _), s, width = embeds.shape, past_mask.shape[-1], self._text.kv_width
        lengths = (past_mask[:, 0] == 0).sum(-1).numpy()
        plain = Chunk(0, np.full(b, q), lengths, select.argmax(-1).numpy())
        if not (
            np.array_equal(plain.past_mask(s), past_mask)
            and np.array_equal(np.broadcast_to(causal_mask(q), (b, q, q)), chunk_mask)
        ):
            raise GraphInputError("int8 and int4 know causal masks only; fp32 and bf16 take any")
        cache = QuantisedCache(self._text, b, s + q)
        sides = (cache.keys, past_keys), (cache.values, past_values)
        for side, pasts in sides:
            heads = torch.stack(pasts).view(-1, b, s, self._text.kv_heads, self._text.head_dim)
            side[:, :, :, :s] = heads.transpose(2, 3).numpy()
        logits = self.extend(cache, plain, embeds.numpy(), cos.numpy(), sin.numpy())
        where = slice(None), np.arange(b)[:, None], lengths[:, None] + np.arange(q)
        keys, values = (
            list(torch.from_numpy(side.swapaxes(2, 3)[where].reshape(-1, b, q, width)))
            for side, _ in sides
        )
        return torch.from_numpy(logits), keys, values

    def extend(
        self,
        cache: QuantisedCache,
        chunk: Chunk,
        embeds: np.ndarray,
        cos: np.ndarray,
        sin: np.ndarray,
    ) -> np.ndarray:
        """Appends the chunk's rows to its slots; returns logits (B, R, V), zeros where a sequence
        has no such row.

        embeds (B, Q, C), cos and sin (B, Q, D), float32.
        """
        b, wanted = chunk.select.shape
        lengths, slots = chunk.lengths, slice(chunk.first, chunk.first + b)
        if b > 1 and chunk.q == 1 and self._together:
            rows = [part[:, :1] for part in (embeds, cos, sin)]
            places = chunk.select + np.arange(b)[:, None]
            logits = self._run(cache, chunk.first, rows, lengths, places.ravel())
            logits = logits.reshape(b, wanted, -1)
            logits[chunk.counts == 0] = 0
        else:
            logits = np.zeros((b, wanted, self._text.vocab), np.float32)
            for i, count in enumerate(chunk.counts.tolist()):
                for start in range(0, count, _ROWS_AT_ONCE):
                    stop = min(start + _ROWS_AT_ONCE, count)
                    rows = [part[i : i + 1, start:stop] for part in (embeds, cos, sin)]
                    here = (start <= chunk.select[i]) & (chunk.select[i] < stop)
                    places, past = chunk.select[i, here] - start, lengths[i : i + 1] + start
                    logits[i, here] = self._run(cache, chunk.first + i, rows, past, places)
        cache.lengths[slots] += chunk.counts.astype(np.int32)
        return logits

    def _run(
        self,
        cache: QuantisedCache,
        first: int,
        rows: Sequence[np.ndarray],
        lengths: np.ndarray,
        select: np.ndarray,
    ) -> np.ndarray:
        """Logits (R, V) of the rows `select` of all B·Q; B > 1 needs Q = 1."""
        embeds, cos, sin = rows
        b, q, _ = embeds.shape
        binding = self._binding(cache, first, b)
        halves, last = (b, q, 1, 2, self._text.head_dim // 2), lengths + q - 1
        inputs = {
            "embeds": embeds,
            "cos": cos.reshape(halves),
            "sin": sin.reshape(halves) * _SIGNS,
            "last": last.astype(np.int32),
            "total": np.array([last.max() + 1], np.int32),
            "select": select,
        }
        for name, values in inputs.items():
            binding.bind_cpu_input(name, np.ascontiguousarray(values))
        logits = np.empty((len(select), self._text.vocab), np.float32)
        address = logits.ctypes.data or cache.keys.ctypes.data  # one is asked for even for no rows
        binding.bind_output("logits", "cpu", 0, np.float32, logits.shape, address)
        self._session.run_with_iobinding(binding)
        return logits

    def _binding(self, cache: QuantisedCache, first: int, b: int) -> Any:
        if (first, b) not in cache.bindings:
            binding = cache.bindings[first, b] = self._session.io_binding()
            for name, side in (("key", cache.keys), ("value", cache.values)):
                for i, layer in enumerate(side[:, first : first + b]):
                    place = "cpu", 0, np.float32, layer.shape, layer.ctypes.data
                    binding.bind_input(f"past_{name}.{i}", *place)
                    binding.bind_output(f"{name}.{i}", *place)
        return cache.bindings[first, b]

    def _rows_are_invariant(self) -> bool:
        """Whether sequences at once get the bits that one gets alone, tried on equal tokens: five,
        a tile of four rows and one more."""
        t, rng = self._text, np.random.default_rng(0)
        token = [rng.standard_normal((1, 1, n), np.float32) for n in (t.hidden, *[t.head_dim] * 2)]
        answers = []
        for count in (1, 5):
            cache, rows = QuantisedCache(t, count, 1), [part.repeat(count, 0) for part in token]
            every = [1] * count, rows[0].shape, [[0]] * count
            chunk = plan_chunk(cache.lengths, cache.capacity, 0, *every)
            answers.append(self.extend(cache, chunk, *rows))
        return bool((answers[0] == answers[1]).all())


def _graph(w: Source, t: TextDims, bits: int) -> Graph:
    g = Graph(bits)
    x = g.input("embeds", "B", "Q", t.hidden)
    for name in ("cos", "sin"):
        g.input(name, "B", "Q", 1, 2, t.head_dim // 2)
    g.input("last", "B", dtype=np.int32)  # index of each sequence's last row with the new ones
    g.input("total", 1, dtype=np.int32)  # rows of the longest sequence with the new ones
    g.input("select", "R", dtype=np.int64)
    y = _norm(g, x, w("model.layers.0.input_layernorm.weight"), t.eps)
    for i in range(t.layers):
        prefix = f"model.layers.{i}."
        mixed = _attention(g, w, i, prefix + "self_attn.", t, y)
        y, x = _add_norm(g, x, mixed, w(prefix + "post_attention_layernorm.weight"), t.eps)
        both = g.matmul(y, [w(f"{prefix}mlp.{part}_proj.weight") for part in ("gate", "up")])
        gate, up = g.split("Split", both, outs=["", ""], axis=2)
        inner = g.op("Mul", g.op("Mul", gate, g.op("Sigmoid", gate)), up)
        down = g.matmul(inner, [w(prefix + "mlp.down_proj.weight")])
        following = f"layers.{i + 1}.input_layernorm" if i + 1 < t.layers else "norm"
        y, x = _add_norm(g, x, down, w(f"model.{following}.weight"), t.eps)
    rows = g.op("Gather", g.op("Reshape", y, g.ints(-1, t.hidden)), "select")
    # 8-bit codes of the row would hide a NaN: its sum brings it back, and adds 0 otherwise.
    total = g.op("ReduceSum", rows, g.ints(1), keepdims=1)
    broken = g.op("Mul", total, g.constant(np.zeros(1, np.float32)))
    head = w("model.embed_tokens.weight" if t.tied else "lm_head.weight")
    g.op("Add", g.matmul(rows, [head]), broken, out=g.output("logits", "R", t.vocab))
    return g


def _attention(g: Graph, w: Source, i: int, prefix: str, t: TextDims, y: str) -> str:
    """y (B, Q, C) -> what attention adds to it; the cache is an input and, in the same memory, an
    output."""
    K, D, H = t.kv_heads, t.head_dim, t.heads
    qkv = g.matmul(y, [w(f"{prefix}{part}_proj.weight") for part in "qkv"])
    sizes = g.ints((H + K) * D, K * D)
    qk, v = g.split("Split", qkv, sizes, outs=["", ""], axis=2)
    qk = g.op("Reshape", qk, g.ints(0, 0, H + K, 2, D // 2))
    other = g.op("Gather", qk, g.ints(1, 0), axis=3)
    qk = g.op("Add", g.op("Mul", qk, "cos"), g.op("Mul", other, "sin"))
    qk = _norm(g, qk, torch.ones(2, D // 2), t.eps)
    query = w(prefix + "query_layernorm.weight").float() * D**-0.5
    key = w(prefix + "key_layernorm.weight").float()
    scale = torch.cat([query.expand(H, -1), key.expand(K, -1)])
    qk = g.op("Mul", qk, g.constant(scale.view(H + K, 2, -1).numpy()))
    qk = g.op("Reshape", qk, g.ints(0, 0, -1))
    q, k = g.split("Split", qk, g.ints(H * D, K * D), outs=["", ""], axis=2)
    cache = [g.input(f"past_{side}.{i}", "B", K, "S", D) for side in ("key", "value")]
    kept = [g.output(f"{side}.{i}", "B", K, "S", D) for side in ("key", "value")]
    mixed, _, _ = g.split(
        "GroupQueryAttention", q, k, v, *cache, "last", "total", outs=["", *kept],
        num_heads=H, kv_num_heads=K, scale=1.0, **_MICROSOFT,
    )  # fmt: skip
    return g.matmul(mixed, [w(prefix + "o_proj.weight")])


def _norm(g: Graph, x: str, weight: Tensor, eps: float) -> str:
    """Over the axes of `weight`, the last ones of x."""
    scale = g.constant(weight.float().numpy())
    return g.op("SimplifiedLayerNormalization", x, scale, axis=-weight.dim(), epsilon=eps)


def _add_norm(g: Graph, x: str, y: str, weight: Tensor, eps: float) -> tuple[str, str]:
    """(norm of x + y, x + y)."""
    scale = g.constant(weight.float().numpy())
    normed, _, _, total = g.split(
        "SkipSimplifiedLayerNormalization", x, y, scale,
        outs=["", None, None, ""], epsilon=eps, **_MICROSOFT,
    )  # fmt: skip
    return normed, total
