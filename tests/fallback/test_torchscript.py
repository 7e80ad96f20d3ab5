"""Packaged graphs: they load without our code, answer as the model does, and refuse what they
cannot be.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from fallback import torchscript
from fallback.checkpoint import Checkpoint
from fallback.errors import CheckpointNotFoundError, EngineUnavailableError, PackagedModelError
from fallback.torch_engine import TorchEngine
from fallback.torchscript import export_torch
from scripts.make_checkpoint import TINY, write_checkpoint
from tests.fallback.reference import TRAIN, greedy, make_prompt, prompt_inputs


@pytest.fixture(scope="module")
def packaged(tiny: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packaged")
    report = export_torch(tiny, folder, "torchscript", contract_digest="abc")
    assert {graph: entry["max_abs"] < 1e-4 for graph, entry in report.items()} == {
        "vision": True,
        "llm": True,
    }
    return folder


@pytest.fixture
def copied(packaged: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(packaged, tmp_path / "copy"))


def same_answer(folder: Path, tiny: Checkpoint) -> bool:
    tables = tiny.tables()
    prompt, answers = make_prompt(tables, (6, 8), (72, 105, 259), seed=3), []
    for model in (tiny, folder):
        with TorchEngine.open(model, "fp32", threads=1) as engine:
            inputs = prompt_inputs(engine, tables, prompt, TRAIN)
            answers.append(greedy(engine, tables, inputs, 12, TRAIN, chunk=10))
    assert np.abs(answers[0][1] - answers[1][1]).max() < 1e-4
    return answers[0][0] == answers[1][0]


def test_the_engine_reads_from_the_files_with_the_same_tokens(
    packaged: Path, tiny: Checkpoint
) -> None:
    assert same_answer(packaged, tiny)
    with TorchEngine.open(packaged / "llm.pt", threads=1) as engine:  # either file will do
        assert engine.settings["format"] == "torchscript"


def test_a_process_without_our_code_loads_and_runs_them(packaged: Path) -> None:
    program = (
        "import sys, torch, warnings; warnings.simplefilter('ignore')\n"
        "extra = {'hyocr.json': ''}\n"
        f"v = torch.jit.load({str(packaged / 'vision.pt')!r}, _extra_files=extra)\n"
        "out = v(torch.ones(8, 768), torch.ones(8, 48), torch.zeros(1, 8))\n"
        "assert not any(m.startswith('fallback') for m in sys.modules)\n"
        "print(tuple(out.shape), extra['hyocr.json'].decode())\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, cwd="/", timeout=120
    )
    assert done.returncode == 0, done.stderr
    shape, _, meta = done.stdout.partition(") ")
    described = json.loads(meta)
    assert shape == "(2, 64"
    assert described["contract"] == "abc"
    assert described["torch"] == torch.__version__
    assert described["config"]["model_type"] == "hunyuan_vl"


def test_scripting_keeps_the_loop_over_sequences(packaged: Path) -> None:
    """One file serves one sequence and several; a trace would have fixed the number."""
    with TorchEngine.open(packaged, threads=1) as engine:
        rng = np.random.default_rng(0)
        for b in (1, 3):
            cache = engine.kv_cache(b, 4)
            step = rng.standard_normal((b, 2, 64), np.float32)
            turned = np.ones((b, 2, 16), np.float32)
            logits = engine.extend(cache, 0, [2] * b, step, turned, turned, [[1]] * b)
            assert np.isfinite(logits).all() and logits.shape == (b, 1, TINY.text.vocab)


def test_a_replaced_file_is_another_model_when_opened_again(
    copied: Path, tiny: Checkpoint, tmp_path: Path
) -> None:
    write_checkpoint(tmp_path / "other", TINY, seed=99)
    export_torch(tmp_path / "other", copied, "torchscript")
    assert not same_answer_or_error(copied, tiny)
    assert same_answer(copied, Checkpoint(tmp_path / "other"))


def same_answer_or_error(folder: Path, tiny: Checkpoint) -> bool:
    try:
        return same_answer(folder, tiny)
    except AssertionError:
        return False


def rewrite_meta(path: Path, **changes: str) -> None:
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    name = next(n for n in entries if n.endswith("hyocr.json"))
    entries[name] = json.dumps(json.loads(entries[name]) | changes).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for entry, content in entries.items():
            archive.writestr(entry, content)


def test_a_file_of_another_torch_names_both_versions(copied: Path) -> None:
    rewrite_meta(copied / "llm.pt", torch="1.9.0+cpu")
    with pytest.raises(PackagedModelError) as caught:
        TorchEngine.open(copied)
    assert "written by torch 1.9.0+cpu" in str(caught.value)
    assert f"this is torch {torch.__version__}" in str(caught.value)


def test_files_of_different_models_foreign_and_missing_ones(copied: Path) -> None:
    with pytest.raises(EngineUnavailableError, match="holds fp32 weights; precision int8 needs"):
        TorchEngine.open(copied, "int8")
    rewrite_meta(copied / "llm.pt", config={"model_type": "hunyuan_vl"})
    with pytest.raises(PackagedModelError, match="were made from different models"):
        TorchEngine.open(copied)
    (copied / "llm.pt").write_bytes(b"not a zip")
    with pytest.raises(PackagedModelError, match="was not written by hyocr export"):
        TorchEngine.open(copied)
    (copied / "vision.pt").unlink()
    with pytest.raises(CheckpointNotFoundError, match=r"vision\.pt is missing"):
        TorchEngine.open(copied)


def test_a_file_that_answers_differently_is_not_left_behind(
    tiny: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torchscript, "BOUND", -1.0)  # nothing is near enough now
    with pytest.raises(
        PackagedModelError, match=r"vision.pt differs from the model by .* not written"
    ):
        export_torch(tiny, tmp_path, "torchscript")
    assert not list(tmp_path.iterdir())
    with pytest.raises(PackagedModelError, match="format 'onnx': one of torchscript, torch-export"):
        export_torch(tiny, tmp_path, "onnx")


@pytest.mark.slow
def test_torch_export_files_answer_as_the_model(tiny: Checkpoint, tmp_path: Path) -> None:
    export_torch(tiny, tmp_path, "torch-export")
    assert same_answer(tmp_path, tiny)
