"""`trimtab agent`: the node agent, as a DaemonSet or by hand."""

import gc
import logging
import socket
import sys
from pathlib import Path
from typing import Annotated, Literal

import structlog
import uvloop
from cyclopts import Parameter
from structlog.typing import Processor

from trimtab.errors import TrimtabError
from trimtab.kube.auth import is_running_in_pod, load_connection
from trimtab.kube.rest.rbac import SYSTEM_NAMESPACE
from trimtab.memory_trim import limit_allocator_arenas
from trimtab.node.agent import NodeAgent
from trimtab.node.config import AgentSettings, parse_kubelet_url
from trimtab.printable import escape_event


def agent(
    *,
    node: Annotated[str, Parameter(env_var="NODE_NAME")] = "",
    namespace: str = "",
    read_only: bool = False,
    dry_run: bool = False,
    kubelet: str = "",
    kubelet_ca: Path | None = None,
    kubelet_insecure: bool = False,
    nri: Path | None = None,
    cri: Path | None = None,
    cgroups: Path = Path("/sys/fs/cgroup"),
    cgroup_parent: str = "",
    proc: Path = Path("/proc"),
    sysctls: Path | None = None,
    sys_: Annotated[Path, Parameter(name="--sys")] = Path("/sys"),
    state: Path = Path("/var/lib/trimtab-agent"),
    address: str = ":8081",
    prediction: Literal["careful", "pods", "together"] = "careful",
    log: Literal["json", "console"] = "json",
    context: str | None = None,
    kubeconfig: str | None = None,
) -> None:
    """Run the node agent: it measures the pods of its node and protects latency-sensitive ones.

    On a node, only measure and report:

        trimtab agent --node $(hostname) --read-only --log console

    In a cluster: kubectl apply -k deploy/agent

    Parameters
    ----------
    node
        The name of the agent's node; the default is $NODE_NAME, or the host's name.
    namespace
        The namespace of the installation, whose emergency stop holds for the agent; the default is the pod's own, or
        trimtab-system outside a pod.
    read_only
        Only measure and report: write no knob, evict no pod.
    dry_run
        Decide and log each write, but write nothing.
    kubelet
        The URL of the node's kubelet, such as https://10.0.0.5:10250. Without it, the agent reads pods from the API
        server.
    kubelet_ca
        Certificates to trust instead of the cluster's CA, for a kubelet that signs its own certificate, such as /var/lib/kubelet/pki/kubelet.crt.
    kubelet_insecure
        Accept any certificate of the kubelet, and send it no token. Only a kubelet that admits anonymous requests
        lists its pods then.
    nri
        The container runtime's NRI socket, such as /var/run/nri/nri.sock, to adjust containers at their creation.
    cri
        The socket on which the agent serves `trimtab cri`, such as /run/trimtab/agent.sock, for a runtime without
        NRI.
    cgroups
        The mount point of the node's cgroups.
    cgroup_parent
        The parent cgroup of kubepods, if it is not the root.
    proc
        The mount point of the node's /proc; a container's own has all but other processes.
    sysctls
        The mount point of the node's /proc/sys, of which the agent writes memory watermarks; the default is the one in --proc.
    sys_
        The mount point of the node's /sys.
    state
        A persistent folder for the agent's series and for the knob values to restore.
    address
        The address of /metrics, /healthz and /readyz; without a host, every address of the node.
    prediction
        The way to add up the unused requests of production pods: by pod, all together, or the smaller of the two
        (careful).
    log
        json for programs, console for people.
    context
        The kubeconfig context to use instead of the current one.
    kubeconfig
        The kubeconfig file to use instead of $KUBECONFIG or ~/.kube/config; in a pod, neither is needed.
    """
    limit_allocator_arenas()
    _configure_logs(log)
    connection = load_connection(kubeconfig=kubeconfig, context=context)
    settings = AgentSettings(
        node=node or socket.gethostname(),
        namespace=namespace or (connection.namespace if is_running_in_pod() else SYSTEM_NAMESPACE),
        cgroups=cgroups,
        cgroup_parent=cgroup_parent,
        proc=proc,
        sysctls=sysctls,
        sys=sys_,
        state=state,
        address=address,
        kubelet=kubelet and parse_kubelet_url(kubelet),
        kubelet_ca=kubelet_ca,
        kubelet_insecure=kubelet_insecure,
        nri=nri,
        cri=cri,
        read_only=read_only,
        dry_run=dry_run,
        prediction=prediction,
    )
    try:
        made = NodeAgent(settings, connection)
    except OSError as error:
        raise TrimtabError(f"agent: {error}; it needs the node's cgroups, /proc and /sys") from None
    gc.freeze()  # these objects live until the end, so the collector need not scan them
    uvloop.run(made.run())


def _configure_logs(form: str) -> None:
    """Log to stderr as the operator does; importing its logging would triple the agent's memory."""
    plain, colors = structlog.dev.plain_traceback, sys.stderr.isatty()
    rendered: tuple[Processor, ...] = (
        (structlog.processors.JSONRenderer(default=str),)
        if form == "json"
        else (escape_event, structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain))
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            *rendered,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
