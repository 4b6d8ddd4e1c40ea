"""The agent needs each mount and the capability of its DaemonSet: it fails without any one of them."""

from harness.cluster.daemonset_sandbox import manifest

MISSED = {
    "fs": "/host/sys/fs/cgroup: there is no cgroup file system; mount the node's /sys/fs/cgroup there",
    "devices": "No such file or directory: '{root}/host/sys/devices/system/cpu/online'; it needs the node's cgroups, /proc and /sys",
    "state": "--state {root}/var/lib/trimtab-agent: the directory is not writable; mount a persistent one there",
}


def test_agent_needs_every_mount_of_its_manifest() -> None:
    [container] = manifest()["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == {*MISSED, "class", "vm"}
