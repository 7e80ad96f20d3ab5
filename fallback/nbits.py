"""One matrix in 4 bits, multiplied by one row at a time with ONNX Runtime's MatMulNBits.

On processors without AVX-512 it is the fastest one-row kernel there is (measured on AVX2, one
thread, for the decoder's 415 M weights: 24 ms; 8-bit in PyTorch 38; PyTorch's own 4-bit 65; bf16
121).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fallback.errors import EngineUnavailableError

BLOCK = 128  # weights that share a scale, along the input
_ROWS_AT_ONCE = 4096  # rows quantised at a time: the head's float copies would be 2 GB
MAX_THREADS = 4  # of one matrix; one row is bound by memory, which few cores saturate
ACCURACY_LEVEL = 4  # int8 products; without it the kernel goes through float32, four times slower


class NBitsMatrix:
    """weight (N, K) float32, kept as 4-bit codes; call it with x (1, K), contiguous float32 ->
    (1, N).

    The result is a buffer of this object: valid until the next call.
    """

    def __init__(self, weight: np.ndarray, threads: int) -> None:
        self._rows, self._width = weight.shape
        codes, scales = quantise(weight)
        self._session = _session(self._rows, self._width, codes, scales, threads)
        self._y = np.empty((1, self._rows), np.float32)
        self._binding = self._session.io_binding()
        self._bind(self._binding.bind_output, "y", self._y)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        self._bind(self._binding.bind_input, "x", x)
        self._session.run_with_iobinding(self._binding)
        return self._y

    @staticmethod
    def _bind(bind: Any, name: str, values: np.ndarray) -> None:
        bind(name, "cpu", 0, np.float32, values.shape, values.ctypes.data)


def quantise(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Codes (N, K/BLOCK, BLOCK/2) uint8, low nibble first, and scales (N, K/BLOCK) float32.

    A block's scale maps its largest value, sign kept, to -8, so that all 16 codes are in use; a
    code c means (c - 8) · scale, MatMulNBits' default zero point.
    """
    n, k = weight.shape
    blocks = -(-k // BLOCK)
    codes = np.empty((n, blocks, BLOCK // 2), np.uint8)
    scales = np.empty((n, blocks), np.float32)
    for start in range(0, n, _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        padded = np.zeros((len(codes[rows]), blocks * BLOCK), np.float32)
        padded[:, :k] = weight[rows]
        codes[rows], scales[rows] = _quantise_rows(padded.reshape(-1, blocks, BLOCK))
    return codes, scales


def _quantise_rows(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    at = np.abs(blocks).argmax(-1, keepdims=True)
    scales = np.take_along_axis(blocks, at, -1) / -8
    safe = np.where(scales == 0, np.float32(1), scales)
    codes = np.clip(np.rint(blocks / safe) + 8, 0, 15).astype(np.uint8)
    return codes[..., ::2] | codes[..., 1::2] << 4, scales[..., 0]


def _session(n: int, k: int, codes: np.ndarray, scales: np.ndarray, threads: int) -> Any:
    try:
        import onnxruntime as ort
        from onnx import TensorProto, helper
    except ImportError as error:
        raise EngineUnavailableError(
            "precision int4 needs onnx and onnxruntime: pip install onnx onnxruntime"
        ) from error
    weights = [
        helper.make_tensor("w", TensorProto.UINT8, codes.shape, codes.tobytes(), raw=True),
        helper.make_tensor("s", TensorProto.FLOAT, [scales.size], scales.tobytes(), raw=True),
    ]
    node = helper.make_node(
        "MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft",
        K=k, N=n, bits=4, block_size=BLOCK, accuracy_level=ACCURACY_LEVEL,
    )  # fmt: skip
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, k])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, n])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "nbits", [x], [y], weights)
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    # Every matrix has a pool of its own (a shared one would bind all of the process's sessions), so
    # pools are small and sleep between calls.
    options.intra_op_num_threads = min(threads, MAX_THREADS)
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
