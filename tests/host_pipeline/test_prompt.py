"""The prompt equals the reference processor's, ids and all four position rows."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from host_pipeline.prompt import SpecialIds, build_prompt, find_special_ids
from host_pipeline.tasks import TASKS
from host_pipeline.tokenizer import Tokenizer, TokenizerError

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from scripts.make_checkpoint import TINY, write_checkpoint  # noqa: E402

# The released 1.5 model's ids (dumps of its real files).
OFFICIAL = SpecialIds(
    begin=120000,
    system_end=120021,
    image_start=120118,
    image=120120,
    image_end=120119,
    user_end=120006,
    stop=frozenset({120007, 120020}),
    banned=frozenset({120118, 120119, 120120, 120122, 120123, 120683}),
)
# The spotting and the document instruction in the real vocabulary.
SPOTTING = [5055, 951, 9977, 12858, 1843, 9738, 270, 934, 8433, 4699, 68216, 8287, 292]
DOCUMENT = [
    12161, 19177, 12858, 409, 49827, 16317, 1940, 474, 78338, 11971, 2598, 270, 2627, 6319, 19684,
    332, 6319, 5705, 2218, 19664, 270, 24784, 474, 13110, 11971, 4088, 270, 19177, 409, 4605, 474,
    36078, 11971, 2598, 270, 3802, 6169, 10264, 2297, 1170, 4134, 292,
]  # fmt: skip


@pytest.fixture(scope="module", params=["1.5", "1.0"])
def checkpoint(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    folder = tmp_path_factory.mktemp(f"checkpoint-{request.param}")
    write_checkpoint(folder, TINY, seed=1, release=request.param)
    return folder


def read_json(path: Path) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return parsed


def special_of(folder: Path) -> tuple[Tokenizer, SpecialIds]:
    tokenizer = Tokenizer(folder / "tokenizer.json")
    config, generation = (read_json(folder / f"{n}.json") for n in ("config", "generation_config"))
    return tokenizer, find_special_ids(tokenizer, config, generation)


def reference_processor(folder: Path) -> Any:
    from transformers import PreTrainedTokenizerFast
    from transformers.models.hunyuan_vl.image_processing_pil_hunyuan_vl import (
        HunYuanVLImageProcessorPil,
    )
    from transformers.models.hunyuan_vl.processing_hunyuan_vl import HunYuanVLProcessor

    named = "<｜hy_place▁holder▁no▁{}｜>"
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"),
        pad_token="<｜hy_▁pad▁｜>",
        extra_special_tokens={
            "image_start_token": named.format(100),
            "image_end_token": named.format(101),
            "image_token": named.format(102),
        },
    )
    template = (folder / "chat_template.jinja").read_text("utf-8")
    return HunYuanVLProcessor(HunYuanVLImageProcessorPil(), tokenizer, chat_template=template)


def reference_positions(ids: Any, kinds: Any, grid: Any) -> Any:
    from transformers.models.hunyuan_vl import modeling_hunyuan_vl as reference

    text = SimpleNamespace(rope_parameters={"mrope_section": [2, 2, 2, 2]})
    model = SimpleNamespace(
        config=SimpleNamespace(
            text_config=text, vision_config=SimpleNamespace(spatial_merge_size=2)
        )
    )
    cls = next(
        c for c in vars(reference).values() if isinstance(c, type) and "get_rope_index" in vars(c)
    )
    helper = cls.get_vision_position_ids
    model.get_vision_position_ids = lambda *a, **k: helper(model, *a, **k)
    return cls.get_rope_index(model, ids, kinds, image_grid_thw=grid)[0][:, 0]


@pytest.mark.parametrize("size", [(480, 640), (640, 480), (90, 1000)])
def test_every_task_equals_the_reference_processor(checkpoint: Path, size: tuple[int, int]) -> None:
    from PIL import Image

    tokenizer, special = special_of(checkpoint)
    processor = reference_processor(checkpoint)
    image = Image.new("RGB", (size[1], size[0]), "white")
    for task in TASKS.values():
        instruction = task.instruction_for(("姓名", "Total") if task.needs_fields else ())
        parts = [{"type": "image"}, {"type": "text", "text": instruction}]
        messages = [{"role": "system", "content": ""}, {"role": "user", "content": parts}]
        text = processor.apply_chat_template(messages, add_generation_prompt=True)
        given = processor(images=[image], text=[text], return_tensors="pt")
        grid_h, grid_w = given["image_grid_thw"][0, 1:].tolist()
        prompt = build_prompt(special, tokenizer.encode(instruction), grid_h, grid_w)
        assert prompt.token_ids.tolist() == given["input_ids"][0].tolist()
        rows = reference_positions(
            given["input_ids"], given["mm_token_type_ids"], given["image_grid_thw"]
        )
        assert np.array_equal(prompt.position_ids(), rows.numpy())


def test_no_system_turn_leaves_the_separator_out(checkpoint: Path) -> None:
    tokenizer, special = special_of(checkpoint)
    processor = reference_processor(checkpoint)
    parts = [{"type": "image"}, {"type": "text", "text": "x"}]
    text = processor.apply_chat_template([{"role": "user", "content": parts}])
    expected = processor.tokenizer(text, add_special_tokens=False)["input_ids"]
    prompt = build_prompt(special, tokenizer.encode("x"), 2, 2, system_ids=None)
    kept = [i for i in prompt.token_ids.tolist() if i != special.image]
    assert kept == [i for i in expected if i != special.image]
    assert special.system_end not in kept


@pytest.mark.parametrize(("instruction", "length"), [(SPOTTING, 335), (DOCUMENT, 364)])
def test_the_two_known_prompts_of_the_released_model(instruction: list[int], length: int) -> None:
    prompt = build_prompt(OFFICIAL, instruction, 30, 40)
    ids = prompt.token_ids.tolist()
    assert len(ids) == length
    assert ids[:3] == [120000, 120021, 120118]
    assert ids[3:320] == [120120] * 317
    assert ids[320:] == [120119, *instruction, 120006]
    p, w, h, t = prompt.position_ids()
    assert np.array_equal(p, np.arange(length))
    assert (w[3], h[3], t[3]) == (3, 3, 3)  # begin slot keeps its order
    assert (w[4], h[4], t[4]) == (0, 0, 0)
    assert (w[24], h[24], t[24]) == (20, 0, 0)  # newline slot of the first row
    assert (w[318], h[318], t[318]) == (20, 14, 0)
    assert w[319] == 319 and w[-1] == length - 1


def test_the_ids_of_a_checkpoint(checkpoint: Path) -> None:
    _, special = special_of(checkpoint)
    ids = TINY.tokens
    assert (special.begin, special.image) == (ids.bos, ids.image)
    assert (special.image_start, special.image_end) == (ids.image_start, ids.image_end)
    assert special.stop == {ids.eos, ids.eod}
    assert len(special.banned) == 6 and special.image in special.banned
    assert special.banned.isdisjoint(special.stop)


def test_the_tokenizer_of_another_model_is_refused(tmp_path: Path) -> None:
    from tokenizers import Tokenizer as Builder
    from tokenizers import models

    Builder(models.WordLevel({"a": 0}, unk_token="a")).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(TokenizerError, match=r"is it HunyuanOCR's\?"):
        find_special_ids(Tokenizer(tmp_path / "tokenizer.json"), {})
