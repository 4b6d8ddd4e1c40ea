"""Run the agent with the mounts and capabilities of its DaemonSet, without a kubelet.

A mount namespace stands for the container: what the manifest mounts lies below a folder, and nothing else can be written
to. What takes a kubelet half a minute takes a second here, so each mount can be taken away in turn.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from harness.cluster.cluster import Cluster
from harness.e2e.agent import AgentProcess
from harness.process import Process, free_port

_MANIFEST = Path(__file__).parents[3] / "deploy" / "agent" / "daemonset.yaml"
_KUBELETS = ("--kubelet", "--kubelet-insecure")


def manifest() -> dict[str, Any]:
    """The pod of the DaemonSet."""
    pod: dict[str, Any] = yaml.safe_load(_MANIFEST.read_text())["spec"]["template"]["spec"]
    return pod


class HousedAgent(AgentProcess):
    """Such an agent, without one of its mounts, or with those that it may write to made read-only."""

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        *flags: str,
        node: str,
        without: str = "",
        looks_only: bool = False,
    ) -> None:
        self.port = free_port()
        self.state = folder / "kept"
        root = folder / "root"
        script = "\n".join(
            ["set -e", *_mounts(root, self.state, without=without, looks_only=looks_only), 'exec "$@"']
        )
        [container] = manifest()["containers"]
        given = [flag for flag in container["args"] if flag.partition("=")[0] not in _KUBELETS]
        ours = [f"--unset={name}" for name in os.environ if name.startswith("TRIMTAB_")]
        command = [
            *("unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"),
            *bare(*container["securityContext"]["capabilities"]["add"]),
            *("env", *ours, f"TMPDIR={root}/tmp", Path(sys.executable).with_name("trimtab")),
            *(flag.replace("=/", f"={root}/") for flag in given),
            *("--node", node, "--address", f"127.0.0.1:{self.port}", *flags),
        ]
        environment = {**cluster.environment, "KUBECONFIG": str(cluster.kubeconfig)}
        Process.__init__(self, "agent", command, log=folder / "agent.log", environment=environment)


def run_in_sandbox(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script as the agent would run: with its mounts below $ROOT, and its capabilities."""
    root = folder / "root"
    mounts = "\n".join(["set -e", *_mounts(root, folder / "kept", without="", looks_only=False), 'exec "$@"'])
    [container] = manifest()["containers"]
    command = [
        *("unshare", "--mount", "--propagation", "private", "sh", "-c", mounts, "sh"),
        *bare(*container["securityContext"]["capabilities"]["add"]),
        *("env", f"ROOT={root}", "sh", "-c", script),
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def bare(*capabilities: str) -> list[str]:
    """The words before a command that is to be root with these capabilities only."""
    bounding = ",".join(["-all", *(f"+{each.lower()}" for each in capabilities)])
    return ["setpriv", f"--bounding-set={bounding}", "--inh-caps=-all", "--no-new-privs"]


def _mounts(root: Path, state: Path, *, without: str, looks_only: bool) -> list[str]:
    """Return the shell commands that create the manifest's mounts below the root."""
    pod = manifest()
    sources = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"]}
    sources["state"] = state
    state.mkdir(parents=True)
    (root / "tmp").mkdir(parents=True)
    lines = [f"mount --bind {root} {root}"]
    for mount in pod["containers"][0]["volumeMounts"]:
        name, target = mount["name"], root / mount["mountPath"].lstrip("/")
        target.mkdir(parents=True, exist_ok=True)
        if name == without:
            continue
        lines.append(f"mount --rbind {sources[name]} {target}")
        if (looks_only and name != "state") or mount.get("recursiveReadOnly"):
            below = f"awk '$2 ~ \"^{target}\" {{print $2}}' /proc/self/mounts"
            lines.append(f"for each in $({below}); do mount -o remount,bind,ro $each; done")
        elif mount.get("readOnly"):
            lines.append(f"mount -o remount,bind,ro {target}")
    # As runtimes do, after the node's own have been mounted for the agent.
    lines += ["mount --bind /proc/sys /proc/sys", "mount -o remount,bind,ro /proc/sys"]
    return [*lines, f"mount -o remount,bind,ro {root}", "mount -o remount,bind,ro /"]
