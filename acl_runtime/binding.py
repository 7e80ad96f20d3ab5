"""The vendor's module `acl`, loaded by name, with every return code checked in one place.

`Binding` has the functions that this package uses, named as pyACL names them (`binding.rt.malloc`);
each returns what the vendor documents less the code, and raises a typed error when the code is not
0. Knows no memory and no model.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import logging
import os
from collections.abc import Callable, Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

from acl_runtime.errors import NO_HANDLE, AclUnavailable, call_error

log = logging.getLogger(__name__)

MODULE_VARIABLE = "HYOCR_ACL"
VENDOR_MODULE = "acl"

HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE = 1, 2, 3  # aclrtMemcpyKind
HUGE_FIRST = 0  # aclrtMemMallocPolicy
AI_CORE_COUNT = 0  # aclDeviceInfo: ACL_DEVICE_INFO_AI_CORE_NUM

_ALREADY_INITIALISED = 100002
_ALREADY_FINALISED = 100037

# How each function answers (pyACL reference, signature of each): CODE `ret`; VALUE `(value, ret)`;
# PAIR `(a, b, ret)`; HANDLE a handle without a code, 0 on failure; CHAIN `(dataset, ret)` whose
# first element says nothing new; PLAIN a value without a code.
_RT = {
    "code": """set_device reset_device destroy_context set_context destroy_stream free free_host
        memcpy memcpy_async memset memset_async synchronize_stream_with_timeout""",
    "value": """get_device_count get_run_mode create_context create_stream malloc malloc_host
        get_device_info""",
    "pair": "get_mem_info",
}
_MDL = {
    "code": """unload get_desc destroy_desc destroy_dataset set_dynamic_batch_size
        set_dynamic_hw_size set_input_dynamic_dims execute_async""",
    "value": """load_from_file get_input_dims get_output_dims get_dynamic_batch get_dynamic_hw
        get_input_dynamic_gear_count get_input_dynamic_dims""",
    "chain": "add_dataset_buffer",
    "handle": "create_desc create_dataset",
    "plain": """get_num_inputs get_num_outputs get_input_size_by_index get_output_name_by_index
        get_input_data_type get_output_data_type""",
}
_TOP = {
    "code": "destroy_data_buffer update_data_buffer",
    "handle": "create_data_buffer",
    "plain": "get_soc_name",
}


class Binding:
    """pyACL with checked calls. `emulated` is True when the module is not the vendor's own.

    Opening one initialises ACL for the process (once, whoever asks first); ACL allows no second
    initialisation after `acl.finalize`, so that is left to the end of the process.
    """

    def __init__(self, module: ModuleType) -> None:
        self.name = module.__name__
        self.file: str | None = getattr(module, "__file__", None)
        self.emulated = module.__name__ != VENDOR_MODULE
        self._module = module
        self.rt = self._checked("acl.rt", module.rt, _RT)
        self.mdl = self._checked("acl.mdl", module.mdl, _MDL)
        self.acl = self._checked("acl", module, _TOP)

    def check(self, call: str, code: int) -> None:
        """Raises the typed error for any code but 0, with ACL's own last message in it."""
        if code:
            raise call_error(call, code, self._module.get_recent_err_msg() or "")

    def soc_name(self) -> str:
        """The chip, as ATC's --soc_version names it. Raises AclUnavailable when ACL cannot tell."""
        name = self.acl.get_soc_name()
        if not name:
            raise AclUnavailable(
                "acl.get_soc_name gave no name: the driver is not loaded, or this process may not"
                " see the device; run `npu-smi info`"
            )
        return str(name)

    def api_version(self) -> str | None:
        """ "major.minor.patch" of the ACL API; None before it could tell (CANN 8.0 and older)."""
        function = getattr(self._module, "get_version", None)
        if function is None:
            return None
        major, minor, patch, code = function()
        return None if code else f"{major}.{minor}.{patch}"

    def _checked(self, prefix: str, module: Any, kinds: Mapping[str, str]) -> SimpleNamespace:
        wrapped = {
            name: self._wrap(f"{prefix}.{name}", getattr(module, name, None), kind)
            for kind, names in kinds.items()
            for name in names.split()
        }
        return SimpleNamespace(**wrapped)

    def _wrap(self, call: str, function: Callable[..., Any] | None, kind: str) -> Any:
        if function is None:
            return functools.partial(_missing, call)
        return function if kind == "plain" else _WRAPPERS[kind](self.check, call, function)


def load(name: str | None = None) -> Binding:
    """pyACL, initialised. name: the module; by default $HYOCR_ACL, else the vendor's `acl`.

    Raises AclUnavailable when there is no such module, or it cannot be initialised.
    """
    name = name or os.environ.get(MODULE_VARIABLE) or VENDOR_MODULE
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        raise AclUnavailable(
            f"no pyACL: cannot import {name!r} ({error}); install the CANN toolkit and run"
            " `source /usr/local/Ascend/ascend-toolkit/set_env.sh`, or choose a CPU engine"
        ) from error
    binding = Binding(module)
    code = module.init()
    if code != _ALREADY_INITIALISED:
        binding.check("acl.init", code)
        _finalize_at_exit(module)
        log.info("pyACL %s initialised", name)
    return binding


@functools.cache
def _finalize_at_exit(module: ModuleType) -> None:
    atexit.register(_finalize, module)


def _finalize(module: ModuleType) -> None:
    code = module.finalize()
    if code not in (0, _ALREADY_FINALISED):
        log.warning("%s", call_error("acl.finalize", code))


def _missing(call: str, *_: object) -> Any:
    raise AclUnavailable(f"{call} is not in this pyACL; CANN 8.0 or newer is needed")


def _code(check: Any, call: str, function: Callable[..., int]) -> Callable[..., None]:
    def checked(*args: Any) -> None:
        code = function(*args)
        if code:
            check(call, code)

    return checked


def _value(check: Any, call: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def checked(*args: Any) -> Any:
        value, code = function(*args)
        if code:
            check(call, code)
        return value

    return checked


def _pair(check: Any, call: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def checked(*args: Any) -> Any:
        first, second, code = function(*args)
        if code:
            check(call, code)
        return first, second

    return checked


def _chain(check: Any, call: str, function: Callable[..., Any]) -> Callable[..., None]:
    def checked(*args: Any) -> None:
        _, code = function(*args)
        if code:
            check(call, code)

    return checked


def _handle(check: Any, call: str, function: Callable[..., int]) -> Callable[..., int]:
    def checked(*args: Any) -> int:
        handle = function(*args)
        if not handle:
            check(call, NO_HANDLE)
        return handle

    return checked


_WRAPPERS = {"handle": _handle, "code": _code, "value": _value, "pair": _pair, "chain": _chain}
