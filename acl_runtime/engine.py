"""The engine of an NPU: a bundle's graphs on one device behind the engines' protocol.

Several devices are several engines; each has its own thread, context and memory. Knows graphs,
arrays and caches; knows no images, tokens or tasks.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from acl_runtime.binding import load
from acl_runtime.bundle import check_bundle
from acl_runtime.chunks import ChunkRunner
from acl_runtime.device import Device
from acl_runtime.errors import EngineClosed, GraphInputError
from acl_runtime.graph import Graph
from acl_runtime.kv_cache import DeviceCache
from acl_runtime.memory import Arena, DeviceArray
from acl_runtime.numeric import require_finite
from acl_runtime.runs import GraphRunner
from atc_configs.contract import Contract
from atc_configs.manifest import read_manifest

log = logging.getLogger(__name__)
T = TypeVar("T")

CHUNK_INPUT = "past_mask"  # a graph with this input appends to a key/value cache
_LOAD_LIMIT_S = 900.0  # 2 GB of weights from a slow disk

Append = Literal["bind", "copy"]


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Milliseconds that one step may take on the device: a graph, a chunk of rows, one row."""

    graph_ms: int = 6000
    chunk_ms: int = 3000
    row_ms: int = 1500

    @classmethod
    def of(cls, timeout_ms: int) -> Deadlines:
        """A row within `timeout_ms`, a chunk within twice, a whole graph within four times that."""
        return cls(4 * timeout_ms, 2 * timeout_ms, timeout_ms)


