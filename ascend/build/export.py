"""A checkpoint -> a folder of checked ONNX files, and what the host needs beside them.

Each graph is written beside its final name, compared with what it was made from at every gear, and
moved into place only if it is near enough: a file that is there has passed.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ascend.build import parity, ppocr
from ascend.build.digests import file_sha256
from ascend.build.sessions import open_session, runner
from ascend.errors import ModelError
from atc_configs.contract import Contract, GraphSpec, dims_of_config, load_contract
from atc_configs.graph_spec import ContractError
from atc_configs.manifest import gears_of

if TYPE_CHECKING:
    from fallback.checkpoint import Checkpoint

log = logging.getLogger(__name__)

REPORT_NAME = "export.json"
Say = Callable[[str], None]
Gears = Mapping[str, Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Exported:
    """What `export.json` of a folder says. parity: graph -> rows of {gear, figures}."""

    contract: Contract
    model: str
    model_digest: str | None
    files: Mapping[str, str]
    graphs: Mapping[str, Mapping[str, Any]]


def export_model(
    model: str | Path,
    folder: Path,
    *,
    precision: str | None = None,
    gears: Gears | None = None,
    parity_gears: Gears | None = None,
    keep: Sequence[str] = (),
    say: Say = log.info,
) -> Exported:
    """Writes the ONNX files of `model` (a HunyuanOCR folder, or "ppocr") and `export.json`.

    gears: other gears than the contract's; parity_gears: those to compare at (all by default).
    keep: nodes to compute in float32 in a float16 export (the audit's list).
    Raises ParityError for a graph outside its bound (the file is removed), a CheckpointError for
    an unusable checkpoint, OSError where the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / REPORT_NAME).unlink(missing_ok=True)  # it vouches for files that now change
    if str(model) == "ppocr":
        contract = load_contract("ppocr", gears=gears)
        graphs, files = _export_ppocr(contract, folder, parity_gears or {}, keep, say)
    else:
        contract, graphs, files = _export_hunyuanocr(
            Path(model), folder, precision, gears, parity_gears or {}, keep, say
        )
    exported = Exported(contract, Path(model).resolve().name, _model_digest(model), files, graphs)
    _write_report(folder, exported)
    return exported


def read_export(folder: str | Path) -> Exported:
    """What an exported folder holds. Raises ModelError if it is not one, or not by this release."""
    path = Path(folder) / REPORT_NAME
    try:
        raw = json.loads(path.read_text("utf-8"))
        contract = load_contract(raw["family"], raw["dims"], raw["gears"], raw["precision"])
        exported = Exported(
            contract, raw["model"], raw["model_digest"], raw["files"], raw["graphs"]
        )
    except FileNotFoundError as error:
        raise ModelError(
            f"{folder}: no {REPORT_NAME}, so this is no finished export; run hyocr export"
        ) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, ContractError):
            raise
        raise ModelError(f"{path}: not an export of this release: {error!r}") from error
    if raw["digest"] != contract.digest:
        raise ModelError(
            f"{folder} was exported for contract {raw['digest'][:12]}, this release has"
            f" {contract.digest[:12]}; export the model again"
        )
    return exported


def _export_hunyuanocr(
    model: Path,
    folder: Path,
    precision: str | None,
    gears: Gears | None,
    parity_gears: Gears,
    keep: Sequence[str],
    say: Say,
) -> tuple[Contract, dict[str, Mapping[str, Any]], dict[str, str]]:
    from ascend.build import trace
    from ascend.build.host_files import write_host_files
    from fallback.checkpoint import Checkpoint

    checkpoint = Checkpoint(model)
    dims = dims_of_config("hunyuanocr", checkpoint.config)
    contract = load_contract("hunyuanocr", dims, gears, precision)
    graphs: dict[str, Mapping[str, Any]] = {}
    for name, spec in contract.graphs.items():
        with _staged(folder) as stage:
            started = time.monotonic()
            say(f"{name}: tracing in {contract.precision}")
            path = trace.trace(checkpoint, contract, name, stage)
            kept = _keep_float32(path, keep)
            say(f"{name}: traced in {time.monotonic() - started:.0f} s; comparing with the module")
            rows = _measure(checkpoint, contract, spec, path, parity_gears.get(name), say)
            graphs[name] = _graph_report(path, rows, kept)
            parity.check(name, rows, parity.BOUNDS[contract.precision])
            _publish(stage, folder)
    return contract, graphs, write_host_files(checkpoint, folder)


