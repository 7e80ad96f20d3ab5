"""The ATC compiler: its command line from the contract, its run, its error codes as sentences.

Options and texts: GE's `docs/zh/user_guides/atc_tools` and `api/atc/main_impl.cc`; codes: the error
table of CANN 8.1.RC1. Knows one graph at a time and nothing of bundles.
"""

from __future__ import annotations

import csv
import difflib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from ascend.errors import EngineUnavailable, ModelError
from atc_configs.contract import GraphSpec
from atc_configs.soc import Soc, soc_names

ONNX_FRAMEWORK = "5"
# The option whose value in a contract is the text of its file (image input on the device).
AIPP = "insert_op_conf"
_LAYOUTS = {"dynamic_image_size": "NCHW", "dynamic_batch_size": "NCHW"}
_SUCCESS = "ATC run success"
# What helps here; the vendor's own advice is appended.
_REMEDIES = {
    "E10001": "correct the value, or remove it from the contract's `atc` options",
    "E10016": "a node of the keep list is not in the graph: make the list again (hyocr export)",
    "E10041": "export the model again; the weights (.onnx.data) must lie beside the .onnx",
    "E10055": "hyocr lint FILE names the nodes whose shapes are computed at run time",
    "E14001": "hyocr lint FILE names operators without a kernel",
    "E16002": "hyocr lint FILE names the node and what to write instead",
    "E19999": "see $HOME/ascend/log/debug/plog; often too little memory or disk",
    "EZ3003": "hyocr lint FILE names the node and what to write instead",
    "EZ9999": "see $HOME/ascend/log/debug/plog; often a damaged CANN installation",
}
_CODE = re.compile(r"^\s*(E[A-Z0-9]\d{4})\s*:\s*(.*)")
_INFORMATION = re.compile(r"(\w+)\[([^\]]*)\]")


class AtcNotFound(EngineUnavailable):
    """There is no `atc` on this machine; the text says where it was looked for."""


class AtcError(ModelError):
    """ATC refused or failed. `code` is its own ("E16002"), None if it gave none."""

    def __init__(self, text: str, code: str | None = None) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class OmInformation:
    """What `atc --mode=6` says of a file; None where it does not."""

    atc_version: str | None
    soc_version: str | None
    work_bytes: int | None
    weight_bytes: int | None
    command: str | None


def find_atc(environ: Mapping[str, str] = os.environ) -> Path:
    """The compiler: $ASCEND_TOOLKIT_HOME first, then PATH. Raises AtcNotFound."""
    home = environ.get("ASCEND_TOOLKIT_HOME")
    places = [Path(home) / "bin" / "atc", Path(home) / "compiler" / "bin" / "atc"] if home else []
    for place in places:
        if os.access(place, os.X_OK):
            return place
    found = shutil.which("atc", path=environ.get("PATH"))
    if found:
        return Path(found)
    looked = f"{home}/bin and PATH" if home else "PATH (ASCEND_TOOLKIT_HOME is not set)"
    raise AtcNotFound(
        f"no atc in {looked}; install the CANN toolkit and `source set_env.sh`"
        " (compiling needs no NPU, so any Linux machine will do)"
    )


def cann_version(atc: Path) -> str | None:
    """The release of the toolkit that `atc` belongs to, from its version.info files."""
    for folder in atc.resolve().parents[:5]:
        for name in ("version.info", "ascend_toolkit_install.info", "compiler/version.info"):
            path = folder / name
            if path.is_file():
                match = re.search(r"(?i)^version\s*=\s*\[?([^\]\s]+)", path.read_text(), re.M)
                if match:
                    return match.group(1)
    return None


