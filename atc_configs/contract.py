"""The one reader of the contract files: a family's graphs, what goes in and out, at which sizes.

Export takes its axes from here, ATC its strings, the runtimes their sizes and checks. Knows no
engine and no model.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from atc_configs.expressions import ExpressionError, bind, evaluate, symbols_of
from atc_configs.fast_yaml import load_yaml
from atc_configs.graph_spec import ITEM_BYTES, ContractError, GearKind, GraphSpec, TensorSpec
from atc_configs.soc import Soc, load_soc

Gears = Sequence[Mapping[str, int] | Sequence[int]]

__all__ = [
    "Contract",
    "ContractError",
    "GearKind",
    "GraphSpec",
    "Soc",
    "TensorSpec",
    "dims_of_config",
    "load_contract",
    "load_soc",
]

# ATC refuses fewer than 2 (E10035) and more than 100 (E10036) gears.
MIN_GEARS, MAX_GEARS = 2, 100

PRECISIONS = ("float16", "float32")
_AXES_OF_KIND = {"static": 0, "dynamic_batch_size": 1, "dynamic_image_size": 2}


@dataclass(frozen=True)
class Contract:
    """One family's graphs with the model's sizes bound. `digest` ties a compiled file to it."""

    family: str
    version: int
    precision: str
    dims: Mapping[str, int]
    graphs: Mapping[str, GraphSpec]
    tasks: tuple[str, ...]
    canvases: Mapping[str, Mapping[str, int]]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all that decides what a compiled graph is; tasks and canvases do not."""
        graphs = {name: _canonical(graph) for name, graph in self.graphs.items()}
        form = [self.family, self.version, self.precision, dict(self.dims), graphs]
        return hashlib.sha256(json.dumps(form, sort_keys=True).encode()).hexdigest()

    def graph(self, name: str) -> GraphSpec:
        """Raises ContractError naming the graphs that there are."""
        if name not in self.graphs:
            raise ContractError(
                f"{self.family} has no graph {name!r} (it has {', '.join(self.graphs)})"
            )
        return self.graphs[name]


def load_contract(
    family_or_path: str | Path,
    dims: Mapping[str, int] | None = None,
    gears: Mapping[str, Gears] | None = None,
    precision: str | None = None,
) -> Contract:
    """The contract of a family ("hunyuanocr", "ppocr") or of a YAML file.

    dims: the model's sizes; those not given are the released checkpoint's. gears: graph name ->
    its gears, cheapest first, as mappings or as tuples in the order of the graph's symbols.
    Raises ContractError naming file and key.
    """
    file, text = _read(family_or_path)
    raw = _fields(_parse(file, text), file, "", _TOP)
    bound = _bind_dims(file, raw["dims"], dims or {})
    chosen = dict(gears or {})
    unknown = chosen.keys() - raw["graphs"].keys()
    if unknown:
        raise ContractError(f"{file}: gears given for {sorted(unknown)}, which are no graphs of it")
    used = precision or raw["precision"]
    if used not in PRECISIONS:
        raise ContractError(f"{file}: precision {used!r} is none of {PRECISIONS}")
    return Contract(
        family=raw["family"],
        version=raw["version"],
        precision=used,
        dims=bound,
        graphs={n: _graph(file, n, g, bound, chosen.get(n)) for n, g in raw["graphs"].items()},
        tasks=tuple(raw["tasks"]),
        canvases=raw["canvases"],
    )


def dims_of_config(family_or_path: str | Path, config: Mapping[str, Any]) -> dict[str, int]:
    """The model sizes that a checkpoint's config.json states, nested or flat, for `load_contract`.

    Raises ContractError for a size that the contract needs from the file and does not find there.
    """
    file, text = _read(family_or_path)
    found = {}
    for name, entry in _fields(_parse(file, text), file, "", _TOP)["dims"].items():
        keys = entry["keys"]
        values = [v for v in (_look_up(config, key) for key in keys) if isinstance(v, int)]
        if keys and not values:
            raise ContractError(f"{file}: dims.{name}: config.json has none of {', '.join(keys)}")
        if values:
            found[name] = values[0]
    return found


