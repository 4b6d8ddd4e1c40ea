"""Whoever takes over an agent's container sees no other container: attacks in real pods with the settings of the DaemonSet."""

from typing import Any

import pytest

from harness.builders.busybox_workloads import size, template
from harness.cluster.cluster import Cluster
from harness.cluster.daemonset_sandbox import manifest
from harness.cluster.images import BUSYBOX
from harness.process import wait_for

VICTIM = "umask 077; echo SECRET-FILE > /token; : SECRET-ARGUMENT; while :; do sleep 1; done"
READ = r"""
for place in /proc /host/proc; do
  for process in $place/[0-9]*; do
    [ $process = /proc/$$ ] && continue
    for file in environ cmdline root/token; do tr '\0' ' ' < $process/$file; done
  done
done 2>/dev/null | grep -o 'SECRET-[A-Z][A-Z]*' | sort -u
echo attacked
"""
WRITE = r"""
for file in $(find /proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe /host /proc/sysrq-trigger \
    -maxdepth 5 \( -name core_pattern -o -name modprobe -o -name sysrq-trigger -o -name register -o -name uevent_helper \
    -o -name kprobe_events -o -name trace_marker -o -name release_agent \) 2>/dev/null); do
  ( exec 3>>$file ) 2>/dev/null && echo "OPENED $file"
done
ls -d /host/sys/kernel /host/sys/firmware /host/proc/[0-9]* /host/proc/kcore 2>/dev/null | sed 's/^/SEEN /'
echo attacked
"""


def build_attacker(script: str) -> dict[str, Any]:
    """Return a pod with the settings of the agent's, which runs this script."""
    spec = manifest()
    [agent] = spec["containers"]
    container = {
        **{name: agent[name] for name in ("securityContext", "volumeMounts", "resources")},
        "name": "agent",
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "args": ["-c", script],
    }
    volumes = [
        {"name": "state", "emptyDir": {}} if each["name"] == "state" else each for each in spec["volumes"]
    ]
    kept = {name: spec[name] for name in ("hostPID", "hostNetwork", "hostIPC") if name in spec}
    return {"spec": {"containers": [container], "volumes": volumes, "restartPolicy": "Never", **kept}}


@pytest.fixture
def victims(node_cluster: Cluster, namespace: str) -> None:
    """Pods of a tenant that run as root: with the usual capabilities, and with none."""
    contexts: dict[str, dict[str, Any]] = {
        "usual": {},
        "bare": {"capabilities": {"drop": ["ALL"]}, "allowPrivilegeEscalation": False},
    }
    for name, context in contexts.items():
        secret = [{"name": "TOKEN", "value": "SECRET-ENVIRONMENT"}]
        pod = template(VICTIM, app=name, size=size("10m", "16Mi"), securityContext=context, env=secret)
        pod["metadata"]["name"] = name
        node_cluster.call("POST", f"/api/v1/namespaces/{namespace}/pods", pod)
        node_cluster.kubectl(
            "wait", "--for=condition=Ready", f"pod/{name}", "-n", namespace, "--timeout=120s"
        )


def attack(cluster: Cluster, namespace: str, script: str) -> list[str]:
    """Run a script in a pod with the agent's settings, and return what it prints."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    pod = build_attacker(script) | {"metadata": {"name": "attacker"}}
    cluster.call("POST", path, pod)

    def is_over() -> bool:
        return cluster.call("GET", f"{path}/attacker")["status"]["phase"] in {"Succeeded", "Failed"}

    wait_for(is_over, what="the attack to end", timeout=180)
    said = cluster.kubectl("logs", "attacker", "-n", namespace).splitlines()
    assert said[-1:] == ["attacked"]
    return said[:-1]


@pytest.mark.usefixtures("victims")
def test_agents_container_reads_nothing_of_other_containers(node_cluster: Cluster, namespace: str) -> None:
    assert attack(node_cluster, namespace, READ) == []


def test_agents_container_opens_nothing_that_gives_it_the_node(node_cluster: Cluster, namespace: str) -> None:
    found = attack(node_cluster, namespace, WRITE)
    # With cgroup v1 root may write there anyway, which the threat model tells.
    assert [line for line in found if not line.endswith("/release_agent")] == []
