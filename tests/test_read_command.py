"""`hyocr read`, `doctor` and the public API, through the process's own border."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image, ImageDraw, ImageFont

from ascend import OCR, InputError, PageFailure, UsageError
from ascend.cli import main
from ascend.commands.read import expand, page_list
from host_pipeline.result import Result

pytest.importorskip("rapidocr", reason="the embedded model files come with the package rapidocr")

ROOT = Path(__file__).parent.parent
SAMPLE = ROOT / "scripts" / "sample_page.png"
HYOCR = [sys.executable, "-m", "ascend.cli"]


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A PDF of three pages, each with its number."""
    pages = []
    for number in (1, 2, 3):
        page = Image.new("RGB", (400, 160), "white")
        ImageDraw.Draw(page).text(
            (40, 50), f"Page number {number}", "black", ImageFont.load_default(36)
        )
        pages.append(page)
    path = tmp_path_factory.mktemp("pdf") / "three pages 三页.pdf"
    pages[0].save(path, save_all=True, append_images=pages[1:], resolution=100)
    return path


def _run(capsys: pytest.CaptureFixture[str], *args: str | Path) -> tuple[int, str, str]:
    code = main([str(a) for a in args])
    out, err = capsys.readouterr()
    return code, out, err


def test_one_page_is_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = _run(capsys, "read", SAMPLE)
    result = Result.from_dict(json.loads(out))
    assert code == 0 and err == ""
    assert result.lines[0].text == "Green Valley Tea House 绿谷茶馆" and result.source == str(
        SAMPLE
    )
    assert "decode" in result.timings_ms and result.settings["min_score"] == 0.5


def test_a_dash_as_output_is_stdout(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = _run(capsys, "read", SAMPLE, "-o", "-")
    assert code == 0 and Result.from_dict(json.loads(out)).lines
    assert not list(tmp_path.iterdir())


def test_a_document_is_an_array_and_pages_are_chosen(
    capsys: pytest.CaptureFixture[str], document: Path
) -> None:
    code, out, _ = _run(capsys, "read", document, "--pages", "3,1")
    rows = json.loads(out)
    assert code == 0 and [(r["page_index"], r["text"]) for r in rows] == [
        (2, "Page number 3"), (0, "Page number 1"),
    ]  # fmt: skip


def test_the_other_formats(capsys: pytest.CaptureFixture[str], document: Path) -> None:
    code, out, _ = _run(capsys, "read", document, "--format", "jsonl")
    assert code == 0 and [json.loads(line)["page_index"] for line in out.splitlines()] == [0, 1, 2]
    assert (
        _run(capsys, "read", document, "--format", "text", "--pages", "2")[1] == "Page number 2\n"
    )
    assert (
        "<table>" in _run(capsys, "read", SAMPLE, "--format", "markdown", "--task", "doc_parse")[1]
    )
    assert "<html" in _run(capsys, "read", SAMPLE, "--format", "html")[1]


def test_fields_by_name_and_by_schema(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    schema = {
        "type": "object",
        "properties": {"total": {"type": "number"}, "fax": {"type": "string"}},
    }
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    _, out, _ = _run(capsys, "read", SAMPLE, "--schema", tmp_path / "schema.json")
    assert {f["name"]: f["value"] for f in json.loads(out)["fields"]} == {
        "total": 24.8,
        "fax": None,
    }
    _, out, _ = _run(capsys, "read", SAMPLE, "--fields", "date, total", "--format", "text")
    assert out == "date: 2026-03-14\ntotal: 24.80\n"


def test_a_bad_page_stops_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "b.png").write_bytes(SAMPLE.read_bytes())
    (tmp_path / "a.jpg").write_text("<html>not found</html>")
    (tmp_path / "c.png").write_bytes(b"")
    code, out, err = _run(capsys, "read", tmp_path, "--format", "jsonl")
    assert code == 1 and len(out.splitlines()) == 1 and json.loads(out)["source"].endswith("b.png")
    assert "a.jpg" in err and "HTML" in err and "c.png" in err


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["read", "nowhere.png"], 3, "nowhere.png"),
        (["read", str(SAMPLE), "--task", "spoting"], 2, "did you mean spotting"),
        (["read", str(SAMPLE), "--task", "formula"], 2, "--model FOLDER"),
        (["read", str(SAMPLE), "--model", "/no/such/folder"], 4, "/no/such/folder"),
        (["read", str(SAMPLE), "--engine", "acl"], 2, "hyocr compile"),
        (["read", str(SAMPLE), "--pages", "5"], 3, "no page 5"),
        (["read", "*.nothing"], 2, "nothing matches"),
        (["read", str(SAMPLE), "--task", "fields"], 2, "--fields"),
    ],
)
def test_errors_are_one_line_with_the_exit_code_of_the_table(
    capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, text: str
) -> None:
    found, out, err = _run(capsys, *arguments)
    assert (found, out) == (code, "")
    assert text in err and err.startswith("hyocr: ") and err.count("\n") == 1


