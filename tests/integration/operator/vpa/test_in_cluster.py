"""VPA's real CRDs on the real API server: what we write is kept, and what its recommender left behind is read."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np

from harness.builders.vpa_checkpoints import export_checkpoint
from harness.e2e.informer_probe import HASTY, eventually
from trimtab.kube.cache.informer_set import InformerSet
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.rest.client import Client, Object
from trimtab.kube.rest.resources import DEPLOYMENTS, VPA_CHECKPOINTS, VPAS
from trimtab.operator.cluster_state import ClusterState
from trimtab.operator.vpa.status import update_vpa_statuses, write_vpa_status
from trimtab.recommender.vpa_checkpoints import CheckpointKey, read_checkpoints, restore_checkpoints
from trimtab.sizing.proposal import build_proposal
from trimtab.sizing.strategies.vpa import VpaSettings, VpaStrategy

DAY = 86400.0
NOW = 1_800_000_000.0


def trained_strategy() -> VpaStrategy:
    """Return a strategy that observed one container for three days."""
    sizer = VpaStrategy(1, VpaSettings())
    for minute in range(0, 3 * 1440, 10):
        usage = 0.2 + 0.1 * np.sin(minute / 200)
        sizer.observe(NOW - 3 * DAY + minute * 60, np.array([usage]), np.array([3e8 * (1 + usage)]))
    return sizer


def vpa_for(policies: list[Object]) -> Object:
    spec = {
        "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "recommenders": [{"name": "trimtab"}],
        "resourcePolicy": {"containerPolicies": policies},
    }
    return {"apiVersion": VPAS.api_version, "kind": VPAS.kind, "metadata": {"name": "web"}, "spec": spec}


@asynccontextmanager
async def running_catalog(client: Client) -> AsyncIterator[ClusterState]:
    catalog = ClusterState(
        InformerSet(client, discovery_interval=0.2, timeouts=HASTY),
        operator_namespace="trimtab-system",
        enqueue=lambda _: None,
    )
    running = asyncio.create_task(catalog.run())
    try:
        await catalog.wait_synced(timeout=60)
        yield catalog
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_vpa_status_is_written_only_when_the_recommendation_changes(
    client: Client, kinds: None, vpa_kinds: None, namespace: str
) -> None:
    web = WorkloadKey("Deployment", namespace, "web")
    policies: list[Object] = [
        {
            "containerName": "web",
            "minAllowed": {"memory": 1000000},
            "maxAllowed": {"cpu": "100m"},
            "controlledValues": "RequestsOnly",
        },
        {"containerName": "*", "mode": "Off"},
    ]
    await client.create(VPAS, vpa_for(policies), namespace=namespace)
    proposed = build_proposal(trained_strategy().recommend(NOW), 0, strategy="vpa")
    proposals = {"web": proposed, "log": proposed}

    async with running_catalog(client) as catalog:

        async def written() -> Object:
            """Return the server's object after a reconcile, once the cluster state has it too."""
            await update_vpa_statuses(client, catalog, web, proposals=lambda _: proposals, now=NOW)
            found = await client.get(VPAS, "web", namespace=namespace)
            version = int(found["metadata"]["resourceVersion"])
            await eventually(lambda: catalog.list_vpas(web)[0].version == version, what="the catalog has it")
            return found

        orphan = await written()
        assert {one["type"] for one in orphan["status"]["conditions"]} == {
            "ConfigUnsupported",
            "RecommendationProvided",
        }
        labels = {"app": "web"}
        containers = [{"name": name, "image": name} for name in ("web", "log")]
        template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
        deployment = {
            "metadata": {"name": "web"},
            "spec": {"selector": {"matchLabels": labels}, "template": template},
        }
        await client.create(DEPLOYMENTS, deployment, namespace=namespace)

        def runs() -> bool:
            found = catalog.get(web)
            return found is not None and bool(catalog.list_pods(found))

        await eventually(runs, what="its target has a pod")
        first = await written()
        (entry,) = first["status"]["recommendation"]["containerRecommendations"]
        assert (entry["containerName"], entry["target"]["cpu"]) == ("web", "100m")
        assert [one["type"] for one in first["status"]["conditions"]] == ["RecommendationProvided"]
        assert first["status"]["observedGeneration"] == 1
        second = await written()
        assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
        (known,) = catalog.list_vpas(web)
        await client.delete(VPAS, "web", namespace=namespace)
        await write_vpa_status(client, known, first["status"])  # one that is gone needs none


async def test_vpa_checkpoints_are_known_at_the_first_start(
    client: Client, vpa_kinds: None, namespace: str
) -> None:
    before = trained_strategy()
    checkpoint = export_checkpoint(before, 0, now=NOW, vpa_name="web", container_name="web")
    await client.create(VPA_CHECKPOINTS, checkpoint, namespace=namespace)
    broken = {**checkpoint, "metadata": {"name": "web-log"}, "status": {"version": "v1"}}
    broken["spec"] = {"vpaObjectName": "web", "containerName": "log"}
    await client.create(VPA_CHECKPOINTS, broken, namespace=namespace)
    web, log, new = (CheckpointKey(namespace, "web", name) for name in ("web", "log", "new"))
    checkpoints = await read_checkpoints(client)
    assert {web, log} <= checkpoints.keys()
    sizer = VpaStrategy(3, VpaSettings())
    assert restore_checkpoints(sizer, {new: 0, log: 1, web: 2}, checkpoints) == {web}
    sizes, known = sizer.recommend(NOW), before.recommend(NOW)
    assert np.isnan(sizes.cpu.target[:2]).all()
    # A checkpoint rounds its weights, which can move a percentile by one bucket of a twentieth.
    np.testing.assert_allclose(sizes.cpu.target[2], known.cpu.target[0], rtol=0.06)
    np.testing.assert_allclose(sizes.memory.target[2], known.memory.target[0], rtol=0.06)
