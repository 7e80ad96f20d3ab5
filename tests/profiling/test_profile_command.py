"""hyocr profile from a page to a report, on the stand-in of an NPU and on a CPU."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from ascend.cli import main


@pytest.fixture
def page(tmp_path: Path) -> Path:
    Image.new("RGB", (640, 480), "white").save(tmp_path / "page.png")
    return tmp_path / "page.png"


@pytest.fixture
def profiled(bundle: Path, page: Path, tmp_path: Path, machine: Any) -> Path:
    out = tmp_path / "run"
    command = ["profile", str(page), "--task", "doc_parse", "--model", str(bundle)]
    # The tiny model is untrained: what it says is noise, how long it takes is not.
    assert main([*command, "--max-tokens", "6", "-o", str(out)]) == 0
    return out


def test_a_profiled_page_adds_up(profiled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["profile", "report", str(profiled), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["emulated"]
    assert report["stages"]["explained"] == pytest.approx(1, abs=0.05)
    paths = {row["path"] for row in report["stages"]["rows"]}
    wanted = {"decode", "letterbox", "tokenise", "patches", "vision", "vision/h2d", "prefill",
              "prefill/h2d", "prefill/wait", "decode_step", "decode_step/launch", "sampling",
              "parse", "json"}  # fmt: skip
    assert wanted <= paths
    device = report["device"]
    parts = ("cube", "vector", "ai_cpu", "copies", "other", "gaps", "waiting")
    total = sum(device[f"{part}_us"] for part in parts)
    assert total == pytest.approx(device["window_us"], rel=0.01)
    assert report["stages"]["tokens"] > 0
    assert set(report["stages"]["token"]) >= {"decode_step", "sampling"}

    _the_trace_follows_the_importers_rules(profiled)
    _the_page_refers_to_nothing_outside(profiled)
    _two_runs_compare(profiled, capsys)
    _a_second_profile_wants_a_new_folder(profiled)


def _the_trace_follows_the_importers_rules(profiled: Path) -> None:
    trace = json.loads((profiled / "trace.json").read_text())
    events = trace["traceEvents"]
    names = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names == {"host", "device 0"}
    assert trace["otherData"]["emulated"] is True
    check_trace(events)
    device = [e for e in events if e["ph"] == "X" and e["pid"] >= 1 << 22]
    (page,) = [e for e in events if e["ph"] == "X" and "page 1" in e["name"]]
    # One clock: the device worked while the page was read.
    assert min(e["ts"] for e in device) >= page["ts"] - 1
    assert min(e["ts"] for e in device) <= page["ts"] + page["dur"]


def _the_page_refers_to_nothing_outside(profiled: Path) -> None:
    text = (profiled / "report.html").read_text()
    assert "EMULATED" in text and "<svg" in text
    seen: list[str] = []

    class Links(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            seen.extend(v or "" for k, v in attrs if k in ("src", "href"))
            assert tag not in ("script", "link", "iframe")

    Links().feed(text)
    assert seen == []
    assert "url(" not in text and "@import" not in text


def _two_runs_compare(profiled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["profile", "compare", str(profiled), str(profiled), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {row["ratio"] for row in rows} <= {1.0, None}
    assert "page (a page)" in {row["what"] for row in rows}


def _a_second_profile_wants_a_new_folder(profiled: Path) -> None:
    assert main(["profile", "report.png", "-o", str(profiled)]) != 0


def check_trace(events: list[dict[str, Any]]) -> None:
    """The rules of Perfetto's JSON importer for the events that we write: numbers where numbers are
    due, known metadata, and slices of one track that nest."""
    tracks: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in events:
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
        if event["ph"] == "M":
            assert event["name"] in {"process_name", "process_sort_index", "thread_name",
                                     "thread_sort_index"}  # fmt: skip
            assert event["args"]
            continue
        assert event["ph"] == "X" and event["name"]
        assert event["ts"] >= 0 and event["dur"] >= 0
        where = (event["pid"], event["tid"])
        tracks.setdefault(where, []).append((event["ts"], event["ts"] + event["dur"]))
    for slices in tracks.values():
        open_ends: list[float] = []
        for start, end in sorted(slices, key=lambda s: (s[0], -s[1])):
            while open_ends and open_ends[-1] <= start + 0.002:  # times are rounded to 1 ns
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1] + 0.002
            open_ends.append(end)


def test_a_cpu_engine_has_stages_and_no_device(
    page: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", str(page), "-o", str(tmp_path / "cpu"), "--cold"]) == 0
    assert "only the host was seen" in capsys.readouterr().out
    assert not list((tmp_path / "cpu").glob("PROF_*"))


def test_a_folder_without_a_profile_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", "report", str(tmp_path)]) == 3
    assert "no PROF_* folder" in capsys.readouterr().err
    assert main(["profile", "compare", str(tmp_path)]) == 2
