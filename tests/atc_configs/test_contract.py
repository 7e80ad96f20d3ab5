"""What the contract files promise to export, ATC and the runtimes, and how mistakes are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import atc_configs
from atc_configs.contract import ContractError, dims_of_config, load_contract

TINY = {"C": 64, "H": 4, "K": 2, "D": 16, "L": 2, "V": 512, "E": 48}
FOLDER = Path(atc_configs.__file__).parent


def test_every_family_resolves_at_every_gear():
    for family in ("hunyuanocr", "ppocr"):
        for graph in load_contract(family).graphs.values():
            for gear in graph.gears:
                shapes = {**graph.input_shapes(gear), **graph.output_shapes(gear)}
                assert all(size > 0 for shape in shapes.values() for size in shape)


def test_layers_are_expanded_and_model_sizes_bound():
    llm = load_contract("hunyuanocr", TINY).graph("llm")
    assert [t.name for t in llm.inputs[6:]] == [
        "past_key.0", "past_key.1", "past_value.0", "past_value.1",
    ]  # fmt: skip
    assert llm.input_shapes({"B": 2, "Q": 1, "S": 16, "R": 1})["past_key.1"] == (2, 16, 32)
    assert llm.output_shapes({"B": 2, "Q": 3, "S": 16, "R": 1})["logits"] == (2, 1, 512)


def test_atc_strings_have_a_number_for_each_unknown():
    for family, name in [("hunyuanocr", "vision"), ("hunyuanocr", "llm"), ("ppocr", "rec")]:
        graph = load_contract(family).graph(name)
        unknown = graph.atc_input_shape().count("-1")
        rows = graph.atc_dynamic_dims().split(";")
        assert len(rows) == len(graph.gears)
        assert all(len(row.split(",")) == unknown for row in rows)


def test_atc_strings_of_each_kind():
    ppocr = load_contract("ppocr")
    assert ppocr.graph("det").atc_input_shape() == "image:1,3,-1,-1"
    assert ppocr.graph("det").atc_dynamic_dims().startswith("480,640;640,480;")
    assert ppocr.graph("cls").atc_dynamic_dims() == "1,4,8"
    vision = load_contract("hunyuanocr", TINY).graph("vision")
    assert vision.atc_input_shape() == "patches:-1,768;pos:-1,48;mask:1,-1"
    assert vision.atc_dynamic_dims().split(";")[0] == "1200,1200,1200"


def test_dynamic_dims_lists_every_dimension_of_every_input():
    vision = load_contract("hunyuanocr", TINY).graph("vision")
    assert vision.dynamic_dims({"N": 1200}) == [1200, 768, 1200, 48, 1, 1200]


def test_export_axes_name_only_what_differs():
    axes = load_contract("hunyuanocr", TINY).graph("vision").onnx_axes()
    assert axes == {
        "patches": {0: "N"}, "pos": {0: "N"}, "mask": {1: "N"}, "content": {0: "N/4"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "gear"),
    [
        ({"B": 1, "Q": 1, "S": 5, "R": 1}, (1, 1, 1024, 1)),
        ({"B": 1, "Q": 1, "S": 1025, "R": 1}, (1, 1, 2048, 1)),
        ({"B": 1, "Q": 335, "S": 0, "R": 1}, (1, 384, 16, 1)),
        ({"B": 1, "Q": 512, "S": 512, "R": 1}, (1, 512, 512, 1)),
        ({"B": 3, "Q": 1, "S": 900, "R": 1}, (4, 1, 2048, 1)),
        ({"B": 1, "Q": 4, "S": 3000, "R": 4}, (1, 8, 4096, 8)),
    ],
)
def test_the_cheapest_gear_that_fits_is_chosen(wanted, gear):
    chosen = load_contract("hunyuanocr").graph("llm").gear_for(**wanted)
    assert tuple(chosen[s] for s in "BQSR") == gear


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"S": 9000}, "S=9000 exceeds the largest gear S=8192.*compile with a larger gear"),
        ({"B": 4, "Q": 8}, "no gear has B=4, Q=8 together"),
        ({"X": 1}, "no gear symbol 'X'"),
    ],
)
def test_a_size_without_a_gear_is_told_with_the_limit_and_the_remedy(wanted, said):
    with pytest.raises(ContractError, match=said):
        load_contract("hunyuanocr").graph("llm").gear_for(**wanted)


def test_bytes_follow_the_precision():
    llm = load_contract("hunyuanocr").graph("llm")
    embeds, cos = llm.inputs[0], llm.inputs[1]
    gear = llm.gears[0]
    assert (embeds.nbytes(gear), embeds.nbytes(gear, "float32")) == (2048, 4096)
    assert cos.nbytes(gear, "float16") == cos.nbytes(gear, "float32") == 512


def test_host_to_device_bytes_of_one_token_stay_under_8_kb():
    llm = load_contract("hunyuanocr").graph("llm")
    for gear in (g for g in llm.gears if (g["B"], g["Q"]) == (1, 1)):
        sent = {t.name: t.nbytes(gear) for t in llm.inputs if not t.name.startswith("past_")}
        assert sum(sent.values()) + 2 <= 8192, gear  # one element of past_mask changes


def test_digest_follows_what_is_compiled_and_nothing_else(tmp_path):
    base = load_contract("ppocr")
    assert load_contract("ppocr").digest == base.digest
    assert load_contract("ppocr", gears={"cls": [[1], [2]]}).digest != base.digest
    assert load_contract("ppocr", precision="float32").digest != base.digest
    assert load_contract("hunyuanocr", TINY).digest != load_contract("hunyuanocr").digest
    other = yaml.safe_load((FOLDER / "ppocr.yaml").read_text("utf-8"))
    other["tasks"] = ["something"]
    assert load_contract(_write(tmp_path, other)).digest == base.digest


def test_sizes_come_from_a_nested_or_a_flat_config():
    text = {
        "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "num_hidden_layers": 2, "vocab_size": 512,
    }  # fmt: skip
    vision = {"hidden_size": 48}
    assert dims_of_config("hunyuanocr", {"text_config": text, "vision_config": vision}) == TINY
    assert dims_of_config("hunyuanocr", {**text, "vision_config": vision}) == TINY
    with pytest.raises(ContractError, match=r"dims.E: config.json has none of"):
        dims_of_config("hunyuanocr", text)


def _write(folder: Path, raw: Any) -> Path:
    path = folder / "other.yaml"
    path.write_text(yaml.safe_dump(raw), "utf-8")
    return path


def _det(raw: Any) -> Any:
    return raw["graphs"]["det"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda r: r.update(colour=1), "other.yaml: unknown key 'colour'"),
        (lambda r: r.pop("tasks"), "key 'tasks' is missing"),
        (lambda r: _det(r).update(kind=1), "graphs.det: unknown key 'kind'"),
        (lambda r: _det(r)["inputs"][0].update(a=1), r"graphs.det.inputs\[0\]: unknown key 'a'"),
        (lambda r: _det(r)["inputs"][0].update(dtype="half"), "'half' is not a dtype"),
        (lambda r: _det(r)["inputs"][0].update(shape=[1, "Z"]), "symbol Z has no gears"),
        (lambda r: _det(r)["inputs"][0].update(shape=["H", "W**2"]), "only integers, symbols"),
        (lambda r: _det(r)["inputs"][0].update(shape=[1, 3, "H", 5]), "no input has the symbol W"),
        (lambda r: _det(r)["inputs"].append(_det(r)["inputs"][0]), "image is named twice"),
        (lambda r: _det(r).update(symbols=["H", "W", "Z"]), "dynamic_image_size has 2"),
        (lambda r: _det(r).update(gear_kind="range"), "gear_kind: 'range'"),
        (lambda r: _det(r).update(gear_kind="static", symbols=[]), "symbol H has no gears"),
        (lambda r: _det(r).update(gears=[[32, 32]]), "1 gears, ATC takes 2 to 100"),
        (lambda r: _det(r).update(gears=[[i, 999 - i] for i in range(1, 102)]), "101 gears"),
        (lambda r: _det(r).update(gears=[[32, 32], [64]]), r"gears\[1\]: 1 numbers"),
        (lambda r: _det(r).update(gears=[[32, 32], [0, 64]]), "0 is not a positive integer"),
        (lambda r: _det(r).update(gears=[[32, 32], [32, 32]]), "can never be chosen"),
        (lambda r: _det(r).update(gears=[[64, 64], [32, 64]]), "can never be chosen"),
        (lambda r: r["graphs"]["rec"].update(gears=[[1, 320], [4, 321]]), "not divisible by 8"),
        (lambda r: r.update(precision="int4"), "precision 'int4'"),
    ],
)
def test_a_mistake_in_a_contract_names_file_and_key(change, said, tmp_path):
    raw = yaml.safe_load((FOLDER / "ppocr.yaml").read_text("utf-8"))
    change(raw)
    with pytest.raises(ContractError, match=said):
        load_contract(_write(tmp_path, raw))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: load_contract("soc"), "no contract for family 'soc'"),
        (lambda: load_contract("missing.yaml"), "missing.yaml: No such file"),
        (lambda: load_contract("hunyuanocr", {"Z": 1}), "no size 'Z'"),
        (lambda: load_contract("hunyuanocr", {"C": 0}), "dims.C: 0 is not a positive"),
        (lambda: load_contract("ppocr", gears={"ocr": [[1], [2]]}), "gears given for"),
        (lambda: load_contract("ppocr").graph("ocr"), "no graph 'ocr'.*det, rec, cls"),
    ],
)
def test_a_wrong_call_is_told(call, said):
    with pytest.raises(ContractError, match=said):
        call()


def test_a_file_that_is_not_yaml_is_named(tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text("a: [", "utf-8")
    with pytest.raises(ContractError, match=r"bad.yaml: not YAML"):
        load_contract(path)
