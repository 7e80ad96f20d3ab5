"""Turns drawn pages into training samples: token ids, attention targets, cell targets, batches.

Letters: B pages, T tokens of prompt tail and answer, M = shown cells (32x32 pixels),
K = SLOTS characters per cell. Only numpy here; pixels stay uint8.
"""

import random
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import vocabulary, world
from .instructions import FIELDS_HEAD, FIELDS_TAIL, SPOTTING_HUNYUAN, STRUCTURED_PARSE
from .pages import CELL, DrawnPage, Layout, Line, Style, draw_page

SLOTS = 4
NOWHERE = -1


@lru_cache(maxsize=1)
def character_classes() -> dict[str, int]:
    """Character -> class of the cell classifier; class 0 is "no character"."""
    return {c: index + 1 for index, c in enumerate(world.PAGE_CHARACTERS)}


@dataclass(frozen=True, slots=True)
class Grid:
    """Which cells of a canvas are shown, where the drawn window lies on it, and their tokens.

    Sides and places in cells. Image tokens in order: begin slot 0, then for every row of
    `newline_rows` its shown cells and its newline, then the end slot.
    """

    canvas: tuple[int, int]
    offset: tuple[int, int]
    cells: NDArray[np.int64]  # (M, 2) on the canvas
    newline_rows: NDArray[np.int64]  # (L,)

    def slots(self) -> dict[tuple[int, int], int]:
        """Canvas cell -> index among the image tokens; the newline stands in the last column."""
        places = [(int(r), int(c)) for r, c in self.cells]
        places += [(int(r), self.canvas[1]) for r in self.newline_rows]
        return {place: index + 1 for index, place in enumerate(sorted(places))}

    def cell(self, x: float, y: float) -> tuple[int, int]:
        """The canvas cell at window pixel x, y."""
        row = min(self.canvas[0] - 1, self.offset[0] + int(y // CELL))
        return row, min(self.canvas[1] - 1, self.offset[1] + int(x // CELL))


class Step(NamedTuple):
    """One token: its text, the image slot that it stands for, whether it is learned, and where it
    is read from if that is elsewhere (slots go on after the image: its end, then the prompt)."""

    text: str
    slot: int = NOWHERE
    learned: bool = True
    origin: int = NOWHERE


@dataclass(frozen=True, slots=True)
class Mix:
    """One ingredient of a phase: what to draw, on which canvas, for which tasks."""

    layout: Layout
    canvas: tuple[int, int]
    batch: int
    tasks: tuple[str, ...] = ("text",)
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Batch:
    """Numpy arrays of one batch; see the module's letters."""

    tiles: NDArray[np.uint8]  # (B, M, 32, 32, 3)
    cells: NDArray[np.int64]  # (B, M, 2) row and column on the canvas
    newline_rows: NDArray[np.int64]  # (B, L)
    canvas: tuple[int, int]  # in cells
    ids: NDArray[np.int64]  # (B, T)
    slots: NDArray[np.int64]  # (B, T)
    origins: NDArray[np.int64]  # (B, T), the slots but for what is copied from the prompt
    learned: NDArray[np.bool_]  # (B, T)
    contents: NDArray[np.int64]  # (B, M, K)
    boxes: NDArray[np.float32]  # (B, M, 4) in cells
    inked: NDArray[np.bool_]  # (B, M)


def _spots(line: Line, grid: Grid) -> list[int]:
    """The image slot of every character of a line."""
    slots = grid.slots()
    return [slots[grid.cell(mark.center_x, line.center_y)] for mark in line.marks]


def answer_text(page: DrawnPage, grid: Grid) -> list[Step]:
    """Lines joined by newlines."""
    steps: list[Step] = []
    slots = grid.slots()
    for line in page.lines:
        spots = _spots(line, grid)
        steps += [Step(m.character, spot) for m, spot in zip(line.marks, spots, strict=True)]
        steps.append(Step("\n", slots[grid.cell(0, line.center_y)[0], grid.canvas[1]]))
    return steps[:-1]


def answer_spotting(page: DrawnPage, grid: Grid) -> list[Step]:
    """`text(x1,y1),(x2,y2)` for each line, coordinates in thousandths of the canvas."""
    steps: list[Step] = []
    height, width = grid.canvas[0] * CELL, grid.canvas[1] * CELL
    top, left = grid.offset[0] * CELL, grid.offset[1] * CELL
    for line in page.lines:
        spots = _spots(line, grid)
        steps += [Step(m.character, spot) for m, spot in zip(line.marks, spots, strict=True)]
        x0, y0, x1, y1 = line.box
        first, last = spots[0], spots[-1]
        steps += [
            Step(vocabulary.x_piece(vocabulary.quantise(left + x0, width)), first),
            Step(vocabulary.y_piece(vocabulary.quantise(top + y0, height)), first),
            Step(",", last),
            Step(vocabulary.x_piece(vocabulary.quantise(left + x1, width)), last),
            Step(vocabulary.y_piece(vocabulary.quantise(top + y1, height)), last),
        ]
    return steps


def answer_fields(keys: list[str], page: DrawnPage, grid: Grid) -> list[Step]:
    """A fenced JSON object with the asked keys in the asked order."""
    by_key = {line.key: line for line in page.lines if line.key}
    steps: list[Step] = []
    asked = len(grid.cells) + len(grid.newline_rows) + 3  # slot of the prompt's first piece
    for key in keys:
        line = by_key[key]
        start = len(line.text) - len(line.value)
        spots = _spots(line, grid)
        asked += 4 if steps else 2  # over "', '", or over the instruction's head and "'"
        steps.append(Step(vocabulary.JSON_COMMA if steps else vocabulary.JSON_OPEN))
        for character, spot in zip(key, spots, strict=False):
            steps.append(Step(character, spot, origin=asked))
            asked += 1
        steps.append(Step(vocabulary.JSON_COLON, spots[start - 1]))
        steps += [Step(c, spot) for c, spot in zip(line.value, spots[start:], strict=True)]
    return [*steps, Step(vocabulary.JSON_CLOSE)]


def ask_fields(keys: list[str]) -> list[str]:
    """The fields instruction as pieces."""
    asked: list[str] = [FIELDS_HEAD]
    for index, key in enumerate(keys):
        asked += [*(", " if index else ""), "'", *key, "'"]
    return [*asked, FIELDS_TAIL]


def word_sample(rng: random.Random, page: DrawnPage, task: str, grid: Grid) -> list[Step]:
    """Instruction, user token, answer and end token of one page."""
    if task == "fields" and not page.fields:
        task = "text"
    if task == "fields":
        keys = rng.sample(list(page.fields), min(len(page.fields), rng.choice((1, 1, 2, 3))))
        prompt, answer = ask_fields(keys), answer_fields(keys, page, grid)
    elif task == "spotting":
        prompt, answer = [SPOTTING_HUNYUAN], answer_spotting(page, grid)
    else:
        prompt, answer = [STRUCTURED_PARSE], answer_text(page, grid)
    head = [Step(text, NOWHERE, False) for text in (*prompt, vocabulary.USER)]
    return [*head, *answer, Step(vocabulary.ASSISTANT)]


def mark_cells(
    page: DrawnPage, grid: Grid
) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.bool_]]:
    """Targets of the cell classifier: characters (M, K), ink box (M, 4) in cells, inked (M,)."""
    index = {(int(r), int(c)): i for i, (r, c) in enumerate(grid.cells)}
    contents = np.zeros((len(index), SLOTS), np.int64)
    boxes = np.zeros((len(index), 4), np.float32)
    filled = np.zeros(len(index), np.int64)
    classes = character_classes()
    for line in page.lines:
        for mark in line.marks:
            if mark.character == " ":
                continue
            row, column = grid.cell(mark.center_x, line.center_y)
            cell = index[row, column]
            top, left = row - grid.offset[0], column - grid.offset[1]
            if filled[cell] == 0:
                boxes[cell] = (mark.x0 / CELL - left, line.box[1] / CELL - top, 0, 0)
            boxes[cell, 2:] = (mark.x1 / CELL - left, line.box[3] / CELL - top)
            if filled[cell] < SLOTS:
                contents[cell, filled[cell]] = classes[mark.character]
            filled[cell] += 1
    return contents, boxes, filled > 0


def place_grid(rng: random.Random, page: DrawnPage, mix: Mix) -> Grid:
    """The page's window at a random place of its canvas."""
    rows, columns = (side // CELL for side in mix.layout.window)
    canvas = (mix.canvas[0] // CELL, mix.canvas[1] // CELL)
    offset = (rng.randint(0, canvas[0] - rows), rng.randint(0, canvas[1] - columns))
    return Grid(canvas, offset, page.cells + offset, np.arange(rows) + offset[0])


def whole_grid(page: DrawnPage) -> Grid:
    """The grid of a page that fills its canvas."""
    canvas = (page.pixels.shape[0] // CELL, page.pixels.shape[1] // CELL)
    return Grid(canvas, (0, 0), page.cells, np.arange(canvas[0]))


def cut_tiles(page: DrawnPage) -> NDArray[np.uint8]:
    """The shown cells of a page, (M, 32, 32, 3)."""
    rows, columns = page.pixels.shape[0] // CELL, page.pixels.shape[1] // CELL
    tiles = page.pixels.reshape(rows, CELL, columns, CELL, 3).swapaxes(1, 2)
    return tiles.reshape(-1, CELL, CELL, 3)


def draw_batch(rng: random.Random, mix: Mix, style: Style) -> Batch:
    """A fresh batch of one mix."""
    drawn: list[DrawnPage] = []
    grids: list[Grid] = []
    words: list[list[Step]] = []
    for _ in range(mix.batch):
        page = draw_page(rng, mix.layout, style)
        grid = place_grid(rng, page, mix)
        drawn.append(page)
        grids.append(grid)
        words.append(word_sample(rng, page, rng.choice(mix.tasks), grid))
    marks = [mark_cells(page, grid) for page, grid in zip(drawn, grids, strict=True)]
    longest = max(map(len, words))
    ids = np.full((mix.batch, longest), vocabulary.token_ids()[vocabulary.PAD], np.int64)
    slots = np.full((mix.batch, longest), NOWHERE, np.int64)
    origins, learned = slots.copy(), np.zeros((mix.batch, longest), np.bool_)
    table = vocabulary.token_ids()
    for row, steps in enumerate(words):
        ids[row, : len(steps)] = [table[step.text] for step in steps]
        slots[row, : len(steps)] = [step.slot for step in steps]
        origins[row, : len(steps)] = [
            step.slot if step.origin == NOWHERE else step.origin for step in steps
        ]
        learned[row, : len(steps)] = [step.learned for step in steps]
    return Batch(
        tiles=np.stack([cut_tiles(page) for page in drawn]),
        cells=np.stack([grid.cells for grid in grids]),
        newline_rows=np.stack([grid.newline_rows for grid in grids]),
        canvas=grids[0].canvas,
        ids=ids, slots=slots, origins=origins, learned=learned,
        contents=np.stack([m[0] for m in marks]),
        boxes=np.stack([m[1] for m in marks]),
        inked=np.stack([m[2] for m in marks]),
    )  # fmt: skip
