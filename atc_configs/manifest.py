"""`manifest.json` of a bundle: which compiled files there are, for which chip and which contract,
and how they did.

The builder writes it, the runtime reads it; both through these values. Opens no compiled file.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from atc_configs.contract import Contract, ContractError, load_contract

MANIFEST_NAME = "manifest.json"
FORMAT = 1


class ManifestError(ContractError):
    """A folder that is not a bundle, or a bundle of another release; the message names file and
    remedy."""


@dataclass(frozen=True, slots=True)
class GraphFile:
    """One compiled graph. `file` is relative to the bundle; `size` in bytes; `command` the whole
    ATC call.

    kept: nodes that stay fp32 in an fp16 graph. parity: figures of the gate, e.g. {"cosine":
    0.9999, "max_abs": 1e-3}.
    """

    file: str
    sha256: str
    size: int
    onnx_sha256: str | None = None
    command: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    parity: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything that a runtime must know before it loads a file of the bundle.

    `digest` is the contract's; `dims` and `gears` (graph -> tuples in the order of its symbols)
    rebuild that contract. `parity_passed`: None while the gate has not been run. `files`: what else
    the bundle holds, by role ("tokenizer").
    """

    family: str
    digest: str
    precision: str
    dims: Mapping[str, int]
    gears: Mapping[str, tuple[tuple[int, ...], ...]]
    soc: str
    graphs: Mapping[str, GraphFile]
    cann: str | None = None
    atc: str | None = None
    parity_passed: bool | None = None
    model: str | None = None
    model_digest: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    licence: str | None = None
    format: int = FORMAT

    def contract(self) -> Contract:
        """The contract as this release has it. Raises ManifestError if the files were compiled from
        another one."""
        gears = {name: [list(gear) for gear in rows] for name, rows in self.gears.items() if rows}
        contract = load_contract(self.family, self.dims, gears, self.precision)
        if contract.digest != self.digest:
            raise ManifestError(
                f"the bundle was compiled from contract {self.digest[:12]}, this release has"
                f" {contract.digest[:12]}; compile it again: hyocr compile DIR --soc {self.soc}"
            )
        return contract

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return dataclasses.asdict(self)

    def write(self, bundle: Path) -> None:
        """Writes `manifest.json` in one step: a reader sees the old one or the whole new one."""
        partial = bundle / (MANIFEST_NAME + ".part")
        partial.write_text(json.dumps(self.to_dict(), indent=1, ensure_ascii=False) + "\n", "utf-8")
        partial.replace(bundle / MANIFEST_NAME)


def gears_of(contract: Contract) -> dict[str, tuple[tuple[int, ...], ...]]:
    """A contract's gears as a manifest holds them."""
    return {
        name: tuple(tuple(gear[s] for s in graph.symbols) for gear in graph.gears)
        if graph.symbols
        else ()
        for name, graph in contract.graphs.items()
    }


def read_manifest(bundle: str | Path) -> Manifest:
    """The manifest of a bundle folder. Raises ManifestError naming the file and what is wrong with
    it."""
    path = Path(bundle) / MANIFEST_NAME
    try:
        data = json.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise ManifestError(
            f"{bundle}: no {MANIFEST_NAME}, so this is no bundle (or one that was not finished);"
            " make one with `hyocr compile`"
        ) from error
    except (OSError, ValueError) as error:
        raise ManifestError(f"{path}: {error}") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        found = data.get("format") if isinstance(data, dict) else type(data).__name__
        raise ManifestError(f"{path}: format {found!r}, this release reads {FORMAT}; compile again")
    return _manifest(path, data)


def _manifest(path: Path, data: dict[str, Any]) -> Manifest:
    try:
        graphs = {name: _graph_file(entry) for name, entry in data.pop("graphs").items()}
        gears = {name: tuple(map(tuple, rows)) for name, rows in data.pop("gears").items()}
        return Manifest(graphs=graphs, gears=gears, **data)
    except (AttributeError, KeyError, TypeError) as error:
        raise ManifestError(f"{path}: not a manifest of this release: {error}") from error


def _graph_file(entry: Mapping[str, Any]) -> GraphFile:
    values = dict(entry)
    for name in ("command", "kept"):
        values[name] = tuple(values.get(name, ()))
    return GraphFile(**values)
