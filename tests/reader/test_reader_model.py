"""The trainable model computes what the product's model computes from the exported files."""

from pathlib import Path

import numpy as np
import pytest
import torch

from scripts.train_reader import vocabulary
from scripts.train_reader.decoding import read_pages
from scripts.train_reader.export import export, load_reader
from scripts.train_reader.reader_model import Reader, Shown, Sizes, positions, show_pages


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(3)
    reader = Reader(Sizes())
    path = tmp_path_factory.mktemp("reader")
    export(reader, path)
    return path


def noise(height: int, width: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(7)
    return torch.randint(0, 256, (1, height, width, 3), dtype=torch.uint8, generator=generator)


def test_image_rows_equal_the_products_vision_graph(folder: Path) -> None:
    from fallback.checkpoint import Checkpoint
    from fallback.hunyuanocr import Vision
    from host_pipeline.patches import make_patches
    from host_pipeline.positions import block_order, interpolate_positions

    pixels = noise(96, 320)
    with torch.no_grad():
        rows = load_reader(folder).see(show_pages(pixels))[0]
    checkpoint = Checkpoint(folder)
    tables = checkpoint.tables()
    place = interpolate_positions(tables.position_table, 6, 20)[block_order(6, 20)]
    vision = Vision(checkpoint.tensor, checkpoint.dims)
    with torch.no_grad():
        content = vision(
            torch.from_numpy(make_patches(pixels[0].numpy())),
            torch.from_numpy((place + tables.patch_bias).astype(np.float32)),
            torch.zeros(1, 120),
        )
    grid = rows[1:-1].unflatten(0, (3, 11))
    torch.testing.assert_close(grid[:, :10].flatten(0, 1), content, atol=2e-4, rtol=1e-3)
    torch.testing.assert_close(grid[0, 10], torch.from_numpy(tables.newline), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(rows[0], torch.from_numpy(tables.begin), atol=1e-5, rtol=1e-4)


def test_positions_equal_the_products() -> None:
    from host_pipeline.positions import position_ids

    shown = show_pages(noise(96, 320))
    wanted = position_ids(3 + 35 + 1 + 6, [(3, 6, 20)])
    np.testing.assert_array_equal(positions(shown, 6)[0].numpy(), wanted)


def test_the_large_canvas_shown_whole_and_by_cells_is_the_same() -> None:
    torch.manual_seed(1)
    reader = Reader(Sizes()).eval()
    whole = show_pages(noise(96, 320))
    shuffled = torch.randperm(30)
    mixed = Shown(
        whole.tiles[:, shuffled], whole.cells[:, shuffled], whole.newline_rows, whole.canvas
    )
    with torch.no_grad():
        torch.testing.assert_close(reader.see(whole), reader.see(mixed), atol=1e-4, rtol=1e-4)


def test_decoding_with_a_cache_equals_decoding_without(folder: Path) -> None:
    reader = load_reader(folder)
    ids = vocabulary.token_ids()
    prompt = torch.tensor([[ids["提取图中的文字。"], ids[vocabulary.USER]]])
    pixels = noise(96, 320)
    answer = read_pages(reader, pixels, prompt, 6)[0]
    assert len(answer) == 6  # random weights do not stop by themselves this early
    whole = torch.cat([prompt, torch.tensor([answer])], 1)
    shown = show_pages(pixels)
    with torch.no_grad():
        x = reader.embed(reader.see(shown), whole)
        hidden, _, _ = reader.decode(x, reader.rotary(positions(shown, whole.shape[1])))
        best = reader.logits(hidden[0, -7:-1]).argmax(-1)
    assert best.tolist() == answer
