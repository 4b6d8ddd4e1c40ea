"""The audit of a change in the store and the metrics: started, then applied or reverted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from actuation.builders import MIB, NOW, desired_change, pod
from actuation.world import KEY, World, lost, resources
from harness.builders.records import policy
from trimtab.actuation.change_annotations import RECOMMENDATION_ANNOTATION
from trimtab.actuation.decide.observation import DesiredChange
from trimtab.actuation.executor import ChangeExecutor, ReconcileResult, Requester
from trimtab.api.duration import Duration
from trimtab.api.optimizationpolicy import Canary, WorkloadState
from trimtab.kube.errors import FieldManagerConflict, Status
from trimtab.kube.kinds.pods import ContainerTermination
from trimtab.kube.kinds.workloads import Workload
from trimtab.kube.rest.resources import CRON_JOBS
from trimtab.operator.audit import AuditRecorder
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.metrics import Metrics
from trimtab.operator.policy.resolver import build_effective_policy
from trimtab.recommender.oom_kills import find_oom_kills
from trimtab.recommender.workload import WorkloadRecommendation
from trimtab.sizing.recommendation import Factor, Recommendation
from trimtab.store import HistoryRecord, Store, UnavailableError
from trimtab.usage.pod_ownership import WorkloadContainer

QUICK = Canary(percent=50, observation=Duration.from_seconds(30), evidence_timeout=Duration.from_seconds(30))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with Store.open(tmp_path / "trimtab.db") as store:
        yield store


class AuditedWorld:
    """The audit of one workload in a simulated world."""

    def __init__(self, world: World, store: Store, *, may_annotate: bool = False) -> None:
        self.world = world
        self.store = store
        self.metrics = Metrics()
        self.policy = build_effective_policy(policy("p", mode="Auto"), OperatorConfig())
        self.executor = ChangeExecutor(world, world.records, may_write=lambda: True)
        self.recorder = AuditRecorder(
            world,
            self.executor,
            store,
            cluster_name="c",
            metrics=self.metrics,
            may_annotate=lambda: may_annotate,
        )

    async def drive(self, wanted: DesiredChange) -> None:
        """Reconcile like a controller whose cache never catches up."""
        cached = await self.world.get_workload(KEY)
        for _ in range(40):
            report = await self.executor.reconcile(
                KEY, wanted, now=self.world.now, requester=Requester(policy="shop/p", reason="the strategy")
            )
            assert report
            self.recorder.record_result(cached, report)
            await self.recorder.flush()  # as the task beside the loop does
            if report.state in {WorkloadState.APPLIED, WorkloadState.REVERTED, WorkloadState.SKIPPED}:
                return
            self.world.pass_time(30)

    async def history(self) -> list[HistoryRecord]:
        await self.recorder.flush()
        return sorted(await self.store.history.find(), key=lambda entry: (entry.timestamp, entry.what))


async def test_audit_records_the_start_and_the_end_of_a_change(store: Store) -> None:
    audited_world = AuditedWorld(World(template={"web": resources(100, 64)}, replicas=2), store)
    await audited_world.drive(desired_change({"web": resources(200, 96)}, canary=QUICK))
    started, done = await audited_world.history()
    assert (started.what, done.what) == ("applying", "applied")
    assert (
        started.before
        == done.before
        == {"web": {"limits": {"memory": "128Mi"}, "requests": {"cpu": "100m", "memory": "64Mi"}}}
    )
    assert done.after
    assert done.after["web"]["requests"]["cpu"] == "200m"
    assert (done.who, done.why) == ("policy shop/p", "the strategy")
    assert (started.transition, done.transition) == ("Started", "Applied")


async def test_audit_records_a_change_once_that_two_leaders_take_for_their_own(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The response to the one that wrote it was lost, and the next one reads the same annotations."""
    world = World(template={"web": resources(100, 64)}, replicas=2)
    first, second = (AuditedWorld(world, store) for _ in range(2))
    record_result = first.recorder.record_result

    def record_twice(found: Workload, result: ReconcileResult) -> None:
        record_result(found, result)
        second.recorder.record_result(found, result)

    monkeypatch.setattr(first.recorder, "record_result", record_twice)
    for cpu in (200, 100):
        await first.drive(desired_change({"web": resources(cpu, 96)}, canary=QUICK))
        await second.recorder.flush()
        world.pass_time(3600)
    assert [each.what for each in await first.history()] == ["applying", "applied"] * 2


