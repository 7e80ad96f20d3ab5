"""The command line of `atc`: which options exist, what they accept, which exclude each other.

Rules: GE `docs/zh/user_guides/atc_tools/CLI_options` and the error table of CANN 8.1.RC1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from .atc_messages import AtcError
from .chips import CHIPS

Shape = tuple[int, ...]
_NAMES = """
help mode model weight om framework input_format input_shape input_shape_range
dynamic_batch_size dynamic_image_size dynamic_dims singleop output output_type check_report json
soc_version virtual_type
core_type aicore_num out_nodes input_fp16_nodes insert_op_conf op_name_map is_input_adjust_hw_layout
is_output_adjust_hw_layout disable_reuse_memory fusion_switch_file enable_scope_fusion_passes
enable_single_stream ac_parallel_enable enable_small_channel enable_compress_weight
compress_weight_conf compression_optimize_conf buffer_optimize sparsity mdl_bank_path op_bank_path
precision_mode precision_mode_v2 op_precision_mode modify_mixlist op_select_implmode
optypelist_for_implmode keep_dtype customize_dtypes auto_tune_mode op_debug_level debug_dir
op_compiler_cache_mode op_compiler_cache_dir display_model_info shape_generalized_build_mode
status_check op_debug_config atomic_clean_policy external_weight deterministic deterministic_level
jit_compile host_env_os host_env_cpu log dump_mode is_weight_clip oo_level oo_constant_folding
oo_dead_code_elimination topo_sorting_mode cluster_config device_id model_relation_config
distributed_cluster_build shard_model_dir enable_graph_parallel graph_parallel_option_path
quant_dumpable tiling_schedule_optimize allow_hf32 input_hint_shape export_compile_stat
multi_stream_parallel_mode hccl_sub_comm_config h2d_overlapped_with_compute optimization_switch
"""
OPTIONS = frozenset(_NAMES.split())
FRAMEWORKS = {"0": "Caffe", "1": "MindSpore", "3": "TensorFlow", "5": "ONNX"}
V2_MODES = ("fp16", "origin", "cube_fp16in_fp32out", "mixed_float16", "mixed_bfloat16",
            "mixed_hif8", "cube_hif8")  # fmt: skip
V1_MODES = ("force_fp32", "force_fp16", "cube_fp16in_fp32out", "allow_fp32_to_fp16",
            "must_keep_origin_dtype", "allow_mix_precision", "allow_mix_precision_fp16",
            "allow_mix_precision_bf16")  # fmt: skip
_NEEDS_A2 = ("mixed_bfloat16", "allow_mix_precision_bf16")
_NEEDS_950 = ("mixed_hif8", "cube_hif8")
_SAMPLE = "input_name1:n1,c1,h1,w1;input_name2:n2,c2,h2,w2"
MIN_GEARS, MAX_GEARS = 2, 100
GEAR_OPTIONS = ("dynamic_batch_size", "dynamic_image_size", "dynamic_dims")


class UnknownOption(Exception):
    """An option that does not exist; the parser of flags ends the program."""


def parse_arguments(arguments: list[str]) -> dict[str, str]:
    """`--name=value` or `--name value`. Raises UnknownOption, AtcError E10004/E10054."""
    options: dict[str, str] = {}
    index = 0
    while index < len(arguments):
        argument = arguments[index]
        if not argument.startswith("--"):
            raise AtcError("E10054", argument)
        name, equals, value = argument[2:].partition("=")
        if name not in OPTIONS:
            raise UnknownOption(name)
        if not equals and name not in ("help", "display_model_info"):
            index += 1
            if index >= len(arguments) or arguments[index].startswith("--"):
                raise AtcError("E10004", name)
            value = arguments[index]
        options[name] = value
        index += 1
    return options


@dataclass(frozen=True, slots=True)
class InputShape:
    """--input_shape: dims by input, -1 on dynamic axes; `ranges` where n1~n2 was written."""

    shapes: dict[str, Shape]
    ranges: dict[str, list[list[int]]]

    @property
    def dynamic(self) -> list[str]:
        """Inputs with a -1."""
        return [name for name, shape in self.shapes.items() if -1 in shape]


def _dim(text: str, whole: str) -> tuple[int, list[int]]:
    low, tilde, high = text.partition("~")
    try:
        if tilde:
            return -1, [int(low), int(high)]
        value = int(text)
    except ValueError:
        reason = f"[{text}] is not a number."
        raise AtcError("E10002", whole, reason, _SAMPLE) from None
    if value == 0 or value < -1:
        raise AtcError("E10011", whole, value)
    return value, ([1, -1] if value == -1 else [value, value])


def parse_input_shape(text: str) -> InputShape:
    """Raises AtcError E10002 or E10011."""
    shapes: dict[str, Shape] = {}
    ranges: dict[str, list[list[int]]] = {}
    for part in filter(None, text.split(";")):
        name, colon, dims = part.rpartition(":")
        if not colon or not name:
            raise AtcError("E10002", text, "the input name or the dims are missing.", _SAMPLE)
        pairs = [_dim(dim.strip(), text) for dim in dims.split(",")] if dims.strip() else []
        shapes[name] = tuple(value for value, _ in pairs)
        if "~" in dims:
            ranges[name] = [pair for _, pair in pairs]
    return InputShape(shapes, ranges)


def _numbers(text: str, option: str) -> Shape:
    try:
        return tuple(int(number) for number in text.split(","))
    except ValueError:
        if option == "dynamic_image_size":
            raise AtcError("E10020", text) from None
        raise AtcError("E10014", text, option) from None


def parse_gears(options: dict[str, str]) -> tuple[str, tuple[Shape, ...]]:
    """(kind, gears) from the three options. Raises AtcError E10009, E10020, E10035 to E10039."""
    given = [name for name in (*GEAR_OPTIONS, "input_shape_range") if options.get(name)]
    if len(given) > 1:
        raise AtcError("E10009")
    if not given or given[0] == "input_shape_range":
        return "static", ()
    option = given[0]
    text = options[option]
    if option == "dynamic_batch_size":
        gears: list[Shape] = [(number,) for number in _numbers(text, option)]
    else:
        gears = [_numbers(part, option) for part in text.strip(";").split(";")]
    if option == "dynamic_image_size" and any(len(gear) != 2 for gear in gears):
        raise AtcError("E10020", text)
    if len(gears) < MIN_GEARS:
        raise AtcError("E10035", len(gears), MIN_GEARS)
    if len(gears) > MAX_GEARS:
        raise AtcError("E10036", len(gears), MAX_GEARS)
    for gear in gears:
        if len(gear) != len(gears[0]):
            raise AtcError("E10037", len(gears[0]), len(gear))
        for dim in gear:
            if dim <= 0:
                raise AtcError("E10038", dim)
    if len(set(gears)) != len(gears):
        raise AtcError("E10039")
    kind = {"dynamic_batch_size": "batch", "dynamic_image_size": "image", "dynamic_dims": "dims"}
    return kind[option], tuple(gears)


def check_gears(kind: str, gears: tuple[Shape, ...], shape: InputShape, layout: str) -> None:
    """The rules between gears and --input_shape. Raises AtcError."""
    if kind == "static":
        return
    dynamic = shape.dynamic
    if not dynamic or shape.ranges:
        if kind == "batch" and not shape.ranges and shape.shapes:
            raise AtcError("E10031")
        raise AtcError("E10040")
    if kind == "batch":
        for name in dynamic:
            dims = shape.shapes[name]
            if dims[0] != -1 or -1 in dims[1:]:
                raise AtcError("E10018", ",".join(map(str, dims)), dims.index(-1))
    elif kind == "image":
        if layout not in ("NCHW", "NHWC"):
            raise AtcError("E10003", layout, "input_format",
                           "dynamic_image_size needs NCHW or NHWC.")  # fmt: skip
        axes = (2, 3) if layout == "NCHW" else (1, 2)
        for name in dynamic:
            dims = shape.shapes[name]
            if len(dims) != 4 or any((dims[axis] == -1) != (axis in axes) for axis in range(4)):
                raise AtcError("E10019")
    else:
        if layout != "ND":
            raise AtcError("E10003", layout, "input_format",
                           "must be ND when dynamic_dims is configured.")  # fmt: skip
        holes = sum(dims.count(-1) for dims in shape.shapes.values())
        if any(shape.shapes[name].count(-1) > len(gears[0]) for name in dynamic):
            raise AtcError("E10045")
        if holes > len(gears[0]):
            raise AtcError("E10046")
        if holes < len(gears[0]):
            text = ";".join(",".join(map(str, gear)) for gear in gears)
            reason = f"each profile must have {holes} dims, one per -1 in input_shape."
            raise AtcError("E10003", text, "dynamic_dims", reason)


def check_required(options: dict[str, str]) -> None:
    """--model, --framework, --output, --soc_version and their values."""
    if not options.get("model"):
        raise AtcError("E10004", "model")
    if options.get("framework") not in FRAMEWORKS:
        if "framework" not in options:
            raise AtcError(
                "E10007", "framework", "0(Caffe) or 1(MindSpore) or 3(TensorFlow) or 5(Onnx)"
            )
        raise AtcError(
            "E10007", "framework", "0(Caffe) or 1(MindSpore) or 3(TensorFlow) or 5(Onnx)"
        )
    if not options.get("output"):
        raise AtcError("E10004", "output")
    if not options.get("soc_version"):
        raise AtcError("E10004", "soc_version")
    if options["soc_version"] not in CHIPS:
        raise AtcError("E10001", options["soc_version"], "soc_version",
                       f"The value must be one of [{', '.join(CHIPS)}].")  # fmt: skip
    if options["output"].endswith("/") or not Path(options["output"]).name:
        raise AtcError("E10022", options["output"], "output")


def precision_of(options: dict[str, str]) -> str:
    """The precision mode. Raises AtcError E10047 or E10001."""
    if options.get("precision_mode") and options.get("precision_mode_v2"):
        raise AtcError("E10047", "precision_mode", "precision_mode_v2")
    old = options.get("precision_mode")
    mode = options.get("precision_mode_v2") or old or "fp16"
    option, known = ("precision_mode", V1_MODES) if old else ("precision_mode_v2", V2_MODES)
    if mode not in known:
        raise AtcError("E10001", mode, option, f"The value must be one of [{', '.join(known)}].")
    short = CHIPS[options["soc_version"]].short
    if mode in _NEEDS_950 or (mode in _NEEDS_A2 and short != "910B"):
        raise AtcError("E10001", mode, option, f"{options['soc_version']} does not support it.")
    return "fp16" if mode == "force_fp16" else mode


_CHOICES = {
    "log": ("debug", "info", "warning", "error", "null"),
    "input_format": ("NCHW", "NCDHW", "ND"),
    "buffer_optimize": ("l1_optimize", "l2_optimize", "off_optimize"),
    "op_compiler_cache_mode": ("enable", "force", "disable"),
    "external_weight": ("0", "1", "2"),
    "is_weight_clip": ("0", "1"),
    "deterministic": ("0", "1"),
    "enable_small_channel": ("0", "1"),
    "virtual_type": ("0", "1"),
    "oo_level": ("O1", "O2", "O3"),
}
_FILES = ("keep_dtype", "op_precision_mode", "insert_op_conf", "fusion_switch_file",
          "modify_mixlist", "compression_optimize_conf", "customize_dtypes")  # fmt: skip
_OUTPUT_TYPE = re.compile(r"^(FP32|FP16|UINT8|INT8)$|^[^:;]+:\d+:(FP32|FP16|UINT8|INT8)(;.+)?$")


def check_values(options: dict[str, str]) -> None:
    """Single-option rules. Raises AtcError."""
    for option, choices in _CHOICES.items():
        value = options.get(option)
        if value is None or value in choices:
            continue
        if option == "log":
            raise AtcError("E10010", value)
        raise AtcError("E10001", value, option, f"The value must be one of [{', '.join(choices)}].")
    for option in _FILES:
        value = options.get(option)
        if value is not None and not Path(value).is_file():
            raise AtcError("E10410", value)
    kind = options.get("output_type")
    if kind is not None and not _OUTPUT_TYPE.match(kind):
        raise AtcError(
            "E10001", kind, "output_type", "The value must be FP32, FP16, UINT8 or INT8."
        )
    if options.get("insert_op_conf") and options.get("dynamic_dims"):
        raise AtcError("E10047", "insert_op_conf", "dynamic_dims")
    if options.get("op_select_implmode") and options.get("op_precision_mode"):
        raise AtcError("E10047", "op_select_implmode", "op_precision_mode")
