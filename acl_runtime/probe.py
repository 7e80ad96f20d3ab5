"""What `hyocr doctor` wants to know of the NPU side, as data: never raises, never leaves a device
open."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from acl_runtime.binding import AI_CORE_COUNT, Binding, load
from acl_runtime.device import Device, memory_info
from acl_runtime.errors import AclError

# AI cores (cube cores on the A2) of a whole chip: CANN 8.1.RC1, data/platform_config/Ascend*.ini. A
# slice has fewer.
_CORES = {
    "Ascend310P1": 10, "Ascend310P3": 8, "Ascend310P5": 8, "Ascend310P7": 8,
    "Ascend310B1": 1, "Ascend310B2": 1, "Ascend310B3": 1, "Ascend310B4": 1,
    "Ascend910A": 32, "Ascend910ProA": 32, "Ascend910ProB": 30, "Ascend910PremiumA": 32,
    "Ascend910B1": 24, "Ascend910B2": 24, "Ascend910B2C": 24, "Ascend910B3": 20, "Ascend910B4": 20,
}  # fmt: skip

_DRIVER_INFO = "usr/local/Ascend/driver/version.info"
_TOOLKIT_FILES = ("version.cfg", "ascend_toolkit_install.info")


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """One device: bytes of memory, AI cores (None: the runtime does not say), `error` if it cannot
    be used."""

    index: int
    memory_free: int = 0
    memory_total: int = 0
    ai_cores: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is, or will be, in the way; `remedy` is what to do about it."""

    code: str
    text: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Probe:
    """The NPU side of this machine. `module` None: there is no pyACL here, and the rest is
    unknown."""

    module: str | None = None
    emulated: bool = False
    api_version: str | None = None
    cann_version: str | None = None
    driver_version: str | None = None
    soc: str | None = None
    run_mode: str | None = None
    virtual: bool | None = None
    devices: tuple[DeviceFacts, ...] = ()
    problems: tuple[Problem, ...] = ()


def probe(name: str | None = None, root: str | Path = "/") -> Probe:
    """Looks at driver, CANN, chips and memory. name: the ACL module; root: where /usr, /dev, /etc
    are."""
    files = Path(root)
    driver, cann = driver_version(files), cann_version()
    try:
        binding = load(name)
    except AclError as error:
        problems = (Problem("no_acl", str(error), "see the text"), *_node_problems(files))
        return Probe(cann_version=cann, driver_version=driver, problems=problems)
    try:
        soc: str | None = binding.soc_name()
        count, mode = binding.rt.get_device_count(), binding.rt.get_run_mode()
    except AclError as error:
        soc, count, mode = None, 0, None
        problems = (Problem("no_device", str(error), "run `npu-smi info` on the host"),)
    else:
        problems = ()
    devices = tuple(_device_facts(binding, index) for index in range(count))
    virtual = _is_virtual(files, soc, devices)
    problems += _problems(binding, soc, devices, virtual, driver) + _node_problems(files)
    return Probe(
        module=binding.name,
        emulated=binding.emulated,
        api_version=binding.api_version(),
        cann_version=cann,
        driver_version=driver,
        soc=soc,
        run_mode={0: "RC", 1: "EP", None: None}.get(mode),
        virtual=virtual,
        devices=devices,
        problems=problems,
    )


def driver_version(root: Path = Path("/")) -> str | None:
    """The driver's version as its own file says it; None without a driver (or inside a container
    without it)."""
    match = re.search(r"(?m)^Version=(\S+)", _text(root / _DRIVER_INFO))
    return match.group(1) if match else None


def cann_version() -> str | None:
    """The release of the toolkit that ASCEND_TOOLKIT_HOME (or ASCEND_HOME_PATH) names; None without
    one."""
    home = os.environ.get("ASCEND_TOOLKIT_HOME") or os.environ.get("ASCEND_HOME_PATH")
    if not home:
        return None
    for name in _TOOLKIT_FILES:
        # runtime_running_version=[7.7.0.1.238:8.1.RC1], or version=8.1.RC1
        match = re.search(r"=\[[^:\]]*:([^\]]+)\]|(?m:^version=(\S+))", _text(Path(home) / name))
        if match:
            return match.group(1) or match.group(2)
    return None


def _device_facts(binding: Binding, index: int) -> DeviceFacts:
    try:
        with Device(binding, index) as device:
            free, total = device.call(lambda: memory_info(binding))
            try:
                cores = device.call(lambda: binding.rt.get_device_info(index, AI_CORE_COUNT))
            except AclError:  # not in older CANN; the count only helps to see a slice
                cores = None
    except AclError as error:
        return DeviceFacts(index, error=str(error))
    return DeviceFacts(index, free, total, cores)


def _is_virtual(root: Path, soc: str | None, devices: tuple[DeviceFacts, ...]) -> bool | None:
    """Whether the NPU is a slice: the host names slices /dev/vdavinciN; inside a container only the
    cores tell."""
    if any((root / "dev").glob("vdavinci*")):
        return True
    whole, seen = _CORES.get(soc or ""), [d.ai_cores for d in devices if d.ai_cores]
    if whole is None or not seen:
        return None
    return min(seen) < whole


def _problems(
    binding: Binding,
    soc: str | None,
    devices: tuple[DeviceFacts, ...],
    virtual: bool | None,
    driver: str | None,
) -> tuple[Problem, ...]:
    found = []
    if soc and not devices:
        found.append(
            Problem(
                "no_device", "ACL sees no device", "check ASCEND_RT_VISIBLE_DEVICES and npu-smi"
            )
        )
    found += [
        Problem("device_error", f"device {d.index}: {d.error}", "see the text")
        for d in devices
        if d.error
    ]
    if virtual:
        found.append(
            Problem(
                "virtual_npu",
                "the NPU is a slice (virtual); slices lack kinds of tasks, and compiled graphs fail"
                " with 507009",
                "give the container a whole NPU, or use a CPU engine",
            )
        )
    if driver is None and not binding.emulated:
        found.append(
            Problem(
                "no_driver_info",
                f"/{_DRIVER_INFO} cannot be read, so the driver's version is unknown",
                "mount it into the container (-v /usr/local/Ascend/driver/version.info)",
            )
        )
    return tuple(found) + _path_problems(binding)


def _path_problems(binding: Binding) -> tuple[Problem, ...]:
    home = os.environ.get("ASCEND_TOOLKIT_HOME")
    if binding.emulated or not home or not binding.file:
        return ()
    if Path(home).resolve() in Path(binding.file).resolve().parents:
        return ()
    return (
        Problem(
            "mixed_cann",
            f"pyACL comes from {binding.file}, but ASCEND_TOOLKIT_HOME is {home}",
            "source the set_env.sh of one toolkit only",
        ),
    )


def _node_problems(root: Path) -> tuple[Problem, ...]:
    """A container that was given the chip but not the nodes around it fails late and obscurely."""
    dev = root / "dev"
    if not any(dev.glob("davinci[0-9]*")):
        return ()
    missing = [n for n in ("davinci_manager", "devmm_svm", "hisi_hdc") if not (dev / n).exists()]
    if not missing:
        return ()
    options = " ".join(f"--device /dev/{name}" for name in missing)
    return (Problem("device_nodes", f"/dev lacks {', '.join(missing)}", f"docker run {options}"),)


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace")
    except OSError:
        return ""
