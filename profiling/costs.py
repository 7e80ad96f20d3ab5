"""What a graph does, counted: arithmetic, bytes moved and kernels of each step of HunyuanOCR's two
graphs by formula, from the model's sizes alone. `profiling.onnx_costs` counts the same from a file.

Axes: N patches, E vision hidden, B sequences, Q new rows, S cache rows, R rows whose logits are
wanted, C hidden, H heads, K kv heads, D head size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

Attention = Literal["blocked", "grouped"]

HALF, SINGLE = 2, 4  # bytes


@dataclass(frozen=True, slots=True)
class OpCost:
    """One operator, or `count` equal ones.

    cube, vector: operations of the matrix unit (a multiplication and an addition are two) and of
    the vector unit; weights: bytes of constants; must_move: bytes of graph inputs and outputs (the
    cache above all); between: bytes of intermediates read and written; largest: bytes of the
    largest of those. All for a single one. fused: a compiler may compute it inside the operator
    before it, so that `between` is not moved again."""

    name: str
    kind: str
    cube: float = 0.0
    vector: float = 0.0
    weights: float = 0.0
    must_move: float = 0.0
    between: float = 0.0
    largest: float = 0.0
    count: int = 1
    kernels: int = 1
    fused: bool = False

    @property
    def moved(self) -> float:
        """Bytes of everything that a single one reads and writes."""
        return self.weights + self.must_move + self.between


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """The sizes of one HunyuanOCR model; `query_blocks`: how many parts the export cuts the vision
    graph's queries into, so that N² scores never exist at once."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    vision_hidden: int
    vision_layers: int
    vision_heads: int
    vision_intermediate: int
    patch_width: int
    merge: int
    query_blocks: int = 4

    @property
    def kv_width(self) -> int:
        """K·D."""
        return self.kv_heads * self.head_dim

    @property
    def cache_row_bytes(self) -> int:
        """One token in all layers, keys and values, in fp16."""
        return 2 * self.layers * self.kv_width * HALF


