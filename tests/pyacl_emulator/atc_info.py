"""`atc --mode=6`: the four lines that the compiler prints about an `.om` (GE api/atc/omg.cc)."""

from __future__ import annotations

from . import om
from .atc_messages import AtcError


def model_information(path: str) -> str:
    """The text. Raises AtcError E10001 on a bad file."""
    try:
        file = om.read(path)
    except (OSError, om.OmError) as error:
        raise AtcError("E10001", path, "om", f"Invalid om file: {error}") from error
    raw = file.description
    parts = om.partition_sizes(path)
    return (
        "============ Display Model Info start ============\n"
        f"Original Atc command line: {raw['command']}\n"
        f"system   info: atc_version[{raw['atc_version']}], soc_version[{raw['soc']}], "
        "framework_type[5].\n"
        f"resource info: memory_size[{raw['work_size']} B], weight_size[{raw['weight_size']} B], "
        "stream_num[1], event_num[0].\n"
        f"om       info: modeldef_size[{parts[om.MODEL_DEF]} B], "
        f"weight_data_size[{parts[om.WEIGHTS]} B], "
        f"tbe_kernels_size[0 B], cust_aicpu_kernel_store_size[0 B], "
        f"task_info_size[{parts[om.TASK_INFO]} B], so_store_size[0 B].\n"
        "============ Display Model Info end   ============"
    )
