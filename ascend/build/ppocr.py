"""The PP-OCRv6-small graphs that ship inside the wheel of `rapidocr`, made to fit the contract.

Detection, recognition (with the CTC best path inside the graph: 4 KB instead of 24 MB leave the
device for 8 lines) and line direction. Reading the finished files needs no `onnx`; making them
does.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ascend.errors import EngineUnavailable, ModelError
from atc_configs.contract import load_contract

if TYPE_CHECKING:
    import onnx

log = logging.getLogger(__name__)

# PaddleOCR's models, Apache-2.0, converted by RapidOCR; as in rapidocr 3.10.0.
_SOURCES = {
    "det": (
        "PP-OCRv6_det_small.onnx",
        "090f04abcd9d9a7498bc4ebf677e4cb9bdce1fe4197ddb7e529f1ef44e1ff94f",
    ),
    "rec": (
        "PP-OCRv6_rec_small.onnx",
        "6f327246b50388f3c176ae304bd95767ea6dc0c9ae92153ef8cbe210b3c14884",
    ),
    "cls": (
        "ch_ppocr_mobile_v2.0_cls_mobile.onnx",
        "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
    ),
}
# Reshapes whose target the files compute from the input's shape; 0 keeps an axis, -1 is the rest.
_RESHAPES = {
    "det": {},
    "rec": {"p2o.pd_op.flatten.0.0": [0, 0, -1], "p2o.pd_op.reshape.58.0": [0, 1, -1, 120]},
    "cls": {"reshape2_0.tmp_0": [-1, 200]},
}
# Change it when the rewriting below changes: it is part of the cache's name.
_REWRITE = "1"
CHARACTERS_NAME = "characters.txt"


def ppocr_graphs(models_dir: str | Path | None = None) -> dict[str, bytes]:
    """The contract's graph name -> ONNX bytes of `det`, `rec` and `cls`, fp32, sizes symbolic.

    models_dir: a folder with finished det.onnx, rec.onnx, cls.onnx (what `hyocr export ppocr`
    writes); None takes the wheel's files, through a cache in the user's cache folder.
    Raises ModelError for missing or other files, EngineUnavailable if `rapidocr` or, the first
    time, `onnx` is not installed.
    """
    folder = Path(models_dir) if models_dir is not None else _cached_folder()
    if folder is None:
        return {name: _rewritten(name).SerializeToString() for name in _SOURCES}
    graphs = {}
    for name in _SOURCES:
        path = folder / f"{name}.onnx"
        if not path.is_file():
            raise ModelError(f"{path}: no such file; `hyocr export ppocr -o {folder}` writes it")
        graphs[name] = path.read_bytes()
    return graphs


def ppocr_characters(models_dir: str | Path | None = None) -> tuple[str, ...]:
    """Class -> character of `rec`, 18,710 of them: 0 is the CTC blank (""), the last is a space."""
    folder = Path(models_dir) if models_dir is not None else _cached_folder()
    if folder is None:
        return _characters(_source_model("rec"))
    path = folder / CHARACTERS_NAME
    if not path.is_file():
        raise ModelError(f"{path}: no such file; `hyocr export ppocr -o {folder}` writes it")
    # Not splitlines(): the list may hold characters that Python takes for line ends.
    return tuple(path.read_text("utf-8").split("\n"))


def write_ppocr(folder: Path) -> None:
    """Writes det.onnx, rec.onnx, cls.onnx and characters.txt into `folder`, each file at once."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in _SOURCES:
        _write(folder / f"{name}.onnx", _rewritten(name).SerializeToString())
    characters = _characters(_source_model("rec"))
    _write(folder / CHARACTERS_NAME, "\n".join(characters).encode())


def _cached_folder() -> Path | None:
    """The folder of finished files, made if need be; None where nothing can be written."""
    key = hashlib.sha256(repr((_SOURCES, _RESHAPES, _REWRITE)).encode()).hexdigest()[:16]
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(root) / "hyocr" / f"ppocr-{key}"
    # characters.txt is written last, so that it stands for all of them.
    if (folder / CHARACTERS_NAME).is_file():
        return folder
    try:
        write_ppocr(folder)
    except OSError as error:
        log.warning("cannot keep the PP-OCR graphs in %s (%s): made anew each time", folder, error)
        return None
    return folder


