"""The commands of the guide for GitOps, run as they are written there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import yaml

from scan.scene import ScannedCluster

GUIDE = Path(__file__).parents[3] / "docs" / "how-to" / "gitops.md"


def read_weekly_script() -> str:
    """Return the script of the weekly pull request."""
    section = GUIDE.read_text().partition("## Open pull requests from CI")[2]
    found = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    assert found
    return found[1]


def run_script(script: str, cluster: ScannedCluster, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a script as CI does, with `trimtab` on the PATH."""
    command = folder / "bin" / "trimtab"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m trimtab "$@" {" ".join(cluster.options)}\n')
    command.chmod(0o755)
    environment = os.environ | {"PATH": f"{command.parent}:{os.environ['PATH']}"}
    script = script.replace("--namespace shop", f"--namespace {cluster.namespace}")
    return subprocess.run(
        ["bash", "-e", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def write_deployment(folder: Path, name: str) -> Path:
    """Write the manifest of one workload of the cluster."""
    requests = {"cpu": "2", "memory": "2Gi"}
    container = {"name": "app", "resources": {"requests": requests, "limits": {"memory": "2Gi"}}}
    file = folder / "k8s" / f"{name}.yaml"
    file.parent.mkdir()
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }
    file.write_text(yaml.safe_dump(manifest))
    return file


def test_weekly_script_edits_the_repository(lightly_used_cluster: ScannedCluster, tmp_path: Path) -> None:
    file = write_deployment(tmp_path, "web")
    before = file.read_text()
    done = run_script(read_weekly_script(), lightly_used_cluster, tmp_path)
    assert done.returncode == 0, done.stderr
    assert file.read_text() != before
    assert "deployment/web recommended" in (tmp_path / "body.diff").read_text()


def test_weekly_script_does_nothing_below_the_limit(
    lightly_used_cluster: ScannedCluster, tmp_path: Path
) -> None:
    file = write_deployment(tmp_path, "web")
    before = file.read_text()
    script = read_weekly_script().replace("waste>30%", "waste>99%")
    assert run_script(script, lightly_used_cluster, tmp_path).returncode == 0
    assert (file.read_text(), (tmp_path / "body.diff").exists()) == (before, False)


def test_weekly_script_fails_where_nothing_can_be_read(
    lightly_used_cluster: ScannedCluster, tmp_path: Path
) -> None:
    file = write_deployment(tmp_path, "web")
    before = file.read_text()
    script = read_weekly_script().replace("--namespace shop", "--namespace shop --days 0")
    assert run_script(script, lightly_used_cluster, tmp_path).returncode != 0
    assert file.read_text() == before