_TOP = {"family", "version", "precision", "dims", "graphs", "tasks", "canvases"}
_GRAPH = {"gear_kind", "symbols", "gears", "inputs", "outputs", "atc"}


def _read(family_or_path: str | Path) -> tuple[str, str]:
    path = Path(family_or_path)
    if path.suffix in (".yaml", ".yml"):
        try:
            return str(path), path.read_text("utf-8")
        except OSError as error:
            raise ContractError(f"{path}: {error.strerror}") from error
    source = resources.files("atc_configs").joinpath(f"{family_or_path}.yaml")
    if not source.is_file() or str(family_or_path) == "soc":
        raise ContractError(
            f"no contract for family {str(family_or_path)!r} (there are hunyuanocr and ppocr)"
        )
    return f"{family_or_path}.yaml", source.read_text("utf-8")


def _parse(file: str, text: str) -> Any:
    try:
        return load_yaml(text)
    except yaml.YAMLError as error:
        raise ContractError(f"{file}: not YAML: {error}") from error


def _fields(
    raw: Any, file: str, key: str, wanted: Iterable[str], optional: Iterable[str] = ()
) -> dict[str, Any]:
    where = f"{file}: {key}" if key else file
    if not isinstance(raw, dict):
        raise ContractError(f"{where}: a mapping is wanted, not {type(raw).__name__}")
    unknown = sorted(raw.keys() - set(wanted) - set(optional))
    missing = sorted(set(wanted) - raw.keys())
    if unknown:
        raise ContractError(f"{where}: unknown key {unknown[0]!r}")
    if missing:
        raise ContractError(f"{where}: key {missing[0]!r} is missing")
    return raw


def _look_up(config: Mapping[str, Any], dotted: str) -> Any:
    value: Any = config
    for part in dotted.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _bind_dims(file: str, raw: Any, given: Mapping[str, int]) -> dict[str, int]:
    entries = {n: _fields(e, file, f"dims.{n}", ("value", "keys")) for n, e in raw.items()}
    unknown = sorted(given.keys() - entries.keys())
    if unknown:
        raise ContractError(
            f"{file}: dims: the family has no size {unknown[0]!r} (it has {', '.join(entries)})"
        )
    bound = {n: given.get(n, e["value"]) for n, e in entries.items()}
    for name, value in bound.items():
        if type(value) is not int or value < 1:
            raise ContractError(f"{file}: dims.{name}: {value!r} is not a positive integer")
    return bound


def _graph(
    file: str, name: str, raw: Any, dims: Mapping[str, int], chosen: Gears | None
) -> GraphSpec:
    key = f"graphs.{name}"
    raw = _fields(raw, file, key, _GRAPH)
    symbols = tuple(raw["symbols"])
    inputs = _tensors(file, f"{key}.inputs", raw["inputs"], dims, symbols)
    outputs = _tensors(file, f"{key}.outputs", raw["outputs"], dims, symbols)
    _check_symbols(file, key, raw["gear_kind"], symbols, inputs)
    gears = _gears(
        file, f"{key}.gears", raw["gear_kind"], symbols, raw["gears"] if chosen is None else chosen
    )
    graph = GraphSpec(name, inputs, outputs, symbols, gears, raw["gear_kind"], raw["atc"])
    for gear in gears:
        graph.input_shapes(gear)
        graph.output_shapes(gear)
    return graph


