"""What an agent is told when it starts: where things lie on its node, and how much it may do.

What it does to pods is not here: that is a NodeQoSPolicy, which changes while it runs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from trimtab.errors import TrimtabError

_BARE_IPV6 = re.compile(r"(https?://)([0-9a-f:.]*:[0-9a-f:.]*:[0-9a-f.]*):(\d+)", re.IGNORECASE)


def parse_kubelet_url(given: str) -> str:
    """The URL of a kubelet. A manifest does not know which kind of address it puts in, and those of IPv6 need brackets."""
    url = _BARE_IPV6.sub(r"\1[\2]:\3", given)
    try:
        parts = urlsplit(url)
        is_one = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_one = False
    if not is_one:
        raise TrimtabError(f"--kubelet {given}: is no URL of a kubelet; write it like https://10.0.0.5:10250")
    return url


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """The settings of one agent."""

    node: str
    """The name of the node that it is on."""
    cgroups: Path = Path("/sys/fs/cgroup")
    """Where the node's cgroups are mounted."""
    cgroup_parent: str = ""
    """The cgroup that kubepods lies in, where that is not the root."""
    proc: Path = Path("/proc")
    """The node's /proc: with its process ids, or run queues are seen only of the agent itself."""
    sys: Path = Path("/sys")
    state: Path = Path("/var/lib/trimtab-agent")
    """A folder that outlives the agent: the series, and the journal of what is to be restored."""
    address: str = ":8081"
    """Where /metrics, /healthz and /readyz are served."""
    kubelet: str = ""
    """The URL of the node's kubelet, such as https://10.0.0.5:10250; empty for none: the API server's word then
    has to do."""
    kubelet_insecure: bool = False
    """Believe any certificate of the kubelet: many sign their own."""
    nri: Path | None = None
    """The runtime's NRI socket; None for no hook at a container's creation."""
    cri: Path | None = None
    """The socket at which to answer a `trimtab cri`, for runtimes without NRI; None for no proxy."""
    read_only: bool = False
    """Only look and report: no knob is written, no pod evicted, and what a journal says is told, not restored."""
    dry_run: bool = False
    """Decide, tell what would be written, and write nothing."""
    prediction: str = "careful"
    """How what production has to spare is added up: pods, together or careful."""
