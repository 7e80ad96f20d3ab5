"""HunyuanOCR on the torch engine: equal to transformers, whatever the batch; and its files."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ascend.families import ReadRequest
from ascend.families.hunyuanocr import HunyuanOCR
from ascend.families.hunyuanocr_files import ModelFiles, open_files
from ascend.same_gears import SameGears
from atc_configs.contract import load_contract
from fallback.torch_engine import TorchEngine
from host_pipeline.page import Page
from host_pipeline.result import Result
from host_pipeline.tasks import TASKS
from tests.families.pages import draw_page


@pytest.fixture(scope="module")
def alone(checkpoint: Path) -> dict[int, Result]:
    family = HunyuanOCR.open(checkpoint, TorchEngine.open(checkpoint, "fp32", threads=1))
    results = {i: family.read(*job(i)) for i in range(6)}
    family.close()
    return results


def job(i: int) -> tuple[Page, ReadRequest]:
    sizes = ((64, 320), (96, 96), (320, 64), (160, 200), (90, 400), (33, 31))
    tasks = ("spotting", "doc_parse", "structured_parse", "table", "layout", "formula")
    page = draw_page(*sizes[i], rows=2, size=0.5)
    return page, ReadRequest(tasks[i], options={"max_tokens": 12 + 5 * i})


@pytest.mark.parametrize(
    "settings",
    [{"slots": 1, "chunk": 7}, {"slots": 3}, {"slots": 4, "chunk": 32}],
)
def test_threads_batches_and_chunks_change_no_answer(
    checkpoint: Path, alone: dict[int, Result], settings: dict[str, int]
) -> None:
    engine = TorchEngine.open(checkpoint, "fp32", threads=1)
    family = HunyuanOCR.open(checkpoint, engine, **settings)
    results: dict[int, Result] = {}

    def read(i: int) -> None:
        results[i] = family.read(*job(i))

    threads = [threading.Thread(target=read, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    family.close()
    assert {i: r.raw for i, r in results.items()} == {i: r.raw for i, r in alone.items()}
    assert all(results[i].usage["completion_tokens"] >= 1 for i in range(6))


def test_drafts_change_no_answer_of_the_torch_engine(
    checkpoint: Path, alone: dict[int, Result]
) -> None:
    engine = Drafting(TorchEngine.open(checkpoint, "fp32", threads=1))
    family = HunyuanOCR.open(checkpoint, engine)
    drafting = [family.read(*job(i)) for i in range(6)]
    family.close()
    assert [r.raw for r in drafting] == [alone[i].raw for i in range(6)]
    assert sum(r.usage["drafted_kept_tokens"] for r in drafting) > 0
    assert not any(r.usage["drafted_tokens"] for r in alone.values())  # on a CPU it does not pay


def test_a_fallback_shows_the_gears_of_a_bundle_but_for_drafts(checkpoint: Path) -> None:
    contract = load_contract("hunyuanocr")
    with TorchEngine.open(checkpoint, "fp32", threads=1) as engine:
        shown, every = SameGears(engine, contract).gears("llm"), contract.graph("llm").gears
    assert any(g["R"] > 1 for g in every)
    assert shown == tuple(g for g in every if g["R"] == 1)


class Drafting:
    """An engine with a gear for drafts."""

    def __init__(self, engine: TorchEngine) -> None:
        self._engine = engine

    def gears(self, graph: str) -> tuple[dict[str, int], ...] | None:
        rows = ((1, 1), (8, 8))
        llm = tuple({"B": 1, "Q": q, "S": 4096, "R": r} for q, r in rows)
        return llm if graph == "llm" else None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def test_a_page_equals_transformers_from_pixels_to_tokens(checkpoint: Path) -> None:
    """Native resizing, the maths that transformers implements, greedy with the official penalty."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from PIL import Image

    from tests.host_pipeline.test_prompt import reference_processor

    page, files = draw_page(180, 260), open_files(checkpoint)
    instruction = TASKS["spotting_hunyuan"].instruction
    parts = [{"type": "image"}, {"type": "text", "text": instruction}]
    messages = [{"role": "system", "content": ""}, {"role": "user", "content": parts}]
    processor = reference_processor(checkpoint)
    text = processor.apply_chat_template(messages, add_generation_prompt=True)
    image = Image.fromarray(page.pixels)
    given = processor(images=[image], text=[text], return_tensors="pt")
    model = transformers.HunYuanVLForConditionalGeneration.from_pretrained(checkpoint)
    with torch.inference_mode():
        out = model.generate(
            **given,
            do_sample=False,
            repetition_penalty=1.08,
            max_new_tokens=24,
            suppress_tokens=sorted(files.special.banned),
        )
    expected = out[0, given["input_ids"].shape[1] :].tolist()
    expected = [i for i in expected if i not in files.special.stop]
    family = HunyuanOCR.open(
        checkpoint, TorchEngine.open(checkpoint, "fp32", threads=1), rope="hf5", table="size"
    )
    options = {"resize": "native", "max_tokens": 24}
    result = family.read(page, ReadRequest("spotting", options=options))
    family.close()
    assert result.raw == files.tokenizer.decode(expected)
    assert result.usage["prompt_tokens"] == given["input_ids"].shape[1]


def test_a_folder_with_host_tables_gives_the_same_rows_without_the_checkpoint(
    checkpoint: Path, files: ModelFiles, tmp_path: Path
) -> None:
    from ascend.build.host_files import write_host_files
    from fallback.checkpoint import Checkpoint

    write_host_files(Checkpoint(checkpoint), tmp_path)
    exported = open_files(tmp_path)
    assert exported.special == files.special and exported.dims == files.dims
    for name in ("begin", "newline", "end", "position_table", "patch_bias"):
        assert np.array_equal(getattr(exported.tables, name), getattr(files.tables, name))
    ids = np.array([0, 5, 271, 5])
    assert np.array_equal(exported.tables.embed_rows(ids), files.tables.embed_rows(ids))


def test_neither_torch_nor_onnx_is_imported(checkpoint: Path) -> None:
    code = (
        "import sys; from pathlib import Path;"
        "from ascend.families.hunyuanocr import HunyuanOCR;"
        "from ascend.families.hunyuanocr_files import open_files;"
        f"open_files(Path({str(checkpoint)!r}));"
        "print([m for m in ('torch', 'onnx', 'onnxruntime', 'transformers') if m in sys.modules])"
    )
    root = Path(__file__).parents[2]
    out = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "[]"