def vision_costs(m: ModelSizes, patches: int) -> list[OpCost]:
    """The vision graph at a gear of `patches` (N)."""
    N, E, inner = patches, m.vision_hidden, m.vision_intermediate
    H, L = m.vision_heads, m.vision_layers
    block = N // m.query_blocks
    merged, wide = m.merge * m.merge * E, 2 * E
    costs = [
        _linear("patch_embedding", N, m.patch_width, E, must_move=N * m.patch_width * HALF),
        _pointwise("pos", N * E, reads=1, ops=1, must_move=N * E * HALF),
        *_repeat(L, _norm("norm", N * E), _norm("norm", N * E)),
        *_repeat(L, _linear("qkv_proj", N, E, 3 * E), _moved("split heads", 3 * N * E)),
        *_repeat(
            L * m.query_blocks,
            _product("scores", H, block, E // H, N, out=SINGLE),
            *_softmax("softmax", H * block * N),
            _product("mix", H, block, N, E // H),
        ),
        *_repeat(L, _linear("o_proj", N, E, E), _pointwise("residual", N * E, 2, 1)),
        *_repeat(
            L,
            _linear("mlp up", N, E, inner),
            _steps("gelu", N * inner, 22, 5, ops=12),
            _linear("mlp down", N, inner, E),
            _pointwise("residual", N * E, 2, 1),
        ),
        _norm("before_rms", N * E),
        _linear("merge", N // (m.merge * m.merge), merged, wide),
        _steps("gelu", N // (m.merge * m.merge) * wide, 22, 5, ops=12),
        _linear("project", N // (m.merge * m.merge), wide, m.hidden),
        _norm("after_rms", N // (m.merge * m.merge) * m.hidden),
        OpCost("content", "io", must_move=N // (m.merge**2) * m.hidden * HALF, kernels=0),
    ]
    return costs


def llm_costs(
    m: ModelSizes,
    batch: int,
    rows: int,
    cache: int,
    wanted: int,
    attention: Attention = "blocked",
) -> list[OpCost]:
    """The text graph at a gear (B, Q, S, R) = (batch, rows, cache, wanted).

    attention: how the cache is read. "blocked": one plain product for all heads, K times the
    arithmetic, the cache as it lies; "grouped": a product for each kv head, for which the compiler
    re-lays the cache (one copy of it, read and written)."""
    B, Q, S, C, D = batch, rows, cache, m.hidden, m.head_dim
    H, K, L, tokens = m.heads, m.kv_heads, m.layers, batch * rows
    side = B * S * m.kv_width * HALF  # one layer's keys, or its values
    scores = B * H * Q * S
    if attention == "blocked":
        wide = B * H * Q * m.kv_width
        past = [
            _pointwise("query blocks", wide, 1, 1),
            _product("past scores", B, H * Q, m.kv_width, S, SINGLE, must_move=side),
            *_softmax("past softmax", scores, spelled_out=True),
            _product("past mix", B, H * Q, S, m.kv_width, must_move=side),
            _pointwise("own block", wide, 1, 2),
        ]
    else:
        past = [
            OpCost("cache re-laid", "TransData", 0, 0, 0, 2 * side, between=2 * side, largest=side),
            _product("past scores", B * K, H // K * Q, D, S, SINGLE, must_move=side),
            *_softmax("past softmax", scores),
            _product("past mix", B * K, H // K * Q, S, D, must_move=side),
        ]
    chunk = [
        _product("chunk scores", B * K, H // K * Q, D, Q, SINGLE),
        *_softmax("chunk softmax", B * H * Q * Q, spelled_out=attention == "blocked"),
        _product("chunk mix", B * K, H // K * Q, Q, D),
        _pointwise("join", tokens * H * D, 2, 1),
    ]
    layer = [
        _norm("norm", tokens * C),
        _linear("qkv_proj", tokens, C, (H + 2 * K) * D),
        _steps("rotary", tokens * (H + K) * D, 40, 8),
        _norm("qk_norm", tokens * (H + K) * D),
        *past,
        *chunk,
        OpCost("new rows", "io", must_move=2 * tokens * m.kv_width * HALF, kernels=0),
        _linear("o_proj", tokens, H * D, C),
        _pointwise("residual", tokens * C, 2, 1),
        _norm("norm", tokens * C),
        _linear("gate_up_proj", tokens, C, 2 * m.intermediate),
        _steps("swiglu", tokens * m.intermediate, 20, 5),
        _linear("down_proj", tokens, m.intermediate, C),
        _pointwise("residual", tokens * C, 2, 1),
    ]
    return [
        OpCost("embeds", "io", must_move=tokens * (C * HALF + 2 * D * SINGLE), kernels=0),
        _moved("chunk mask", H // K * B * Q * Q, must_move=H // K * B * Q * Q * HALF),
        *_repeat(L, *layer),
        _product("select", B, wanted, Q, C),
        _norm("norm", B * wanted * C),
        _linear("head", B * wanted, C, m.vocab, must_move=B * wanted * m.vocab * SINGLE),
    ]


def vision_work_bytes(m: ModelSizes, patches: int) -> int:
    """Intermediates of the vision graph that live at once, at most: the scores of one query block
    twice in fp32 (before and after softmax), and the rows of one layer around them."""
    scores = m.vision_heads * (patches // m.query_blocks) * patches * SINGLE
    return 2 * scores + patches * m.vision_hidden * HALF * 9


def llm_work_bytes(m: ModelSizes, gears: Sequence[tuple[int, int, int, int]]) -> int:
    """The same of the text graph, at the gear (B, Q, S, R) that needs most."""

    def need(batch: int, rows: int, cache: int, wanted: int) -> int:
        scores = batch * m.heads * rows * (cache + rows) * SINGLE
        wide = batch * rows * m.heads * m.kv_width * HALF
        inner = batch * rows * 2 * m.intermediate * HALF
        return 2 * scores + max(2 * wide, 2 * inner) + batch * rows * m.hidden * HALF * 2

    return max(need(*gear) for gear in gears)


def weight_bytes(costs: Sequence[OpCost]) -> int:
    """Bytes of all constants of a graph."""
    return round(sum(cost.weights * cost.count for cost in costs))


def _repeat(count: int, *costs: OpCost) -> Iterator[OpCost]:
    for cost in costs:
        yield replace(cost, count=cost.count * count)


def _linear(name: str, rows: int, width: int, out: int, must_move: float = 0.0) -> OpCost:
    weights = float(width * out * HALF)
    between = (rows * width + rows * out) * HALF - must_move
    largest = rows * max(width, out) * HALF
    cube = 2.0 * rows * width * out
    return OpCost(
        name, "MatMul", cube, 0.0, weights, must_move, max(between, 0.0), largest
    )  # fmt: skip


def _product(
    name: str, batch: int, rows: int, inner: int, out_width: int, out: int = HALF,
    must_move: float = 0.0,
) -> OpCost:  # fmt: skip
    """(batch, rows, inner) x (batch, inner, out_width); must_move: the part of its operands that is
    an input of the graph."""
    operands = batch * (rows * inner + inner * out_width) * HALF
    result = batch * rows * out_width * out
    cube = 2.0 * batch * rows * inner * out_width
    between = max(operands - must_move, 0.0) + result
    return OpCost(name, "BatchMatMul", cube, 0.0, 0.0, must_move, between, result)


def _pointwise(
    name: str, elements: int, reads: int, ops: int, must_move: float = 0.0, item: int = HALF
) -> OpCost:
    between = elements * (reads + 1) * item - must_move
    return OpCost(
        name, "Elementwise", 0.0, float(elements * ops), 0.0, must_move, max(between, 0.0),
        elements * item, fused=True,
    )  # fmt: skip


def _steps(name: str, elements: int, bytes_each: int, kernels: int, ops: int = 6) -> OpCost:
    """Elementwise operators one behind the other, as the export spells them; bytes_each: what all
    of them read and write for one element."""
    return OpCost(
        name, "Elementwise", 0.0, float(elements * ops), 0.0, 0.0, float(elements * bytes_each),
        elements * SINGLE, kernels=kernels, fused=True,
    )  # fmt: skip


def _norm(name: str, elements: int) -> OpCost:
    """Cast, square, mean, root, two products and a cast, in fp32."""
    return _steps(name, elements, 36, 7)


def _moved(name: str, elements: int, must_move: float = 0.0) -> OpCost:
    between = 2.0 * elements * HALF - must_move
    return OpCost(name, "Move", 0.0, 0.0, 0.0, must_move, between, elements * HALF)


def _softmax(name: str, elements: int, spelled_out: bool = False) -> tuple[OpCost, ...]:
    """The mask added and the softmax in fp32, then fp16; exp counts as 8. spelled_out: maximum,
    difference, exp, sum and quotient as operators of their own."""
    size = elements * SINGLE
    rest = OpCost(name, "Softmax", 0.0, 10.0 * elements, 0.0, 0.0, elements * (SINGLE + HALF), size)
    bytes_each, kernels = (38, 7) if spelled_out else (22, 3)
    return rest, _steps(f"{name} steps", elements, bytes_each, kernels, ops=4)
