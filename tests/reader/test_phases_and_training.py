"""The plan, the schedule, and a run that stops and goes on; pages drawn with the fonts at hand."""

import argparse
import json
import os
from pathlib import Path

import pytest
import torch

from scripts.train_reader import pages, train, world
from scripts.train_reader.export import load_reader
from scripts.train_reader.phases import load_phases
from scripts.train_reader.reader_model import show_pages

FONTS = Path(
    os.environ.get("HYOCR_READER_FONTS", Path.home() / ".cache" / "hyocr" / "reader_fonts")
)
MISSING = [
    name for name in (*world.LATIN_FONTS, world.CHINESE_FONT) if not (FONTS / name).is_file()
]
needs_fonts = pytest.mark.skipif(
    bool(MISSING),
    reason=f"{FONTS} lacks {', '.join(MISSING)}: scripts/train_reader/install_fonts.sh",
)


READER = Path(__file__).parents[1] / "data" / "reader"


def plan(folder: Path, seconds: float, **changes: object) -> Path:
    mix = {"layout": {"window": [96, 320]}, "canvas": [96, 320], "batch": 1, "tasks": ["text"]}
    phase = {
        "name": "one", "seconds": seconds, "rate": 1e-3, "last_rate": 1e-4, "weights": {},
        "mixes": [mix], **changes,
    }  # fmt: skip
    path = folder / "plan.json"
    path.write_text(json.dumps([phase]))
    return path


@pytest.mark.parametrize("name", ["plan.json", "continue.json"])
def test_a_shipped_plan_loads_and_its_windows_fit_their_canvases(name: str) -> None:
    phases = load_phases(Path(train.__file__).with_name(name))
    assert phases
    for phase in phases:
        for mix in phase.mixes:
            assert mix.canvas in world.CANVASES
            assert all(w <= c for w, c in zip(mix.layout.window, mix.canvas, strict=True))
            assert all(side % pages.CELL == 0 for side in (*mix.layout.window, *mix.canvas))


def test_the_rate_falls_from_first_to_last(tmp_path: Path) -> None:
    (phase,) = load_phases(plan(tmp_path, 100.0))
    assert phase.learning_rate(0, 1000) == pytest.approx(1e-3)
    assert phase.learning_rate(100, 1000) == pytest.approx(1e-4)
    assert phase.learning_rate(0, 0) == pytest.approx(1e-4)  # warm-up


@needs_fonts
def test_a_run_goes_on_from_its_saved_state(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    phases = load_phases(plan(tmp_path, 0.2))
    args = argparse.Namespace(run=tmp_path / "run", fonts=FONTS, seed=1, start_from=None)
    first = train.Trainer(args)
    first.train(phases)
    steps = first.progress.step
    assert steps > 0
    second = train.Trainer(args)
    assert second.progress.step == steps
    for before, after in zip(first.reader.parameters(), second.reader.parameters(), strict=True):
        torch.testing.assert_close(before, after)


@needs_fonts
def test_a_stop_file_ends_the_run_with_a_state(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    args = argparse.Namespace(run=tmp_path / "run", fonts=FONTS, seed=1, start_from=None)
    trainer = train.Trainer(args)
    (tmp_path / "run" / "stop").touch()
    trainer.train(load_phases(plan(tmp_path, 1000.0)))
    assert trainer.progress.step == 0
    assert (tmp_path / "run" / "state.pt").is_file()


@needs_fonts
def test_a_run_that_continues_an_exported_reader_first_learns_only_the_heads(
    tmp_path: Path,
) -> None:
    torch.set_num_threads(1)
    args = argparse.Namespace(run=tmp_path / "run", fonts=FONTS, seed=1, start_from=READER)
    trainer, exported = train.Trainer(args), load_reader(READER)
    phases = load_phases(plan(tmp_path, 0.2, heads_only=True))
    heads = trainer.reader.classify.weight.detach().clone()
    trainer.train(phases)
    assert trainer.progress.step > 0
    assert not torch.equal(heads, trainer.reader.classify.weight)
    for canvas in world.CANVASES:  # the rows and columns are those of the exported table
        page = show_pages(torch.randint(0, 255, (1, *canvas, 3), dtype=torch.uint8))
        with torch.no_grad():
            torch.testing.assert_close(
                trainer.reader.see(page), exported.see(page), atol=0.02, rtol=0.02
            )
