"""The correctness properties of the OptiPod seed that are about the operator as a whole, each under its own title.

The others are where what they are about is: docs/research/properties.md has the list.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from actuation.builders import some_resources
from actuation.world import KEY, World, run
from harness.builders.records import policy, workload
from harness.faults.server_stub import serve_stub
from trimtab.actuation.executor import ChangeExecutor
from trimtab.api import OptimizationPolicy
from trimtab.api.errors import InvalidObjectError
from trimtab.api.fields import format_time
from trimtab.api.meta import Document
from trimtab.api.optimizationpolicy import OptimizationPolicyStatus, WorkloadState
from trimtab.api.quantity import Quantity
from trimtab.kube.cache.informer_set import NOT_SERVED, InformerSet
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.kube.rest.capabilities import KubeVersion, ServerFeatures
from trimtab.kube.rest.resources import (
    DEPLOYMENTS,
    HPAS,
    JOBS,
    LIMIT_RANGES,
    NAMESPACES,
    NODES,
    OPTIMIZATION_POLICIES,
    PODS,
    Resource,
)
from trimtab.operator.cluster_state import ClusterState
from trimtab.operator.config.loader import ConfigurationError, load_configuration
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.config.reloader import ConfigReloader
from trimtab.operator.metrics import Metrics
from trimtab.operator.policy.resolver import build_effective_policy
from trimtab.operator.policy.status import (
    SkipReason,
    StatusContext,
    WorkloadOutcome,
    build_policy_status,
    find_new_problems,
    list_forbidden,
)
from trimtab.operator.policy.status_writer import WorkloadGauges
from trimtab.operator.policy_matching import OverlapStats
from trimtab.recommender.cohort import ContainerEstimate, EvidenceCohort, StrategySpec
from trimtab.recommender.cohort_store import TrackedContainer
from trimtab.recommender.recommender import DEFAULT_SOURCE, Recommender
from trimtab.recommender.source_ingester import IngestSchedule
from trimtab.recommender.workload import WorkloadRecommendation, recommend_workload
from trimtab.sizing.constraints import Constraints
from trimtab.sizing.evidence import Evidence
from trimtab.sizing.policy_rules import PolicyRules
from trimtab.sizing.proposal import Proposal, ResourceTarget
from trimtab.sizing.recommendation import Recommendation, have_same_targets
from trimtab.store import Store
from trimtab.testing import ScriptedSource, steady
from trimtab.usage.pod_ownership import PodOwnerIndex, WorkloadContainer
from trimtab.usage.source import SOURCES
from trimtab.usage.source import UsageQuery as Question
from trimtab.usage.usage import PodContainer

T = TypeVar("T")

NOW = 1_800_000_000.0
MIB = 1 << 20
DAY = 86400.0
EASY = StrategySpec.from_settings("percentile", {"min_samples": 1})
FEW_STEPS = IngestSchedule(backfill_period=1200.0)

examples = settings(max_examples=100)

recommendations = st.lists(
    st.tuples(st.integers(1, 9999), st.integers(1, 9999), st.sampled_from([None, "no data"])),
    min_size=1,
    max_size=3,
).map(
    lambda sizes: tuple(
        Recommendation(name, Resources(cpu, None, memory * MIB), (), held)
        for name, (cpu, memory, held) in zip(["web", "log", "proxy"], sizes, strict=False)
    )
)
times = st.floats(NOW, NOW + DAY)
outcomes = st.builds(
    WorkloadOutcome,
    state=st.sampled_from(WorkloadState),
    reason=st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=20),
    recommendations=recommendations,
    recommended_at=times,
    applied_at=st.none() | times,
    skip_reason=st.sampled_from(SkipReason),
)
keys = st.sampled_from(
    [WorkloadKey(*each) for each in itertools.product(["Deployment", "CronJob"], ["a", "b"], ["x", "y", "z"])]
)
many_outcomes = st.dictionaries(keys, outcomes, max_size=4)
names = st.lists(st.sampled_from(["web", "log", "proxy", "cache"]), min_size=1, max_size=4, unique=True)


class Nowhere:
    """A store in which nothing is."""

    @property
    def states(self) -> Nowhere:
        return self

    async def load(self, _: object) -> None:
        return None

    async def save(self, *_: object, **__: object) -> None:
        return None

    async def forget(self, _: object) -> None:
        return None


def status(
    found: dict[WorkloadKey, WorkloadOutcome],
    *,
    before: Document | None = None,
    trouble: str = "",
    refresh_interval: float = math.inf,
    **spec: Any,
) -> Document:
    return build_policy_status(
        policy("p", **spec),
        found,
        overlap=OverlapStats(),
        problem="",
        context=StatusContext(
            now=NOW, source="scripted", usage_error=trouble, refresh_interval=refresh_interval
        ),
        before=before or {},
    )


def deployment(name: str, containers: Iterable[str]) -> Workload:
    return workload(name, containers=tuple({"name": each} for each in containers))


def pods_of(name: str, containers: Iterable[str], replicas: int) -> list[PodContainer]:
    letters = "bcdfg"
    return [
        PodContainer("shop", f"{name}-7c9f8d6b5-x2x2{letters[number]}", each)
        for number in range(replicas)
        for each in containers
    ]


@examples
@given(st.dictionaries(st.sampled_from(["web", "api", "job"]), names, min_size=1))
def test_property_1_monitoring_initiates_metrics_collection(estate: dict[str, list[str]]) -> None:
    """The next cycle queries CPU and memory of every managed container."""
    pods = [pod for name, containers in estate.items() for pod in pods_of(name, containers, 1)]
    source = ScriptedSource(steady(0.2, 3e8), *pods)
    learning = Recommender(
        {DEFAULT_SOURCE: source}, cast("Store", Nowhere()), cluster="c", schedule=FEW_STEPS, metrics=Metrics()
    )
    wanted = {
        WorkloadContainer("shop", "Deployment", name, each): TrackedContainer(EASY, NOW - DAY)
        for name, containers in estate.items()
        for each in containers
    }
    owners = PodOwnerIndex([deployment(name, containers) for name, containers in estate.items()])
    asyncio.run(learning.ingest(NOW, tracked=wanted, owners=lambda: owners, running=set(wanted)))
    assert all(ask.namespaces == ("shop",) for ask in source.queries)
    for name in wanted:
        found = learning.estimate(name, EASY, now=NOW, is_long_running=True)
        assert found
        assert found.evidence.samples > 0
        assert math.isfinite(found.proposal.cpu.target)
        assert math.isfinite(found.proposal.memory.target)


WATCHED = (PODS, NODES, NAMESPACES, LIMIT_RANGES, DEPLOYMENTS, JOBS, HPAS, OPTIMIZATION_POLICIES)


async def _read_cluster(errors: dict[Resource, int]) -> tuple[dict[str, str], set[str]]:
    """Run the informers of the operator against a server that rejects some lists, until each has an answer."""
    async with serve_stub(resources=WATCHED, errors=errors) as (client, requests):
        state = ClusterState(InformerSet(client))
        running = asyncio.create_task(state.run())

        def failed() -> dict[str, str]:
            return {name: why for name, why in state.errors_by_resource().items() if why != NOT_SERVED}

        async with asyncio.timeout(10):
            while not failed().keys() >= {str(each) for each in errors}:
                await asyncio.sleep(0.005)
        found = failed()
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        return found, {each.method for each in requests}


@examples
@given(st.dictionaries(st.sampled_from(WATCHED), st.sampled_from([403, 503]), max_size=4))
def test_property_28_rbac_respect(errors: dict[Resource, int]) -> None:
    """Kinds that may not be read are in a condition and an Event, and nothing is written meanwhile.

    A server that is away is no missing right.
    """
    found, methods = asyncio.run(_read_cluster(errors))
    assert found.keys() == {str(each) for each in errors}
    assert methods <= {"GET"}
    forbidden = {str(each) for each, code in errors.items() if code == 403}
    context = StatusContext(now=NOW, source="scripted", forbidden=list_forbidden(found))
    said = build_policy_status(
        policy("p"), {}, overlap=OverlapStats(), problem="", context=context, before={}
    )
    messages = [each["message"] for each in said["conditions"] if each["type"] == "PermissionsMissing"]
    assert len(messages) == bool(forbidden)
    assert all(f"{resource}: " in message for resource in forbidden for message in messages)
    assert not any(f"{name}: " in message for name in found.keys() - forbidden for message in messages)
    assert any(each["type"] == "PermissionsMissing" for each in find_new_problems({}, said)) == bool(
        forbidden
    )


@examples
@given(st.lists(st.floats(1, 4000), min_size=1, max_size=6))
def test_property_9_recommend_mode_updates_periodically(asked: list[float]) -> None:
    """After every cycle the status has what was recommended in it, and when."""
    effective_policy = build_effective_policy(policy("p", mode="Recommend"), OperatorConfig())
    has = {"requests": {"cpu": "1", "memory": "1Gi"}}
    found = workload(containers=({"name": "web", "resources": has},))
    said: Document = {}
    before: tuple[Recommendation, ...] = ()
    for cycle, cpu in enumerate(asked):
        now = NOW + cycle * 300
        assessment = _recommend(found, effective_policy.rules, cpu, now)
        if not have_same_targets(before, assessment.recommendations):
            before = assessment.recommendations
        outcome = WorkloadOutcome(
            WorkloadState.RECOMMENDED, "", assessment.recommendations, recommended_at=now
        )
        said = status(
            {found.key: outcome},
            before=said,
            mode="Recommend",
            refresh_interval=effective_policy.reconciliation_interval,
        )
        ((entry,),) = [each["recommendations"] for each in said["workloads"]]
        assert Quantity.parse(entry["cpu"]).millicores == before[0].target.cpu_request
        step = entry.get("nextStep", entry)
        assert Quantity.parse(step["cpu"]).millicores == before[0].resources.cpu_request
        assert said["workloads"][0]["lastRecommendation"] == format_time(now)


def _recommend(found: Workload, rules: PolicyRules, cpu: float, now: float) -> WorkloadRecommendation:
    seen = Evidence(
        samples=9000,
        run_seconds=14 * DAY,
        first_sample_at=now - 14 * DAY,
        last_sample_at=now,
        cpu_peak=10,
        memory_peak=50 * MIB,
    )
    known = ContainerEstimate(
        Proposal(cpu=ResourceTarget(cpu), memory=ResourceTarget(300.0 * MIB), strategy="test"), seen
    )
    return recommend_workload(
        found,
        (),
        rules=rules,
        estimate=lambda _: known,
        constraints=Constraints(),
        source="scripted",
        now=now,
    )


@examples
@given(names, st.integers(1, 4), st.floats(0.01, 8), st.floats(1e6, 1e10))
def test_property_11_metrics_collection_per_container(
    containers: list[str], replicas: int, cpu: float, memory: float
) -> None:
    """Both resources of each container are known by themselves, however many replicas there are."""

    def script(of: PodContainer, _: float) -> tuple[float, float]:
        place = containers.index(of.container) + 1
        return cpu * place, memory * place

    source = ScriptedSource(script, *pods_of("web", containers, replicas))
    cohort = EvidenceCohort(until=NOW)
    wanted = [WorkloadContainer("shop", "Deployment", "web", each) for each in containers]
    cohort.add(wanted)
    usage = asyncio.run(source.read(Question(start=NOW, end=NOW + 180, step=60)))
    owners = PodOwnerIndex([deployment("web", containers)])
    cohort.observe_usage(cohort.aggregate(usage, owners), running=set(wanted), until=NOW + 180)
    for place, name in enumerate(wanted, start=1):
        evidence = cohort.collect_evidence([name], now=NOW + 120, is_long_running=True)[0]
        assert evidence.samples == 3
        assert evidence.coverage == 1
        assert evidence.cpu_peak == pytest.approx(cpu * place * 1000, abs=1.01)
        assert evidence.memory_peak == pytest.approx(memory * place, abs=1.01)


BAD = {
    "mode": "Perhaps",
    "weight": -1,
    "reconciliationInterval": "soon",
    "metricsConfig.percentile": "P42",
    "metricsConfig.safetyFactor": 0.5,
    "metricsConfig.rollingWindow": "-1h",
    "resourceBounds.cpu": {"min": "2", "max": "1"},
    "resourceBounds.memory": {"min": "lots"},
    "selector.namespaces": {"allow": ["Not A Name"]},
    "selector.workloadSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]},
    "updateStrategy.canary": {"percent": 0},
    "updateStrategy.template": "Sometimes",
    "limitPolicy": {"cpu": {"mode": "Guess"}},
}


@examples
@given(st.sets(st.sampled_from(sorted(BAD)), max_size=4))
def test_property_15_policy_validation(wrong: set[str]) -> None:
    """Every field that is wrong is named; a policy with none of them is read."""
    spec: dict[str, Any] = {}
    for path in wrong:
        *above, field = path.split(".")
        place = spec
        for part in above:
            place = place.setdefault(part, {})
        place[field] = BAD[path]
    manifest = {"kind": "OptimizationPolicy", "metadata": {"name": "p"}, "spec": spec}
    if not wrong:
        assert OptimizationPolicy.read(manifest).metadata.name == "p"
        return
    with pytest.raises(InvalidObjectError) as refused:
        OptimizationPolicy.read(manifest)
    for path in wrong:
        assert f"spec.{path}" in str(refused.value)
    assert policy(**spec).problem


@examples
@given(some_resources(), some_resources(), st.integers(1, 4), st.integers(1, 4))
def test_property_18_recommend_mode_stores_only(
    old: Resources, new: Resources, replicas: int, looks: int
) -> None:
    """After any number of reconciles the size is in the status, and nothing is written to the workload."""
    effective_policy = build_effective_policy(policy("p", mode="Recommend"), OperatorConfig())
    world = World(template={"web": old}, replicas=replicas)
    found = run(world.get_workload(KEY))
    assessment = WorkloadRecommendation((Recommendation("web", new, ()),), {}, is_urgent=False)
    desired_change = assessment.to_desired_change(
        effective_policy.spec.update_strategy,
        can_resize_in_place=True,
        blocked_reason=effective_policy.blocked_reason(found, OperatorConfig()),
    )
    for _ in range(looks):
        report = run(
            ChangeExecutor(world, world.records, may_write=lambda: True).reconcile(
                KEY, desired_change, now=world.now
            )
        )
        assert report
        assert report.state is WorkloadState.RECOMMENDED
        world.pass_time(600)
    assert (world.written, world.annotations) == ([], {})
    outcome = WorkloadOutcome(WorkloadState.RECOMMENDED, "", assessment.recommendations, recommended_at=NOW)
    ((entry,),) = [each["recommendations"] for each in status({found.key: outcome})["workloads"]]
    assert {"cpu", "memory"} <= entry.keys()


@examples
@given(many_outcomes, some_resources(), some_resources())
def test_property_19_disabled_mode_stops_processing(
    before: dict[WorkloadKey, WorkloadOutcome], old: Resources, new: Resources
) -> None:
    """Nothing is changed, and the status keeps its content, also after a restart."""
    effective_policy = build_effective_policy(policy("p", mode="Disabled"), OperatorConfig())
    world = World(template={"web": old}, replicas=1)
    assessment = WorkloadRecommendation((Recommendation("web", new, ()),), {}, is_urgent=True)
    blocked_reason = effective_policy.blocked_reason(run(world.get_workload(KEY)), OperatorConfig())
    desired_change = assessment.to_desired_change(
        effective_policy.spec.update_strategy, can_resize_in_place=True, blocked_reason=blocked_reason
    )
    run(
        ChangeExecutor(world, world.records, may_write=lambda: True).reconcile(
            KEY, desired_change, now=world.now
        )
    )
    assert world.written == []
    history = status(before)
    stopped = WorkloadOutcome(WorkloadState.SKIPPED, "the mode is Disabled", skip_reason=SkipReason.DISABLED)
    said = status(dict.fromkeys(before, stopped), before=history, mode="Disabled")

    def lasting_fields(found: Document) -> dict[tuple[str, ...], Any]:
        lasting = ("recommendations", "lastRecommendation", "lastApplied")
        return {
            (each["kind"], each["namespace"], each["name"]): [each.get(field) for field in lasting]
            for each in found["workloads"]
        }

    assert lasting_fields(said) == lasting_fields(history)
    assert {each["status"] for each in said["workloads"]} <= {"Skipped"}


async def _detect_features(minor: int, names: Iterable[str]) -> ServerFeatures:
    async with serve_stub(version=f"v1.{minor}.3", core_names=names) as (client, _):
        features = ServerFeatures(client)
        await features.detect()
        return features


@examples
@given(
    st.integers(29, 40),
    st.lists(st.sampled_from(["pods", "pods/status", "pods/resize", "nodes", "pods/resizes", "resize"])),
)
def test_property_20_feature_gate_detection(minor: int, names: list[str]) -> None:
    """The feature is on exactly when the server serves it, whatever its version says."""
    features = asyncio.run(_detect_features(minor, names))
    assert features.can_resize_in_place == ("pods/resize" in names)
    assert features.version == KubeVersion(1, minor)


@examples
@given(many_outcomes)
def test_property_23_status_timestamp_tracking(found: dict[WorkloadKey, WorkloadOutcome]) -> None:
    said = {
        WorkloadKey(each["kind"], each["namespace"], each["name"]): each
        for each in status(found)["workloads"]
    }
    for key, outcome in found.items():
        assert outcome.recommended_at
        assert said[key]["lastRecommendation"] == format_time(outcome.recommended_at)
        applied = format_time(outcome.applied_at) if outcome.applied_at is not None else None
        assert said[key].get("lastApplied") == applied


@examples
@given(many_outcomes, st.floats(0, 100), st.sampled_from(["Conflict", "Failed"]))
def test_property_25_prometheus_metrics_exposure(
    found: dict[WorkloadKey, WorkloadOutcome], seconds: float, error: str
) -> None:
    """Counted values can be scraped in Prometheus' format."""
    metrics = Metrics()
    WorkloadGauges(metrics).update("p", found.items())
    metrics.reconciliation_duration.labels("p").observe(seconds)
    metrics.reconciliation_errors.labels("p", error).inc()
    samples = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
        if sample.labels.get("policy") == "p"
    }

    def total(name: str) -> float:
        return sum(value for key, value in samples.items() if key[0] == f"trimtab_{name}")

    states = [outcome.state for outcome in found.values()]
    assert total("workloads_monitored") == len(found)
    assert total("workloads_updated") == states.count(WorkloadState.APPLIED)
    assert total("workloads_skipped") == states.count(WorkloadState.SKIPPED)
    assert total("reconciliation_duration_seconds_sum") == pytest.approx(seconds)
    assert total("reconciliation_errors_total") == 1