async def test_audit_records_and_counts_a_revert_with_its_reason(store: Store) -> None:
    world = World(template={"web": resources(100, 64)}, replicas=2)
    world.needed_memory = 100 * MIB
    audited_world = AuditedWorld(world, store)
    await audited_world.drive(
        desired_change({"web": resources(100, 40)}, canary=QUICK, needed_memory={"web": 0})
    )
    started, back = await audited_world.history()
    assert (started.what, back.what) == ("applying", "reverted")
    assert (back.before, back.after) == (started.after, started.before)
    assert "killed for lack of memory" in back.why
    labels = {"policy": "shop/p", "intent": "", "reason": "worse"}
    assert audited_world.metrics.registry.get_sample_value("trimtab_reverts_total", labels) == 1
    assert back.transition == "Reverted"
    labels = {"from": "Canary", "to": "Reverting", "reason": "Harmful"}
    assert audited_world.metrics.registry.get_sample_value("trimtab_change_transitions_total", labels) == 1


async def test_audit_records_a_refused_change_as_neither_applied_nor_reverted(store: Store) -> None:
    world = World(template={"web": resources(200, 128)}, replicas=0, resource=CRON_JOBS)
    world.replicas = 1  # its Jobs count its pods

    def refuse(moment: str) -> None:
        if moment == "before patch_template":
            raise FieldManagerConflict(Status(message="it belongs to argocd", code=409, reason="Conflict"))

    world.intercept_write = refuse
    audited_world = AuditedWorld(world, store)
    await audited_world.drive(desired_change({"web": resources(100, 64)}, needed_memory={"web": 0}))
    started, refused = await audited_world.history()
    assert (started.what, refused.what, refused.transition) == ("applying", "refused", "TemplateRefused")
    assert refused.why.startswith("the change of the template failed: it belongs to argocd")
    labels = {"policy": "shop/p", "intent": "", "reason": "worse"}
    assert audited_world.metrics.registry.get_sample_value("trimtab_reverts_total", labels) is None


@pytest.mark.parametrize("loses", [1, 5], ids=["when it begins", "when it is done"])
async def test_audit_records_a_change_although_a_response_is_lost(store: Store, loses: int) -> None:
    world = World(template={"web": resources(100, 64)}, replicas=2)
    answers = iter(range(1, 100))

    def lose_one(what: str) -> None:
        if what == "after annotate" and next(answers) == loses:
            lost()

    world.intercept_write = lose_one
    audited_world = AuditedWorld(world, store)
    await audited_world.drive(desired_change({"web": resources(200, 96)}, canary=QUICK))
    applied = world.change_annotations.applied
    assert applied
    # The time of the write, and not that at which the next reconcile finds that it has arrived.
    assert [(each.what, each.timestamp) for each in await audited_world.history()] == [
        ("applying", NOW),
        ("applied", applied.at),
    ]


async def test_audit_names_who_wrote_a_row_whose_response_was_lost(store: Store) -> None:
    """An Intent starts a change, and the next reconcile, of a policy that may not act, finds that it has begun."""
    world = World(template={"web": resources(100, 64)}, replicas=2)

    def lose(what: str) -> None:
        if what == "after annotate":
            lost()

    world.intercept_write = lose
    audited_world = AuditedWorld(world, store)
    wanted = desired_change({"web": resources(200, 96)}, canary=QUICK)
    for requester in (Requester(intent="shop/web", reason="latency"), Requester(policy="shop/p")):
        found = await audited_world.executor.reconcile(KEY, wanted, now=world.now, requester=requester)
        assert found
        audited_world.recorder.record_result(world.workload, found)
        world.intercept_write = lambda _: None
        wanted = replace(wanted, blocked_reason="an Intent controls it")
        world.pass_time(30)
    assert [(each.what, each.who, each.why) for each in await audited_world.history()] == [
        ("applying", "Intent shop/web", "latency")
    ]


