"""A strict emulator of pyACL, importable in place of `acl` (HYOCR_ACL=tests.pyacl_emulator).

Functions, argument order, return order and codes are those of the table `api.json`. What the
documents leave undefined raises EmulatorViolation with the rule and its source. Tests steer it
through `control`.

It computes on ONNX Runtime and says nothing about the speed of any NPU. Not emulated: single
operators (acl.op), image units (acl.media beyond its memory), dynamic AIPP inputs, queues,
peer-to-peer copies; unknown names are AttributeError. A blocking call holds the interpreter lock
for real where this one lets other threads run.
"""

from __future__ import annotations

import importlib
import sys

from . import binding
from .controls import Control
from .violation import EmulatorViolation

for _part in (
    "process", "context", "device_info", "stream_calls", "event", "callback", "allocation",
    "transfer", "dataset", "desc", "gear_query", "model", "bundle", "gear", "aipp_handle",
    "execute", "exec_config", "pointers", "profiler", "prof_subscribe", "prof_records",
):  # fmt: skip
    importlib.import_module(f"{__name__}.{_part}")

_MODULES = binding.publish(sys.modules[__name__])
for _part, _module in _MODULES.items():
    sys.modules[f"{__name__}.{_part}"] = _module

control = Control()


def install_as_acl() -> None:
    """Makes `import acl` and `import acl.rt` find the emulator in this process."""
    control.install_as_acl(sys.modules[__name__], _MODULES)


__all__ = ["EmulatorViolation", "control", "install_as_acl"]