@examples
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=6))
def test_property_26_failure_event_creation(steps: list[tuple[bool, bool]]) -> None:
    """An invalid policy and unreadable usage are reported once when they start, with the text of the status."""
    said: Document = {}
    before = (False, False)
    for wrong, away in steps:
        spec: dict[str, Any] = {"mode": "Perhaps"} if wrong else {}
        now = status({}, before=said, trouble="no answer; is it running?" if away else "", **spec)
        problems = {each["reason"]: each["message"] for each in find_new_problems(said, now)}
        assert ("PolicyInvalid" in problems) == (wrong and not before[0])
        assert ("UsageUnknown" in problems) == (away and not before[1])
        assert all(problems.values())
        said, before = now, (wrong, away)


@examples
@given(st.lists(st.sampled_from([*SOURCES.names(), "nagios", "", "Prometheus"]), min_size=1, max_size=2))
def test_property_30_metrics_provider_configurability(providers: list[str]) -> None:
    """Any that is installed can be chosen by name; one that is not is refused, and what held goes on to hold."""

    def settings_for(provider: str) -> dict[str, Any]:
        if provider not in SOURCES.names():
            return {}
        fields = SOURCES.load_type(provider).settings_type.model_fields
        return {"url": "http://127.0.0.1:9090"} if "url" in fields else {}

    for provider in providers:
        text = yaml.safe_dump({"metricsSource": {"provider": provider, "settings": settings_for(provider)}})
        if provider in SOURCES.names():
            assert load_configuration(text=text, environment={}).metrics_source.provider == provider
        else:
            with pytest.raises(
                ConfigurationError, match=r"metricsSource.*(provider|is not known; there are)"
            ):
                load_configuration(text=text, environment={})
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "config.yaml"
        file.write_text("dryRun: true")
        live = ConfigReloader(file, environment={})
        chosen = {"provider": providers[0], "settings": settings_for(providers[0])}
        file.write_text(yaml.safe_dump({"metricsSource": chosen, "dryRun": False}))
        live.reload()
        assert live.current.dry_run == (providers[0] not in SOURCES.names())
        assert bool(live.problem) == live.current.dry_run


