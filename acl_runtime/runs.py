"""One execution of any graph: inputs where the graph reads them, outputs that belong to the caller.

Runs on the owner thread. Knows shapes and gears, no cache.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from acl_runtime.binding import DEVICE_TO_DEVICE, HOST_TO_DEVICE
from acl_runtime.device import Device
from acl_runtime.graph import Gear, Graph
from acl_runtime.memory import ALIGNMENT, Arena, Block, DeviceArray
from atc_configs.contract import TensorSpec
from profiling.spans import span


@dataclass(slots=True)
class _Outputs:
    """Memory for the outputs of the graph, in their order, and whose results lie in it."""

    thread: threading.Thread
    blocks: list[Block]


class GraphRunner:
    """Feeds and runs one loaded graph; its memory is the arena's, sized for the largest gear.

    deadline_ms: of one execution; check_finite: whether outputs refuse NaN when they are read."""

    def __init__(
        self, device: Device, arena: Arena, graph: Graph, deadline_ms: int, check_finite: bool
    ) -> None:
        self._device, self._arena, self._graph = device, arena, graph
        self._deadline_ms = deadline_ms
        self._check_finite = check_finite
        self._fed: dict[str, Block] = {}
        self._results: list[_Outputs] = []

    def run(
        self, gear: Gear, inputs: Mapping[str, Any], caller: threading.Thread
    ) -> dict[str, Any]:
        """The outputs by name, valid until the next run for `caller`. inputs: host arrays, or
        arrays of this engine, shaped as `gear` says."""
        graph = self._graph
        graph.inputs.key = graph.outputs.key = None  # both are bound anew
        with span("h2d"):
            for index, tensor in enumerate(graph.spec.inputs):
                self._feed(index, tensor, gear, inputs[tensor.name])
        results = list(zip(graph.spec.outputs, self._outputs_of(caller).blocks, strict=True))
        for index, (tensor, block) in enumerate(results):
            graph.outputs.bind(index, block.pointer, tensor.nbytes(gear, graph.precision))
        graph.set_gear(gear)
        graph.execute()
        self._device.synchronize(self._deadline_ms)
        return {tensor.name: self._result(tensor, block, gear) for tensor, block in results}

    def _result(self, tensor: TensorSpec, block: Block, gear: Gear) -> DeviceArray:
        graph = self._graph
        checked = f"{graph.spec.name}.{tensor.name}" if self._check_finite else None
        shape, dtype = tensor.resolve(gear), graph.dtype(tensor)
        return DeviceArray(self._arena, block, shape, dtype, checked=checked)

    def _feed(self, index: int, tensor: TensorSpec, gear: Gear, value: Any) -> None:
        """Points input `index` at `value`: arrays of this engine in place, others are copied."""
        graph = self._graph
        nbytes, dtype = tensor.nbytes(gear, graph.precision), graph.dtype(tensor)
        if isinstance(value, DeviceArray) and value.dtype != dtype:
            value = value.numpy()
        if isinstance(value, DeviceArray) and value.pointer % ALIGNMENT == 0:
            graph.inputs.bind(index, value.pointer, nbytes)
            return
        if tensor.name not in self._fed:
            self._fed[tensor.name] = self._arena.take(graph.max_bytes(tensor))
        target = self._fed[tensor.name].pointer
        memcpy = self._device.binding.rt.memcpy
        if isinstance(value, DeviceArray):
            memcpy(target, nbytes, value.pointer, nbytes, DEVICE_TO_DEVICE)
        else:
            host = np.ascontiguousarray(value, dtype)
            memcpy(target, nbytes, host.ctypes.data, nbytes, HOST_TO_DEVICE)
        graph.inputs.bind(index, target, nbytes)

    def _outputs_of(self, caller: threading.Thread) -> _Outputs:
        """Output memory that belongs to the calling thread, or did to one that has ended."""
        for outputs in self._results:
            if outputs.thread is caller:
                return outputs
        for outputs in self._results:
            if not outputs.thread.is_alive():
                outputs.thread = caller
                return outputs
        blocks = [self._arena.take(self._graph.max_bytes(t)) for t in self._graph.spec.outputs]
        self._results.append(_Outputs(caller, blocks))
        return self._results[-1]