def _measure(
    checkpoint: Checkpoint,
    contract: Contract,
    spec: GraphSpec,
    path: Path,
    gears: Sequence[Any] | None,
    say: Say,
) -> list[tuple[Mapping[str, int], parity.Figures]]:
    """The ONNX file on ONNX Runtime against the float32 module."""
    import torch

    from ascend.build import trace

    module = trace.build_module(checkpoint, spec.name)
    session = open_session(path)

    def reference(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        tensors = [torch.from_numpy(np.array(inputs[t.name], np.float32)) for t in spec.inputs]
        with torch.inference_mode():
            outputs = module(*trace.call_arguments(spec, tensors))
        flat = trace.flat_outputs(outputs)
        return {t.name: o.numpy() for t, o in zip(spec.outputs, flat, strict=True)}

    return parity.measure(
        spec, contract.precision, runner(session), reference, chosen_gears(spec, gears), say
    )


def _export_ppocr(
    contract: Contract, folder: Path, parity_gears: Gears, keep: Sequence[str], say: Say
) -> tuple[dict[str, Mapping[str, Any]], dict[str, str]]:
    graphs: dict[str, Mapping[str, Any]] = {}
    with _staged(folder) as stage:
        ppocr.write_ppocr(stage)
        for name, spec in contract.graphs.items():
            say(f"{name}: comparing with the shipped file")
            path = stage / f"{name}.onnx"
            rows = parity.measure(
                spec,
                "float32",
                runner(open_session(path)),
                _shipped(name),
                chosen_gears(spec, parity_gears.get(name)),
                say,
            )
            # These graphs are float32; ATC makes them float16 but for this list (--keep_dtype).
            graphs[name] = _graph_report(path, rows, _present(path, keep))
            parity.check(name, rows, parity.BOUNDS["float32"])
        _publish(stage, folder)
    return graphs, {"characters": ppocr.CHARACTERS_NAME}


def _shipped(name: str) -> parity.Run:
    """The wheel's own file, its outputs in the contract's form."""
    run = runner(open_session(ppocr.shipped_bytes(name)))
    return lambda inputs: ppocr.as_contract(name, run(inputs))


def chosen_gears(spec: GraphSpec, wanted: Sequence[Any] | None) -> list[Mapping[str, int]]:
    """`wanted` (tuples or mappings) as gears, or all of the graph's."""
    if wanted is None:
        return list(spec.gears)
    return [
        dict(gear) if isinstance(gear, Mapping) else dict(zip(spec.symbols, gear, strict=True))
        for gear in wanted
    ]


def _keep_float32(path: Path, keep: Sequence[str]) -> list[str]:
    """Rewrites the file so that the nodes of `keep` that it has are computed in float32; those."""
    present = _present(path, keep)
    if present:
        import onnx

        from ascend.build.half import keep_float32

        model = onnx.load(str(path), load_external_data=False)
        keep_float32(model, present)
        path.write_bytes(model.SerializeToString())
    return present


def _present(path: Path, names: Sequence[str]) -> list[str]:
    """Those of `names` that are nodes of the file: one list serves every graph of a family."""
    if not names:
        return []
    import onnx

    nodes = {node.name for node in onnx.load(str(path), load_external_data=False).graph.node}
    return [name for name in names if name in nodes]


def _graph_report(
    path: Path, rows: Sequence[tuple[Mapping[str, int], parity.Figures]], keep: Sequence[str]
) -> dict[str, Any]:
    return {
        "file": path.name,
        "sha256": graph_sha256(path),
        "kept": list(keep),
        "parity": parity.worst(figures for _, figures in rows).to_dict(),
        "gears": [{"gear": dict(gear), **figures.to_dict()} for gear, figures in rows],
    }


def graph_sha256(path: Path) -> str:
    """SHA-256 of a graph and, where it has them, its external weights."""
    return file_sha256(path, *(p for p in [path.with_name(f"{path.name}.data")] if p.exists()))


@contextmanager
def _staged(folder: Path) -> Iterator[Path]:
    """A folder inside `folder` that is gone at the end, whatever happened."""
    stage = Path(tempfile.mkdtemp(dir=folder, prefix=".partial-"))
    try:
        yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _publish(stage: Path, folder: Path) -> None:
    """Moves the files to where they belong; weights before the graphs that name them."""
    for path in sorted(stage.iterdir(), key=lambda p: p.suffix == ".onnx"):
        os.replace(path, folder / path.name)


def _model_digest(model: str | Path) -> str | None:
    """The digest that the family shows for a checkpoint; the wheel's files have fixed ones."""
    if str(model) == "ppocr":
        return None
    from ascend.families.hunyuanocr_files import digest_of

    return digest_of(Path(model))


def _write_report(folder: Path, exported: Exported) -> None:
    contract = exported.contract
    report = {
        "family": contract.family,
        "model": exported.model,
        "model_digest": exported.model_digest,
        "digest": contract.digest,
        "precision": contract.precision,
        "dims": dict(contract.dims),
        "gears": {name: rows for name, rows in gears_of(contract).items() if rows},
        "files": exported.files,
        "graphs": exported.graphs,
    }
    partial = folder / f"{REPORT_NAME}.part"
    partial.write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    partial.replace(folder / REPORT_NAME)