specs = st.fixed_dictionaries(
    {"mode": st.sampled_from(["Auto", "Recommend", "Disabled"]), "weight": st.integers(1, 1000)},
    optional={
        "goal": st.sampled_from(["Savings", "Balanced", "Reliability", "Batch"]),
        "selector": st.builds(
            lambda team, kind: {
                "workloadSelector": {"matchLabels": {"team": team}},
                "workloadTypes": {"include": [kind]},
            },
            st.sampled_from(["a", "b"]),
            st.sampled_from(["Deployment", "StatefulSet"]),
        ),
        "metricsConfig": st.builds(
            lambda percentile, factor: {
                "percentile": percentile,
                "safetyFactor": factor,
                "rollingWindow": "48h",
            },
            st.sampled_from(["P50", "P90", "P99"]),
            st.floats(1, 5),
        ),
        "resourceBounds": st.builds(
            lambda least, more: {"cpu": {"min": f"{least}m", "max": f"{least + more}m"}},
            st.integers(1, 5000),
            st.integers(0, 5000),
        ),
        "changes": st.builds(lambda minimum: {"minimum": minimum, "stabilization": "6h"}, st.floats(0, 1)),
        "reconciliationInterval": st.sampled_from(["10s", "5m", "1h"]),
    },
)


def _has_fields(whole: Any, part: Any) -> bool:
    """Return True if a manifest has every field of another; amounts may be spelt in another way."""
    return not isinstance(part, dict) or all(
        key in whole and _has_fields(whole[key], value) for key, value in part.items()
    )


