"""A leader's term on the real API server: what users see of it, whatever fails around it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from harness.e2e.informer_probe import eventually
from harness.e2e.leader import Office, deployment, office
from harness.faults.faultproxy import FaultProxy
from harness.faults.faults import Asked, Fault, Kind
from trimtab.actuation.change_annotations import RECOMMENDATION_ANNOTATION
from trimtab.api.quantity import Quantity
from trimtab.kube.auth import load_connection
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.rest.client import Client, Object, PatchType
from trimtab.kube.rest.resources import (
    CRON_JOBS,
    DEPLOYMENTS,
    EVENTS,
    INTENTS,
    JOBS,
    OPTIMIZATION_POLICIES,
    PODS,
    REPLICA_SETS,
)
from trimtab.kube.rest.retry import RateLimiter, RetryPolicy
from trimtab.operator.policy.status_writer import WRITE_DELAY
from trimtab.store import Store
from trimtab.testing import ScriptedSource, steady
from trimtab.usage.errors import SourceUnavailable
from trimtab.usage.source import UsageQuery
from trimtab.usage.unavailable import UnavailableSource
from trimtab.usage.usage import Usage


@pytest.fixture
async def proxied(fault_proxy: FaultProxy) -> AsyncIterator[Client]:
    """A client that every fault reaches."""
    async with Client(
        load_connection(kubeconfig=fault_proxy.kubeconfig),
        rate=RateLimiter(per_second=1000, burst=1000),
        retry=RetryPolicy(attempts=1),
    ) as client:
        yield client


@pytest.fixture
async def work(proxied: Client, client: Client, kinds: None, namespace: str, tmp_path: Path) -> Office:
    """An office in a namespace with a Deployment `web` of one core that uses a fifth of it."""
    await client.create(DEPLOYMENTS, deployment(), namespace=namespace)
    return office(proxied, namespace, tmp_path)


def entry(status: Object, name: str = "web") -> Object:
    return next((dict(each) for each in status.get("workloads", ()) if each["name"] == name), {})


def says(words: str) -> Callable[[Object], bool]:
    return lambda status: words in entry(status).get("reason", "")


def cpu(status: Object) -> str:
    found: list[Object] = entry(status).get("recommendations", [])
    return str(found[0].get("cpu", "")) if found else ""


def condition(status: Object, kind: str) -> Object:
    return next((dict(each) for each in status.get("conditions", ()) if each["type"] == kind), {})


def is_recommended(status: Object) -> bool:
    return entry(status).get("status") == "Recommended"


def writes(proxy: FaultProxy) -> list[Asked]:
    """All but those of the harness and of leases."""
    return [asked for asked in proxy.asked if asked.method != "GET" and "events" not in asked.path]


async def events(work: Office, kind: str) -> list[tuple[str, str]]:
    found = await work.client.list_objects(EVENTS, namespace=work.namespace)
    return [(each["type"], each["reason"]) for each in found if each["regarding"]["kind"] == kind]


async def test_leader_publishes_a_recommendation_in_status_annotation_and_history(
    work: Office, fault_proxy: FaultProxy
) -> None:
    await work.write_policy(mode="Recommend")
    async with work.leading() as term:
        status = await work.until(is_recommended, what="web is recommended a size")
        (recommended,) = entry(status)["recommendations"]
        assert recommended["cpu"] == "240m", "where it is going"
        assert recommended["nextStep"]["cpu"] == "500m", "by half at a time"
        assert status["counts"] == {"monitored": 1, "updated": 0, "skipped": 0}
        assert condition(status, "Ready")["status"] == "True"
        assert condition(status, "MetricsAvailable")["message"].startswith("Usage is read from scripted")
        assert entry(status)["reason"] == "the policy's mode is Recommend"
        web = await work.client.get(DEPLOYMENTS, "web", namespace=work.namespace)
        (container,) = web["spec"]["template"]["spec"]["containers"]
        assert container["resources"]["requests"]["cpu"] == "1"
        recorded = json.loads(web["metadata"]["annotations"][RECOMMENDATION_ANNOTATION])
        assert recorded["web"]["requests"]["cpu"] == "240m"
        assert recorded["web"].pop("nextStep")["requests"]["cpu"] == "500m"
        name = f"{work.namespace}/p"
        assert work.sample("workloads_monitored", namespace=work.namespace, policy=name) == 1
        assert work.sample("recommendations_total", policy=name) == 1
        await work.wait_cycles()
        share = {"policy": name, "resource": "cpu"}
        assert work.sample("usage_to_recommendation_ratio_bucket", **share, le="0.9") == (
            work.sample("usage_to_recommendation_ratio_count", **share)
        )
        so_far = len(writes(fault_proxy))
        for _ in range(2):
            term.enqueue(work.web)
            await work.wait_cycles(2)
        assert writes(fault_proxy)[so_far:] == [], "nothing has changed"
        async with asyncio.timeout(30):
            while ("Normal", "Recommended") not in await events(work, "Deployment"):
                await asyncio.sleep(0.1)
        (note,) = [
            each["note"]
            for each in await work.client.list_objects(EVENTS, namespace=work.namespace)
            if each["reason"] == "Recommended"
        ]
        assert re.fullmatch(r"web: cpu 240m, .*; next step: web: cpu 500m, .*", note)
    assert work.sample("workloads_monitored", namespace=work.namespace, policy=name) is None
    async with Store.open(work.folder / "trimtab.db") as store:
        (kept,) = await store.history.find(namespace=work.namespace)
        assert (kept.what, kept.who, kept.after) == ("recommended", f"policy {name}", recorded["web"])


async def test_leader_keeps_a_status_until_it_has_read_usage(
    work: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first turn of a large cluster takes minutes, and somebody may write a policy meanwhile."""
    await work.write_policy(mode="Recommend")
    async with work.leading():
        await work.until(is_recommended, what="web is recommended a size")
    read, reading, go_on = work.source.read, asyncio.Event(), asyncio.Event()

    async def slowly(ask: UsageQuery, **more: Any) -> Usage:
        reading.set()
        await go_on.wait()
        return await read(ask, **more)

    monkeypatch.setattr(work.source, "read", slowly)
    async with work.leading():
        await reading.wait()
        await work.write_policy(mode="Recommend", reconciliationInterval="10m")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2 * WRITE_DELAY):
                await work.until(lambda status: not entry(status), what="web is not in it")
        go_on.set()
        await work.until(lambda status: status["observedGeneration"] == 2, what="it is looked at")
        assert is_recommended(await work.status())


async def test_leader_restart_repeats_no_report_and_loses_no_state(
    work: Office, fault_proxy: FaultProxy
) -> None:
    await work.write_policy(mode="Recommend")
    async with work.leading():
        before = await work.until(is_recommended, what="web is recommended a size")
    work.source.stop()
    async with work.leading():
        after = await work.until(
            lambda status: condition(status, "MetricsAvailable")["status"] == "False", what="usage is away"
        )
        assert cpu(after) == cpu(before)
        assert entry(after)["lastRecommendation"] == entry(before)["lastRecommendation"]
        so_far = len(writes(fault_proxy))
        work.source.start()
        await work.until(
            lambda status: condition(status, "MetricsAvailable")["status"] == "True", what="usage is back"
        )
        assert {asked.path.rpartition("/")[2] for asked in writes(fault_proxy)[so_far:]} == {"status"}
    async with Store.open(work.folder / "trimtab.db") as store:
        assert len(await store.history.find(namespace=work.namespace)) == 1


async def test_leader_reports_an_unavailable_source_and_changes_nothing(work: Office) -> None:
    await work.write_policy(mode="Recommend")
    async with work.leading():
        before = await work.until(is_recommended, what="web is recommended a size")
        work.source.stop()
        away = await work.until(
            lambda status: condition(status, "MetricsAvailable")["status"] == "False", what="usage is away"
        )
        assert "is it running?" in condition(away, "MetricsAvailable")["message"]
        assert cpu(away) == cpu(before)
        async with asyncio.timeout(30):
            while ("Warning", "UsageUnknown") not in await events(work, "OptimizationPolicy"):
                await asyncio.sleep(0.1)
        errors = work.sample("reconciliation_errors_total", policy="", error_type="SourceUnavailable")
        assert errors
        work.source.failure = SourceUnavailable("scripted: 401; mend the token")
        await work.until(
            lambda status: "mend the token" in condition(status, "MetricsAvailable")["message"],
            what="a second error replaces the first",
        )
        work.source.start()
        back = await work.until(
            lambda status: condition(status, "MetricsAvailable")["status"] == "True", what="usage is back"
        )
        assert (
            condition(back, "Ready")["lastTransitionTime"]
            == (condition(before, "Ready")["lastTransitionTime"])
        )


@pytest.mark.parametrize("code", [403, 404, 409, 429, 500, 503])
async def test_leader_retries_a_failed_status_write(work: Office, fault_proxy: FaultProxy, code: int) -> None:
    def status_is_written(asked: Asked) -> bool:
        return asked.method == "PATCH" and asked.path.endswith("/optimizationpolicies/p/status")

    fault_proxy.fail_next(Fault(kind=Kind.STATUS, status=code), match=status_is_written)
    fault_proxy.fail_next(
        Fault(kind=Kind.STATUS, status=code),
        match=lambda asked: asked.method == "PATCH" and asked.path.endswith("/deployments/web"),
    )
    await work.write_policy(mode="Recommend")
    async with work.leading() as term:
        if code == 404:
            await eventually(lambda: fault_proxy.injected["404"] >= 2, what="both were said to be gone")
            await work.write_policy(mode="Recommend", weight=7)  # one that is gone is not asked for again
        await work.until(is_recommended, what="web is recommended a size")
        assert fault_proxy.injected[str(code)] >= 2

        async def annotations() -> dict[str, str]:
            term.enqueue(work.web)
            found = await work.client.get(DEPLOYMENTS, "web", namespace=work.namespace)
            return dict(found["metadata"].get("annotations") or {})

        async with asyncio.timeout(30):
            while RECOMMENDATION_ANNOTATION not in await annotations():
                await asyncio.sleep(0.2)


async def test_leader_survives_an_unavailable_api_server(work: Office, fault_proxy: FaultProxy) -> None:
    await work.write_policy(mode="Recommend")
    async with work.leading():
        await work.until(is_recommended, what="web is recommended a size")
        async with fault_proxy.refusing():
            await work.wait_cycles()
            work.source.script = steady(0.9, 2e8)
            await work.wait_cycles()
        await work.wait_cycles()
        await work.until(is_recommended, what="its status can be read again")


async def test_leader_starts_only_after_discovery(
    work: Office, fault_proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taken for one that cannot resize pods in place, it would have them replaced where that is allowed."""
    monkeypatch.setattr("trimtab.operator.leader.FEATURE_RETRY_INTERVAL", 0.05)
    away = Fault(kind=Kind.STATUS, status=503)
    fault_proxy.fail_next(away, count=3, match=lambda asked: asked.path == "/api/v1")
    await work.write_policy(mode="Recommend")
    async with work.leading():
        await eventually(lambda: fault_proxy.injected["503"] == 3, what="it was asked three times")
        assert work.source.queries == []
        await work.until(is_recommended, what="web is recommended a size")


async def test_leader_reports_an_unusable_policy_and_leaves_its_workloads(work: Office) -> None:
    await work.write_policy(mode="Auto", strategy={"name": "luck"})
    async with work.leading():
        status = await work.until(lambda status: bool(entry(status)), what="it is reported")
        ready = condition(status, "Ready")
        assert (ready["status"], ready["reason"]) == ("False", "PolicyInvalid")
        assert "strategy 'luck' is not known" in ready["message"]
        assert (entry(status)["status"], cpu(status)) == ("Skipped", "")
        labels = {"namespace": work.namespace, "policy": f"{work.namespace}/p"}
        assert work.sample("workloads_skipped", **labels, reason="PolicyInvalid") == 1
        async with asyncio.timeout(30):
            while ("Warning", "PolicyInvalid") not in await events(work, "OptimizationPolicy"):
                await asyncio.sleep(0.1)
        await work.write_policy(mode="Recommend")
        await work.until(is_recommended, what="once mended, it is acted on")


async def test_leader_writes_the_status_of_a_policy_without_workloads(work: Office) -> None:
    async with work.leading():
        await work.write_policy("nobody", selector={"workloadTypes": {"include": ["DaemonSet"]}})
        status = await work.until(bool, name="nobody", what="it has a status")
        assert status["counts"]["monitored"] == 0


async def test_leader_in_mode_disabled_keeps_the_status_and_changes_nothing(
    work: Office, fault_proxy: FaultProxy
) -> None:
    await work.write_policy(mode="Recommend")
    async with work.leading():
        before = await work.until(is_recommended, what="web is recommended a size")
        await work.write_policy(mode="Disabled")
        stopped = await work.until(
            lambda status: condition(status, "Ready")["reason"] == "Disabled", what="it is disabled"
        )
        work.source.script = steady(0.9, 2e8)
        await work.wait_cycles()
    async with work.leading() as term:
        so_far = len(writes(fault_proxy))
        term.enqueue(work.web)
        await work.wait_cycles(4)
        status = await work.until(
            lambda status: entry(status).get("status") == "Skipped", what="after a restart it is skipped"
        )
        assert entry(status)["recommendations"] == entry(stopped)["recommendations"]
        assert entry(status)["lastRecommendation"] == entry(before)["lastRecommendation"]
        assert {asked.path.rpartition("/")[2] for asked in writes(fault_proxy)[so_far:]} == {"status"}
        await work.write_policy(mode="Recommend")
        await work.until(
            lambda status: cpu(status) not in {"", "240m"}, what="it goes on with what it saw meanwhile"
        )


async def test_leader_in_dry_run_writes_only_statuses(work: Office, fault_proxy: FaultProxy) -> None:
    work.configure(dryRun=True)
    await work.write_policy(mode="Auto")
    so_far = len(writes(fault_proxy))
    async with work.leading():
        status = await work.until(is_recommended, what="web is recommended a size")
        assert entry(status)["reason"] == "the operator runs with dryRun"
        assert condition(status, "DryRun")["status"] == "True"
        assert {asked.path.rpartition("/")[2] for asked in writes(fault_proxy)[so_far:]} == {"status"}
        work.configure(dryRun=False)
        after = await work.until(
            lambda status: not condition(status, "DryRun") and not is_recommended(status), what="it is over"
        )
        assert entry(after)["reason"] == "the workload has no running pods"


async def test_leader_in_auto_reports_a_change_from_start_to_end(work: Office) -> None:
    await work.client.delete(DEPLOYMENTS, "web", namespace=work.namespace)
    await work.client.create(DEPLOYMENTS, deployment("api", replicas=1), namespace=work.namespace)
    killed = {"reason": "OOMKilled", "exitCode": 137, "finishedAt": "2026-11-01T08:00:00Z"}
    await work.write_policy(mode="Auto")
    async with work.kubelet("api", terminated=killed | {"startedAt": "2026-11-01T07:00:00Z"}), work.leading():
        status = await work.until(
            lambda status: (
                entry(status, "api").get("status") == "Applied" and "lastApplied" in entry(status, "api")
            ),
            what="the first change is made",
        )
        assert status["counts"]["updated"] == 1
        (pod,) = await work.client.list_objects(PODS, namespace=work.namespace)
        assert pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] != "1"
        name = f"{work.namespace}/p"
        assert (work.sample("applications_total", policy=name, method="InPlace") or 0) >= 1
        assert work.sample("oom_kills_total", policy=name) == 0, "its kill was long ago"
    async with Store.open(work.folder / "trimtab.db") as store:
        recorded = {each.what for each in await store.history.find(namespace=work.namespace)}
        assert recorded >= {"recommended", "applying", "applied"}


async def test_leader_sizes_injected_containers_in_place_without_touching_the_template(
    work: Office, client: Client
) -> None:
    """A mesh injects `proxy` at admission: it is in the pods and not in the template."""
    made = deployment("mesh", replicas=1)
    template = made["spec"]["template"]
    container = template["spec"]["containers"][0]
    pod = {
        "metadata": {"name": "mesh-x2x2x", **template["metadata"]},
        "spec": {"containers": [container, container | {"name": "proxy"}]},
    }
    # The ReplicaSet adopts a pod with its labels, and so gets one that differs from its template.
    await client.create(PODS, pod, namespace=work.namespace)
    await client.create(REPLICA_SETS, made, namespace=work.namespace)
    await work.write_policy(mode="Auto")
    async with work.kubelet("mesh"), work.leading():
        status = await work.until(
            lambda status: entry(status, "mesh").get("status") == "Applied",
            what="both containers are resized",
        )
    recommended = {each["container"]: each["cpu"] for each in entry(status, "mesh")["recommendations"]}
    assert recommended.keys() == {"web", "proxy"}
    (found,) = await client.list_objects(PODS, namespace=work.namespace)
    requests = {each["name"]: each["resources"]["requests"]["cpu"] for each in found["spec"]["containers"]}
    assert found["metadata"]["name"] == "mesh-x2x2x"
    assert requests["proxy"] != "1"
    assert requests["web"] != "1"
    kept = await client.get(REPLICA_SETS, "mesh", namespace=work.namespace)
    (only,) = kept["spec"]["template"]["spec"]["containers"]
    assert (only["name"], only["resources"]) == ("web", container["resources"])


async def test_leader_learns_from_a_job_that_died_of_memory(work: Office) -> None:
    (container,) = deployment()["spec"]["template"]["spec"]["containers"]
    job = {"backoffLimit": 0, "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
    cron = {"metadata": {"name": "nightly"}, "spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": job}}}
    made = await work.client.create(CRON_JOBS, cron, namespace=work.namespace)
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "controller": True}
    owners = [owner | {"uid": made["metadata"]["uid"]}]
    run = {"metadata": {"name": "nightly-1", "ownerReferences": owners}, "spec": job}
    await work.client.create(JOBS, run, namespace=work.namespace)
    await work.write_policy(mode="Recommend", updateStrategy={"updateRequestsOnly": False})

    def memory(status: Object) -> Quantity:
        found: list[Object] = entry(status, "nightly").get("recommendations", [])
        return Quantity.parse(found[0].get("memory", "0") if found else "0")

    async with work.kubelet("nightly"), work.leading():
        await work.until(lambda status: memory(status).bytes > 0, what="nightly is recommended a size")
        (pod,) = await work.client.list_objects(PODS, namespace=work.namespace)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        killed = {"reason": "OOMKilled", "exitCode": 137, "startedAt": now, "finishedAt": now}
        (recorded,) = pod["status"]["containerStatuses"]
        recorded = recorded | {"ready": False, "started": False, "state": {"terminated": killed}}
        await work.client.patch(
            PODS,
            pod["metadata"]["name"],
            # As a kubelet reports it: the pod fails with the status of its killed container.
            {"status": {"phase": "Failed", "containerStatuses": [recorded]}},
            type=PatchType.MERGE,
            namespace=work.namespace,
            subresource="status",
        )
        had = Quantity.parse("512Mi")
        await work.until(lambda status: memory(status) > had, what="the next run is to have more")
        assert work.sample("oom_kills_total", policy=f"{work.namespace}/p") == 1


async def test_leader_starts_no_change_while_its_source_is_unavailable(work: Office) -> None:
    await work.client.delete(DEPLOYMENTS, "web", namespace=work.namespace)
    await work.client.create(DEPLOYMENTS, deployment("api", replicas=1), namespace=work.namespace)
    await work.write_policy(mode="Recommend")

    def is_now(*states: str) -> Callable[[Object], bool]:
        return lambda status: entry(status, "api").get("status") in states

    async with work.kubelet("api"), work.leading():
        await work.until(is_now("Recommended"), what="api is recommended a size")
        work.source.stop()
        await work.until(
            lambda status: condition(status, "MetricsAvailable")["status"] == "False", what="usage is away"
        )
        await work.write_policy(mode="Auto")
        status = await work.until(is_now("Pending", "Applying", "Applied"), what="the mode is Auto")
        assert entry(status, "api")["reason"].startswith("usage cannot be read")
        work.source.start()
        await work.until(is_now("Applying", "Applied"), what="it is changed when usage is read again")


async def test_leader_reports_a_change_that_its_policy_left_unfinished(work: Office) -> None:
    await work.client.delete(DEPLOYMENTS, "web", namespace=work.namespace)
    await work.client.create(DEPLOYMENTS, deployment("api", replicas=1), namespace=work.namespace)
    slow = {"minInterval": "0s", "canary": {"observation": "1h"}}
    await work.write_policy(mode="Auto", updateStrategy=slow)
    api = WorkloadKey("Deployment", work.namespace, "api")
    async with work.kubelet("api"), work.leading() as term:

        def is_under_way() -> bool:
            found = term.views.workloads.get(api)
            return found is not None and "trimtab.io/change" in dict(found.workload.annotations)

        await eventually(is_under_way, what="a change is under way")
        await work.client.delete(OPTIMIZATION_POLICIES, "p", namespace=work.namespace)
        async with asyncio.timeout(60):
            while ("Warning", "ChangeAbandoned") not in await events(work, "Deployment"):
                await asyncio.sleep(0.1)


async def test_leader_writes_nothing_after_losing_the_lease(work: Office, fault_proxy: FaultProxy) -> None:
    await work.write_policy(mode="Auto")
    so_far = len(writes(fault_proxy))
    work.leads = lambda: False
    async with work.leading() as term:
        await work.wait_cycles()
        term.enqueue(work.web)
        await work.wait_cycles(4)
    assert writes(fault_proxy)[so_far:] == []


async def test_leader_keeps_reporting_an_overlap_in_both_statuses(work: Office) -> None:
    await work.write_policy("heavy", mode="Recommend", weight=500)
    await work.write_policy("light", mode="Recommend", weight=50)
    async with work.leading():
        light = await work.until(
            lambda status: bool(condition(status, "Overlaps")), name="light", what="the lighter one says so"
        )
        assert f"sized by {work.namespace}/heavy" in condition(light, "Overlaps")["message"]
        assert light["counts"]["monitored"] == 0
        await work.until(is_recommended, name="heavy", what="the heavier one wins")
        work.source.script = steady(0.9, 3e8)
        heavy = await work.until(
            lambda status: cpu(status) not in {"", "240m"}, name="heavy", what="its status is written again"
        )
        assert "light too" in condition(heavy, "Overlaps")["message"]
        await work.client.delete(OPTIMIZATION_POLICIES, "heavy", namespace=work.namespace)
        alone = await work.until(is_recommended, name="light", what="the lighter one takes over")
        assert alone["counts"]["monitored"] == 1
        gone = {"namespace": work.namespace, "policy": f"{work.namespace}/heavy"}
        await eventually(lambda: work.sample("workloads_monitored", **gone) is None, what="it is not counted")


def easy_default(work: Office) -> dict[str, Any]:
    return {
        "mode": "Recommend",
        "strategy": {"name": "percentile", "settings": {"min_samples": 1}},
        "metricsConfig": {"minimumHistory": "1m"},
        "reconciliationInterval": "10s",
        "selector": {"namespaces": {"allow": [work.namespace]}},
    }


async def test_leader_does_not_apply_the_default_policy_while_policies_are_unreadable(
    work: Office, fault_proxy: FaultProxy
) -> None:
    work.configure(defaultPolicy=easy_default(work))
    await work.write_policy(mode="Disabled")
    refused = Fault(kind=Kind.STATUS, status=403)
    policies = "/apis/trimtab.io/v1alpha1/optimizationpolicies"
    fault_proxy.fail_next(refused, count=40, match=lambda asked: asked.path == policies)
    skipped = {"namespace": work.namespace, "policy": "default", "reason": "PolicyInvalid"}
    async with work.leading():
        await eventually(lambda: work.sample("workloads_skipped", **skipped) == 1, what="web is not changed")
        await work.until(lambda status: bool(entry(status)), what="the policy is read at last")
    assert fault_proxy.injected["403"] == 40
    assert work.sample("recommendations_total", policy="default") is None


async def test_leader_changes_nothing_while_intents_are_unreadable(
    work: Office, fault_proxy: FaultProxy
) -> None:
    work.intents = True
    wanted = [{"name": "p99", "value": 0.1, "measuredBy": "p99"}]
    intent = {
        "metadata": {"name": "web", "namespace": work.namespace},
        "spec": {"targetRef": {"name": "web"}, "objectives": wanted},
    }
    await work.client.apply(INTENTS, intent, manager="test")
    await work.write_policy(mode="Auto")
    grant = fault_proxy.forbid("/v1alpha1/intents")
    async with work.leading():
        await work.until(
            says("because objects of kind Intent may control it"), what="the controlling Intent is unknown"
        )
        grant()
        await work.until(says(f"Intent {work.namespace}/web controls the size"), what="the intent has it")


async def test_leader_applies_the_default_policy_once_policies_are_known_to_be_missing(
    work: Office, fault_proxy: FaultProxy
) -> None:
    work.configure(defaultPolicy=easy_default(work))
    refused = Fault(kind=Kind.STATUS, status=403)
    policies = "/apis/trimtab.io/v1alpha1/optimizationpolicies"
    fault_proxy.fail_next(refused, count=20, match=lambda asked: asked.path == policies)
    async with work.leading():
        await eventually(
            lambda: work.sample("recommendations_total", policy="default") == 1,
            what="web is recommended a size",
        )
    assert fault_proxy.injected["403"] == 20


async def test_leader_sizes_workloads_without_a_policy_by_the_default_policy(work: Office) -> None:
    work.configure(defaultPolicy=easy_default(work))
    async with work.leading() as term:
        monitored = {"namespace": work.namespace, "policy": "default"}
        await eventually(lambda: work.sample("workloads_monitored", **monitored) == 1, what="it is counted")

        async def annotations() -> dict[str, str]:
            found = await work.client.get(DEPLOYMENTS, "web", namespace=work.namespace)
            return dict(found["metadata"].get("annotations") or {})

        async with asyncio.timeout(30):
            while RECOMMENDATION_ANNOTATION not in await annotations():
                await asyncio.sleep(0.1)
        made = work.sample("recommendations_total", policy="default")
        term.enqueue(work.web)
        await work.wait_cycles()
        assert work.sample("recommendations_total", policy="default") == made


async def test_leader_reads_usage_from_the_source_that_a_policy_names(work: Office) -> None:
    live = ScriptedSource(steady(0.6, 2e8), *work.source.pods)
    work.others["live"] = live
    work.configure(additionalMetricsSources=[{"name": "live", "provider": "metrics-server"}])
    metrics = {"minimumHistory": "1m", "provider": "live"}
    await work.write_policy(mode="Recommend", metricsConfig=metrics)
    async with work.leading():
        status = await work.until(is_recommended, what="web is recommended a size")
        assert cpu(status) == "730m", "by what the other source knows"
        assert condition(status, "MetricsAvailable")["message"].startswith("Usage is read from live")
        live.stop()
        await work.until(
            lambda found: condition(found, "MetricsAvailable")["status"] == "False",
            what="its own source is away",
        )
        await work.write_policy(mode="Recommend")
        await work.until(
            lambda found: condition(found, "MetricsAvailable")["status"] == "True" and cpu(found) == "240m",
            what="web is learned of from the usual source",
        )


async def test_leader_goes_on_beside_a_source_that_cannot_be_built(work: Office) -> None:
    work.others["live"] = UnavailableSource("the source live cannot be used", advice="correct its settings")
    work.configure(additionalMetricsSources=[{"name": "live", "provider": "metrics-server"}])
    await work.write_policy(mode="Recommend", metricsConfig={"minimumHistory": "1m", "provider": "live"})
    with capture_logs() as logs:
        async with work.leading():
            status = await work.until(
                lambda found: condition(found, "MetricsAvailable").get("status") == "False",
                what="its source cannot be used",
            )
            assert (
                condition(status, "MetricsAvailable")["message"]
                == "the source live cannot be used; correct its settings"
            )
            await work.write_policy(mode="Recommend")
            await work.until(is_recommended, what="web is recommended a size by the usual source")
    (logged,) = [each for each in logs if each["event"] == "policies.usage_unknown"]
    assert (logged["policies"], logged["source"]) == (f"{work.namespace}/p", "live")


async def test_leader_writes_a_status_after_all_workloads_were_reconciled(
    work: Office, client: Client
) -> None:
    for name in ("api", "db"):
        await client.create(DEPLOYMENTS, deployment(name), namespace=work.namespace)
    await work.write_policy(mode="Recommend")
    async with work.leading():
        first = await work.until(bool, what="a status at all")
        assert first["counts"]["monitored"] == 3
