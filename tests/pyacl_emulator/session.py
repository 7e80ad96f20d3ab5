"""The arithmetic: ONNX Runtime on the emulated device's own bytes, nothing copied.

One session serves every gear and every load of a model, so the weights are in this process once.
An fp16 build holds fp16 weights, widened to fp32 here, computes each operator in fp32 and rounds
its result to fp16 (the compiler stand-in writes that into the graph), which is what a cube with
fp32 accumulation and fp16 storage does. ONNX Runtime's own fp16 would skip roundings between
operators.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from . import om

_KEEP = 6
_KEEP_BYTES = 64 << 20
Key = tuple[tuple[int, ...], int]
_LIVE: WeakValueDictionary[Key, Program] = WeakValueDictionary()
_RECENT: OrderedDict[Key, Program] = OrderedDict()


class Bound(NamedTuple):
    """A tensor at a host address: its ONNX name, NumPy type name, shape and bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    pointer: int
    nbytes: int


class Program:
    """A compiled graph; thread-safe to run."""

    def __init__(self, file: om.OmFile, threads: int) -> None:
        import onnxruntime

        self.threads = threads
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        if len(file.weights) > _KEEP_BYTES:  # a packed copy of every matrix would double them
            options.add_session_config_entry("session.disable_prepacking", "1")
        self._weights = _weights(file)
        values = [onnxruntime.OrtValue.ortvalue_from_numpy(a) for a in self._weights.values()]
        options.add_external_initializers(list(self._weights), values)
        self._values = values
        self._file = file
        self._session = onnxruntime.InferenceSession(
            bytes(file.graph), options, providers=["CPUExecutionProvider"]
        )

    def run(self, inputs: list[Bound], outputs: list[Bound]) -> None:
        """Runs on memory that the caller keeps alive; outputs are written in place."""
        binding = self._session.io_binding()
        for tensor in inputs:
            binding.bind_input(tensor.name, "cpu", 0, np.dtype(tensor.dtype), tensor.shape,
                               tensor.pointer)  # fmt: skip
        for tensor in outputs:
            binding.bind_output(tensor.name, "cpu", 0, np.dtype(tensor.dtype), tensor.shape,
                                tensor.pointer)  # fmt: skip
        self._session.run_with_iobinding(binding)

    def run_free(self, inputs: list[Bound], names: list[str]) -> list[np.ndarray[Any, Any]]:
        """Runs with outputs of unknown shape; returns fresh arrays."""
        binding = self._session.io_binding()
        for tensor in inputs:
            binding.bind_input(tensor.name, "cpu", 0, np.dtype(tensor.dtype), tensor.shape,
                               tensor.pointer)  # fmt: skip
        for name in names:
            binding.bind_output(name, "cpu")
        self._session.run_with_iobinding(binding)
        return list(binding.copy_outputs_to_cpu())


def widen(stored: np.ndarray[Any, Any], form: str) -> np.ndarray[Any, Any]:
    """fp16 numbers or bf16 bits as fp32; anything else as it is."""
    if form == "bfloat16":
        return (stored.astype(np.uint32) << 16).view(np.float32)
    return stored.astype(np.float32) if form == "float16" else stored


def _weights(file: om.OmFile) -> dict[str, np.ndarray[Any, Any]]:
    """The weights by initialiser name: fp16 and bf16 widened to fp32, the rest mapped."""
    arrays = {}
    for entry in file.description["weights"]:
        part = file.weights[entry["offset"] : entry["offset"] + entry["nbytes"]]
        form = entry["dtype"]
        stored = np.frombuffer(part, "uint16" if form == "bfloat16" else form)
        arrays[entry["name"]] = widen(stored, form).reshape(entry["shape"])
    return arrays


def program_for(file: om.OmFile, threads: int) -> Program:
    """The program of a file. Loads of one file share it while any of them keeps it; small ones
    stay for the next load."""
    key = (file.identity, threads)
    program = _LIVE.get(key)
    if program is None:
        program = _LIVE[key] = Program(file, threads)
    if len(file.weights) <= _KEEP_BYTES and file.identity[-1] >= 0:
        _RECENT[key] = program
        _RECENT.move_to_end(key)
        while len(_RECENT) > _KEEP:
            _RECENT.popitem(last=False)
    return program
