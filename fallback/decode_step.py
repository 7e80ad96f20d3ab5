"""One token of one sequence, the step that an answer repeats: weights in 4 or 8 bits, few calls.

What lies between two attentions of `fallback.hunyuanocr.Llm` is one ONNX Runtime graph here: at
one row an operator of PyTorch costs more to call than to compute. New cache rows are written where
they belong, so attention reads the past and the new row as one view and copies nothing.

Axes as there: C hidden, H heads, K kv heads, D head size, S cache rows, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from fallback.dims import TextDims
from fallback.hunyuanocr import Source
from fallback.nbits import Graph


class DecodeStep:
    """The llm in 4 or 8 bits for steps of one token; its buffers are its own, so one caller at a
    time.

    Raises EngineUnavailableError without onnx or onnxruntime.
    """

    def __init__(self, w: Source, t: TextDims, bits: int, threads: int) -> None:
        self._text = t
        shapes = {
            "x": (1, t.hidden), "y": (1, t.hidden), "cos": (1, t.head_dim), "sin": (1, t.head_dim),
            "mixed": (1, t.heads * t.head_dim), "q": (t.heads, t.head_dim),
            "logits": (1, t.vocab),
        }  # fmt: skip
        self._buffers = {name: torch.zeros(shape) for name, shape in shapes.items()}
        self._new = (t.kv_heads, t.head_dim)
        self._calls = [self._open(w, i, bits, threads, shapes) for i in range(t.layers + 1)]

    def __call__(
        self, embeds: Tensor, cos: Tensor, sin: Tensor, keys: Tensor, values: Tensor, length: int
    ) -> Tensor:
        """Appends one token to a sequence of `length` rows; returns logits (1, V), the caller's.

        embeds (C,), cos and sin (D,); keys, values: one sequence's cache (layers, capacity, K·D),
        row `length` of which is written.
        """
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # OpenMP's idle threads would spin where the graphs' ones compute
        try:
            return self._run(embeds, cos, sin, keys, values, length)
        finally:
            torch.set_num_threads(threads)

    def _run(
        self, embeds: Tensor, cos: Tensor, sin: Tensor, keys: Tensor, values: Tensor, length: int
    ) -> Tensor:
        t, held = self._text, self._buffers
        held["x"].copy_(embeds)
        held["cos"].copy_(cos)
        held["sin"].copy_(sin)
        q = held["q"].view(1, t.kv_heads, -1, t.head_dim)
        split = (1, length + 1, t.kv_heads, t.head_dim)
        for i, (session, binding) in enumerate(self._calls):
            if i < t.layers:
                for name, side in (("k", keys), ("v", values)):
                    _bind(binding.bind_output, name, side[i, length], self._new)
            session.run_with_iobinding(binding)
            if i < t.layers:
                k = keys[i, : length + 1].view(split).transpose(1, 2)
                v = values[i, : length + 1].view(split).transpose(1, 2)
                mixed = F.scaled_dot_product_attention(q, k, v, scale=1.0)  # (1, K, H/K, D)
                held["mixed"].copy_(mixed.reshape(1, -1))
        return held["logits"].clone()

    def _open(
        self, w: Source, i: int, bits: int, threads: int, shapes: dict[str, tuple[int, int]]
    ) -> tuple[Any, Any]:
        """The call before attention i: the rest of layer i - 1, the start of layer i or the head.

        x and y take turns as its input and its output.
        """
        t, g = self._text, Graph(bits)
        x, y = ("x", "y") if i % 2 else ("y", "x")
        row, inputs, outputs = "x", ["x"], []
        if i > 0:
            row = _close_layer(g, w, f"model.layers.{i - 1}.", t, x, y)
            inputs, outputs = ["mixed", x], [y]
        if i < t.layers:
            _open_layer(g, w, f"model.layers.{i}.", t, row)
            inputs += ["cos", "sin"]
            outputs += ["q", "k", "v"]
        else:
            row = _norm(g, row, w("model.norm.weight"), t.eps)
            # 8-bit codes of the row would hide a NaN: its sum brings it back, and adds 0 otherwise.
            broken = g.op("Mul", g.op("ReduceSum", row), g.constant(np.zeros(1, np.float32)))
            head = w("model.embed_tokens.weight" if t.tied else "lm_head.weight")
            g.op("Add", g.matmul(row, [head]), broken, out="logits")
            outputs.append("logits")
        shapes = {**shapes, "k": self._new, "v": self._new}
        session = g.open({n: shapes[n] for n in inputs}, {n: shapes[n] for n in outputs}, threads)
        binding = session.io_binding()
        for names, bind in ((inputs, binding.bind_input), (outputs, binding.bind_output)):
            for name in names:
                if name in self._buffers:
                    _bind(bind, name, self._buffers[name], shapes[name])
        return session, binding


def _open_layer(g: Graph, w: Source, prefix: str, t: TextDims, x: str) -> None:
    """x (1, C) -> q (H, D), k and v (K, D) of the layer."""
    y = _norm(g, x, w(prefix + "input_layernorm.weight"), t.eps)
    prefix += "self_attn."
    qkv = g.matmul(y, [w(f"{prefix}{p}_proj.weight") for p in "qkv"])
    heads = g.op("Reshape", qkv, g.constant(np.array([-1, t.head_dim])))
    sizes = g.constant(np.array([t.heads + t.kv_heads, t.kv_heads]))
    qk, _ = g.split("Split", heads, sizes, outs=["", "v"], axis=0)
    left, right = g.split("Split", qk, outs=["", ""], axis=1)
    turned = g.op("Concat", g.op("Neg", right), left, axis=1)
    qk = g.op("Add", g.op("Mul", qk, "cos"), g.op("Mul", turned, "sin"))
    sizes = g.constant(np.array([t.heads, t.kv_heads]))
    q, k = g.split("Split", qk, sizes, outs=["", ""], axis=0)
    query = w(prefix + "query_layernorm.weight").float() * t.head_dim**-0.5
    _norm(g, q, query, t.eps, "q")
    _norm(g, k, w(prefix + "key_layernorm.weight"), t.eps, "k")


def _close_layer(g: Graph, w: Source, prefix: str, t: TextDims, x: str, out: str) -> str:
    """x (1, C) and `mixed` (1, H·D) -> `out` (1, C), the layer's result."""
    x = g.op("Add", x, g.matmul("mixed", [w(prefix + "self_attn.o_proj.weight")]))
    y = _norm(g, x, w(prefix + "post_attention_layernorm.weight"), t.eps)
    both = g.matmul(y, [w(f"{prefix}mlp.{part}_proj.weight") for part in ("gate", "up")])
    gate, up = g.split("Split", both, outs=["", ""], axis=1)
    inner = g.op("Mul", g.op("Mul", gate, g.op("Sigmoid", gate)), up)
    return g.op("Add", x, g.matmul(inner, [w(prefix + "mlp.down_proj.weight")]), out=out)


def _norm(g: Graph, x: str, weight: Tensor, eps: float, out: str = "") -> str:
    scale = g.constant(weight.float().numpy())
    return g.op("SimplifiedLayerNormalization", x, scale, out=out, axis=-1, epsilon=eps)


def _bind(bind: Any, name: str, values: Tensor, shape: tuple[int, ...]) -> None:
    """Binds float32 memory by address; `values` must be contiguous and outlive the run."""
    bind(name, "cpu", 0, np.float32, shape, values.data_ptr())
