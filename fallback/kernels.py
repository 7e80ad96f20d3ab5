"""How weights lie in memory and multiply on the CPU: the precision profiles.

    fp32   exact; 4 bytes a weight
    bf16   the checkpoint's own bytes, not copied; products in bf16 where the processor has them
    int8   8 bits: the image's maps per output channel, the llm's in blocks
    int4   the same, with the llm in 4 bits

The llm in 8 and 4 bits is `fallback.quantised_llm`; the maps here are all others. Every map takes
and gives float32 activations. Which kernel is fast depends on the processor's instructions; what
was measured stands at each class.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fallback.errors import EngineUnavailableError
from fallback.hunyuanocr import MakeLinear, dense_linear
from fallback.nbits import rows_at_once

PRECISIONS = ("fp32", "bf16", "int8", "int4")
BITS = {"int8": 8, "int4": 4}  # of the llm's weights

# Up to this many rows a bf16 product without bf16 instructions is read row by row: beyond it one
# float32 copy of the weights costs less (AVX2: 0.3 ms a row, 1.3 ms a copy for 4 M weights).
_ROWS_ONE_BY_ONE = 4

_QUIET = Lock()  # warnings' filters belong to the process, and models are built by several threads


class Bf16Linear(nn.Module):
    """bfloat16 weights as they lie in the checkpoint's mapping: not copied when they are bf16
    there.

    Few rows (decoding) are bound by memory and read the weights once in bf16; many rows are bound
    by arithmetic, which a processor without bf16 instructions does in float32 on a passing copy.
    """

    def __init__(self, weights: Sequence[Tensor], biases: Sequence[Tensor], native: bool) -> None:
        super().__init__()
        self.weights = [w.to(torch.bfloat16) for w in weights]
        self.bias = _joined(biases)
        self.native = native

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        if 0 < rows.shape[0] <= (1 if self.native else _ROWS_ONE_BY_ONE):
            single = torch.split(rows.to(torch.bfloat16), 1)
            with _without_onednn():
                parts = [torch.cat([F.linear(row, w) for row in single]) for w in self.weights]
        elif self.native:
            parts = [F.linear(rows.to(torch.bfloat16), w) for w in self.weights]
        else:
            parts = [F.linear(rows, w.float()) for w in self.weights]
        y = torch.cat(parts, -1) if len(parts) > 1 else parts[0]
        y = y.float() if self.bias is None else y.float() + self.bias
        return y.reshape(x.shape[:-1] + y.shape[-1:])


class Int8Linear(nn.Module):
    """Weights in 8 bits per output channel, activations in 8 bits per row, products in integers.

    PyTorch's kernel takes one scale for all rows: each row is divided by its largest value first,
    so that one loud row does not silence the others (relative error of the rest 0.94 without, 0.014
    with). The weights' scales are applied last: integers up to 2**24 come out of the kernel exact.
    """

    def __init__(self, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> None:
        super().__init__()
        codes, self.scale = _codes(weights)
        one, zero = torch.ones(len(codes), dtype=torch.double), torch.zeros(len(codes)).long()
        with (
            _QUIET,
            warnings.catch_warnings(),
        ):  # deprecated with no successor in 2.13, which is pinned
            warnings.filterwarnings("ignore", message=r".*quantized tensor")
            held = torch._make_per_channel_quantized_tensor(codes, one, zero, 0)
        # FBGEMM packs on one thread, 11 ns a weight: most of the time that opening a model takes.
        self.packed = torch.ops.quantized.linear_prepack(held, None)
        self.bias = _joined(biases)
        self.width = len(codes)
        # Without VNNI two 8-bit products meet in 16 bits: activations then keep 7 bits.
        self.seven_bits = not torch.cpu._is_vnni_supported()

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        # Two reductions: a third of the time of abs().amax(), a tenth of the infinity norm's.
        top = torch.maximum(rows.amax(-1, keepdim=True), -rows.amin(-1, keepdim=True))
        top = top.clamp_min_(1e-12)
        y = self._dynamic(rows / top).mul_(top)
        y = y.mul_(self.scale) if self.bias is None else torch.addcmul(self.bias, y, self.scale)
        return y.reshape(x.shape[:-1] + y.shape[-1:])

    def _dynamic(self, rows: Tensor) -> Tensor:
        try:
            y: Tensor = torch.ops.quantized.linear_dynamic(rows, self.packed, self.seven_bits)
        except RuntimeError:
            if torch.isfinite(rows).all():
                raise
            y = rows.new_full((len(rows), self.width), torch.nan)  # broken numbers stay visible
        return y


def _codes(weights: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """All rows in 8 bits (N, K) and their scales (N,)."""
    rows, width = sum(len(w) for w in weights), weights[0].shape[1]
    codes, scales = torch.empty(rows, width, dtype=torch.int8), torch.empty(rows)
    start = 0
    for weight in weights:
        for part in torch.split(weight, rows_at_once(width)):
            wide, stop = part.float(), start + len(part)
            scale = torch.maximum(wide.amax(1), -wide.amin(1)).div_(127).clamp_min_(1e-12)
            codes[start:stop] = (wide / scale[:, None]).round_()
            scales[start:stop] = scale
            start = stop
    return codes, scales


def _joined(biases: Sequence[Tensor]) -> Tensor | None:
    return torch.cat([b.float() for b in biases]) if biases else None


@contextmanager
def _without_onednn() -> Iterator[None]:
    """For one bf16 row oneDNN runs at a quarter of memory speed, PyTorch's own kernel at all of it.

    Not `torch.backends.mkldnn.flags`: it warns about TF32 whenever it is entered.
    """
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


def has_bf16_instructions() -> bool:
    """Whether matrix products in bf16 run at full speed (AVX512-BF16 or AMX)."""
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def default_precision() -> str:
    """int8 where its integer kernels exist (x86 with AVX2 and more), bf16 elsewhere.

    Its cost, on 48 slips of a small trained reader without VNNI (`bench.py cpu --accuracy`):
    character error 1.4 % as in fp32, bf16 and int4, and boxes the same; the answer equal to fp32's
    letter by letter and box by box on 45 slips (bf16 47, int4 29).
    """
    integer = torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")
    return "int8" if integer and "x86" in torch.backends.quantized.supported_engines else "bf16"


def linear_for(precision: str) -> MakeLinear:
    """How the linear maps are made that PyTorch multiplies.

    Raises EngineUnavailableError for a precision that does not exist.
    """
    native = has_bf16_instructions()
    made: dict[str, MakeLinear] = {
        "fp32": dense_linear,
        "bf16": lambda weights, biases: Bf16Linear(weights, biases, native),
        "int8": Int8Linear,
        "int4": Int8Linear,
    }
    if precision not in made:
        raise EngineUnavailableError(
            f"precision {precision!r} does not exist: one of auto, {', '.join(PRECISIONS)}"
        )
    return made[precision]
