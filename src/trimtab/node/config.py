"""The settings of an agent: paths on its node, and permissions.

QoS settings are not here but in a NodeQoSPolicy, which can change while the agent runs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from trimtab.errors import TrimtabError
from trimtab.kube.rest.rbac import SYSTEM_NAMESPACE

_BARE_IPV6 = re.compile(r"(https?://)([0-9a-f:.]*:[0-9a-f:.]*:[0-9a-f.]*):(\d+)", re.IGNORECASE)


def parse_kubelet_url(given: str) -> str:
    """Return a kubelet's URL; IPv6 addresses, which a manifest may insert, get brackets."""
    url = _BARE_IPV6.sub(r"\1[\2]:\3", given)
    try:
        parts = urlsplit(url)
        is_one = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_one = False
    if not is_one:
        raise TrimtabError(
            f"--kubelet {given}: is not the URL of a kubelet; use the form https://10.0.0.5:10250"
        )
    return url


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """The settings of one agent."""

    node: str
    """The name of the agent's node."""
    namespace: str = SYSTEM_NAMESPACE
    """The namespace of the installation, whose emergency stop holds for the agent too."""
    cgroups: Path = Path("/sys/fs/cgroup")
    """The mount point of the node's cgroups."""
    cgroup_parent: str = ""
    """The parent cgroup of kubepods, if that is not the root."""
    proc: Path = Path("/proc")
    """The node's /proc, or that of the agent's container: without the node's process ids, run delays cover only the agent
    itself."""
    sysctls: Path | None = None
    """The node's /proc/sys, of which the agent writes memory watermarks; None for the one in `proc`."""
    sys: Path = Path("/sys")
    state: Path = Path("/var/lib/trimtab-agent")
    """A persistent directory for the series and the restore journal."""
    address: str = ":8081"
    """The address that serves /metrics, /healthz and /readyz."""
    kubelet: str = ""
    """The URL of the node's kubelet, such as https://10.0.0.5:10250; empty to use only the API server."""
    kubelet_ca: Path | None = None
    """The certificates to trust instead of the cluster's CA, such as the kubelet's own self-signed one."""
    kubelet_insecure: bool = False
    """Accept any certificate of the kubelet, and send it no credentials."""
    nri: Path | None = None
    """The runtime's NRI socket; None disables the hook."""
    cri: Path | None = None
    """The socket that serves `trimtab cri`, for runtimes without NRI; None disables it."""
    read_only: bool = False
    """Only measure and report: write no knob, evict no pod, and restore nothing."""
    dry_run: bool = False
    """Decide and log what would be written, but write nothing."""
    prediction: str = "careful"
    """The algorithm that sums the reclaimable resources of production: pods, together or careful."""
