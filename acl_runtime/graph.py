"""One compiled graph on a device: checked against its contract, datasets built once, gear set only
when it changes.

Runs on the owner thread. Knows names, shapes and gears; knows no tokens and no images.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from acl_runtime.binding import Binding
from acl_runtime.device import Device, let_go
from acl_runtime.errors import BundleRefused, GraphInputError, ModelFault
from acl_runtime.memory import Arena
from acl_runtime.model_check import check_model
from atc_configs.contract import GraphSpec, TensorSpec
from profiling.spans import span

log = logging.getLogger(__name__)

Gear = Mapping[str, int]


class Dataset:
    """The inputs or the outputs of a model: data buffers that are pointed at memory, and own none.

    `undo` takes what releases it.
    """

    def __init__(self, binding: Binding, count: int, undo: ExitStack) -> None:
        self._acl, self._mdl, self._undo = binding.acl, binding.mdl, undo
        self.handle = int(self._mdl.create_dataset())
        undo.callback(let_go, self._mdl.destroy_dataset, self.handle)
        self.buffers: list[int] = []
        self._bound: list[tuple[int, int]] = []
        self.key: object = None  # of the last `bind_all`; whoever binds the same ones clears it
        for _ in range(count):
            self.add(0, 0)  # bound to memory before the first execution

    def add(self, pointer: int, nbytes: int) -> None:
        """One more buffer at the end."""
        buffer = int(self._acl.create_data_buffer(pointer, nbytes))
        self._undo.callback(let_go, self._acl.destroy_data_buffer, buffer)
        self._mdl.add_dataset_buffer(self.handle, buffer)
        self.buffers.append(buffer)
        self._bound.append((pointer, nbytes))

    def bind(self, index: int, pointer: int, nbytes: int) -> None:
        """Points a buffer at memory; nothing is called when it points there already."""
        if self._bound[index] != (pointer, nbytes):
            self._acl.update_data_buffer(self.buffers[index], pointer, nbytes)
            self._bound[index] = (pointer, nbytes)

    def bind_all(
        self, indices: Sequence[int], pointers: Iterable[int], nbytes: int, key: object
    ) -> None:
        """Points many buffers at memory, unless the last `bind_all` had the same `key`. This is
        what a token does twice per layer, so nothing else is compared."""
        if key == self.key:
            return
        self.key = None
        update, buffers, bound = self._acl.update_data_buffer, self.buffers, self._bound
        for index, pointer in zip(indices, pointers, strict=True):
            update(buffers[index], pointer, nbytes)
            bound[index] = (pointer, nbytes)
        self.key = key


class Graph:
    """A loaded model with its datasets. The engine closes it, before its device.

    path: the .om file; precision: what "compute" is in the contract. Raises BundleRefused when
    the file is for another chip or does not have the contract's inputs, outputs and gears.
    """

    def __init__(
        self, device: Device, arena: Arena, spec: GraphSpec, path: Path, precision: str
    ) -> None:
        self.spec = spec
        self.precision = precision
        self.gear: Gear | None = None
        self._device = device
        self._mdl = device.binding.mdl
        self._undo = ExitStack()
        self._by_shapes = {_key(spec.input_shapes(gear)): gear for gear in spec.gears}
        with ExitStack() as built:
            built.callback(self.close)
            self._model = self._load(path)
            gear_bytes = check_model(device.binding, self._model, spec, precision, path)
            self.inputs = Dataset(device.binding, len(spec.inputs), self._undo)
            self.outputs = Dataset(device.binding, len(spec.outputs), self._undo)
            if gear_bytes:
                self.inputs.add(arena.take(gear_bytes).pointer, gear_bytes)
            built.pop_all()
        log.info("graph %s: %s, %d gears", spec.name, path.name, len(spec.gears))

    def dtype(self, tensor: TensorSpec) -> np.dtype[Any]:
        """The dtype of a tensor in this build."""
        return np.dtype(tensor.dtype_in(self.precision))

    def max_bytes(self, tensor: TensorSpec) -> int:
        """Bytes of a tensor at the gear where it is largest."""
        return max(tensor.nbytes(gear, self.precision) for gear in self.spec.gears)

    def gear_of(self, shapes: Mapping[str, tuple[int, ...]]) -> Gear:
        """The gear with exactly these input shapes. Raises GraphInputError listing the gears."""
        gear = self._by_shapes.get(_key(shapes))
        if gear is not None:
            return gear
        names = {tensor.name for tensor in self.spec.inputs}
        missing, extra = names - shapes.keys(), shapes.keys() - names
        if missing or extra:
            raise GraphInputError(
                f"{self.spec.name}: missing inputs {sorted(missing)}, unknown {sorted(extra)}"
            )
        gears = "; ".join(str(dict(gear)) for gear in self.spec.gears)
        raise GraphInputError(
            f"{self.spec.name}: input shapes {dict(shapes)} are no gear (gears: {gears});"
            " pad the inputs to one of them"
        )

    def set_gear(self, gear: Gear) -> None:
        """Chooses the gear of the executions that follow; nothing is called for the same one."""
        if gear is self.gear or not self.spec.symbols:
            return
        self.gear = None
        where = (self._model, self.inputs.handle, len(self.spec.inputs))
        sizes = [gear[symbol] for symbol in self.spec.symbols]
        if self.spec.gear_kind == "dynamic_batch_size":
            self._mdl.set_dynamic_batch_size(*where, sizes[0])
        elif self.spec.gear_kind == "dynamic_image_size":
            self._mdl.set_dynamic_hw_size(*where, sizes[0], sizes[1])
        else:
            dims = self.spec.dynamic_dims(gear)
            wanted = {"name": "", "dimCount": len(dims), "dims": dims}
            self._mdl.set_input_dynamic_dims(*where, wanted)
        self.gear = gear

    def execute(self) -> None:
        """Queues one execution on the device's stream; its errors surface when that is
        synchronised."""
        self._device.queued(self.spec.name)
        with span("launch"):
            self._mdl.execute_async(
                self._model, self.inputs.handle, self.outputs.handle, self._device.stream
            )

    def close(self) -> None:
        """Releases datasets and model, last made first; idempotent."""
        self._undo.close()

    def _load(self, path: Path) -> int:
        try:
            model = self._mdl.load_from_file(str(path))
        except ModelFault as error:
            chip = self._device.binding.soc_name()
            raise BundleRefused(f"{path}: cannot be loaded on this {chip}: {error}") from error
        self._undo.callback(let_go, self._mdl.unload, model)
        return int(model)


def _key(shapes: Mapping[str, tuple[int, ...]]) -> frozenset[tuple[str, tuple[int, ...]]]:
    return frozenset((name, tuple(shape)) for name, shape in shapes.items())
