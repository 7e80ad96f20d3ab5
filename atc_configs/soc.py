"""The one reader of `soc.yaml`: what a chip has, what it lacks, and how sure each figure is."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

from atc_configs.fast_yaml import load_yaml
from atc_configs.graph_spec import ContractError

_FIGURES = ("memory_bytes", "bandwidth_range", "fp16_peak")
_CHIP_KEYS = {"like", "column", "budgets", *_FIGURES}
_CERTAINTIES = ("documented", "derived", "unsure")


@dataclass(frozen=True, slots=True)
class Soc:
    """One chip. `name` is ATC's --soc_version; `column` the chip family of CANN's operator tables.

    bandwidth_range in bytes/s (pessimistic, optimistic), fp16_peak in FLOP/s, int8_peak in OP/s;
    budgets: the largest `patches`, `cache_rows` and `slots` taken by default; sources and
    certainty: by figure.
    """

    name: str
    column: str
    run_mode: Literal["EP", "RC"]
    memory_bytes: int
    bandwidth_range: tuple[float, float]
    fp16_peak: float
    int8_peak: float
    lacks: tuple[str, ...]
    budgets: Mapping[str, int]
    sources: Mapping[str, str]
    certainty: Mapping[str, str]


def load_soc(name: str) -> Soc:
    """The chip that ATC calls `name`; the prefix "Ascend" may be left out.

    Raises ContractError with the nearest names, and for `Ascend910B`: to ATC the old 910.
    """
    raw = _load()
    spelled = {known.lower(): known for known in (*raw["chips"], "Ascend910B")}
    full = name if name.lower().startswith("ascend") else f"Ascend{name}"
    wanted = spelled.get(full.lower(), full)
    if wanted == "Ascend910B":
        raise ContractError(
            "soc Ascend910B: to ATC this is the old 910, not an Atlas A2; say Ascend910B1 to"
            " Ascend910B4 (the Name column of npu-smi info), or Ascend910A for the old one"
        )
    if wanted not in raw["chips"]:
        near = difflib.get_close_matches(wanted, raw["chips"], n=3, cutoff=0.6)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(raw['chips'])}"
        raise ContractError(
            f'soc {name!r} is unknown; {hint} ("Ascend" + the Name column of npu-smi info)'
        )
    return _soc(wanted, _merged(wanted, raw["chips"]), raw["columns"])


def soc_names() -> tuple[str, ...]:
    """Every chip that `load_soc` knows."""
    return tuple(_load()["chips"])


def _load() -> Any:
    return load_yaml(resources.files("atc_configs").joinpath("soc.yaml").read_text("utf-8"))


def _merged(name: str, chips: Mapping[str, Any]) -> dict[str, Any]:
    chip = dict(chips[name])
    unknown = sorted(chip.keys() - _CHIP_KEYS)
    if unknown:
        raise ContractError(f"soc.yaml: chips.{name}: unknown key {unknown[0]!r}")
    like = chip.pop("like", None)
    return {**_merged(like, chips), **chip} if like else chip


def _soc(name: str, chip: Mapping[str, Any], columns: Mapping[str, Any]) -> Soc:
    for figure in _FIGURES:
        if chip.get(figure, {}).get("certainty") not in _CERTAINTIES:
            raise ContractError(
                f"soc.yaml: chips.{name}.{figure}: certainty is none of {', '.join(_CERTAINTIES)}"
            )
    column = columns[chip["column"]]
    low, high = chip["bandwidth_range"]["value"]
    peak = float(chip["fp16_peak"]["value"])
    return Soc(
        name=name,
        column=chip["column"],
        run_mode=column["run_mode"],
        memory_bytes=chip["memory_bytes"]["value"],
        bandwidth_range=(float(low), float(high)),
        fp16_peak=peak,
        int8_peak=2 * peak,
        lacks=tuple(column["lacks"]),
        budgets=chip["budgets"],
        sources={figure: chip[figure]["source"] for figure in _FIGURES},
        certainty={figure: chip[figure]["certainty"] for figure in _FIGURES},
    )
