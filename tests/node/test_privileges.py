"""What the agent is given of its node it needs: each mount and the capability, taken away one at a time, is missed."""

import os
from pathlib import Path

import pytest

from harness.cluster.daemonset_sandbox import manifest, run_in_sandbox

MISSED = {
    "sys": "/host/sys/fs/cgroup: there is no cgroup file system; mount the node's /sys/fs/cgroup there",
    "proc": "No such file or directory: '{root}/host/proc/meminfo'; it needs the node's cgroups, /proc and /sys",
    "state": "--state {root}/var/lib/trimtab-agent: the directory is not writable; mount a persistent one there",
}


def test_agent_needs_every_mount_of_its_manifest() -> None:
    [container] = manifest()["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {*MISSED, "vm"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_agent_mounts_give_no_root_on_the_node(tmp_path: Path) -> None:
    """The kernel starts the program that core_pattern names as root of the node, for any process that crashes."""
    dangerous = ("kernel/core_pattern", "kernel/modprobe", "kernel/sysrq", "fs/binfmt_misc/register")
    for name in dangerous:
        if not Path("/proc/sys", name).exists():
            continue
        # Opened for appending only: nothing is written even where it is allowed.
        tried = run_in_sandbox(tmp_path / name.replace("/", "-"), f'exec 3>>"$ROOT/host/proc/sys/{name}"')
        assert "Read-only file system" in tried.stderr, name
    allowed = run_in_sandbox(tmp_path / "vm", 'exec 3>>"$ROOT/host/proc/sys/vm/min_free_kbytes"')
    assert allowed.returncode == 0, allowed.stderr
