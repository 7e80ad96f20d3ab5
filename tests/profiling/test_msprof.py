"""msprof's folders: golden reports of both layouts, old names, slices, odd cells, many rows."""

from __future__ import annotations

import csv
import shutil
import stat
import tracemalloc
from pathlib import Path

import pytest

from profiling.compare import compare_reports
from profiling.findings import codes
from profiling.msprof import OUTPUT, Prof, ProfileError, find_profiles
from profiling.report import Totals, collect, make_report
from profiling.report_html import report_html
from profiling.report_text import comparison_text, report_text

DATA = Path(__file__).parents[1] / "data" / "msprof"
PROF = "PROF_000001_20250427171400123_ACLEMULATORAAAAAB"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A writable copy of the 310P3 profile."""
    shutil.copytree(DATA / "310P3" / PROF, tmp_path / "run" / PROF)
    return tmp_path / "run" / PROF


def summary_of(prof: Path) -> Path:
    (path,) = (prof / OUTPUT).glob("op_summary_*.csv")
    return path


def test_a_row_of_310p_is_read_to_the_last_digit() -> None:
    (prof,) = find_profiles(DATA / "310P3")
    rows = list(prof.ops())
    assert [row.kind for row in rows] == [
        "Cast", "Conv2D", "BatchMatMulV2", "SoftmaxV2", "MatMulV2", "TopKV2",
    ]  # fmt: skip
    conv = rows[1]
    assert conv.start_ns == 1745745240123464051
    assert conv.input_shapes == "1,1,448,448,16;196,72,16,16"
    assert (conv.device, conv.model, conv.stream, conv.block_dim) == (0, 1, 9, 8)
    assert conv.metrics["mac_ratio"] == 0.61
    assert rows[-1].metrics["mac_ratio"] is None  # N/A on the AI CPU


def test_the_report_of_310p() -> None:
    report = make_report(DATA / "310P3")
    device = report["device"]
    assert device["window_us"] == pytest.approx(965.407)
    assert device["cube_us"] == pytest.approx(58.731 + 91.204 + 512.6)
    assert device["vector_us"] == pytest.approx(6.412 + 77.05)
    assert device["ai_cpu_us"] == pytest.approx(214.33)
    assert device["gaps_us"] == pytest.approx(5.08)
    assert device["waiting_us"] == 0
    assert device["matrix_use"] == pytest.approx(
        (58.731 * 0.61 + 91.204 * 0.48 + 512.6 * 0.09) / 662.535
    )
    assert report["top_ops"][0]["name"] == "/lm/layers.0/mlp/down_proj/MatMul"
    assert [op["name"] for op in report["ai_cpu_ops"]] == ["/lm/TopK"]
    assert {"ai_cpu", "memory_bound", "small_matrix_use"} <= set(codes(report["findings"]))
    top = next(f for f in report["findings"] if f["code"] == "ai_cpu")
    assert "/lm/TopK (TopKV2) [1,151936;1]" in top["evidence"][0]
    assert top["remedy"]


def test_the_report_of_910b() -> None:
    report = make_report(DATA / "910B3")
    device = report["device"]
    assert device["cube_us"] == pytest.approx(29.44 + 58.1)
    assert device["vector_us"] == pytest.approx(7.62)
    assert device["matrix_use"] == pytest.approx((29.44 * 0.83 + 58.1 * 0.55) / 87.54)
    assert report["findings"] == []


def test_all_texts_show_what_the_report_holds() -> None:
    report = make_report(DATA / "310P3")
    text, page = report_text(report), report_html(report)
    for shown in ("/lm/TopK", "AI CPU", "remedy:", "gaps between kernels"):
        assert shown in text
    for shown in ("/lm/TopK", "AI CPU", "gaps between kernels", "<svg"):
        assert shown in page


def test_a_name_cannot_become_markup(copy: Path) -> None:
    path = summary_of(copy)
    path.write_text(path.read_text().replace("trans_Cast_0", "<script>alert(1)</script>"))
    assert "<script" not in report_html(make_report(copy))


def test_two_runs_are_compared(copy: Path) -> None:
    path = summary_of(copy)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if "TopK" not in line))
    found = compare_reports(make_report(DATA / "310P3"), make_report(copy))
    rows = {row["what"]: row for row in found["rows"]}
    assert rows["AI CPU"]["b_ms"] == 0
    assert rows["operator TopKV2"]["ratio"] == 0
    assert rows["operator Conv2D"]["ratio"] == 1
    assert found["findings_gone"] == ["ai_cpu"]
    assert "only in A: ai_cpu" in comparison_text(found)


def test_slices_are_read_in_order_and_an_older_export_is_left(copy: Path) -> None:
    whole = summary_of(copy)
    header, *rows = whole.read_text().splitlines(keepends=True)
    whole.unlink()
    for part in range(3):
        path = copy / OUTPUT / f"op_summary_slice_{part}_20250427171432.csv"
        path.write_text(header + "".join(rows[2 * part : 2 * part + 2]))
    (copy / OUTPUT / "op_summary_20200101000000.csv").write_text(header)
    assert [row.kind for row in Prof(copy).ops()][-1] == "TopKV2"
    assert len(list(Prof(copy).ops())) == 6


def test_the_older_layout_with_its_names(copy: Path) -> None:
    with summary_of(copy).open(newline="") as file:
        rows = [row[1:] for row in csv.reader(file)]  # no Device_id in those days
    shutil.rmtree(copy / OUTPUT)
    old = copy / "device_3" / "summary" / "op_summary_3_1_1.csv"
    old.parent.mkdir(parents=True)
    with old.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    found = list(Prof(copy).ops())
    assert (len(found), found[0].device) == (6, 3)


def test_missing_columns_are_no_figures_and_no_error(copy: Path) -> None:
    path = summary_of(copy)
    wanted = ("Op Name", "OP Type", "Task Type", "Task Duration(us)")
    with path.open(newline="") as file:
        rows = [{key: row[key] for key in wanted} for row in csv.DictReader(file)]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, wanted)
        writer.writeheader()
        writer.writerows(rows)
    report = make_report(copy)
    assert report["device"]["matrix_use"] is None
    assert report["device"]["cube_us"] > 0  # by the operator's type
    assert report["top_ops"][0]["shapes"] == ""


def test_without_a_needed_column_the_file_is_named(copy: Path) -> None:
    path = summary_of(copy)
    path.write_text(path.read_text().replace("Task Duration(us)", "Duration"))
    with pytest.raises(ProfileError, match=r"op_summary.*no column 'Task Duration\(us\)'"):
        make_report(copy)


def test_a_cell_that_is_no_number_is_named_with_its_line(copy: Path) -> None:
    path = summary_of(copy)
    path.write_text(path.read_text().replace("58.731", "58,731x", 1))
    with pytest.raises(ProfileError, match=r":3: "):
        make_report(copy)


def test_a_folder_that_is_not_exported_says_how(tmp_path: Path) -> None:
    (tmp_path / "PROF_1" / "host").mkdir(parents=True)
    with pytest.raises(ProfileError, match="msprof --export=on"):
        make_report(tmp_path)


def test_msprof_exports_when_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "PROF_1").mkdir()
    tool = tmp_path / "bin" / "msprof"
    tool.parent.mkdir()
    source = DATA / "310P3" / PROF / OUTPUT
    tool.write_text(f'#!/bin/sh\ncp -r "{source}" "${{2#--output=}}"\n')
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    assert make_report(tmp_path)["device"]["rows"] == 6
    tool.write_text("#!/bin/sh\necho 'no data' >&2; exit 3\n")
    (tmp_path / "PROF_2").mkdir()
    with pytest.raises(ProfileError, match="ended with 3: no data"):
        make_report(tmp_path)


def _repeated(copy: Path, times: int) -> None:
    path = summary_of(copy)
    header, *rows = path.read_text().splitlines(keepends=True)
    with path.open("w") as file:
        file.write(header)
        for i in range(times):
            file.writelines(row.replace("/lm/", f"/lm/{i}/") for row in rows)


def _peak(copy: Path) -> tuple[int, int]:
    tracemalloc.start()
    totals = Totals()
    collect(Prof(copy), totals)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return totals.times.rows, peak


def test_memory_does_not_grow_with_the_rows(copy: Path) -> None:
    """20,000 kept names are the bound; every row here has a name of its own or repeats."""
    _repeated(copy, 500)
    rows, small = _peak(copy)
    assert rows == 3000
    assert small < 4 << 20


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_million_rows_in_bounded_memory(copy: Path) -> None:
    _repeated(copy, 166_667)
    rows, peak = _peak(copy)
    assert rows == 1_000_002
    assert peak < 64 << 20
