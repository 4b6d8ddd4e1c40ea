"""Minutes of random faults between an informer and a server whose objects come, change and go meanwhile.

`make soak` runs it for ten minutes; `make test` for less. The faults follow from the seed that is printed.
"""

import asyncio
import gc
import os
import random
import tracemalloc

from harness.cluster.cluster import Cluster
from harness.e2e.informer_probe import eventually, watching
from harness.faults import faults
from harness.faults.faultproxy import FaultProxy
from harness.faults.faults import FaultPlan
from trimtab.kube.rest.client import Client, PatchType
from trimtab.kube.rest.resources import CONFIG_MAPS

SECONDS = float(os.environ.get("TEST_SOAK_SECONDS", "20"))
SEED = int(os.environ.get("TEST_SOAK_SEED", "1"))

PLAN = {
    faults.status(429, retry_after=1): 0.06,
    faults.status(500): 0.06,
    faults.status(503): 0.05,
    faults.status(410): 0.05,
    faults.drop(): 0.06,
    faults.garble(): 0.05,
    faults.delay(1.0): 0.08,
    faults.tear(after=20): 0.12,
    faults.cut(after=20): 0.16,
    faults.gone_event(after=20): 0.12,
    faults.silence(after=10): 0.08,
}


async def churn(client: Client, namespace: str, chance: random.Random, until: float) -> None:
    """Create, change and delete objects under few names, so that names are taken again soon."""
    clock = asyncio.get_running_loop().time
    alive: set[str] = set()
    while clock() < until:
        name = f"m{chance.randrange(60):02}"
        if name not in alive:
            await client.create(CONFIG_MAPS, {"metadata": {"name": name}}, namespace=namespace)
            alive.add(name)
        elif chance.random() < 0.4:
            await client.delete(CONFIG_MAPS, name, namespace=namespace)
            alive.discard(name)
        else:
            labels = {"metadata": {"labels": {"n": str(chance.randrange(10**9))}}}
            await client.patch(CONFIG_MAPS, name, labels, type=PatchType.MERGE, namespace=namespace)
        await asyncio.sleep(chance.expovariate(60))


async def strike_now_and_then(proxy: FaultProxy, chance: random.Random, until: float) -> None:
    """Break also what has long been open, and now and then be away altogether."""
    clock = asyncio.get_running_loop().time
    while clock() < until:
        await asyncio.sleep(chance.uniform(0.5, 4))
        if chance.random() < 0.15:
            async with proxy.refusing():
                await asyncio.sleep(chance.uniform(0.1, 2))
        else:
            proxy.strike(chance.choice([faults.cut(), faults.tear(), faults.silence(), faults.gone_event()]))


async def test_informer_cache_equals_the_server_after_minutes_of_faults(
    client: Client, cluster: Cluster, namespace: str
) -> None:
    chance = random.Random(SEED)
    until = asyncio.get_running_loop().time() + SECONDS
    tracemalloc.start()
    try:
        async with (
            FaultProxy(cluster, plan=FaultPlan(PLAN, seed=SEED)) as proxy,
            # A list that stalls must not use up all the time.
            watching(proxy.kubeconfig, namespace, timeout=3.0) as (informer, probe),
        ):
            churning = asyncio.create_task(churn(client, namespace, chance, until))
            striking = asyncio.create_task(strike_now_and_then(proxy, random.Random(SEED + 1), until))
            await asyncio.sleep(SECONDS / 3)
            early = _memory()
            await asyncio.gather(churning, striking)
            proxy.plan = None
            on_server = {
                item["metadata"]["name"]: int(item["metadata"]["resourceVersion"])
                for item in await client.list_objects(
                    CONFIG_MAPS, namespace=namespace, fields="metadata.name!=kube-root-ca.crt"
                )
            }
            await eventually(
                lambda: {record.name: record.version for record in informer.cache} == on_server,
                what="the cache equals the server",
            )
            late = _memory()
    finally:
        tracemalloc.stop()
    print(f"seed {SEED}: injected {dict(proxy.injected)}, {probe.deletions} deletions delivered")
    assert probe.faults == []
    assert {record.name: record.version for record in probe.known.values()} == on_server
    assert probe.deletions > SECONDS / 4
    assert sum(proxy.injected.values()) > SECONDS / 4
    assert late - early < 1_500_000, f"memory grew from {early} to {late} bytes"


def _memory() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
