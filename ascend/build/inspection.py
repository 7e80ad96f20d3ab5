"""What one wants to know of a file or folder before using it: facts as a tree, offline.

Knows .om, .onnx, bundles, exported folders and HunyuanOCR checkpoints.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from ascend.build.om_file import OmFile, read_om
from ascend.errors import ModelError
from atc_configs.contract import Contract, GraphSpec
from atc_configs.manifest import MANIFEST_NAME, Manifest, read_manifest

Facts = dict[str, Any]


def inspect(path: str | Path) -> Facts:
    """The facts about a path; `kind` says what it is.

    Raises ModelError (OmFileError with ACL's code for a bad .om), or the errors of the contract
    and of checkpoints, for what is none of the known kinds or is damaged.
    """
    path = Path(path)
    if path.is_dir():
        return _folder(path)
    if not path.exists():
        raise ModelError(f"{path}: no such file or folder")
    if path.suffix == ".onnx":
        return _onnx(path)
    return _om(path)


def _folder(path: Path) -> Facts:
    from ascend.build.export import REPORT_NAME, read_export

    if (path / MANIFEST_NAME).is_file():
        return _bundle(path, read_manifest(path))
    if (path / REPORT_NAME).is_file():
        exported = read_export(path)
        return {
            "kind": "export",
            "family": exported.contract.family,
            "model": exported.model,
            "precision": exported.contract.precision,
            "contract": exported.contract.digest,
            "graphs": {
                name: {**_spec(exported.contract, spec), "parity": exported.graphs[name]["parity"]}
                for name, spec in exported.contract.graphs.items()
            },
        }
    if path.suffix == ".partial":
        raise ModelError(f"{path} is an unfinished bundle; run the same hyocr compile again")
    return _checkpoint(path)


def _bundle(path: Path, manifest: Manifest) -> Facts:
    contract = manifest.contract()
    graphs: Facts = {}
    for name, file in manifest.graphs.items():
        om = read_om(path / file.file)
        graphs[name] = {
            **_om_facts(om),
            "whole": om.size == file.size,
            **_spec(contract, contract.graph(name)),
            "kept_float32": list(file.kept),
            "parity": dict(file.parity),
        }
    return {
        "kind": "bundle",
        "family": manifest.family,
        "model": manifest.model,
        "soc": manifest.soc,
        "this_device": _this_device(manifest.soc),
        "precision": manifest.precision,
        "cann": manifest.cann,
        "atc": manifest.atc,
        "contract": manifest.digest,
        "parity_passed": manifest.parity_passed,
        "size_bytes": sum(p.stat().st_size for p in path.iterdir() if p.is_file()),
        "graphs": graphs,
        "files": dict(manifest.files),
        "licence": manifest.licence,
    }


def _om(path: Path) -> Facts:
    om = read_om(path)
    facts = {"kind": "om", "this_device": _this_device(om.soc_version), **_om_facts(om)}
    return facts | _from_command(om.command or "")


def _from_command(command: str) -> Facts:
    """Inputs, gears and precision as the model's own ATC call states them."""
    try:
        words = shlex.split(command)
    except ValueError:  # a quote that was cut with the text
        words = command.split()
    options = dict(word[2:].split("=", 1) for word in words if re.match(r"--\w+=", word))
    inputs = [part.rpartition(":") for part in options.get("input_shape", "").split(";") if part]
    gears = [name for name in options if name.startswith("dynamic_")]
    return {
        "precision_mode": options.get("precision_mode_v2") or options.get("precision_mode"),
        "inputs": [{"name": name, "shape": dims.split(",")} for name, _, dims in inputs],
        "gear_kind": gears[0] if gears else "static",
        "gears": options[gears[0]].split("," if gears[0] == "dynamic_batch_size" else ";")
        if gears
        else [],
    }


def _om_facts(om: OmFile) -> Facts:
    facts: Facts = {
        "file": om.path.name,
        "size_bytes": om.size,
        "container": f"IMOD {om.version:#x}, {om.model_type}",
        "shapes": "dynamic" if om.dynamic else "static or gears",
        "encrypted": om.encrypted,
        "soc": om.soc_version,
        "atc_version": om.atc_version,
        "weight_bytes": om.partition_bytes("weights"),
        "partitions": [
            {"kind": part.kind, "size_bytes": part.size} for model in om.models for part in model
        ],
        "command": om.command,
    }
    return facts | _from_toolkit(om.path)


def _from_toolkit(path: Path) -> Facts:
    """Work memory is only in the protobuf: asked of `atc`, if it is here and knows the file."""
    from ascend.build import atc

    try:
        information = atc.om_information(atc.find_atc(), path)
    except (atc.AtcNotFound, atc.AtcError):
        return {"work_bytes": None}
    return {"work_bytes": information.work_bytes}


def _this_device(soc: str | None) -> str:
    """Whether the chip of this machine is `soc`; says so where there is none."""
    from acl_runtime.binding import load
    from acl_runtime.errors import AclUnavailable

    try:
        have = load().soc_name()
    except AclUnavailable:
        return "no NPU runtime here"
    return f"{have}: {'matches' if have == soc else f'does not match {soc}'}"


def _spec(contract: Contract, spec: GraphSpec) -> Facts:
    rows = [
        {
            "name": tensor.name,
            "dtype": tensor.dtype_in(contract.precision),
            "shape": list(tensor.shape),
            "largest_bytes": max(tensor.nbytes(g, contract.precision) for g in spec.gears),
        }
        for tensor in (*spec.inputs, *spec.outputs)
    ]
    count = len(spec.inputs)
    return {
        "inputs": rows[:count],
        "outputs": rows[count:],
        "gear_kind": spec.gear_kind,
        "gears": [dict(gear) for gear in spec.gears],
    }


def _onnx(path: Path) -> Facts:
    import onnx

    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:  # protobuf and onnx raise several types of their own
        raise ModelError(f"{path}: not an ONNX file: {error}") from error
    graph = model.graph
    if not graph.node:
        raise ModelError(f"{path}: not an ONNX file, or one without nodes")
    external = path.with_name(f"{path.name}.data")
    weights = {tensor.name for tensor in graph.initializer}
    parameters = sum(prod(tensor.dims) for tensor in graph.initializer)
    return {
        "kind": "onnx",
        "file": path.name,
        "size_bytes": path.stat().st_size,
        "external_bytes": external.stat().st_size if external.exists() else 0,
        "opset": {entry.domain or "ai.onnx": entry.version for entry in model.opset_import},
        "producer": f"{model.producer_name} {model.producer_version}".strip(),
        "parameters": parameters,
        "inputs": [_value(v) for v in graph.input if v.name not in weights],
        "outputs": [_value(v) for v in graph.output],
        "operators": dict(Counter(node.op_type for node in graph.node).most_common()),
    }


def _value(value: Any) -> Mapping[str, Any]:
    import onnx

    tensor = value.type.tensor_type
    kind = onnx.TensorProto.DataType.Name(tensor.elem_type).lower()
    shape = [d.dim_value if d.HasField("dim_value") else d.dim_param for d in tensor.shape.dim]
    return {"name": value.name, "dtype": {"float": "float32"}.get(kind, kind), "shape": shape}


def _checkpoint(path: Path) -> Facts:
    from fallback.checkpoint import Checkpoint

    checkpoint = Checkpoint(path)
    infos = [checkpoint.info(name) for name in checkpoint.names()]
    dims = checkpoint.dims
    weights = sorted(path.glob("*.safetensors"))
    return {
        "kind": "checkpoint",
        "family": "hunyuanocr",
        "release": "1.5" if "text_config" in checkpoint.config else "1.0",
        "files": {file.name: file.stat().st_size for file in weights},
        "tensors": len(infos),
        "parameters": sum(prod(info.shape) for info in infos),
        "dtypes": dict(Counter(info.dtype for info in infos)),
        "text": {name: getattr(dims.text, name) for name in dims.text.__slots__},
        "vision": {name: getattr(dims.vision, name) for name in dims.vision.__slots__},
        "missing_companions": [
            name
            for name in ("tokenizer.json", "preprocessor_config.json", "generation_config.json")
            if not (path / name).is_file()
        ],
    }
