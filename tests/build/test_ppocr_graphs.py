"""The rewritten PP-OCR graphs give the numbers of the files they come from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ascend.build import ppocr
from ascend.errors import ModelError

ort = pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")
pytest.importorskip("rapidocr", reason="rapidocr's wheel holds the models")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ppocr")
    ppocr.write_ppocr(path)
    return path


def _run(model: bytes, name: str, x: np.ndarray) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return ort.InferenceSession(model, options).run(None, {name: x})


@pytest.mark.parametrize(
    ("name", "shape"),
    [("det", (1, 3, 96, 160)), ("cls", (1, 3, 48, 192)), ("cls", (3, 3, 48, 192))],
)
def test_outputs_equal_those_of_the_shipped_file(name, shape, folder):
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    (before,) = _run(ppocr._source_model(name).SerializeToString(), "x", x)
    (after,) = _run(ppocr.ppocr_graphs(folder)[name], "image", x)
    np.testing.assert_allclose(after, before, atol=1e-6)


@pytest.mark.parametrize("shape", [(1, 3, 48, 320), (3, 3, 48, 200)])
def test_best_path_is_that_of_the_shipped_probabilities(shape, folder):
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    (probabilities,) = _run(ppocr._source_model("rec").SerializeToString(), "x", x)
    ids, scores = _run(ppocr.ppocr_graphs(folder)["rec"], "image", x)
    assert ids.dtype == np.int32
    np.testing.assert_array_equal(ids, probabilities.argmax(-1))
    np.testing.assert_allclose(scores, probabilities.max(-1), atol=1e-5)


def test_characters_cover_every_class(folder):
    characters = ppocr.ppocr_characters(folder)
    (classes,) = {
        list(t.dims)[-1]
        for t in ppocr._rewritten("rec").graph.initializer
        if len(t.dims) == 1 and t.dims[0] > 18000
    }
    assert len(characters) == classes
    assert characters[0] == "" and characters[-1] == " "
    assert all(len(c) == 1 for c in characters[1:])


def test_no_op_is_left_whose_shape_depends_on_values(folder):
    for name, data in ppocr.ppocr_graphs(folder).items():
        ops = {node.op_type for node in onnx.load_from_string(data).graph.node}
        assert not ops & {"Shape", "Identity", "Constant", "If", "Loop", "NonZero"}, name


def test_second_start_reads_the_cache_and_needs_neither_onnx_nor_rapidocr(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = ppocr.ppocr_graphs()
    code = (
        "import sys; sys.modules['onnx'] = None; sys.modules['rapidocr'] = None\n"
        "from ascend.build.ppocr import ppocr_graphs, ppocr_characters\n"
        "print(sum(map(len, ppocr_graphs().values())), len(ppocr_characters()))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == [str(sum(map(len, first.values()))), "18710"]


def test_a_cache_that_cannot_be_written_costs_only_time(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    assert ppocr.ppocr_graphs().keys() == {"det", "rec", "cls"}


def test_a_changed_model_file_is_refused(tmp_path, monkeypatch):
    other = tmp_path / "det.onnx"
    other.write_bytes(b"other weights")
    monkeypatch.setattr(ppocr, "_wheel_file", lambda file: other)
    with pytest.raises(ModelError, match=r"SHA-256.*reinstall rapidocr"):
        ppocr.write_ppocr(tmp_path / "out")


def test_a_folder_without_graphs_names_the_command(tmp_path):
    with pytest.raises(ModelError, match="hyocr export ppocr"):
        ppocr.ppocr_graphs(tmp_path)
