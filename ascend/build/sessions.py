"""ONNX Runtime sessions as functions of named arrays: what graphs are compared with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ascend.build.parity import Run

if TYPE_CHECKING:
    import onnxruntime


def open_session(model: Path | bytes, threads: int = 0) -> onnxruntime.InferenceSession:
    """A CPU session; threads 0: as many as cores."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    source = model if isinstance(model, bytes) else str(model)
    return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def runner(session: onnxruntime.InferenceSession) -> Run:
    """`session` as a function of named arrays; a graph with one input takes it under any name."""
    names = [node.name for node in session.get_inputs()]
    outputs = [node.name for node in session.get_outputs()]

    def run(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        feeds = dict(inputs) if len(names) > 1 else {names[0]: next(iter(inputs.values()))}
        return dict(zip(outputs, session.run(None, feeds), strict=True))

    return run
