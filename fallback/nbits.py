"""Matrices in 4 or 8 bits for ONNX Runtime's MatMulNBits, and small graphs around them.

On processors without AVX-512 it is the fastest one-row kernel there is (measured on AVX2, one
thread, for the decoder's 415 M weights: 18 ms in 4 bit, 30 in 8; PyTorch's 8 bit 26, its own 4 bit
59, bf16 86, float32 102).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fallback.errors import EngineUnavailableError

BLOCK = 128  # weights that share a scale, along the input
MAX_THREADS = 4  # of one graph; one row is bound by memory, which few cores saturate
ACCURACY_LEVEL = 4  # int8 products; without it the kernel goes through float32, four times slower


class Graph:
    """An ONNX graph under construction: each operator returns the name of its output."""

    def __init__(self, bits: int) -> None:
        try:
            from onnx import helper, numpy_helper
        except ImportError as error:
            raise EngineUnavailableError(
                "precisions int8 and int4 need onnx and onnxruntime: pip install onnx onnxruntime"
            ) from error
        self._helper, self._to_tensor, self._bits = helper, numpy_helper.from_array, bits
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def op(self, kind: str, *inputs: str, out: str = "", domain: str = "", **attrs: Any) -> str:
        """An operator of one output; without a name one is chosen here."""
        return self.split(kind, *inputs, outs=[out], domain=domain, **attrs)[0]

    def split(
        self, kind: str, *inputs: str, outs: Sequence[str], domain: str = "", **attrs: Any
    ) -> list[str]:
        """An operator of several outputs; an empty name is chosen here."""
        names = [out or f"v{len(self._nodes)}.{i}" for i, out in enumerate(outs)]
        self._nodes.append(self._helper.make_node(kind, inputs, names, domain=domain, **attrs))
        return names

    def constant(self, values: np.ndarray) -> str:
        """An initializer that holds `values` as they are."""
        name = f"c{len(self._constants)}"
        self._constants.append(self._to_tensor(values, name))
        return name

    def matmul(self, x: str, weights: Sequence[Tensor], out: str = "") -> str:
        """x (1, K) times every weight (N_i, K): (1, ΣN)."""
        codes, scales = zip(*(quantise(w, self._bits) for w in weights), strict=True)
        rows, width = sum(len(c) for c in codes), weights[0].shape[1]
        held = [self.constant(np.concatenate(part)) for part in (codes, scales)]
        return self.op(
            "MatMulNBits", x, *held, out=out, domain="com.microsoft", K=width, N=rows,
            bits=self._bits, block_size=BLOCK, accuracy_level=ACCURACY_LEVEL,
        )  # fmt: skip

    def open(
        self,
        inputs: dict[str, tuple[int, int]],
        outputs: dict[str, tuple[int, int]],
        threads: int,
    ) -> Any:
        """The session of this graph, whose inputs and outputs are float32 of these shapes."""
        import onnxruntime as ort

        value, opset = self._helper.make_tensor_value_info, self._helper.make_opsetid
        fed, made = ([value(n, 1, s) for n, s in side.items()] for side in (inputs, outputs))
        graph = self._helper.make_graph(self._nodes, "nbits", fed, made, self._constants)
        opsets = [opset("", 17), opset("com.microsoft", 1)]
        model = self._helper.make_model(graph, opset_imports=opsets, ir_version=9)
        options = ort.SessionOptions()
        options.log_severity_level = 3
        # Every session has a pool of its own (a shared one would bind all of the process's), so
        # pools are small and sleep between calls.
        options.intra_op_num_threads = min(threads, MAX_THREADS)
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        serialised = model.SerializeToString()
        return ort.InferenceSession(serialised, options, providers=["CPUExecutionProvider"])


def quantise(weight: Tensor, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Codes (N, K/BLOCK, BLOCK·bits/8) uint8, low nibble first, and scales (N, K/BLOCK) float32.

    A block's scale maps its largest value, sign kept, to the lowest code, so that all codes are in
    use; a code c means (c - 2^(bits - 1)) · scale, MatMulNBits' default zero point.
    """
    n, k = weight.shape
    blocks = -(-k // BLOCK)
    codes = torch.empty((n, blocks, BLOCK * bits // 8), dtype=torch.uint8)
    scales = torch.empty((n, blocks))
    step = rows_at_once(blocks * BLOCK)
    padded = torch.zeros(step, blocks * BLOCK)
    for start in range(0, n, step):
        rows = slice(start, min(start + step, n))
        count = rows.stop - start
        padded[:count, :k] = weight[rows]
        values = padded[:count].view(count, blocks, BLOCK)
        codes[rows], scales[rows] = _quantise_rows(values, bits)
    return codes.numpy(), scales.numpy()


def rows_at_once(width: int) -> int:
    """Rows to quantise at a time, so that their float copies stay in the processor's cache: 2 ns a
    weight, 8 as a whole.
    """
    return max(1, (1 << 15) // width)


def _quantise_rows(values: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    half = 1 << (bits - 1)
    top, low = values.amax(-1, keepdim=True), values.amin(-1, keepdim=True)
    scales = torch.where(top > -low, top, low).div_(-half)
    safe = torch.where(scales == 0, torch.ones(()), scales)
    codes = (values / safe).round_().add_(half).clamp_(0, 2 * half - 1).to(torch.uint8)
    if bits == 4:
        codes = codes[..., ::2] | codes[..., 1::2] << 4
    return codes, scales[..., 0]
