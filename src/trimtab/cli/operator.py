"""`trimtab operator`: the right-sizing operator, in a cluster or beside one."""

import gc
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from trimtab.errors import TrimtabError
from trimtab.memory_trim import limit_allocator_arenas, pause_collector

if TYPE_CHECKING:
    from collections.abc import Callable

    from trimtab.operator.app import EmbeddedService
    from trimtab.operator.config.model import PriceSettings


def operator(
    *,
    config: Path | None = None,
    set_: Annotated[tuple[str, ...], Parameter(name="--set")] = (),
    dry_run: bool | None = None,
    metrics_provider: str | None = None,
    metrics_addr: str | None = None,
    enable_leader_election: bool | None = None,
    dashboard: str | None = None,
    dashboard_certificate: Path | None = None,
    dashboard_key: Path | None = None,
    context: str | None = None,
    kubeconfig: str | None = None,
) -> None:
    """Run the right-sizing operator: it sizes the workloads that OptimizationPolicies select.

    On your machine, with your kubeconfig; it writes only the status of policies:

        trimtab operator --dry-run --set metricsSource.provider=metrics-server

    With the dashboard:

        trimtab operator --dashboard 127.0.0.1:8090

    In a cluster: kubectl apply --server-side -k deploy

    Parameters
    ----------
    config
        The configuration file (YAML), which is reloaded when it changes; docs/reference/operator.md lists all
        settings.
    set_
        A setting that overrides the file and the environment, such as disruptionLimits.cluster.maxConcurrent=3; may
        be given several times.
    dry_run
        Change nothing, whatever the mode of a policy; the same as --set dryRun=true.
    metrics_provider
        The source of usage; the same as --set metricsSource.provider=NAME.
    metrics_addr
        The address of the metrics and the probes, such as :8080; the same as --set address=ADDRESS.
    enable_leader_election
        Elect a leader among replicas; the same as --set leaderElection.enabled=true.
    dashboard
        Serve the dashboard at this address, such as 127.0.0.1:8090. In a pod, and at an address that other machines
        can reach, viewers log in with a Kubernetes token and RBAC decides what they may do. An address that others
        can reach needs a certificate.
    dashboard_certificate
        The dashboard's certificate, PEM.
    dashboard_key
        The key of that certificate, PEM.
    context
        The kubeconfig context to use instead of the current one.
    kubeconfig
        The kubeconfig file to use instead of $KUBECONFIG or ~/.kube/config; in a pod, neither is needed.
    """
    limit_allocator_arenas()
    with pause_collector():
        import uvloop

        from trimtab.kube.auth import load_connection
        from trimtab.operator.app import OperatorApp
        from trimtab.operator.config.reloader import ConfigReloader
        from trimtab.operator.logs import configure_logging
    aliases = {
        "dryRun": dry_run,
        "metricsSource.provider": metrics_provider,
        "address": metrics_addr,
        "leaderElection.enabled": enable_leader_election,
    }
    flags = [
        *set_,
        *(f"{path}={json.dumps(value)}" for path, value in aliases.items() if value is not None),
    ]
    live = ConfigReloader(config, environment=os.environ, flags=flags)
    configure_logging(live.current.logs)
    live.subscribe(lambda now: configure_logging(now.logs))
    connection = load_connection(kubeconfig=kubeconfig, context=context)
    companions = []
    if dashboard is not None:
        companions.append(
            _build_dashboard(dashboard, dashboard_certificate, dashboard_key, lambda: live.current.prices)
        )
    gc.freeze()  # these objects live until the end, so the collector need not scan them
    uvloop.run(OperatorApp(connection, live, embedded=companions).run())


def _build_dashboard(
    address: str, certificate: Path | None, key: Path | None, prices: "Callable[[], PriceSettings]"
) -> "EmbeddedService":
    # Imported here, because an operator without a dashboard then needs less memory.
    from trimtab.kube.auth import is_running_in_pod
    from trimtab.web.embedded import embed_dashboard
    from trimtab.web.server import DashboardCertificate

    if (certificate is None) != (key is None):
        raise TrimtabError("--dashboard-certificate and --dashboard-key: give both, or neither")
    files = DashboardCertificate(certificate, key) if certificate and key else None
    return embed_dashboard(address, certificate=files, in_pod=is_running_in_pod(), prices=prices)