async def test_audit_gives_the_end_of_a_change_the_reason_of_its_start(store: Store) -> None:
    """An Intent starts a change for latency, and its later cycles only bring pods to the size."""
    world = World(template={"web": resources(100, 64)}, replicas=2)
    audited_world = AuditedWorld(world, store)
    wanted = desired_change({"web": resources(200, 96)}, canary=QUICK)
    for reason in ("latency", *["pods are brought to the size"] * 10):
        requester = Requester(intent="shop/web", reason=reason)
        found = await audited_world.executor.reconcile(KEY, wanted, now=world.now, requester=requester)
        assert found
        audited_world.recorder.record_result(world.workload, found)
        world.pass_time(30)
    assert [(each.what, each.why) for each in await audited_world.history()] == [
        ("applying", "latency"),
        ("applied", "latency"),
    ]


async def test_audit_records_no_end_of_a_change_whose_annotations_are_gone(store: Store) -> None:
    world = World(template={"web": resources(100, 64)}, replicas=2)
    audited_world = AuditedWorld(world, store)
    actuator = ChangeExecutor(world, world.records, may_write=lambda: True)
    for sizes in (resources(200, 96), resources(100, 64)):
        report = await actuator.reconcile(KEY, desired_change({"web": sizes}, canary=QUICK), now=world.now)
        assert report
        audited_world.recorder.record_result(await world.get_workload(KEY), report)
        world.annotations.clear()
    assert "reverted" not in [entry.what for entry in await audited_world.history()]