def _rewritten(name: str) -> onnx.ModelProto:
    from ascend.build import onnx_rewrite as rewrite

    model = _source_model(name)
    rewrite.constants_to_initializers(model)
    rewrite.drop_identities(model)
    rewrite.explicit_padding(model)
    rewrite.constant_reshapes(model, _RESHAPES[name])
    rewrite.fold_constant_reshapes(model)
    if name == "rec":
        _add_best_path(model)
    rewrite.drop_unused(model)
    _declare(name, model)
    return model


def _add_best_path(model: onnx.ModelProto) -> None:
    """Replaces the probabilities (B, T, classes) by the best class and its probability (B, T).

    The class is taken of the logits: in fp16 many probabilities are the same number.
    """
    from onnx import TensorProto, helper

    graph = model.graph
    (softmax,) = [n for n in graph.node if n.output[0] == graph.output[0].name]
    logits, probabilities = softmax.input[0], softmax.output[0]
    graph.node.extend(
        [
            helper.make_node("ArgMax", [logits], ["best"], "best", axis=2, keepdims=0),
            helper.make_node("Cast", ["best"], ["ids"], "ids", to=TensorProto.INT32),
            helper.make_node(
                "ReduceMax", [probabilities], ["scores"], "scores", axes=[2], keepdims=0
            ),
        ]
    )
    del graph.output[:]
    graph.output.extend(
        [
            helper.make_tensor_value_info("ids", TensorProto.INT32, None),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, None),
        ]
    )


def _declare(name: str, model: onnx.ModelProto) -> None:
    """Names and shapes of the contract."""
    from ascend.build import onnx_rewrite as rewrite

    spec = load_contract("ppocr").graph(name)
    rewrite.declare_input(model, spec.inputs[0].name, spec.inputs[0].shape)
    outputs = [output.name for output in model.graph.output]
    for tensor, wanted in zip(outputs, spec.outputs, strict=True):
        rewrite.declare_output(model, tensor, wanted.name, wanted.shape)
    model.graph.name = name


def shipped_bytes(name: str) -> bytes:
    """The file as the wheel has it. Raises ModelError if it is another one."""
    file, sha256 = _SOURCES[name]
    data = _wheel_file(file).read_bytes()
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise ModelError(
            f"{file}: SHA-256 is {found[:12]}..., wanted {sha256[:12]}...;"
            " pip install --force-reinstall rapidocr==3.10.0"
        )
    return data


def as_contract(name: str, outputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The shipped graph's outputs in the contract's form (the best path of `rec`)."""
    (values,) = outputs.values()
    if name == "rec":
        return {"ids": values.argmax(-1).astype(np.int32), "scores": values.max(-1)}
    return {load_contract("ppocr").graph(name).outputs[0].name: values}


def _source_model(name: str) -> onnx.ModelProto:
    return _load(shipped_bytes(name))


def _wheel_file(file: str) -> Path:
    """The file in the installed wheel, found through its metadata: `rapidocr` is not imported."""
    try:
        entries = metadata.files("rapidocr") or []
    except metadata.PackageNotFoundError as error:
        raise EngineUnavailable(
            "the PP-OCR models are in the package rapidocr: pip install hunyuanocr-ascend[ppocr]"
        ) from error
    for entry in entries:
        if entry.name == file:
            return Path(str(entry.locate()))
    raise ModelError(f"rapidocr has no {file}; pip install rapidocr==3.10.0")


def _load(data: bytes) -> onnx.ModelProto:
    try:
        import onnx
    except ImportError as error:
        raise EngineUnavailable(
            "the first start rewrites the PP-OCR graphs and needs onnx: pip install onnx"
        ) from error
    return onnx.load_from_string(data)


def _characters(model: onnx.ModelProto) -> tuple[str, ...]:
    (listed,) = [p.value for p in model.metadata_props if p.key == "character"]
    return ("", *listed.split("\n"), " ")


def _write(path: Path, data: bytes) -> None:
    """The whole file or none: a second process may read or write the same folder."""
    handle, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(data)
        os.replace(partial, path)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise
