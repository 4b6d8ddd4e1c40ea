"""The operator's report of missing prerequisites of a real cluster."""

import asyncio
import urllib.request
from pathlib import Path

import yaml
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from harness.cluster.cluster import Cluster
from harness.e2e.informer_probe import eventually
from trimtab.kube.auth import load_connection
from trimtab.operator.app import (
    OperatorApp,
)
from trimtab.operator.config.reloader import ConfigReloader


async def test_operator_without_an_election_is_reported_as_leading(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    """Otherwise the alert about a missing leader would fire forever."""
    flags = [
        f"namespace={namespace}",
        "leaderElection.enabled=false",
        "metricsSource.provider=metrics-server",
        "address=127.0.0.1:0",
        f"store.url={tmp_path / 'trimtab.db'}",
    ]
    config = ConfigReloader(None, environment={}, flags=flags)
    lease = {"lease": f"{namespace}/{config.current.leader_election.name}"}

    def leading() -> float | None:
        return REGISTRY.get_sample_value("trimtab_lease_leading", lease)

    running = asyncio.create_task(OperatorApp(load_connection(kubeconfig=cluster.kubeconfig), config).run())
    await eventually(lambda: leading() == 1, what="it leads")
    running.cancel()
    await asyncio.wait([running])
    assert leading() is None


async def test_operator_counts_a_refused_configuration_where_it_serves_its_metrics(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    """Or the alert that a configuration was refused would never be raised."""
    file = tmp_path / "config.yaml"
    settings = {
        "namespace": namespace,
        "leaderElection": {"enabled": False},
        "metricsSource": {"provider": "metrics-server"},
        "address": "127.0.0.1:0",
        "store": {"url": str(tmp_path / "trimtab.db")},
    }
    file.write_text(yaml.safe_dump(settings))
    config = ConfigReloader(file, environment={})
    with capture_logs() as logs:
        running = asyncio.create_task(
            OperatorApp(load_connection(kubeconfig=cluster.kubeconfig), config).run()
        )
        await eventually(lambda: any("port" in line for line in logs), what="it serves its metrics")
    port = next(line["port"] for line in logs if "port" in line)
    file.write_text("")
    config.reload()
    with await asyncio.to_thread(urllib.request.urlopen, f"http://127.0.0.1:{port}/metrics") as answer:
        assert b'trimtab_config_reloads_total{result="rejected"} 1.0' in answer.read()
    running.cancel()
    await asyncio.wait([running])
