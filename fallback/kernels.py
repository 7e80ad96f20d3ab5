"""How weights lie in memory and multiply on the CPU: the precision profiles.

Every map takes and gives float32 activations. Which kernel is fast depends on the processor's
instructions, so the default profile is chosen from what PyTorch reports of it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fallback.errors import EngineUnavailableError
from fallback.hunyuanocr import MakeLinear, dense_linear

PRECISIONS = ("fp32", "bf16", "int8", "int4")


class Bf16Linear(nn.Module):
    """bfloat16 weights as they lie in the checkpoint's mapping: not copied when they are bf16 there.

    Few rows (decoding) are bound by memory and read the weights once in bf16; many rows are bound by
    arithmetic, which a processor without bf16 instructions does in float32 on a passing copy.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, native: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.to(torch.bfloat16), requires_grad=False)
        self.bias = None if bias is None else nn.Parameter(bias.float(), requires_grad=False)
        self.native = native

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        if rows.shape[0] == 1:
            with torch.backends.mkldnn.flags(enabled=False):
                y = F.linear(rows.to(torch.bfloat16), self.weight).float()
        elif self.native:
            y = F.linear(rows.to(torch.bfloat16), self.weight).float()
        else:
            y = F.linear(rows, self.weight.float())
        if self.bias is not None:
            y = y + self.bias
        return y.reshape(x.shape[:-1] + y.shape[-1:])


def has_bf16_instructions() -> bool:
    """Whether matrix products in bf16 run at full speed (AVX512-BF16 or AMX)."""
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def bf16_linear(weight: Tensor, bias: Tensor | None) -> nn.Module:
    return Bf16Linear(weight, bias, has_bf16_instructions())


def default_precision() -> str:
    return "bf16"


def linear_for(precision: str) -> tuple[MakeLinear, MakeLinear, MakeLinear]:
    """(text layers, vision, head): how each part's linear maps are made.

    Raises EngineUnavailableError for a precision that does not exist.
    """
    if precision == "fp32":
        return dense_linear, dense_linear, dense_linear
    if precision == "bf16":
        return bf16_linear, bf16_linear, bf16_linear
    raise EngineUnavailableError(
        f"precision {precision!r} does not exist: one of auto, {', '.join(PRECISIONS)}"
    )
