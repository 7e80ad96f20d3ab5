"""What is on this machine, as lines with a remedy each; the command `doctor` prints them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from acl_runtime.probe import Probe, probe

Status = Literal["ok", "missing", "warning"]

# distribution -> (what it is for, the extra that brings it)
_NEEDED = {
    "numpy": ("arrays", ""),
    "opencv-python-headless": ("picture geometry", ""),
    "pillow": ("picture formats", ""),
    "pypdfium2": ("PDF pages", ""),
    "tokenizers": ("HunyuanOCR's tokens", ""),
    "pyyaml": ("configuration", ""),
    "json-repair": ("JSON answers", ""),
}
_OPTIONAL = {
    "onnxruntime": ("the engine ort and the embedded reader", "ppocr"),
    "rapidocr": ("the embedded reader's model files", "ppocr"),
    "onnx": ("making and checking graphs", "ppocr"),
    "torch": ("the engine torch", "cpu"),
    "fastapi": ("hyocr serve", "serve"),
    "gradio": ("the web page of hyocr serve", "serve"),
    "mindspore": ("MindSpore", "mindspore"),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor: `remedy` is empty where nothing has to be done."""

    area: str
    name: str
    status: Status
    text: str
    remedy: str = ""


def examine(model: str | None = None) -> list[Finding]:
    """Every finding, in reading order. `model`: a folder of weights to look at as well. Opens no
    engine on a device and changes nothing."""
    return [*_python(), *_packages(), *_npu(probe()), *_engines(), *_models(model)]


def _python() -> Iterator[Finding]:
    fits = (3, 10) <= sys.version_info[:2] < (3, 15)
    text = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    remedy = "" if fits else "install Python 3.10 to 3.14"
    yield Finding("python", "version", "ok" if fits else "missing", text, remedy)
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield Finding("python", "cpus", "ok", f"{cpus} CPUs for this process")


def _packages() -> Iterator[Finding]:
    for needed, table in ((True, _NEEDED), (False, _OPTIONAL)):
        for name, (purpose, extra) in table.items():
            version = _version(name)
            if version is not None:
                yield Finding("packages", name, "ok", f"{name} {version}: {purpose}")
                continue
            target = f"'hunyuanocr-ascend[{extra}]'" if extra else name
            status: Status = "missing" if needed else "warning"
            text = f"{name} is not installed: {purpose}"
            yield Finding("packages", name, status, text, f"pip install {target}")


def _npu(found: Probe) -> Iterator[Finding]:
    if found.module is not None:
        stand_in = " (a stand-in, not an NPU)" if found.emulated else ""
        yield Finding("npu", "pyacl", "ok", f"pyACL module {found.module}{stand_in}")
        versions = f"chip {found.soc}, CANN {found.cann_version}, driver {found.driver_version}"
        yield Finding("npu", "chip", "ok" if found.soc else "warning", versions)
        for device in found.devices:
            gib = f"{device.memory_free / 2**30:.1f} of {device.memory_total / 2**30:.1f} GiB free"
            status: Status = "warning" if device.error else "ok"
            text = f"device {device.index}: {device.error or gib}"
            yield Finding("npu", f"device{device.index}", status, text)
    for problem in found.problems:
        yield Finding("npu", problem.code, "warning", problem.text, problem.remedy)


def _engines() -> Iterator[Finding]:
    for name, package, extra in (("ort", "onnxruntime", "ppocr"), ("torch", "torch", "cpu")):
        present = _is_importable(package)
        text = f"engine {name}: " + ("can be opened" if present else f"needs {package}")
        remedy = "" if present else f"pip install 'hunyuanocr-ascend[{extra}]'"
        yield Finding("engines", name, "ok" if present else "warning", text, remedy)


def _models(model: str | None) -> Iterator[Finding]:
    embedded = _version("rapidocr") is not None and _version("onnxruntime") is not None
    text = "embedded reader ppocr: " + ("ready" if embedded else "its files are not installed")
    remedy = "" if embedded else "pip install 'hunyuanocr-ascend[ppocr]'"
    yield Finding("models", "ppocr", "ok" if embedded else "warning", text, remedy)
    if model is None:
        yield Finding(
            "models", "weights", "warning", "no HunyuanOCR weights given",
            "get tencent/HunyuanOCR from Hugging Face or ModelScope after reading its licence: the "
            "Tencent Hunyuan Community License does not apply in the European Union, the United "
            "Kingdom and South Korea; then give the folder with --model",
        )  # fmt: skip
        return
    folder = Path(model)
    files = ("manifest.json", "config.json", "det.onnx", "llm.onnx")
    known = [f for f in files if (folder / f).is_file()]
    status: Status = "ok" if known else "missing"
    text = f"{model}: " + (f"has {', '.join(known)}" if known else "holds no model files")
    remedy = "" if known else "give a checkpoint, an exported folder or a bundle"
    yield Finding("models", "weights", status, text, remedy)


def _is_importable(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
