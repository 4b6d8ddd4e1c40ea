"""`trimtab scan` on the real API server and a real Prometheus, as a new user would run it."""

from pathlib import Path

import pytest
import yaml

from trimtab.cli import run


def test_scan_names_each_unreachable_cluster_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {
        "clusters": [{"name": "gone", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "me", "user": {"token": "t"}}],
        "contexts": [
            {"name": name, "context": {"cluster": "gone", "user": "me"}} for name in ("blue", "green")
        ],
    }
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config))
    assert run(["scan", "--all-contexts", "--kubeconfig", str(path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.split(":")[1] for line in err.splitlines()] == [" blue", " green"]