class AclEngine:
    """Graphs of one bundle on one device. `open` is the way to get one; whoever opens it closes it.

    Any thread may call it; calls queue up for the device. The outputs of `run` stay valid until the
    next `run` of the same graph by the same thread. After a DeviceFault the engine is `degraded`
    and only `close` does anything.
    """

    name = "acl"
    parallel = 1

    def __init__(
        self,
        device: Device,
        contract: Contract,
        files: Mapping[str, Path],
        *,
        append: Append = "bind",
        deadlines: Deadlines | None = None,
        check_finite: bool = True,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """Takes `device` over, whether it raises or not. files: graph name -> .om file."""
        self.emulated = device.binding.emulated
        self.contract = contract
        self.settings: Mapping[str, Any] = dict(settings or {})
        self._device = device
        self._deadlines = deadlines or Deadlines()
        self._check_finite = check_finite
        self._graphs: dict[str, Graph] = {}
        self._chunks: dict[str, ChunkRunner] = {}
        self._runs: dict[str, GraphRunner] = {}
        self._closed = False
        self._arena = Arena(device)
        with ExitStack() as built:
            built.callback(self.close)
            device.call(lambda: self._load(files, append), _LOAD_LIMIT_S)
            built.pop_all()

    @classmethod
    def open(
        cls,
        bundle: str | Path,
        device: int = 0,
        *,
        acl: str | None = None,
        append: Append = "bind",
        timeout_ms: int = 1500,
        check_finite: bool = True,
        force: bool = False,
    ) -> AclEngine:
        """Opens a bundle. acl: the pyACL module ($HYOCR_ACL, else "acl"); append: how new cache
        rows are written; force: run a bundle below its parity bound.

        Raises AclUnavailable without an NPU, BundleRefused for a bundle that must not run here.
        """
        folder = Path(bundle)
        manifest = read_manifest(folder)
        contract = manifest.contract()
        binding = load(acl)
        check_bundle(folder, manifest, binding, force)
        settings = {
            "device": device,
            "soc": manifest.soc,
            "precision": manifest.precision,
            "append": append,
            "acl": binding.name,
            "acl_api": binding.api_version(),
            "cann": manifest.cann,
            "contract": manifest.digest[:16],
        }
        return cls(
            Device(binding, device, timeout_ms),
            contract,
            {name: folder / graph.file for name, graph in manifest.graphs.items()},
            append=append,
            deadlines=Deadlines.of(timeout_ms),
            check_finite=check_finite,
            settings=settings,
        )

    def __enter__(self) -> AclEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def degraded(self) -> str | None:
        """Why the engine must be reopened, or None."""
        return self._device.degraded

    def gears(self, graph: str) -> tuple[Mapping[str, int], ...]:
        """The sizes that `graph` was compiled for, as in the contract."""
        return self._graph(graph).spec.gears

    def run(self, graph: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """One execution; see the protocol. Raises GraphInputError before anything is run."""
        opened = self._graph(graph)
        gear = opened.gear_of({name: tuple(value.shape) for name, value in inputs.items()})
        given = {name: self._own_or_host(value) for name, value in inputs.items()}
        caller = threading.current_thread()
        return self._device.call(lambda: self._runs[graph].run(gear, given, caller))

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> DeviceArray:
        """New device memory with undefined content; the caller closes it."""
        nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        block = self._call(lambda: self._arena.take(nbytes))
        return DeviceArray(self._arena, block, shape, dtype, owned=True)

    def kv_cache(self, slots: int, capacity: int) -> DeviceCache:
        """A zeroed cache for the bundle's chunk graph; the caller closes it."""
        chunks = self._chunk_runner()
        return self._call(lambda: DeviceCache(self._arena, chunks.shape, slots, capacity))

    def extend(
        self,
        cache: Any,
        first_slot: int,
        counts: Sequence[int],
        embeds: Any,
        cos: NDArray[np.float32],
        sin: NDArray[np.float32],
        select: Sequence[Sequence[int]],
    ) -> NDArray[np.float32]:
        """Appends rows to the cache; see the protocol. Raises CacheFull, NumericFault and the
        errors of the device."""
        chunks = self._chunk_runner()
        if not isinstance(cache, DeviceCache) or cache.arena is not self._arena:
            raise GraphInputError("the cache was made by another engine; ask this one for it")
        given = self._own_or_host(embeds)
        if len(given.shape) == 2 and len(counts) == 1:  # rows of one sequence: (Q, C)
            given = given[None] if isinstance(given, np.ndarray) else given.as_one_row()
        logits = self._device.call(
            lambda: chunks.extend(cache, first_slot, counts, given, cos, sin, select)
        )
        if self._check_finite:
            require_finite(logits, f"{chunks.graph.spec.name}.logits")
        return logits

    def memory(self) -> tuple[int, int]:
        """(free, total) bytes of the device."""
        return self._device.memory()

    def between_steps(self, job: Callable[[], T]) -> T:
        """The result of `job`, run on the device's thread while nothing is queued on its stream."""
        return self._call(job)

    def close(self) -> None:
        """Releases arrays, caches, graphs and device, last made first; idempotent, never raises."""
        if not self._closed:
            self._closed = True
            self._device.finish()
            for graph in reversed(self._graphs.values()):
                self._device.release(graph.close)
            self._device.release(self._arena.close)
            self._device.close()
            log.info("engine on device %d closed", self._device.index)

    def _load(self, files: Mapping[str, Path], append: Append) -> None:
        for name, path in files.items():
            spec = self.contract.graph(name)
            graph = Graph(self._device, self._arena, spec, path, self.contract.precision)
            self._graphs[name] = graph
            self._runs[name] = GraphRunner(
                self._device, self._arena, graph, self._deadlines.graph_ms, self._check_finite
            )
            if any(tensor.name == CHUNK_INPUT for tensor in spec.inputs):
                chunk_ms, row_ms = self._deadlines.chunk_ms, self._deadlines.row_ms
                self._chunks[name] = ChunkRunner(
                    self._device, self._arena, graph, append, chunk_ms, row_ms
                )

    def _own_or_host(self, value: Any) -> Any:
        """`value` if it is in host memory or this engine's, else a host copy of it."""
        own = isinstance(value, DeviceArray) and value.arena is self._arena
        return value if own or isinstance(value, np.ndarray) else value.numpy()

    def _graph(self, name: str) -> Graph:
        if self._closed:
            raise EngineClosed("the engine is closed; open it again")
        if name not in self._graphs:
            known = ", ".join(self._graphs)
            raise GraphInputError(f"no graph {name!r} in this bundle (it has {known})")
        return self._graphs[name]

    def _chunk_runner(self) -> ChunkRunner:
        if self._closed:
            raise EngineClosed("the engine is closed; open it again")
        if not self._chunks:
            known = ", ".join(self._graphs)
            raise GraphInputError(f"no graph of this bundle keeps a cache (it has {known})")
        return next(iter(self._chunks.values()))

    def _call(self, job: Callable[[], T]) -> T:
        if self._closed:
            raise EngineClosed("the engine is closed; open it again")
        return self._device.call(job)