def test_stdin_draw_and_output_file(tmp_path: Path) -> None:
    target = tmp_path / "out" / "result.json"
    target.parent.mkdir()
    done = subprocess.run(
        [*HYOCR, "read", "-", "--draw", str(tmp_path / "drawn"), "-o", str(target)],
        input=SAMPLE.read_bytes(), capture_output=True, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0 and done.stdout == b""
    assert json.loads(target.read_text("utf-8"))["source"] == "-"
    with Image.open(tmp_path / "drawn" / "stdin.png") as drawn:
        assert drawn.width >= 900
    assert os.listdir(target.parent) == ["result.json"]


def test_ctrl_c_leaves_whole_output_for_the_pages_done(tmp_path: Path) -> None:
    with Image.open(SAMPLE) as opened:
        page = opened.convert("RGB")
    path, target = tmp_path / "long.pdf", tmp_path / "out.json"
    page.save(path, save_all=True, append_images=[page] * 199)
    process = subprocess.Popen(
        [*HYOCR, "read", str(path), "-o", str(target)], cwd=ROOT, stderr=subprocess.PIPE
    )
    part = tmp_path / "out.json.part"
    until = time.monotonic() + 120
    while time.monotonic() < until and not (part.exists() and part.stat().st_size > 20_000):
        assert process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and b"pages are complete" in err
    rows = json.loads(target.read_text("utf-8"))
    assert 1 <= len(rows) < 200 and [r["page_index"] for r in rows] == list(range(len(rows)))


def test_a_terminal_sees_a_progress_bar_and_a_pipe_none(document: Path) -> None:
    pty = pytest.importorskip("pty", reason="no pseudo-terminals on this system")
    termios, fcntl = pytest.importorskip("termios"), pytest.importorskip("fcntl")
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    command = [*HYOCR, "read", str(document), "--format", "text"]
    try:
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=theirs, timeout=200)
        os.set_blocking(ours, False)
        shown = os.read(ours, 1 << 16).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 0 and b"Page number 3" in done.stdout
    assert "3/3" in shown
    piped = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=200)
    assert piped.stderr == b""


def test_a_closed_pipe_is_no_error(document: Path) -> None:
    command = [*HYOCR, "read", str(document), "--format", "jsonl"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None and process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 0


def test_page_lists() -> None:
    assert page_list("1-3,7") == (0, 1, 2, 6)
    for bad in ("0", "3-1", "a", "1,,2", ""):
        with pytest.raises(Exception, match=r"page|range"):
            page_list(bad)


def test_an_empty_folder_is_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no picture"):
        list(expand([str(tmp_path)]))


def test_doctor_tells_what_is_missing_and_how_to_mend_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, _ = _run(capsys, "doctor", "--json")
    findings = {(f["area"], f["name"]): f for f in json.loads(out)}
    assert code == 0 and findings["models", "ppocr"]["status"] == "ok"
    assert "European Union" in findings["models", "weights"]["remedy"]
    assert all(f["remedy"] for f in findings.values() if f["status"] != "ok")
    text = _run(capsys, "doctor")[1]
    assert "remedy: " in text and "engine ort: can be opened" in text


def test_the_api_reads_bytes_arrays_and_pictures() -> None:
    import numpy as np

    with Image.open(SAMPLE) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    with OCR() as ocr:
        texts = {ocr.read(s, "text").text for s in (SAMPLE, SAMPLE.read_bytes(), pixels)}
        assert len(texts) == 1 and "Plum juice" in texts.pop()
        with pytest.raises(InputError):
            ocr.read(b"no picture", "text")
        (failure,) = ocr.read_pages(b"", label="upload 7")
        assert isinstance(failure, PageFailure)
        assert failure.to_dict()["error"]["code"] == "input" and failure.source == "upload 7"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_300_page_document_needs_no_more_memory_than_a_30_page_one(tmp_path: Path) -> None:
    peaks = []
    for count in (30, 300):
        page = Image.new("RGB", (500, 700), "white")
        ImageDraw.Draw(page).text(
            (40, 50), "One line of print", "black", ImageFont.load_default(36)
        )
        path = tmp_path / f"{count}.pdf"
        page.save(path, save_all=True, append_images=[page] * (count - 1))
        script = (
            "import resource, sys\nfrom ascend.cli import main\n"
            f"assert main(['read', {str(path)!r}, '-o', {str(path) + '.json'!r}]) == 0\n"
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
        )
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert len(json.loads(Path(f"{path}.json").read_text("utf-8"))) == count
        peaks.append(int(done.stdout) / 1024)
    assert peaks[1] < peaks[0] + 60, f"peak MiB: {peaks}"
