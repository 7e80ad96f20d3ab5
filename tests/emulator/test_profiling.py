"""acl.prof: the folder that it writes, the records of a subscription, and its rules."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.emulator.program import load, upload
from tests.pyacl_emulator import EmulatorViolation, control

FLAGS = 0xF


def profiled(acl: ModuleType, linear, folder: Path) -> Path:
    """Runs two gears under the profiler and returns the folder that it wrote."""
    assert acl.prof.init(str(folder)) == 0
    config = acl.prof.create_config([0], 1, 0, FLAGS)
    model = load(acl, linear("dims", ((1,), (4,)), soc=acl.get_soc_name()))
    upload(acl, model.inputs.pointers[0], np.zeros((4, 64), np.float32))
    assert acl.prof.start(config) == 0
    for rows in (1, 4):
        assert model.set_dims([rows, 64]) == 0
        assert model.execute() == 0
    assert acl.prof.stop(config) == 0
    assert acl.prof.destroy_config(config) == 0
    assert acl.prof.finalize() == 0
    (written,) = folder.glob("PROF_*")
    return written


def table(folder: Path, kind: str) -> list[dict[str, str]]:
    (path,) = (folder / "mindstudio_profiler_output").glob(f"{kind}_*.csv")
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_folder_has_the_layout_of_msprof(ready: ModuleType, linear, tmp_path: Path) -> None:
    folder = profiled(ready, linear, tmp_path)
    assert folder.name.startswith("PROF_000001_")
    assert "ACLEMULATOR" in folder.name
    assert (folder / "host" / "data").is_dir()
    assert (folder / "device_0" / "data").is_dir()
    assert "emulated" in (folder / "mindstudio_profiler_output" / "README.txt").read_text()


def test_op_summary_has_the_columns_of_the_chip(ready: ModuleType, linear, tmp_path: Path) -> None:
    rows = table(profiled(ready, linear, tmp_path), "op_summary")
    assert [row["Op Name"] for row in rows] == ["mm", "add"] * 2
    first = rows[0]
    assert list(first)[:11] == [
        "Device_id", "Model ID", "Task ID", "Stream ID", "Op Name", "OP Type", "OP State",
        "Task Type", "Task Start Time(us)", "Task Duration(us)", "Task Wait Time(us)",
    ]  # fmt: skip
    assert list(first)[-16:] == [
        "aicore_time(us)", "total_cycles", "vec_time(us)", "vec_ratio", "mac_time(us)", "mac_ratio",
        "scalar_time(us)", "scalar_ratio", "mte1_time(us)", "mte1_ratio", "mte2_time(us)",
        "mte2_ratio", "mte3_time(us)", "mte3_ratio", "icache_miss_rate", "memory_bound",
    ]  # fmt: skip
    assert first["Input Shapes"] == '"1,64;64,64"'
    assert first["Task Start Time(us)"].endswith("\t")
    assert rows[2]["Input Shapes"] == '"4,64;64,64"'
    starts = [float(row["Task Start Time(us)"]) for row in rows]
    assert starts == sorted(starts)


def test_a2_has_its_own_columns(acl: ModuleType, linear, tmp_path: Path) -> None:
    control.reset(soc="Ascend910B3")
    acl.init()
    acl.rt.set_device(0)
    first = table(profiled(acl, linear, tmp_path), "op_summary")[0]
    assert "Mix Block Dim" in first
    assert list(first)[-1] == "cube_utilization(%)"
    assert None not in first
    assert None not in first.values()


def test_the_other_tables_agree_with_op_summary(ready: ModuleType, linear, tmp_path: Path) -> None:
    folder = profiled(ready, linear, tmp_path)
    summary = table(folder, "op_summary")
    statistic = table(folder, "op_statistic")
    assert sum(int(row["Count"]) for row in statistic) == len(summary)
    assert abs(sum(float(row["Ratio(%)"]) for row in statistic) - 100) < 0.1
    tasks = table(folder, "task_time")
    assert [row["task_time(us)"] for row in tasks] == [row["Task Duration(us)"] for row in summary]
    steps = table(folder, "step_trace")
    assert [row["FP Start(us)"] for row in steps] == ["N/A", "N/A"]
    apis = {row["API Name"]: row for row in table(folder, "api_statistic")}
    assert apis["aclmdlExecute"]["Count"] == "2"
    assert apis["aclmdlSetInputDynamicDims"]["Level"] == "acl"


def test_the_trace_is_a_list_of_events(ready: ModuleType, linear, tmp_path: Path) -> None:
    folder = profiled(ready, linear, tmp_path)
    (path,) = (folder / "mindstudio_profiler_output").glob("msprof_*.json")
    events = json.loads(path.read_text())
    assert isinstance(events, list)
    runs = [event for event in events if event["ph"] == "X"]
    assert [event["name"] for event in runs] == ["mm", "add"] * 2
    assert all(isinstance(event["ts"], str) for event in runs)
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert all("emulated" in name for name in names)


def test_rules_of_profiling(ready: ModuleType, tmp_path: Path) -> None:
    prof = ready.prof
    config = prof.create_config([0], 1, 0, FLAGS)
    assert prof.finalize() == 100043
    assert prof.start(config) == 100043
    assert prof.init(str(tmp_path / "none")) == 100003
    assert prof.init(str(tmp_path)) == 0
    assert prof.init(str(tmp_path)) == 100042
    assert prof.start(0) == 100000
    assert prof.stop(config) == 100043
    assert prof.start(config) == 0
    with pytest.raises(EmulatorViolation, match="aclprofStop first"):
        prof.finalize()
    assert prof.stop(config) == 0
    assert prof.finalize() == 0
    for arguments in (
        ([9], 1, 0, FLAGS),
        ([0], 9, 0, FLAGS),
        ([0], 1, 1, FLAGS),
        ([0], 1, 0, 1 << 40),
    ):
        assert prof.create_config(*arguments) == 0


def test_a_subscriber_reads_operator_records(ready: ModuleType, linear) -> None:
    prof = ready.prof
    model = load(ready, linear())
    upload(ready, model.inputs.pointers[0], np.zeros((4, 64), np.float32))
    reading, writing = os.pipe()
    config = prof.create_subscribe_config(1, 1, writing)
    assert prof.model_subscribe(model.id, config) == 0
    assert prof.model_subscribe(model.id, config) == 148046
    assert model.execute() == 0
    size, _ = prof.get_op_desc_size()
    data = os.read(reading, size * 100)
    pointer = ready.util.bytes_to_ptr(data)
    count, ret = prof.get_op_num(pointer, len(data))
    assert (count, ret) == (2, 0)
    names = [prof.get_op_name_v2(pointer, len(data), index) for index in range(count)]
    assert names == [("mm", 0), ("add", 0)]
    assert prof.get_op_type_v2(pointer, len(data), 0) == ("BatchMatMulV2", 0)
    start, end = prof.get_op_start(pointer, len(data), 0), prof.get_op_end(pointer, len(data), 0)
    assert end - start == prof.get_op_duration(pointer, len(data), 0) > 0
    assert prof.get_model_id(pointer, len(data), 1) == model.id
    assert prof.get_op_name_v2(pointer, len(data), 2) == ("", 100000)
    assert prof.model_unsubscribe(model.id) == 0
    assert prof.model_un_subscribe(model.id) == 100000
    assert prof.destroy_subscribe_config(config) == 0
    os.close(reading)
    os.close(writing)


def test_stamps(ready: ModuleType) -> None:
    prof = ready.prof
    stamp = prof.create_stamp()
    assert prof.set_stamp_trace_message(stamp, "page", 4) == 0
    assert prof.push(stamp) == 0
    assert prof.pop() == 0
    assert prof.pop() == 100000
    ident, ret = prof.range_start(stamp)
    assert ret == 0
    assert prof.range_stop(ident) == 0
    assert prof.mark(0) == 100000
    assert prof.destroy_stamp(stamp) is None