@examples
@given(many_outcomes, specs)
def test_property_31_upgrade_preservation(
    found: dict[WorkloadKey, WorkloadOutcome], spec: dict[str, Any]
) -> None:
    """A policy and its status are read and given back as they are, and a new leader changes nothing in them."""
    mode = spec["mode"]
    assume(mode != "Disabled" or not found)
    manifest = {
        "apiVersion": "trimtab.io/v1alpha1",
        "kind": "OptimizationPolicy",
        "metadata": {"name": "p", "namespace": "shop"},
        "spec": spec,
    }
    given_back = OptimizationPolicy.read(manifest).to_manifest()
    assert _has_fields(given_back["spec"], spec)
    assert OptimizationPolicy.read(given_back) == OptimizationPolicy.read(manifest)
    said = status(found, mode=mode)
    read = OptimizationPolicyStatus.model_validate(said)
    assert OptimizationPolicyStatus.model_validate(read.model_dump(mode="json")) == read
    later = {key: _recreate(outcome) for key, outcome in found.items()}
    assert status(later, before=said, mode=mode) == said


def _recreate(outcome: WorkloadOutcome) -> WorkloadOutcome:
    """Return the outcome as a new leader sees it: without the time of its start."""
    return WorkloadOutcome(
        outcome.state,
        outcome.reason,
        outcome.recommendations,
        NOW + 2 * DAY,
        outcome.applied_at,
        SkipReason.CANNOT_APPLY,
    )
