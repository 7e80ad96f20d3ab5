"""Questions about a device: load, status, capabilities, overflow mode, peers."""

from __future__ import annotations

from .binding import api, code
from .context import current
from .machine import MACHINE

INVALID = code("INVALID_PARAM")
BAD_DEVICE = code("RT_INVALID_DEVICEID")
UNSUPPORTED = code("RT_FEATURE_NOT_SUPPORT")


def _known(device_id: int) -> bool:
    return 0 <= device_id < MACHINE.settings.visible_devices


@api("acl.rt.get_device_utilization_rate")
def get_device_utilization_rate(device_id: int) -> tuple[dict[str, int], int]:
    """Percentages; only memory is known here."""
    if not _known(device_id):
        return {}, BAD_DEVICE
    live = MACHINE.counters.live_device_bytes[device_id]
    used = 100 * live // MACHINE.settings.device_memory
    return {"cube_utilization": 0, "vector_utilization": 0, "aicpu_utilization": 0,
            "memory_utilization": used, "utilization_extend": 0}, 0  # fmt: skip


@api("acl.rt.query_device_status")
def query_device_status(device_id: int) -> tuple[int, int]:
    """(0 normal | 1 abnormal, 0)."""
    if not _known(device_id):
        return 0, BAD_DEVICE
    device = MACHINE.devices.get(device_id)
    return int(device is not None and device.lost), 0


@api("acl.rt.get_device_info")
def get_device_info(device_id: int, attr: int) -> tuple[int, int]:
    """attr 1: AI cores, 101: vector cores, 201: L2 bytes (aclrtDevAttr)."""
    if not _known(device_id):
        return 0, BAD_DEVICE
    chip = MACHINE.settings.chip
    known = {1: chip.cores, 101: chip.cores * (2 if chip.short == "910B" else 1)}
    return (known[attr], 0) if attr in known else (0, UNSUPPORTED)


@api("acl.rt.set_ts_device")
def set_ts_device(ts_id: int) -> int:
    """0 AI core, 1 vector core scheduler."""
    return 0 if ts_id in (0, 1) else INVALID


@api("acl.rt.set_device_sat_mode")
def set_device_sat_mode(mode: int) -> int:
    """0 saturation, 1 inf/nan; the choice exists on A2/A3 only."""
    context = current()
    if isinstance(context, int):
        return context
    if mode not in (0, 1):
        return INVALID
    if MACHINE.settings.chip.saturates:
        return 0 if mode == 0 else MACHINE.report(UNSUPPORTED, "EE1006: the chip always saturates")
    context.device.saturation = mode
    return 0


@api("acl.rt.get_device_sat_mode")
def get_device_sat_mode() -> tuple[int, int]:
    """(mode, 0)."""
    context = current()
    if isinstance(context, int):
        return 0, context
    return (0 if MACHINE.settings.chip.saturates else context.device.saturation), 0


@api("acl.rt.device_can_access_peer")
def device_can_access_peer(device_id: int, peer_device_id: int) -> tuple[int, int]:
    """(1 when the two devices can copy directly, 0); emulated devices cannot."""
    if device_id == peer_device_id:
        return 0, INVALID
    if not _known(device_id) or not _known(peer_device_id):
        return 0, BAD_DEVICE
    return 0, 0