async def test_audit_writes_what_happened_without_the_store_when_it_is_back(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = store.history.append

    async def away_for_the_first(entries: Sequence[HistoryRecord]) -> None:
        if entries[-1].what == "applying":
            raise UnavailableError("store.url: it is away; see the server")
        await append(entries)

    monkeypatch.setattr(store.history, "append", away_for_the_first)
    audited_world = AuditedWorld(World(template={"web": resources(100, 64)}, replicas=2), store)
    await audited_world.drive(desired_change({"web": resources(200, 96)}, canary=QUICK))
    assert [entry.what for entry in await audited_world.history()] == ["applying", "applied"]


async def test_audit_writes_the_last_entry_without_waiting_for_another(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(_: Sequence[HistoryRecord]) -> None:
        raise UnavailableError("store.url: it is away; see the server")

    audited_world = AuditedWorld(World(template={"web": resources(100, 64)}, replicas=2), store)
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(store.history, "append", away)
        await audited_world.drive(desired_change({"web": resources(200, 96)}, canary=QUICK))
        await audited_world.recorder.flush()
    assert await store.history.find() == []
    await audited_world.recorder.flush()
    assert [entry.what for entry in await audited_world.history()] == ["applying", "applied"]


async def test_audit_never_waits_for_a_frozen_store(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reconcile goes on to change sizes, and what it reports is written when the store answers again."""
    thawed = asyncio.Event()
    append = store.history.append

    async def frozen(entries: Sequence[HistoryRecord]) -> None:
        await thawed.wait()
        await append(entries)

    monkeypatch.setattr(store.history, "append", frozen)
    audited_world = AuditedWorld(World(template={"web": resources(100, 64)}, replicas=1), store)
    writing = asyncio.create_task(audited_world.recorder.run())
    found = await audited_world.world.get_workload(KEY)
    async with asyncio.timeout(60):
        for number in range(1, 41):
            recommended = (Recommendation("web", resources(number, 40), ()),)
            assessment = WorkloadRecommendation(recommended, {}, is_urgent=False)
            await audited_world.recorder.record_recommendation(
                found, assessment, changed=True, policy=audited_world.policy, now=1.0
            )
            await asyncio.sleep(0)
        assert await store.history.find() == []
        thawed.set()
        assert len(await audited_world.history()) == 40
    writing.cancel()


async def test_audit_keeps_the_newest_entries_while_the_store_is_unavailable(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trimtab.operator.audit.MAX_PENDING", 3)
    audited_world = AuditedWorld(World(template={"web": resources(100, 64)}, replicas=1), store)
    found = await audited_world.world.get_workload(KEY)
    for number in range(1, 6):
        assessment = WorkloadRecommendation(
            (Recommendation("web", resources(number, 40), ()),), {}, is_urgent=False
        )
        await audited_world.recorder.record_recommendation(
            found, assessment, changed=True, policy=audited_world.policy, now=float(number)
        )
    assert [entry.timestamp for entry in await audited_world.history()] == [3.0, 4.0, 5.0]


async def test_audit_ignores_an_unchanged_recommendation(store: Store) -> None:
    audited_world = AuditedWorld(World(template={"web": resources(100, 64)}, replicas=1), store)
    why = (Factor("usage", "90 samples", "scripted"),)
    recommended = (Recommendation("web", resources(50, 40), why),)
    assessment = WorkloadRecommendation(
        recommended, {}, is_urgent=False, effective={"web": resources(70, 48)}
    )
    found = await audited_world.world.get_workload(KEY)
    for changed in (True, False, False):
        await audited_world.recorder.record_recommendation(
            found, assessment, changed=changed, policy=audited_world.policy, now=1.0
        )
    (entry,) = await audited_world.history()
    assert (entry.what, entry.container, entry.after) == (
        "recommended",
        "web",
        {"limits": {"memory": "80Mi"}, "requests": {"cpu": "50m", "memory": "40Mi"}},
    )
    assert entry.before == {"limits": {"memory": "96Mi"}, "requests": {"cpu": "70m", "memory": "48Mi"}}, (
        "the size in effect, and not the template's"
    )
    assert "90 samples" in entry.why
    assert audited_world.world.events == [], "a dry run emits no Event"


async def test_audit_annotates_a_recommendation_so_that_the_next_change_is_no_conflict(store: Store) -> None:
    world = World(template={"web": resources(100, 64)}, replicas=1)
    audited_world = AuditedWorld(world, store, may_annotate=True)
    world.records.get(KEY)
    world.records.lags = True
    found = await world.get_workload(KEY)
    larger = resources(200, 96)
    assessment = WorkloadRecommendation((Recommendation("web", larger, ()),), {}, is_urgent=False)
    await audited_world.recorder.record_recommendation(
        found, assessment, changed=True, policy=audited_world.policy, now=1.0
    )
    assert RECOMMENDATION_ANNOTATION in world.annotations
    report = await audited_world.executor.reconcile(
        KEY, desired_change({"web": larger}, canary=QUICK), now=world.now
    )
    assert report
    assert report.state is WorkloadState.APPLYING
    assert world.written == ["annotate", "annotate", "resize"]
    await audited_world.recorder.record_recommendation(
        found, assessment, changed=True, policy=audited_world.policy, now=2.0
    )
    assert world.written == ["annotate", "annotate", "resize"], "a conflict: the next reconcile tries again"


async def test_audit_records_an_oom_kill_once_after_a_restart_and_by_two_replicas(store: Store) -> None:
    world = World(template={"web": resources(100, 64)}, replicas=2)
    pods = [
        pod(f"web-{place}", exits={"web": ContainerTermination("OOMKilled", 137, NOW - 60 * place)})
        for place in range(2)
    ]
    name = WorkloadContainer.from_workload(KEY, "web")
    workload = await world.get_workload(KEY)
    for _ in range(
        3
    ):  # nothing is kept between two leaders: each reads the same kills from the status of the pods
        replica = AuditedWorld(world, store).recorder
        replica.record_oom_kills(workload, find_oom_kills(name, pods))
        await replica.flush()
    entries = await store.history.find(what="killed")
    assert [(each.timestamp, each.container, each.who) for each in entries] == [
        (NOW, "web", "the kernel"),
        (NOW - 60, "web", "the kernel"),
    ]
    assert entries[0].why.startswith("OOM-killed ")
    assert len({each.event_key for each in entries}) == 2


async def test_audit_reports_an_abandoned_change_once_by_each_process(store: Store) -> None:
    """A process that was restarted has nothing in memory by which to tell that the change was left."""
    world = World(template={"web": resources(100, 64)}, replicas=2)
    first = AuditedWorld(world, store, may_annotate=True)
    wanted = desired_change({"web": resources(100, 40)}, canary=QUICK, needed_memory={"web": 0})
    await first.executor.reconcile(KEY, wanted, now=world.now)
    left = await world.get_workload(KEY)
    for audited_world in (first, first, AuditedWorld(world, store, may_annotate=True)):
        audited_world.recorder.record_abandoned_change(left)
    reasons = [reason for _, reason, _ in world.events]
    assert reasons.count("ChangeAbandoned") == 2
