"""The board of a leader on a real API server: what it shows, and that a hold reaches the loop and binds it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harness.cluster.cluster import Cluster
from harness.e2e.leader import Office, deployment, office
from trimtab.kube.auth import load_connection
from trimtab.kube.rest.client import Client, Object
from trimtab.kube.rest.resources import DEPLOYMENTS
from trimtab.kube.rest.retry import RateLimiter
from trimtab.web.backends.live import LiveBackend
from trimtab.web.model import ActionError, WorkloadAction


@pytest.fixture
async def work(cluster: Cluster, namespace: str, tmp_path: Path) -> AsyncIterator[Office]:
    """An office in a namespace with a Deployment `web` of one core that uses a fifth of it."""
    cluster.learn()
    rate = RateLimiter(per_second=1000, burst=1000)
    async with Client(load_connection(kubeconfig=cluster.kubeconfig), rate=rate) as client:
        await client.create(DEPLOYMENTS, deployment(), namespace=namespace)
        yield office(client, namespace, tmp_path)


def reason(status: Object) -> str:
    found = [each for each in status.get("workloads", ()) if each["name"] == "web"]
    return str(found[0].get("reason", "")) if found else ""


async def test_live_backend_of_leader_shows_recommendations_and_sets_holds(
    work: Office, cluster: Cluster
) -> None:
    await work.write_policy(mode="Recommend")
    async with work.leading() as term:
        await work.until(lambda status: "mode is Recommend" in reason(status), what="web is looked at")
        board = LiveBackend(lambda: term.views, name="test")
        before = board.version
        await board.refresh()
        assert await board.wait_changed(before) == board.version
        row = next(row for row in await board.workloads() if row.namespace == work.namespace)
        assert (row.name, row.state, row.mode) == ("web", "Recommended", "Recommend")
        assert row.has.cpu == 1.0
        assert row.should
        assert row.should.cpu is not None
        assert 0.2 <= row.should.cpu < 0.4, "where it is going"
        assert row.step
        assert row.step.cpu == 0.5, "the next step: the policy halves at most"
        detail = await board.workload(work.web)
        assert detail
        (container,) = detail.containers
        assert (container.should, container.step) == (row.should, row.step)
        assert set(detail.acts) == {WorkloadAction.APPLY, WorkloadAction.HOLD}
        assert any("recommended" in entry.what for entry in detail.events)

        await board.run_action(WorkloadAction.HOLD, work.web, who="ann", why="the sale")
        await work.until(
            lambda status: "held by ann (unverified): the sale" in reason(status), what="the hold binds"
        )
        await board.run_action(WorkloadAction.RELEASE, work.web, who="ann", why="")
        await work.until(lambda status: "mode is Recommend" in reason(status), what="it is free again")
        recorded = [entry.what for entry in await board.history(key=work.web)]
        assert recorded[:2] == ["released", "held"]

        cluster.kubectl("annotate", "deployment", "web", "-n", work.namespace, "trimtab.io/hold=by hand")
        await work.until(lambda status: "by hand" in reason(status), what="a hold by hand binds too")
        with pytest.raises(ActionError, match="kubectl annotate deployment web"):
            await board.run_action(WorkloadAction.RELEASE, work.web, who="ann", why="")
