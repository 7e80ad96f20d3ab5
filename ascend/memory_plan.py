"""What a bundle will take of a device, counted as the ACL runtime takes it: weights and work memory
of each graph, one cache, buffers for what goes in and out. Opens nothing.

Axes: B sequences, Q rows of one step, S cache rows, R rows whose logits are wanted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from acl_runtime.memory import ALIGNMENT, align, block_bytes, piece_bytes
from atc_configs.contract import Contract, GraphSpec
from atc_configs.graph_spec import ITEM_BYTES, ContractError

_STAGED = ("embeds", "cos", "sin")  # one upload, acl_runtime.chunk_plan.Staging
CACHE_INPUT = "past_mask"


@dataclass(frozen=True, slots=True)
class MemoryForecast:
    """Device bytes by part ("weights vision", "cache", ...) and pinned host bytes."""

    parts: Mapping[str, int]
    pinned: int

    @property
    def total(self) -> int:
        """Device bytes of everything."""
        return sum(self.parts.values())


def forecast_memory(
    contract: Contract,
    *,
    weights: Mapping[str, int],
    work: Mapping[str, int],
    slots: int = 1,
    capacity: int | None = None,
    prompt_rows: int | None = None,
    append: str = "bind",
) -> MemoryForecast:
    """Peak device memory of an AclEngine on `contract` once every gear has been used.

    weights, work: graph -> bytes, as `acl.mdl.query_size` tells them or as forecast;
    slots, capacity: of the one cache (capacity None: the longest gear); prompt_rows: rows of the
    longest prompt, laid out on the device (None: the longest chunk). Raises ContractError for a
    cache that no gear holds. What the driver and the runtime take for themselves is not in it.
    """
    parts: dict[str, int] = {}
    pinned = 0
    for name, spec in contract.graphs.items():
        parts[f"weights {name}"] = weights.get(name, 0)
        parts[f"work {name}"] = work.get(name, 0)
        if not any(tensor.name == CACHE_INPUT for tensor in spec.inputs):
            tensors = (*spec.inputs, *spec.outputs)
            parts[f"buffers {name}"] = _hidden(spec) + sum(
                block_bytes(max(t.nbytes(gear, contract.precision) for gear in spec.gears))
                for t in tensors
            )
            continue
        layout = _Chunks(contract, spec)
        parts["cache"] = layout.cache_bytes(slots, capacity)
        parts[f"buffers {name}"] = _hidden(spec) + layout.buffer_bytes(slots, append)
        rows = prompt_rows or max(gear["Q"] for gear in spec.gears)
        parts["prompt"] = block_bytes(rows * layout.row_bytes("embeds"))
        pinned = layout.pinned_bytes()
    return MemoryForecast(parts, pinned)


def _hidden(spec: GraphSpec) -> int:
    """The buffer of the input that ATC adds to a graph with gears; a few numbers."""
    return block_bytes(1) if spec.symbols else 0


class _Chunks:
    """Sizes of the graph that appends to a cache, as acl_runtime.chunks and kv_cache take them."""

    def __init__(self, contract: Contract, spec: GraphSpec) -> None:
        self.precision, self.spec = contract.precision, spec
        self.tensors = {t.name: t for t in (*spec.inputs, *spec.outputs)}
        self.slabs = sum(name.startswith("past_") for name in self.tensors) - 1  # less past_mask
        self.item = ITEM_BYTES[self.tensors[CACHE_INPUT].dtype_in(contract.precision)]
        gears = spec.gears
        self.single = sorted({g["S"] for g in gears if g["B"] == 1})
        self.batched = sorted({g["S"] for g in gears if g["B"] > 1})
        self.batches = sorted({g["B"] for g in gears if g["B"] > 1})

    def row_bytes(self, name: str) -> int:
        """Bytes of one row of one sequence."""
        return self.tensors[name].nbytes({"B": 1, "Q": 1, "S": 1, "R": 1}, self.precision)

    def cache_bytes(self, slots: int, capacity: int | None) -> int:
        """Slabs and masks of one cache, acl_runtime.kv_cache.DeviceCache."""
        rows = self.batched if slots > 1 else self.single
        capacity = capacity or (rows[-1] if rows else 0)
        if not rows or capacity > rows[-1] or slots > max((1, *self.batches)):
            limit = f"{max((1, *self.batches))} slots, {rows[-1] if rows else 0} rows"
            raise ContractError(
                f"{self.spec.name}: a cache of {slots} slots and {capacity} rows exceeds the gears"
                f" ({limit}); compile with a larger gear"
            )
        room = next((b for b in (1, *self.batches) if b >= slots), slots)
        most = next(r for r in rows if r >= capacity)
        row = self.row_bytes("past_key.0")
        tail = max(0, (room - 1) * most + self.single[-1] - room * most)
        mask_rows = align(max((*self.single, *self.batched)), ALIGNMENT)
        slabs = self.slabs * piece_bytes(room * most * row) + tail * row
        return block_bytes(slabs) + block_bytes(2 * room * mask_rows * self.item)

    def buffer_bytes(self, slots: int, append: str) -> int:
        """Staging, logits, constants of every gear, and scratch rows where they are needed."""
        total = block_bytes(self._staged()) + block_bytes(self._logits())
        masks = {(g["B"], g["Q"]) for g in self.spec.gears}
        selects = {(g["B"], g["Q"], g["R"]) for g in self.spec.gears}
        total += sum(block_bytes(b * q * q * self.item) for b, q in masks)
        total += sum(block_bytes(prod(key) * self.item) for key in selects)
        beside = [g for g in self.spec.gears if append == "copy" or (slots > 1 and g["B"] > 1)]
        row = self.row_bytes("past_key.0")
        scratch = max((piece_bytes(g["B"] * g["Q"] * row) for g in beside), default=0)
        return total + (block_bytes(scratch * self.slabs) if scratch else 0)

    def pinned_bytes(self) -> int:
        """Host memory that the device reads by itself."""
        return self._staged() + self._logits() + 2 * ALIGNMENT

    def _staged(self) -> int:
        def upload(gear: Mapping[str, int]) -> int:
            sizes = [self.tensors[name].nbytes(gear, self.precision) for name in _STAGED]
            return sum(map(piece_bytes, sizes[:-1])) + sizes[-1]

        return max(upload(gear) for gear in self.spec.gears)

    def _logits(self) -> int:
        logits = self.tensors["logits"]
        return max(logits.nbytes(gear, self.precision) for gear in self.spec.gears)