def atc_arguments(
    spec: GraphSpec,
    onnx: Path,
    output: Path,
    soc: Soc,
    keep: Path | None = None,
    aipp: Path | None = None,
) -> list[str]:
    """Everything after `atc`. output: prefix of the .om; keep: file of nodes for --keep_dtype;
    aipp: file with what the contract says under `insert_op_conf`."""
    arguments = {
        "model": str(onnx),
        "framework": ONNX_FRAMEWORK,
        "output": str(output),
        "soc_version": soc.name,
        "input_format": _LAYOUTS.get(spec.gear_kind, "ND"),
        "input_shape": spec.atc_input_shape(),
    }
    if spec.gear_kind != "static":
        arguments[spec.gear_kind] = spec.atc_dynamic_dims()
    arguments |= {name: value for name, value in spec.atc.items() if name != AIPP}
    if aipp is not None:
        arguments[AIPP] = str(aipp)
    if keep is not None:
        arguments["keep_dtype"] = str(keep)
    arguments["log"] = "error"
    return [f"--{name}={value}" for name, value in arguments.items()]


def shell_text(atc: Path | str, arguments: Sequence[str]) -> str:
    """The command as one would type it: ";" in a shape ends a command that is not quoted."""
    return " \\\n    ".join(shlex.quote(part) for part in [str(atc), *arguments])


def run_atc(atc: Path, arguments: Sequence[str], folder: Path, say: Callable[[str], None]) -> None:
    """Runs ATC in `folder` and hands its lines to `say` as they come.

    Raises AtcError with the code, the sentence and the remedy. A run that is interrupted is ended.
    """
    lines: list[str] = []
    with subprocess.Popen(
        [str(atc), *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                lines.append(line.rstrip())
                say(f"atc: {lines[-1]}")
        except BaseException:
            process.terminate()
            raise
    if process.returncode != 0 or not any(_SUCCESS in line for line in lines):
        raise explain(lines, process.returncode)


def om_information(atc: Path, om: Path) -> OmInformation:
    """What the file's own compiler says of it. Raises AtcError if it cannot read the file."""
    shown = subprocess.run(
        [str(atc), "--mode=6", f"--om={om}"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if shown.returncode != 0:
        raise explain(shown.stdout.splitlines(), shown.returncode)
    return parse_information(shown.stdout)


def parse_information(text: str) -> OmInformation:
    """Four lines of `name[value]` and one with the command line (GE api/atc/omg.cc)."""
    values = dict(_INFORMATION.findall(text))
    command = re.search(r"command line:\s*(.+)", text)
    return OmInformation(
        values.get("atc_version"),
        values.get("soc_version"),
        _bytes(values.get("memory_size")),
        _bytes(values.get("weight_size")),
        command.group(1).strip() if command else None,
    )


def explain(lines: Sequence[str], status: int) -> AtcError:
    """The error for what ATC printed: its first code's sentence, and what to do."""
    for line in lines:
        match = _CODE.match(line)
        if match:
            code, message = match.groups()
            return AtcError(_sentence(code, message), code)
    unknown = next((line for line in lines if "unrecognized option" in line), None)
    if unknown:
        return AtcError(f"this atc does not know an option: {unknown}; see atc --help")
    ended = f"by signal {-status}" if status < 0 else f"with status {status}"
    last = next((line for line in reversed(lines) if line.strip()), "it printed nothing")
    return AtcError(
        f"atc ended {ended} without an error code ({last}); see $HOME/ascend/log/debug/plog"
        + ("; signal 9 is usually too little memory" if status == -9 else "")
    )


def _sentence(code: str, message: str) -> str:
    title, advice = _codes().get(code, ("", ""))
    parts = [f"atc {code}{f' ({title})' if title else ''}: {message.rstrip('. ')}"]
    if code == "E10001" and "soc_version" in message:
        given = re.search(r"[Vv]alue \[([^\]]*)\]", message)
        near = difflib.get_close_matches(given.group(1) if given else "", soc_names(), 1)
        parts.append(f"did you mean {near[0]}?" if near else "see npu-smi info for the name")
    elif code in _REMEDIES:
        parts.append(_REMEDIES[code])
    if advice:
        parts.append(f"the vendor says: {advice}")
    return "; ".join(parts)


def _codes() -> dict[str, tuple[str, str]]:
    text = resources.files("ascend.build").joinpath("atc_codes.tsv").read_text("utf-8")
    rows = csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE)
    return {row["code"]: (row["title"], row["solution"]) for row in rows}


def _bytes(text: str | None) -> int | None:
    match = re.match(r"\d+", text or "")
    return int(match.group()) if match else None