def _tensors(
    file: str, key: str, raw: Any, dims: Mapping[str, int], symbols: tuple[str, ...]
) -> tuple[TensorSpec, ...]:
    specs: list[TensorSpec] = []
    for index, entry in enumerate(raw):
        where = f"{key}[{index}]"
        entry = _fields(entry, file, where, ("name", "dtype", "shape"), ("repeat",))
        if entry["dtype"] not in (*ITEM_BYTES, "compute"):
            raise ContractError(f"{file}: {where}.dtype: {entry['dtype']!r} is not a dtype")
        try:
            shape = tuple(bind(dim, dims) for dim in entry["shape"])
            loose = sorted(frozenset().union(*map(symbols_of, shape)) - set(symbols))
            count = evaluate(entry.get("repeat", 1), dims)
        except ExpressionError as error:
            raise ContractError(f"{file}: {where}: {error}") from error
        if loose:
            raise ContractError(
                f"{file}: {where}.shape: symbol {loose[0]} has no gears and no size"
            )
        names = (
            [entry["name"].format(i=i) for i in range(count)]
            if "repeat" in entry
            else [entry["name"]]
        )
        specs += [TensorSpec(name, entry["dtype"], shape) for name in names]
    names = [spec.name for spec in specs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ContractError(f"{file}: {key}: {twice[0]} is named twice")
    return tuple(specs)


def _check_symbols(
    file: str, key: str, kind: str, symbols: tuple[str, ...], inputs: tuple[TensorSpec, ...]
) -> None:
    if kind not in ("dynamic_dims", *_AXES_OF_KIND):
        raise ContractError(f"{file}: {key}.gear_kind: {kind!r} is not a kind of gears")
    if len(symbols) != _AXES_OF_KIND.get(kind, max(1, len(symbols))):
        raise ContractError(
            f"{file}: {key}.symbols: {kind} has {_AXES_OF_KIND.get(kind, 'at least 1')} symbols"
        )
    used = {symbol for spec in inputs for dim in spec.shape for symbol in symbols_of(dim)}
    idle = sorted(set(symbols) - used)
    if idle:
        raise ContractError(f"{file}: {key}.symbols: no input has the symbol {idle[0]}")


def _gears(
    file: str, key: str, kind: str, symbols: tuple[str, ...], raw: Gears
) -> tuple[Mapping[str, int], ...]:
    if kind == "static":
        if raw:
            raise ContractError(f"{file}: {key}: a static graph has no gears")
        return ({},)
    if not MIN_GEARS <= len(raw) <= MAX_GEARS:
        raise ContractError(
            f"{file}: {key}: {len(raw)} gears, ATC takes {MIN_GEARS} to {MAX_GEARS}"
        )
    gears = [_gear(file, f"{key}[{index}]", symbols, gear) for index, gear in enumerate(raw)]
    for later in range(len(gears)):
        for earlier in range(later):
            if all(gears[later][s] <= gears[earlier][s] for s in symbols):
                raise ContractError(
                    f"{file}: {key}[{later}]: {dict(gears[later])} can never be chosen,"
                    f" [{earlier}] {dict(gears[earlier])} comes before it and fits as much"
                )
    return tuple(gears)


def _gear(
    file: str, key: str, symbols: tuple[str, ...], raw: Mapping[str, int] | Sequence[int]
) -> dict[str, int]:
    if isinstance(raw, Mapping):
        if raw.keys() != set(symbols):
            raise ContractError(f"{file}: {key}: {dict(raw)} does not give {', '.join(symbols)}")
        raw = [raw[symbol] for symbol in symbols]
    if len(raw) != len(symbols):
        raise ContractError(
            f"{file}: {key}: {len(raw)} numbers for the symbols {', '.join(symbols)}"
        )
    for size in raw:
        if type(size) is not int or size < 1:
            raise ContractError(f"{file}: {key}: {size!r} is not a positive integer")
    return dict(zip(symbols, raw, strict=True))


def _canonical(graph: GraphSpec) -> dict[str, Any]:
    return {
        "inputs": [[t.name, t.dtype, list(t.shape)] for t in graph.inputs],
        "outputs": [[t.name, t.dtype, list(t.shape)] for t in graph.outputs],
        "gears": [dict(gear) for gear in graph.gears],
        "kind": graph.gear_kind,
        "atc": dict(graph.atc),
    }
