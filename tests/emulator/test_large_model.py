"""A model of the released size: compiled as a stream, mapped when loaded, on the device once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests import pyacl_emulator
from tests.emulator.command import line
from tests.emulator.program import load
from tests.peak import peak, reset_peak
from tests.pyacl_emulator import control

LAYERS, SIDE = 32, 4096  # 32 matrices of 64 MB in fp32: 2 GB


def large_onnx(folder: Path) -> Path:
    """A chain of matrices whose 2 GB of zeros take no room on the disk."""
    weights = folder / "weights.bin"
    size = SIDE * SIDE * 4
    with weights.open("wb") as file:
        file.truncate(LAYERS * size)
    initial, nodes = [], []
    for index in range(LAYERS):
        tensor = TensorProto(name=f"w{index}", dims=[SIDE, SIDE], data_type=TensorProto.FLOAT)
        tensor.data_location = TensorProto.EXTERNAL
        place = {"location": weights.name, "offset": index * size, "length": size}
        for key, value in place.items():
            entry = tensor.external_data.add()
            entry.key, entry.value = key, str(value)
        initial.append(tensor)
        inputs = [f"x{index}", f"w{index}"]
        nodes.append(helper.make_node("MatMul", inputs, [f"x{index + 1}"], name=f"mm{index}"))
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "large", [value("x0", TensorProto.FLOAT, ["n", SIDE])],
        [value(f"x{LAYERS}", TensorProto.FLOAT, ["n", SIDE])], initial,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / "large.onnx").write_bytes(model.SerializeToString())
    assert onnx.load(folder / "large.onnx", load_external_data=False).graph.node
    return folder / "large.onnx"


# Prints the peak memory of a command. A process of its own: a child's figure begins with what its
# parent held when it was started, which is much in the midst of a test run.
MEASURE = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


@pytest.mark.slow
def test_two_gigabytes_are_never_in_memory_twice(tmp_path: Path, ready: ModuleType) -> None:
    source = large_onnx(tmp_path)
    atc = Path(pyacl_emulator.__file__).parent / "atc"
    arguments = line(source, input_shape=f"x0:-1,{SIDE}", dynamic_dims="1;4")
    environment = {**os.environ, "HYOCR_EMULATOR_PYTHON": sys.executable}
    command = [sys.executable, "-c", MEASURE, str(atc), *arguments]
    said = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout
    assert int(said) < 700 << 10  # kilobytes; the packed file has 1 GB
    target = tmp_path / "out.om"
    assert 1 << 30 < target.stat().st_size < (1 << 30) + (1 << 20)

    before = reset_peak()
    control.null_compute = True
    model = load(ready, target)
    assert model.set_dims([4, SIDE]) == 0
    assert model.execute() == 0
    assert peak() - before < 64 << 20
    weight = LAYERS * SIDE * SIDE * np.dtype(np.float16).itemsize
    assert weight < control.counters.live_device_bytes[0] < 1.01 * weight
    model.release()
    assert control.live_bytes == 0
