"""Feeds HunyuanOCR's two graphs: what the vision graph sees, and the rows of prompt and answer.

Axes: N patches, E vision hidden, S prompt tokens, n tokens, C hidden, D head size.
Used by one thread at a time, the one that drives the engine.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ascend.engines import Array, Engine
from ascend.errors import UsageError
from ascend.families.hunyuanocr_files import ModelFiles
from ascend.ticket import PromptRows
from host_pipeline import positions
from host_pipeline.patches import make_patches
from host_pipeline.positions import RopeLayout, TableMode
from host_pipeline.prompt import Prompt
from profiling.spans import span

# Additive mask of padding patches: finite in fp16, see the contract.
_MASKED = -1e4
# Position tables of the grids seen last: 5 MB each at 1200 patches; pages mostly share one.
_GRIDS = 4


class HunyuanInputs:
    """The host side of one model on one engine; `TokenInputs` of the scheduler.

    rope, table: the two disputed pieces of maths, see `host_pipeline.positions`."""

    def __init__(
        self,
        engine: Engine,
        files: ModelFiles,
        *,
        capacity: int,
        rope: RopeLayout = "train",
        table: TableMode = "scale",
    ) -> None:
        text = files.dims.text
        self._engine, self._files = engine, files
        self._rope, self._table = rope, table
        self._frequencies = positions.inv_freq(text.rope_theta, text.rope_alpha, text.head_dim)
        # After the image all four axes count on together, so one table serves every decode step.
        self._cos, self._sin = self._rotary(positions.position_ids(capacity))
        self._grids: OrderedDict[tuple[int, int], NDArray[np.float32]] = OrderedDict()
        self._gears = sorted(gear["N"] for gear in engine.gears("vision") or ())

    def embed(self, token_ids: Sequence[int] | NDArray[np.int32]) -> NDArray[np.float32]:
        """Rows (n, C) of the mapped embedding table."""
        return self._files.tables.embed_rows(token_ids)

    def rotary(self, start: int, count: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """cos, sin (count, D) of text positions."""
        rows = slice(start, start + count)
        return self._cos[rows], self._sin[rows]

    def prompt_rows(self, prompt: Prompt, canvas: NDArray[np.uint8]) -> PromptRows:
        """Run the vision graph on `canvas` (H, W, 3) and lay the prompt's rows out, image rows
        copied on the engine's side."""
        with span("patches"):
            inputs = self._vision_inputs(prompt, canvas)
        with span("vision"):
            content = self._engine.run("vision", inputs)["content"]
            embeds = self._lay_out(prompt, content)
        cos, sin = self._rotary(prompt.position_ids())
        return PromptRows(embeds, cos, sin)

    def _vision_inputs(
        self, prompt: Prompt, canvas: NDArray[np.uint8]
    ) -> dict[str, NDArray[np.float32]]:
        rule, used = self._files.patches, prompt.grid_h * prompt.grid_w
        vision = self._files.dims.vision
        count = self._padded(used)
        patches = np.zeros((count, vision.patch_width), np.float32)
        patches[:used] = make_patches(
            canvas,
            patch=vision.patch,
            merge=vision.merge,
            mean=rule.mean,
            std=rule.std,
            rescale=rule.rescale,
        )
        pos = np.zeros((count, vision.hidden), np.float32)
        pos[:used] = self._position_rows(prompt.grid_h, prompt.grid_w)
        mask = np.full((1, count), _MASKED, np.float32)
        mask[0, :used] = 0
        return {"patches": patches, "pos": pos, "mask": mask}

    def _lay_out(self, prompt: Prompt, content: Array) -> Array:
        """The prompt's rows (S, C) in the engine's memory: everything but the content rows in one
        upload, then one copy for each row of the grid."""
        tables = self._files.tables
        rows = self.embed(prompt.token_ids)
        across = prompt.grid_w // prompt.merge
        first, last = prompt.image_start, prompt.image_start + prompt.image_rows - 1
        rows[first], rows[last] = tables.begin, tables.end
        rows[first + 1 + across : last : across + 1] = tables.newline
        embeds = self._engine.empty(rows.shape, content.dtype)
        try:
            embeds.write(0, rows)
            for line in range(prompt.grid_h // prompt.merge):
                at = first + 1 + line * (across + 1)
                embeds.copy_rows(at, content, line * across, across)
        except BaseException:
            embeds.close()
            raise
        return embeds

    def _position_rows(self, grid_h: int, grid_w: int) -> NDArray[np.float32]:
        """The vision graph's `pos` (N, E) of a grid, in block order, patch bias included."""
        key = (grid_h, grid_w)
        if key not in self._grids:
            tables, merge = self._files.tables, self._files.dims.vision.merge
            rows = positions.interpolate_positions(
                tables.position_table, grid_h, grid_w, self._table
            )
            order = positions.block_order(grid_h, grid_w, merge)
            self._grids[key] = (rows + tables.patch_bias)[order]
            while len(self._grids) > _GRIDS:
                self._grids.popitem(last=False)
        self._grids.move_to_end(key)
        return self._grids[key]

    def _padded(self, used: int) -> int:
        """The smallest patch count that the vision graph runs and that holds `used`."""
        if not self._gears:
            return used
        for count in self._gears:
            if count >= used:
                return count
        raise UsageError(
            f"the page takes {used} patches, the compiled vision graph {self._gears[-1]} at most; "
            "use --resize hug, or compile with a larger gear"
        )

    def _rotary(
        self, position_ids: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        sections = self._files.dims.text.rope_sections
        return positions.rotary(position_ids, self._frequencies, sections, self._rope)
