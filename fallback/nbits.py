"""Matrices in 4 or 8 bits for ONNX Runtime's MatMulNBits, and graphs around them.

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
ACCURACY_LEVEL = 4  # int8 products; without it the kernel goes through float32, four times slower
_INLINE = 1024  # bytes of a constant that stays in the model itself, where shapes are inferred from


class Graph:
    """An ONNX graph under construction: each operator returns the name of its output."""

    def __init__(self, bits: int) -> None:
        try:
            import onnx
        except ImportError as error:
            raise EngineUnavailableError(
                "precisions int8 and int4 need onnx and onnxruntime: pip install onnx onnxruntime"
            ) from error
        self._onnx, self._bits = onnx, bits
        self._nodes: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._constants: dict[str, np.ndarray] = {}

    def input(self, name: str, *shape: int | str, dtype: Any = np.float32) -> str:
        """An input of the graph; a word in `shape` names an axis of any size."""
        self._inputs.append(self._value(name, shape, dtype))
        return name

    def output(self, name: str, *shape: int | str) -> str:
        """A float32 output of the graph, for an operator to give."""
        self._outputs.append(self._value(name, shape, np.float32))
        return name

    def op(self, kind: str, *inputs: str, out: str = "", domain: str = "", **attrs: Any) -> str:
        """An operator of one output; without a name one is chosen here."""
        return self.split(kind, *inputs, outs=[out], domain=domain, **attrs)[0]

    def split(
        self, kind: str, *inputs: str, outs: Sequence[str | None], domain: str = "", **attrs: Any
    ) -> list[str]:
        """An operator of several outputs; an empty name is chosen here, None leaves one out."""
        at = len(self._nodes)
        names = ["" if out is None else out or f"v{at}.{i}" for i, out in enumerate(outs)]
        self._nodes.append(self._onnx.helper.make_node(kind, inputs, names, domain=domain, **attrs))
        return names

    def constant(self, values: np.ndarray) -> str:
        """`values` as they are; not copied, so not to be changed until the graph is open."""
        name = f"c{len(self._constants)}"
        self._constants[name] = values
        return name

    def ints(self, *values: int) -> str:
        """A constant of whole numbers: a shape, sizes, indices."""
        return self.constant(np.array(values))

    def matmul(self, x: str, weights: Sequence[Tensor]) -> str:
        """x (..., K) times every weight (N_i, K): (..., ΣN)."""
        codes, scales = zip(*(quantise(w, self._bits) for w in weights), strict=True)
        rows, width = sum(len(c) for c in codes), weights[0].shape[1]
        held = [self.constant(np.concatenate(part)) for part in (codes, scales)]
        return self.op(
            "MatMulNBits", x, *held, domain="com.microsoft", K=width, N=rows,
            bits=self._bits, block_size=BLOCK, accuracy_level=ACCURACY_LEVEL,
        )  # fmt: skip

    def open(self, threads: int) -> Any:
        """The session of this graph; the graph is spent."""
        import onnxruntime as ort

        helper = self._onnx.helper
        given, outside = [], []
        for name, values in self._constants.items():
            if values.nbytes < _INLINE:
                given.append(self._onnx.numpy_helper.from_array(values, name))
                continue
            # Handed over beside the model, whose own bytes may not pass 2 GB and would be copied.
            tensor = self._onnx.TensorProto(name=name, dims=values.shape)
            tensor.data_type = helper.np_dtype_to_tensor_dtype(values.dtype)
            tensor.data_location = self._onnx.TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value="given")
            given.append(tensor)
            outside.append(name)
        graph = helper.make_graph(self._nodes, "nbits", self._inputs, self._outputs, given)
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
        options = ort.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = threads
        options.enable_mem_pattern = False  # it keeps a plan for every length it has seen
        # Threads wait awake within a call, where products follow at once, and sleep between calls.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        held = [ort.OrtValue.ortvalue_from_numpy(self._constants[name]) for name in outside]
        options.add_external_initializers(outside, held)
        serialised = model.SerializeToString()
        session = ort.InferenceSession(serialised, options, providers=["CPUExecutionProvider"])
        self._constants.clear()
        return session

    def _value(self, name: str, shape: Sequence[int | str], dtype: Any) -> Any:
        helper = self._onnx.helper
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return helper.make_tensor_value_info(name, kind, shape)


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
