"""The operator while those that it leans on are away: for seconds each time, and at length by `make soak-operator`.

Two replicas of `trimtab operator` look after workloads whose pods run on paper, on a real control plane and by a real
Prometheus; leaders are killed here only at length, for tests/cluster/test_operator.py does it on a real node. Samples
come every 3 s instead of every minute, so as many are missed in three minutes as in an hour.
"""

import os
import random
from collections.abc import Iterator

import pytest

from harness.cluster.cluster import Cluster
from harness.e2e.e2e_env import Estate
from harness.e2e.rollout_scenario import Rollouts
from harness.peers.prometheus import PrometheusServer
from integration.operator.fake_kubelet import PaperNode

KILLS = int(os.environ.get("TEST_KILLS", "0"))
NO_USAGE = float(os.environ.get("TEST_NO_USAGE_SECONDS", "180" if KILLS else "6"))
NO_SERVER = float(os.environ.get("TEST_NO_SERVER_SECONDS", "300" if KILLS else "3"))
"""The start of an API server takes as long again, so that the leader's lease has ended by then."""

pytestmark = pytest.mark.timeout(1200 + 60 * KILLS + NO_USAGE + NO_SERVER)


@pytest.fixture(scope="module")
def rollouts(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rollouts]:
    folder, namespace = tmp_path_factory.mktemp("soak"), f"soak-{random.randrange(1 << 32):x}"
    with PaperNode(cluster, namespace) as node:
        scraped = {"job_name": "kubelet", "static_configs": [{"targets": [f"127.0.0.1:{node.port}"]}]}
        settings = {"global": {"scrape_interval": "1s"}, "scrape_configs": [scraped]}
        prometheus = PrometheusServer(folder, settings=settings)
        with Estate(cluster, folder, namespace=namespace, prometheus=prometheus) as estate:
            begun = Rollouts(estate, patience=600)
            begun.settle()
            yield begun


@pytest.mark.skipif(not KILLS, reason="half an hour long; run it by make soak-operator")
def test_operator_killed_repeatedly_applies_every_change_once(rollouts: Rollouts) -> None:
    changes = rollouts.apply_every_change_once(kills=KILLS, within=8)
    print(f"{KILLS} kills of leaders, {changes} changes")


def test_operator_changes_nothing_without_usage_and_continues_when_it_is_back(
    rollouts: Rollouts,
) -> None:
    rollouts.wait_for_usage(seconds=NO_USAGE)


def test_operator_continues_after_an_outage_of_the_api_server(rollouts: Rollouts) -> None:
    rollouts.wait_for_the_api_server(seconds=NO_SERVER)
