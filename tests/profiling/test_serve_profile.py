"""POST /admin/profile: a service on the stand-in of an NPU records itself while it serves."""

from __future__ import annotations

from pathlib import Path

import pytest

for needed in ("fastapi", "uvicorn", "prometheus_client", "httpx", "psutil"):
    pytest.importorskip(needed)

from tests.serve.running import running  # noqa: E402

KEY = {"authorization": "Bearer admin-of-the-tests"}


def test_a_service_profiles_itself_on_demand(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYOCR_ADMIN_KEY", "admin-of-the-tests")
    monkeypatch.setenv("HYOCR_ACL", "tests.pyacl_emulator")
    with running(model=str(bundle), engine="acl", slots=1) as server:
        answer = server.post("/admin/profile", params={"seconds": 0.5}, headers=KEY)
        assert answer.status_code == 200, answer.text
        report = answer.json()["report"]
        assert report["emulated"] and len(report["profiles"]) == 1
        refused = server.post("/admin/profile", params={"metrics": "x"}, headers=KEY)
        assert refused.status_code >= 400 and "PipeUtilization" in refused.text
        assert server.post("/admin/profile").status_code in (401, 403)
