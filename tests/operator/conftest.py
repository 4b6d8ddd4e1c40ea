"""A client of the real API server, which knows our kinds."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harness import UnavailableError, vpa
from harness.cluster import Cluster
from trimtab.kube.auth import load_connection
from trimtab.kube.client import Client
from trimtab.kube.pace import RateLimit
from trimtab.kube.resources import VPA_CHECKPOINTS, VPAS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def kinds(cluster: Cluster) -> None:
    """The server knows our kinds."""
    cluster.kubectl("apply", "--server-side", "-f", str(ROOT / "deploy" / "crds"))
    cluster.kubectl("wait", "--for=condition=Established", "crd/optimizationpolicies.trimtab.io")


@pytest.fixture(scope="session")
def vpa_kinds(cluster: Cluster) -> None:
    """The server knows VPA's kinds."""
    try:
        crds = vpa.crds()
    except UnavailableError as why:
        pytest.skip(str(why))
    cluster.kubectl("apply", "--server-side", "-f", str(crds))
    for plural in (VPAS.plural, VPA_CHECKPOINTS.plural):
        cluster.kubectl("wait", "--for=condition=Established", f"crd/{plural}.autoscaling.k8s.io")


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[Client]:
    async with Client(
        load_connection(kubeconfig=cluster.kubeconfig), rate=RateLimit(per_second=1000, burst=1000)
    ) as client:
        yield client
