"""The agent as a process, on the real API server and with real cgroups of this machine.

It runs with the rights of its manifest and, as root, without any capability.
"""

import dataclasses
from pathlib import Path

import yaml

from trimtab.kube.rest.rbac import RBAC_RULES
from trimtab.node.config import AgentSettings

DEPLOY = Path(__file__).parents[2] / "deploy"


def test_agent_manifest_grants_exactly_the_needed_rights() -> None:
    documents = list(yaml.safe_load_all((DEPLOY / "agent" / "account.yaml").read_text()))
    granted = {
        (group, resource, verb)
        for role in documents
        if role["kind"] in ("ClusterRole", "Role")
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    asked = {(right.group, right.resource, verb) for right in RBAC_RULES["agent"] for verb in right.verbs}
    assert granted == asked


def test_agent_manifest_mounts_only_what_the_agent_needs() -> None:
    pod = yaml.safe_load((DEPLOY / "agent" / "daemonset.yaml").read_text())["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert not {"hostPID", "hostNetwork", "hostIPC"} & pod.keys()
    assert "privileged" not in container["securityContext"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["PERFMON"]}
    assert {volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume} == {
        "/proc/sys/vm",  # and nothing else of /proc, which has all processes of the node
        "/sys/class",
        "/sys/devices",
        "/sys/fs",
        "/var/lib/trimtab-agent",
    }
    writable = {mount["name"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    assert writable == {"vm", "state"}
    flags = {flag.partition("=")[0].removeprefix("--").replace("-", "_") for flag in container["args"][1:]}
    assert flags <= {field.name for field in dataclasses.fields(AgentSettings)}
