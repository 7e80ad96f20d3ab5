"""Runs exported ONNX graphs of any contract on ONNX Runtime behind the engine protocol.

Knows names, shapes and dtypes; knows nothing of images, tokens or NPUs. `onnxruntime` is imported
when an engine is opened, never at import.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fallback.chunk import plan_chunk
from fallback.errors import (
    CheckpointFormatError,
    CheckpointNotFoundError,
    EngineUnavailableError,
    GraphInputError,
)
from fallback.host_array import HostArray
from fallback.ort_cache import OrtKVCache, run_step, step_inputs

if TYPE_CHECKING:
    import onnxruntime

log = logging.getLogger(__name__)

# ONNX Runtime's type names (NodeArg.type) -> numpy.
_DTYPES: dict[str, np.dtype[Any]] = {
    "tensor(float)": np.dtype(np.float32),
    "tensor(float16)": np.dtype(np.float16),
    "tensor(double)": np.dtype(np.float64),
    "tensor(int64)": np.dtype(np.int64),
    "tensor(int32)": np.dtype(np.int32),
    "tensor(int8)": np.dtype(np.int8),
    "tensor(uint8)": np.dtype(np.uint8),
    "tensor(bool)": np.dtype(np.bool_),
}


class OrtEngine:
    """ONNX graphs by name, each one session; outputs are host arrays the caller may keep.

    graphs: name -> path of a `.onnx` file (external weights beside it) or its bytes. contract:
    what names the graphs' inputs and outputs (`atc_configs.contract`); checked on opening when
    given. providers: ONNX Runtime's execution providers, first choice first:
    "CPUExecutionProvider", or, where such a build of ONNX Runtime is installed,
    "CUDAExecutionProvider", "TensorrtExecutionProvider", "CANNExecutionProvider". threads: CPU
    threads inside one operator, for all graphs or by graph name; None (or a graph not named)
    means as many as there are CPUs for this process. Idle threads sleep: spinning costs more CPU
    time than it saves. parallel: how many callers may be in `run` at once (sessions are
    thread-safe; the cache is not).

    Raises EngineUnavailableError if ONNX Runtime or a provider is missing: never a silent other
    provider.
    """

    name = "ort"
    emulated = False

    parallel: int
    """How many `run` calls may be in flight at once."""

    def __init__(
        self,
        graphs: Mapping[str, bytes | str | Path],
        contract: Any | None = None,
        providers: Sequence[str | tuple[str, Mapping[str, Any]]] = ("CPUExecutionProvider",),
        threads: int | Mapping[str, int] | None = None,
        parallel: int = 1,
    ) -> None:
        self._contract = contract
        self.parallel = parallel
        by_graph = threads if isinstance(threads, Mapping) else {}
        self._threads = threads if isinstance(threads, int) and threads else available_cpus()
        self._sessions = {
            name: _open_session(name, model, providers, by_graph.get(name, self._threads))
            for name, model in graphs.items()
        }
        self._inputs = {n: _declared(s.get_inputs()) for n, s in self._sessions.items()}
        self._outputs = {n: [o.name for o in s.get_outputs()] for n, s in self._sessions.items()}
        used = {n: s.get_providers()[0] for n, s in self._sessions.items()}
        self.settings: Mapping[str, Any] = {"threads": self._threads, "providers": used}
        log.info("ort: opened %s on %s, %d threads", ", ".join(graphs), used, self._threads)

    def __enter__(self) -> OrtEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def gears(self, graph: str) -> None:
        """None: ONNX Runtime runs any shape the graph's symbols allow."""
        self._session(graph)

    def run(self, graph: str, inputs: Mapping[str, np.ndarray | HostArray]) -> dict[str, HostArray]:
        """Runs one graph; inputs by name, of the declared rank and dtype.

        Raises GraphInputError for an unknown graph or input, a missing one, another dtype or shape.
        """
        session = self._session(graph)
        declared = self._inputs[graph]
        feeds = {name: _rounded(_host_values(v), declared.get(name)) for name, v in inputs.items()}
        self._check_feeds(graph, feeds)
        outputs = session.run(None, feeds)
        return {n: HostArray(v) for n, v in zip(self._outputs[graph], outputs, strict=True)}

    def empty(self, shape: Sequence[int], dtype: np.dtype | type | str) -> HostArray:
        """Zeroed memory: ONNX Runtime reads masked rows too, and they must be finite."""
        return HostArray(np.zeros(tuple(shape), dtype))

    def kv_cache(self, slots: int, capacity: int) -> OrtKVCache:
        """A zeroed cache for the open `llm` graph.

        Raises GraphInputError if no such graph is open, or for an empty cache.
        """
        if slots < 1 or capacity < 1:
            raise GraphInputError(f"a cache of {slots} × {capacity} rows holds nothing")
        self._session("llm")
        declared = self._inputs["llm"]
        layers = sum(name.startswith("past_key.") for name in declared)
        dtype, shape = declared["past_key.0"]
        return OrtKVCache(layers, slots, capacity, int(shape[-1]), dtype)

    def extend(
        self,
        cache: OrtKVCache,
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
        session = self._session("llm")
        rows = _host_values(embeds)
        if rows.ndim == 2 and counts:  # an array of all sequences' rows, one after the other
            rows = rows.reshape(len(counts), -1, rows.shape[1])
        chunk = plan_chunk(cache.lengths, cache.capacity, first_slot, counts, rows.shape, select)
        if not chunk.select.size:  # the graph has no gear without logits: ask for one and drop it
            asked = [[0]] * len(counts)
            chunk = replace(chunk, select=np.asarray(asked, np.int64))
        seen = chunk.rows if len(counts) == 1 else cache.capacity
        small = step_inputs(chunk, rows, cos, sin, seen)
        small = {n: np.asarray(v, self._inputs["llm"][n][0]) for n, v in small.items()}
        logits = np.empty((*chunk.select.shape, self._vocab()), np.float32)
        run_step(session, cache, chunk, small, logits)
        return logits[:, : len(select[0])]

    def _vocab(self) -> int:
        outputs = {o.name: o.shape for o in self._session("llm").get_outputs()}
        return int(outputs["logits"][-1])

    def close(self) -> None:
        """Releases every session; idempotent."""
        self._sessions = {}

    def _session(self, graph: str) -> onnxruntime.InferenceSession:
        try:
            return self._sessions[graph]
        except KeyError:
            known = ", ".join(self._sessions) or "none, the engine is closed"
            raise GraphInputError(f"no graph {graph!r} is open (open: {known})") from None

    def _check_feeds(self, graph: str, feeds: Mapping[str, np.ndarray]) -> None:
        declared = self._inputs[graph]
        missing, extra = declared.keys() - feeds.keys(), feeds.keys() - declared.keys()
        if missing or extra:
            raise GraphInputError(
                f"{graph}: missing inputs {sorted(missing)}, unknown inputs {sorted(extra)}"
            )
        for name, value in feeds.items():
            dtype, shape = declared[name]
            if value.dtype != dtype:
                raise GraphInputError(
                    f"{graph}.{name}: dtype {value.dtype}, the graph wants {dtype}"
                )
            if not _fits(value.shape, shape):
                raise GraphInputError(
                    f"{graph}.{name}: shape {value.shape}, the graph wants {tuple(shape)}"
                )


def available_cpus() -> int:
    """CPUs this process may run on (the affinity mask, where the system has one)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _host_values(value: np.ndarray | HostArray) -> np.ndarray:
    if isinstance(value, HostArray):
        return value.values
    return value if isinstance(value, np.ndarray) else value.numpy()


def _rounded(
    value: np.ndarray, declared: tuple[np.dtype, Sequence[int | str]] | None
) -> np.ndarray:
    """The host computes in float32; a graph in fp16 takes it rounded, as an NPU engine does."""
    narrow = declared is not None and declared[0] == np.float16 and value.dtype == np.float32
    return value.astype(np.float16) if narrow else value


def _declared(nodes: Sequence[Any]) -> dict[str, tuple[np.dtype, Sequence[int | str]]]:
    return {n.name: (_DTYPES[n.type], n.shape) for n in nodes}


def _fits(shape: Sequence[int], declared: Sequence[int | str | None]) -> bool:
    """A symbol (a string, or None where the axis has no name) takes any length."""
    return len(shape) == len(declared) and all(
        not isinstance(want, int) or have == want
        for have, want in zip(shape, declared, strict=True)
    )


def _open_session(
    name: str,
    model: bytes | str | Path,
    providers: Sequence[str | tuple[str, Mapping[str, Any]]],
    threads: int,
) -> onnxruntime.InferenceSession:
    try:
        import onnxruntime as ort
    except ImportError as error:
        raise EngineUnavailableError(
            "the engine ort needs ONNX Runtime: pip install 'hunyuanocr-ascend[ppocr]'"
        ) from error
    present = ort.get_available_providers()
    for provider in providers:
        wanted = provider if isinstance(provider, str) else provider[0]
        if wanted not in present:
            raise EngineUnavailableError(
                f"provider {wanted} is not in this build of ONNX Runtime"
                f" (it has {', '.join(present)})"
            )
    if not isinstance(model, bytes) and not Path(model).is_file():
        raise CheckpointNotFoundError(f"graph {name}: no file {model}")
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3  # its warnings go to stderr past our logging
    source = model if isinstance(model, bytes) else str(model)
    refused = (
        ort.capi.onnxruntime_pybind11_state.InvalidProtobuf,
        ort.capi.onnxruntime_pybind11_state.InvalidGraph,
        ort.capi.onnxruntime_pybind11_state.Fail,
    )
    try:
        return ort.InferenceSession(source, options, providers=list(providers))
    except refused as error:
        raise CheckpointFormatError(
            f"graph {name}: ONNX Runtime refuses the file: {error}"
        ) from error
