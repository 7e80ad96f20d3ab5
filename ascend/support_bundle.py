"""A zip for a support request: versions, chips, manifests, the last profile, the configuration with
its secrets taken out. No page content: no pictures, no texts, no file names of pages.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import os
import platform
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from ascend.doctor import Finding
from ascend.errors import UsageError
from ascend.profile_run import TRACE_NAME
from atc_configs.manifest import MANIFEST_NAME
from profiling.report import PROFILE_NAME, make_report

REDACTED = "[redacted]"
_SECRET_KEY = re.compile(
    r"(keys?(_?id)?|passw\w*|secrets?\w*|auth\w*|credentials?|cookies?|signature|private\w*)$",
    re.IGNORECASE,
)
# A number of tokens is no secret, a text is.
_TOKEN_KEY = re.compile(r"tokens?$", re.IGNORECASE)
_USER_IN_URL = re.compile(r"(\w+://)[^/@\s]+@")
_QUERY = re.compile(r"(\w+://[^\s?]+)\?\S+")
# Variables that decide what CANN and this program do; the rest of the environment is private.
_VARIABLES = re.compile(r"(ASCEND|HYOCR|OMP|ORT|CANN|TOOLCHAIN)_?\w*|LD_LIBRARY_PATH")
# Numbers of a manifest, an export and a checkpoint; nothing of a page is in them.
_MODEL_FILES = (MANIFEST_NAME, "export.json", "config.json", "generation_config.json")
_MOST_BYTES = 32 << 20


def write_support_bundle(
    target: Path,
    findings: Sequence[Finding],
    *,
    model: str | None = None,
    config: Path | None = None,
    profile: Path | None = None,
) -> list[str]:
    """Write the zip in one step and return the names in it.

    model: a folder whose manifest goes in, or the .yaml of a reader with a fallback; config: a
    configuration file; profile: a folder that `hyocr profile` wrote. Raises UsageError for a
    configuration that is no YAML or JSON, ProfileError for a folder without a profile."""
    parts = dict(_parts(findings, model, config, profile))
    partial = target.with_name(target.name + ".part")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    partial.replace(target)
    return list(parts)


def redact(value: Any) -> Any:
    """`value` with everything under a key that names a secret replaced, credentials and queries
    taken out of addresses, and the home folder written as ~."""
    if isinstance(value, Mapping):
        return {
            k: REDACTED if v is not None and _is_secret(str(k), v) else redact(v)
            for k, v in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [redact(item) for item in value]
    return _redact_text(value) if isinstance(value, str) else value


def _is_secret(key: str, value: Any) -> bool:
    counted = isinstance(value, (int, float))
    return bool(_SECRET_KEY.search(key) or (_TOKEN_KEY.search(key) and not counted))


def _redact_text(text: str) -> str:
    home = os.path.expanduser("~")
    if len(home) > 1:
        text = text.replace(home, "~")
    return _QUERY.sub(r"\1?" + REDACTED, _USER_IN_URL.sub(rf"\1{REDACTED}@", text))


def _parts(
    findings: Sequence[Finding], model: str | None, config: Path | None, profile: Path | None
) -> Iterator[tuple[str, str]]:
    yield "doctor.json", _json(redact([dataclasses.asdict(f) for f in findings]))
    yield "versions.json", _json(_versions())
    yield "environment.json", _json(redact(_environment()))
    if model is not None and model.endswith((".yaml", ".yml")):
        yield "configuration/" + Path(model).name, _configuration(Path(model))
    elif model is not None:
        for name in _MODEL_FILES:
            path = Path(model) / name
            if path.is_file() and path.stat().st_size <= _MOST_BYTES:
                yield f"model/{name}", _configuration(path)
    if config is not None:
        yield "configuration/" + config.name, _configuration(config)
    if profile is not None:
        yield "profile/report.json", _json(redact(make_report(profile)))
        if (profile / PROFILE_NAME).is_file():
            yield f"profile/{PROFILE_NAME}", _configuration(profile / PROFILE_NAME)
        trace = profile / TRACE_NAME
        if trace.is_file() and trace.stat().st_size <= _MOST_BYTES:
            yield f"profile/{TRACE_NAME}", _json(_nameless(json.loads(trace.read_text("utf-8"))))


def _versions() -> dict[str, Any]:
    packages = {d.metadata["Name"]: d.version for d in importlib.metadata.distributions()}
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "machine": platform.machine(),
        "packages": dict(sorted(packages.items(), key=lambda item: str(item[0]).lower())),
    }


def _environment() -> dict[str, str]:
    return {k: v for k, v in sorted(os.environ.items()) if _VARIABLES.fullmatch(k)}


def _configuration(path: Path) -> str:
    """The file's values without its secrets; comments are lost, since they may hold some."""
    try:
        values = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"{path}: not a readable configuration: {error}") from error
    return _json(redact(values))


def _nameless(trace: dict[str, Any]) -> dict[str, Any]:
    """The trace with pages by number instead of by the name of their file."""
    rows = {
        (event["pid"], event["tid"])
        for event in trace["traceEvents"]
        if event["name"] == "thread_name" and event["args"]["name"] == "pages"
    }
    number = 0
    for event in trace["traceEvents"]:
        if event["ph"] == "X" and (event["pid"], event["tid"]) in rows:
            number += 1
            event["name"] = f"page {number}"
    return trace


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1, default=str) + "\n"
