"""The support bundle holds what helps and nothing private; `read --trace` writes a trace."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from PIL import Image

from ascend.cli import main
from ascend.support_bundle import REDACTED, redact
from tests.profiling.test_profile_command import check_trace


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "contract of Jane Doe.png"
    Image.new("RGB", (320, 240), "white").save(path)
    return path


def test_a_read_can_be_traced(page: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    assert main(["read", str(page), "-o", str(tmp_path / "o.json"), "--trace", str(trace)]) == 0
    events = json.loads(trace.read_text())["traceEvents"]
    check_trace(events)
    names = [e["name"] for e in events if e["ph"] == "X"]
    assert {"decode", "det", f"{page} page 1"} <= set(names)


def test_the_bundle_has_no_secret_and_no_page_name(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HYOCR_API_KEY", "hunter2")
    monkeypatch.setenv("PRIVATE_THING", "hunter2")
    config = tmp_path / "service.yaml"
    config.write_text(
        "# old password: hunter2\nport: 8080\napi_keys: [hunter2]\n"
        "store: {url: 'redis://user:hunter2@host/0?sig=hunter2', secret: hunter2}\n"
    )
    profile, target = tmp_path / "run", tmp_path / "support.zip"
    assert main(["profile", str(page), "--cold", "-o", str(profile)]) == 0
    command = ["doctor", "--bundle", str(target), "--config", str(config)]
    main([*command, "--profile", str(profile)])  # 0 or 1: what is missing here is not the point
    with zipfile.ZipFile(target) as archive:
        parts = {name: archive.read(name).decode() for name in archive.namelist()}
    assert parts.keys() >= {
        "doctor.json", "versions.json", "environment.json", "configuration/service.yaml",
        "profile/report.json", "profile/profile.json", "profile/trace.json",
    }  # fmt: skip
    whole = "\n".join(parts.values())
    assert "hunter2" not in whole
    assert "Jane Doe" not in whole
    assert json.loads(parts["configuration/service.yaml"])["port"] == 8080
    assert "numpy" in json.loads(parts["versions.json"])["packages"]
    assert "page 1" in parts["profile/trace.json"]


def test_a_bundle_that_fails_leaves_nothing(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("a: [")
    target = tmp_path / "support.zip"
    assert main(["doctor", "--bundle", str(target), "--config", str(bad)]) == 2
    assert list(tmp_path.iterdir()) == [bad]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"api_key": "x", "n": 1}, {"api_key": REDACTED, "n": 1}),
        ({"a": [{"Password": "x"}]}, {"a": [{"Password": REDACTED}]}),
        ({"token": None, "bot_token": "x"}, {"token": None, "bot_token": REDACTED}),
        (
            {"completion_tokens": 12, "num_key_value_heads": 8},
            {"completion_tokens": 12, "num_key_value_heads": 8},
        ),
        (
            {"accessKeyId": 5, "tokenizer": "t.json"},
            {"accessKeyId": REDACTED, "tokenizer": "t.json"},
        ),
        ("https://u:p@host/x", f"https://{REDACTED}@host/x"),
        ("https://host/x?sig=1", f"https://host/x?{REDACTED}"),
        ("plain", "plain"),
    ],
)
def test_redaction(value: object, shown: object) -> None:
    assert redact(value) == shown
