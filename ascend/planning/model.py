"""What is planned: a model's sizes, from any folder that states them, and how its graphs are
counted; the limits of a chip."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from ascend.errors import ModelError, UsageError
from atc_configs.contract import Contract, load_contract
from atc_configs.manifest import MANIFEST_NAME, read_manifest
from atc_configs.soc import Soc
from fallback.dims import FULL, Dims
from profiling.costs import (
    ModelSizes,
    OpCost,
    llm_costs,
    llm_work_bytes,
    vision_costs,
    vision_work_bytes,
)
from profiling.onnx_costs import model_costs
from profiling.roofline import ChipLimits

RELEASED = "hunyuanocr"

# L2 of one chip, platform ini files of CANN 8.1 (910B: that of B3 and B4; B1 has twice as much).
_L2_BYTES = {"310P": 16 << 20, "310B": 4 << 20, "910A": 32 << 20, "910B": 96 << 20}

# Assumptions: what the host does for one page and between two steps, in milliseconds. The low ends
# are a server CPU; a 310B board has a few small cores and shares its memory with the device.
_HOST_PAGE_MS = {"EP": (20.0, 120.0), "RC": (80.0, 400.0)}
_HOST_STEP_MS = {"EP": (0.4, 2.0), "RC": (1.5, 6.0)}

# Memory that models do not get. EP: `npu-smi info` of an idle 310P3 shows 1074 MB in use. RC: the
# operating system and this process live in the same memory (an assumption).
_RESERVED_BYTES = {"EP": 1074 << 20, "RC": 2 << 30}


class Counts(Protocol):
    """How the two graphs of a model are counted. `source` says from what."""

    @property
    def sizes(self) -> ModelSizes: ...

    @property
    def source(self) -> str: ...

    def vision(self, patches: int) -> Sequence[OpCost]:
        """The operators of one run over `patches`."""

    def llm(self, batch: int, rows: int, cache: int, wanted: int) -> Sequence[OpCost]:
        """The operators of one step: `rows` new tokens of `batch` sequences against `cache` rows,
        the logits of `wanted` rows each."""


@dataclass(frozen=True)
class FormulaCounts:
    """By formula, from the sizes alone."""

    sizes: ModelSizes
    source: str = "formula"

    def vision(self, patches: int) -> Sequence[OpCost]:
        return vision_costs(self.sizes, patches)

    def llm(self, batch: int, rows: int, cache: int, wanted: int) -> Sequence[OpCost]:
        return llm_costs(self.sizes, batch, rows, cache, wanted)


class OnnxCounts:
    """From exported files, node by node."""

    source = "onnx"

    def __init__(self, contract: Contract, sizes: ModelSizes, files: Mapping[str, Path]) -> None:
        import onnx

        self.sizes = sizes
        self._contract = contract
        self._models = {
            name: onnx.load(str(path), load_external_data=False) for name, path in files.items()
        }
        self._counted = lru_cache(maxsize=256)(self._count)

    def vision(self, patches: int) -> Sequence[OpCost]:
        return self._counted("vision", (patches,))

    def llm(self, batch: int, rows: int, cache: int, wanted: int) -> Sequence[OpCost]:
        return self._counted("llm", (batch, rows, cache, wanted))

    def _count(self, graph: str, gear: tuple[int, ...]) -> Sequence[OpCost]:
        spec = self._contract.graph(graph)
        values = dict(zip(spec.symbols, gear, strict=True))
        return model_costs(self._models[graph], spec.input_shapes(values))


@dataclass(frozen=True, slots=True, eq=False)
class Planned:
    """A model to be planned: its name, how to count it, the contract with the gears that it has,
    and whether those are compiled already (of a bundle) or a proposal."""

    name: str
    counts: Counts
    contract: Contract
    compiled: bool


def open_planned(model: str) -> Planned:
    """What `model` is: "hunyuanocr" (the released sizes), a config.json or a folder with one, an
    exported folder (counted from its ONNX files), or a bundle.

    Raises ModelError for what is none of these, UsageError for a family that has no forecast."""
    path = Path(model)
    if model == RELEASED and not path.exists():
        return Planned("HunyuanOCR (released sizes)", FormulaCounts(model_sizes(FULL)),
                       load_contract(RELEASED), False)  # fmt: skip
    if model == "ppocr":
        raise UsageError("plan forecasts HunyuanOCR; for ppocr use hyocr profile")
    if not path.exists():
        raise ModelError(f"no model {model!r}: neither `{RELEASED}` nor a file or folder")
    if (path / MANIFEST_NAME).is_file():
        manifest = read_manifest(path)
        _require_family(model, manifest.family)
        sizes = model_sizes(_dims_of(path / "config.json"))
        return Planned(model, FormulaCounts(sizes), manifest.contract(), True)
    if (path / "export.json").is_file():
        from ascend.build.export import read_export

        exported = read_export(path)
        _require_family(model, exported.contract.family)
        files = {name: path / entry["file"] for name, entry in exported.graphs.items()}
        sizes = model_sizes(_dims_of(path / "config.json"))
        counts = OnnxCounts(exported.contract, sizes, files)
        return Planned(exported.model or model, counts, exported.contract, False)
    dims = _dims_of(path / "config.json" if path.is_dir() else path)
    return Planned(model, FormulaCounts(model_sizes(dims)), _contract(dims), False)


def model_sizes(dims: Dims) -> ModelSizes:
    """A checkpoint's sizes as the counting wants them."""
    text, vision = dims.text, dims.vision
    return ModelSizes(
        hidden=text.hidden,
        layers=text.layers,
        heads=text.heads,
        kv_heads=text.kv_heads,
        head_dim=text.head_dim,
        intermediate=text.intermediate,
        vocab=text.vocab,
        vision_hidden=vision.hidden,
        vision_layers=vision.layers,
        vision_heads=vision.heads,
        vision_intermediate=vision.intermediate,
        patch_width=vision.patch_width,
        merge=vision.merge,
    )


def chip_limits(soc: Soc) -> ChipLimits:
    """A chip as the roofline wants it."""
    return ChipLimits(
        name=soc.name,
        fp16_peak=soc.fp16_peak,
        bandwidth=soc.bandwidth_range,
        memory_bytes=soc.memory_bytes - _RESERVED_BYTES[soc.run_mode],
        l2_bytes=_L2_BYTES[soc.column],
        host_ms=_HOST_STEP_MS[soc.run_mode],
        host_page_ms=_HOST_PAGE_MS[soc.run_mode],
    )


def work_bytes(counts: Counts, contract: Contract) -> dict[str, int]:
    """Forecast of each graph's work memory at its largest gears."""
    llm = [tuple(gear[s] for s in "BQSR") for gear in contract.graph("llm").gears]
    most = max(gear["N"] for gear in contract.graph("vision").gears)
    return {
        "vision": vision_work_bytes(counts.sizes, most),
        "llm": llm_work_bytes(counts.sizes, llm),  # type: ignore[arg-type]
    }


def _contract(dims: Dims) -> Contract:
    text = dims.text
    sizes = {"C": text.hidden, "H": text.heads, "K": text.kv_heads, "D": text.head_dim}
    sizes |= {"L": text.layers, "V": text.vocab, "E": dims.vision.hidden}
    return load_contract(RELEASED, sizes)


def _dims_of(path: Path) -> Dims:
    try:
        config = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: the model's sizes cannot be read: {error}") from error
    return Dims.from_config(config, str(path))


def _require_family(model: str, family: str) -> None:
    if family != RELEASED:
        raise UsageError(f"{model} is {family}; plan forecasts HunyuanOCR only")
