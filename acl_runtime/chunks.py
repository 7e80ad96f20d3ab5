"""The graph that appends a chunk of rows to a key/value cache: what goes where, one step at a time.

Its contract (names of inputs and outputs, axes B, Q, S, R) is the one of `Engine.extend`:
B sequences, Q rows of this chunk, S cache rows, R rows whose logits are wanted. Knows no tokens.
Runs on the owner thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acl_runtime.binding import DEVICE_TO_DEVICE, DEVICE_TO_HOST, HOST_TO_DEVICE
from acl_runtime.chunk_plan import HOST_INPUTS, INPUTS, Staging, Step, cache_shape, check_call
from acl_runtime.device import Device
from acl_runtime.errors import GraphInputError
from acl_runtime.graph import Graph
from acl_runtime.kv_cache import MASKED, DeviceCache
from acl_runtime.memory import ALIGNMENT, Arena, Block, DeviceArray, piece_bytes
from profiling.spans import span


class ChunkRunner:
    """One loaded graph of this contract with everything that its steps need, allocated once.

    append: "bind" lets the graph write new rows where the cache wants them, "copy" lets it write
    beside and copies them. chunk_ms, row_ms: deadlines of a step of many rows and of one row.
    """

    def __init__(
        self, device: Device, arena: Arena, graph: Graph, append: str, chunk_ms: int, row_ms: int
    ) -> None:
        self.graph = graph
        self._device, self._arena = device, arena
        self._rt = device.binding.rt
        self._append = append
        self._deadlines_ms = (row_ms, chunk_ms)
        spec = graph.spec
        inputs = {t.name: i for i, t in enumerate(spec.inputs)}
        outputs = {t.name: i for i, t in enumerate(spec.outputs)}
        self._index = {name: inputs[name] for name in INPUTS}
        layers = sum(name.startswith("past_key.") for name in inputs)
        sides = [(side, i) for side in ("key", "value") for i in range(layers)]
        self._past = [inputs[f"past_{side}.{i}"] for side, i in sides]
        self._new = [outputs[f"new_{side}.{i}"] for side, i in sides]
        self._logits_index = outputs["logits"]
        self.shape = cache_shape(graph, spec.inputs[self._past[0]], len(sides))
        # Row starts must be 64-aligned to serve as addresses of outputs.
        self._can_bind = append == "bind" and self.shape.row_bytes % ALIGNMENT == 0
        self._embeds_dtype = graph.dtype(spec.inputs[inputs["embeds"]])
        self._constants: dict[tuple[str, int, int, int], tuple[Block, Any]] = {}
        self._scratch: Block | None = None
        self._staging = Staging(arena, graph)
        self._steps = self._staging.steps

    def extend(
        self,
        cache: DeviceCache,
        first: int,
        counts: Sequence[int],
        embeds: NDArray[Any] | DeviceArray,
        cos: NDArray[np.float32],
        sin: NDArray[np.float32],
        select: Sequence[Sequence[int]],
    ) -> NDArray[np.float32]:
        """As Engine.extend. Raises GraphInputError and CacheFull before anything is run."""
        check_call(self._steps[0], cache, first, counts, (embeds, cos, sin), select)
        if isinstance(embeds, DeviceArray) and embeds.dtype != self._embeds_dtype:
            embeds = embeds.numpy()
        shape = (len(counts), len(select[0]), self._steps[0].logits.shape[-1])
        logits = np.empty(shape, np.float32)
        active = [b for b, count in enumerate(counts) if count]
        if len(active) < len(counts):
            logits[...] = 0  # undefined, but finite
        step = self._batch_step(cache, first, counts, shape[1]) if len(active) > 1 else None
        if step is not None:
            logits[...] = self._run(step, cache, first, counts, (embeds, cos, sin), 0, select)
            return logits
        for b in active:
            self._extend_one(cache, first, b, counts[b], (embeds, cos, sin), select[b], logits)
        return logits

    def _extend_one(
        self,
        cache: DeviceCache,
        first: int,
        b: int,
        count: int,
        rows: tuple[Any, ...],
        select: Sequence[int],
        logits: NDArray[np.float32],
    ) -> None:
        """Appends the rows of one sequence in as few steps as the gears allow."""
        cache.make_room(first + b, count)
        start = 0
        one = tuple(part.rows(b, 1) if isinstance(part, DeviceArray) else part[b : b + 1]
                    for part in rows)  # fmt: skip
        while start < count:
            step, size = self._single_step(int(cache.lengths[first + b]), start, count, select)
            at = [j for j, row in enumerate(select) if start <= row < start + size]
            wanted = [[select[j] - start for j in at]]
            part = self._run(step, cache, first + b, [size], one, start, wanted)
            # All at once where possible: an index list would copy half a megabyte twice.
            logits[b, at if len(at) < len(select) else slice(None)] = part[0]
            start += size

    def _single_step(
        self, length: int, start: int, count: int, select: Sequence[int]
    ) -> tuple[Step, int]:
        """The cheapest gear for the next rows of one sequence, and how many rows it takes."""
        fitting = [s for s in self._steps if s.gear["B"] == 1 and s.gear["S"] >= length]
        for size in (count - start, max((s.gear["Q"] for s in fitting), default=1), 1):
            wanted = sum(start <= row < start + size for row in select)
            for step in fitting if size <= count - start else ():
                if step.gear["Q"] >= size and step.gear["R"] >= wanted:
                    return step, size
        raise GraphInputError(
            f"{self.graph.spec.name}: no gear with one sequence takes a row behind {length}"
            " cache rows; compile with a longer gear"
        )

    def _batch_step(
        self, cache: DeviceCache, first: int, counts: Sequence[int], wanted: int
    ) -> Step | None:
        """The cheapest gear for several sequences at once, with the cache laid out for it."""
        ends = cache.lengths[first : first + len(counts)] + np.asarray(counts)
        need = max(int(ends.max()), int(cache.lengths.max()))
        fitting = [
            s
            for s in self._steps
            if 1 < s.gear["B"] <= cache.room - first
            and s.gear["B"] >= len(counts)
            and s.gear["Q"] >= max(counts)
            and s.gear["R"] >= wanted
            and s.gear["S"] >= need
        ]
        if not fitting:
            return None
        best = fitting[0]
        if best.gear["S"] < cache.stride and 2 * need > best.gear["S"]:
            # Nearly full again soon: not worth moving the rows there and back.
            best = next((s for s in fitting if s.gear["S"] == cache.stride), best)
        if best.gear["S"] != cache.stride:
            cache.relay(best.gear["S"])
        return best

    def _run(
        self,
        step: Step,
        cache: DeviceCache,
        first: int,
        counts: Sequence[int],
        rows: tuple[Any, ...],
        start: int,
        select: Sequence[Sequence[int]],
    ) -> NDArray[np.float32]:
        """One execution: rows start.. of `rows` for each sequence into the cache. The logits of
        the selected rows, in pinned memory until the next one."""
        for b, count in enumerate(counts):
            cache.require_room(first + b, count)
        with span("bind"):
            self._bind_own(step)
            self._bind_constants(step, select)
            self._bind_past(step, cache, first)
            direct = self._bind_new(step, cache, first, counts)
        with span("h2d"):
            self._upload(step, counts, rows, start)
        self.graph.set_gear(step.gear)
        self.graph.execute()
        if not direct:
            with span("append"):
                self._copy_new(step, cache, first, counts)
        # One sequence's wanted rows lie first; of several sequences the whole gear is taken.
        wanted = step.logits[0, : len(select[0])] if step.gear["B"] == 1 else step.logits
        size = wanted.nbytes
        if size and select[0]:
            target, source = step.logits.ctypes.data, self._staging.logits
            stream = self._device.stream
            self._rt.memcpy_async(target, size, source, size, DEVICE_TO_HOST, stream)
        self._device.synchronize(self._deadlines_ms[step.gear["Q"] > 1])
        for b, count in enumerate(counts):
            if count:
                cache.appended(first + b, count)
        return step.logits[: len(counts), : len(select[0])]

    def _upload(self, step: Step, counts: Sequence[int], rows: tuple[Any, ...], start: int) -> None:
        """Brings embeds, cos and sin to the device in one copy; rows that are there already are
        copied there."""
        padded = len(counts) < step.gear["B"] or min(counts) < step.gear["Q"]
        on_device = isinstance(rows[0], DeviceArray)
        for view, part in zip(step.views, rows, strict=True):
            if padded:
                view[...] = 0  # what masked rows hold must be finite
            if not isinstance(part, DeviceArray):
                for b, count in enumerate(counts):
                    view[b, :count] = part[b, start : start + count]
        base, pinned, stream = self._staging.device, self._staging.pinned, self._device.stream
        skip = step.offsets[1] if on_device and not padded else 0
        size = step.total - skip
        self._rt.memcpy_async(base + skip, size, pinned + skip, size, HOST_TO_DEVICE, stream)
        if on_device:
            row = rows[0].row_bytes // rows[0].shape[1]
            for b, count in enumerate(counts):
                source = rows[0].pointer + b * rows[0].row_bytes + start * row
                target, size = base + b * step.gear["Q"] * row, count * row
                if size:
                    self._rt.memcpy_async(target, size, source, size, DEVICE_TO_DEVICE, stream)

    def _bind_own(self, step: Step) -> None:
        for name, offset, nbytes in zip(HOST_INPUTS, step.offsets, step.sizes, strict=True):
            self.graph.inputs.bind(self._index[name], self._staging.device + offset, nbytes)
        self.graph.outputs.bind(self._logits_index, self._staging.logits, step.logits.nbytes)

    def _bind_past(self, step: Step, cache: DeviceCache, first: int) -> None:
        batch, rows = step.gear["B"], step.gear["S"]
        if batch == 1:
            mask = cache.single_mask(first)
        else:
            mask = cache.batch_mask(first, batch, rows)
        inputs = self.graph.inputs
        inputs.bind(self._index["past_mask"], mask, batch * rows * self.shape.mask_dtype.itemsize)
        offset, nbytes = cache.row_offset(first, 0), batch * rows * self.shape.row_bytes
        slabs = cache.slabs
        places = range(slabs.start + offset, slabs.stop + offset, slabs.step)
        inputs.bind_all(self._past, places, nbytes, (places, nbytes))

    def _bind_new(self, step: Step, cache: DeviceCache, first: int, counts: Sequence[int]) -> bool:
        """Points the new rows at the cache itself where that is possible: one sequence, and room
        for the padding of the chunk behind it. Else at scratch memory, and False."""
        rows, row_bytes = step.gear["Q"], self.shape.row_bytes
        outputs, length = self.graph.outputs, int(cache.lengths[first])
        if self._can_bind and step.gear["B"] == 1 and length + rows <= cache.stride:
            offset = cache.row_offset(first, length)
            slabs = cache.slabs
            places = range(slabs.start + offset, slabs.stop + offset, slabs.step)
            outputs.bind_all(self._new, places, rows * row_bytes, (places, rows))
            return True
        nbytes = step.gear["B"] * rows * row_bytes
        piece = piece_bytes(nbytes)
        scratch = self._scratch_of(piece * len(self._new))
        places = range(scratch, scratch + piece * len(self._new), piece)
        outputs.bind_all(self._new, places, nbytes, (places, nbytes))
        return False

    def _copy_new(self, step: Step, cache: DeviceCache, first: int, counts: Sequence[int]) -> None:
        """The copying form: one device-to-device copy per slab and sequence."""
        rows, row_bytes = step.gear["Q"], self.shape.row_bytes
        piece = piece_bytes(step.gear["B"] * rows * row_bytes)
        scratch, stream = self._scratch_of(piece * len(self._new)), self._device.stream
        for b, count in enumerate(counts):
            if not count:
                continue
            offset = cache.row_offset(first + b, int(cache.lengths[first + b]))
            for index, slab in enumerate(cache.slabs):
                source = scratch + index * piece + b * rows * row_bytes
                target, size = slab + offset, count * row_bytes
                self._rt.memcpy_async(target, size, source, size, DEVICE_TO_DEVICE, stream)

    def _scratch_of(self, nbytes: int) -> int:
        if self._scratch is None or self._scratch.nbytes < nbytes:
            if self._scratch is not None:
                self._arena.give(self._scratch)
            self._scratch = None
            self._scratch = self._arena.take(nbytes)
        return self._scratch.pointer

    def _bind_constants(self, step: Step, select: Sequence[Sequence[int]]) -> None:
        """The causal mask of the chunk and the one-hot selection stay on the device by gear; the
        selection is uploaded only when it differs from the last one of its gear."""
        batch, rows, wanted = (step.gear[s] for s in "BQR")
        dtype = self.shape.mask_dtype
        mask_key = ("chunk_mask", batch, rows, 0)
        if mask_key not in self._constants:
            causal = np.triu(np.full((rows, rows), MASKED, dtype), 1)
            self._put(
                mask_key, None, np.ascontiguousarray(np.broadcast_to(causal, (batch, rows, rows)))
            )
        key = ("select", batch, rows, wanted)
        # Rows of the gear that nobody asked for select row 0: defined, and never read.
        chosen = tuple(tuple(s) + (0,) * (wanted - len(s)) for s in select)
        chosen += ((0,) * wanted,) * (batch - len(chosen))
        if key not in self._constants or self._constants[key][1] != chosen:
            one_hot = np.zeros((batch, wanted, rows), dtype)
            np.put_along_axis(one_hot, np.array(chosen)[:, :, None], 1, axis=2)
            self._put(key, chosen, one_hot)
        for name, constant in (("chunk_mask", mask_key), ("select", key)):
            block = self._constants[constant][0]
            nbytes = batch * rows * (rows if name == "chunk_mask" else wanted) * dtype.itemsize
            self.graph.inputs.bind(self._index[name], block.pointer, nbytes)

    def _put(self, key: tuple[str, int, int, int], content: Any, values: NDArray[Any]) -> None:
        old = self._constants.get(key)
        block = old[0] if old else self._arena.take(values.nbytes)
        size = values.nbytes
        self._rt.memcpy(block.pointer, size, values.ctypes.data, size, HOST_TO_DEVICE)
        self._constants[key] = (block, content)
