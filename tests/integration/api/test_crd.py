"""The CRDs, and the API server that enforces them: it fills in, accepts and refuses just as the models do."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.cluster.cluster import Cluster
from harness.process import wait_for
from trimtab.api import KINDS, Intent, InvalidObjectError, Kind, KPIProfile, NodeMetric, NodeQoSPolicy
from trimtab.api.optimizationpolicy import OptimizationPolicy

from .conftest import Kinds, RefusedError

OBJECTIVE = {"name": "p99", "value": 20, "measuredBy": "p99latency"}
TARGET = {"name": "web"}
LIMITS_MAY_CHANGE = {"updateRequestsOnly": False}
LEAST: dict[type[Kind], dict[str, Any] | None] = {
    OptimizationPolicy: None,
    Intent: {"targetRef": TARGET, "objectives": [OBJECTIVE]},
    KPIProfile: {"type": "latency"},
    NodeMetric: None,
    NodeQoSPolicy: None,
}


def test_kubectl_explains_a_field(kinds: Kinds, cluster: Cluster) -> None:
    published = "/openapi/v3/apis/trimtab.io/v1alpha1"  # some time after the kind itself is served
    wait_for(
        lambda: cluster.has(published) and "optimizationpolicies" in str(cluster.call("GET", published)),
        what="the server to publish the kind",
    )
    said = " ".join(cluster.kubectl("explain", "op.spec.metricsConfig.safetyFactor").split())
    assert "The factor by which the strategy percentile multiplies the percentile" in said


def test_crds_are_found_by_category_and_short_name(kinds: Kinds, cluster: Cluster) -> None:
    listed = cluster.kubectl("api-resources", "--categories=trimtab", "--no-headers").splitlines()
    assert {tuple(line.split()[:2]) for line in listed} == {
        (kind.names.plural, ",".join(kind.names.short)) for kind in KINDS
    }


@pytest.mark.parametrize("kind", KINDS)
def test_crd_defaults_match_those_of_the_model(kinds: Kinds, kind: type[Kind]) -> None:
    kept = kinds.create(kind, LEAST[kind])
    ours = kind.read({} if LEAST[kind] is None else {"spec": LEAST[kind]}).to_manifest()
    assert kept.get("spec") == ours.get("spec")


@pytest.mark.parametrize(
    ("spec", "within"),
    [
        ({"resourceBounds": {"cpu": {"max": 2}}}, "resourceBounds"),
        ({"metricsConfig": {"percentile": "P99"}}, "metricsConfig"),
        ({"updateStrategy": LIMITS_MAY_CHANGE, "limitPolicy": {}}, "limitPolicy"),
        ({"strategy": {"settings": {"any": {"thing": [1, "two"]}}}}, "strategy"),
    ],
)
def test_crd_defaults_are_added_beside_given_fields(kinds: Kinds, spec: dict[str, Any], within: str) -> None:
    kept = kinds.create(OptimizationPolicy, spec)
    assert OptimizationPolicy.read(kept).spec == OptimizationPolicy.read({"spec": spec}).spec
    assert within in kept["spec"]


def test_crd_status_is_separate_from_the_spec(kinds: Kinds, cluster: Cluster, namespace: str) -> None:
    policies = f"/apis/trimtab.io/v1alpha1/namespaces/{namespace}/optimizationpolicies"
    status: dict[str, Any] = {
        "observedGeneration": 1,
        "counts": {"monitored": 3, "updated": 2, "skipped": 1},
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "PolicyValid",
                "lastTransitionTime": "2026-11-01T10:00:00Z",
            }
        ],
        "workloads": [
            {
                "kind": "Deployment",
                "namespace": "shop",
                "name": "web",
                "status": "Skipped",
                "reason": "no samples yet",
                "recommendations": [{"container": "nginx", "cpu": "500m", "memory": "512Mi"}],
            }
        ],
    }
    body = {"apiVersion": "trimtab.io/v1alpha1", "kind": "OptimizationPolicy", "metadata": {"name": "it"}}
    created = cluster.call("POST", policies, {**body, "status": status})
    assert "status" not in created
    kept = cluster.call("PUT", f"{policies}/it/status", {**created, "status": status})
    assert OptimizationPolicy.read(kept).to_manifest()["status"] == status
    shown = cluster.kubectl("get", "op", "-n", namespace, "--no-headers").split()
    assert shown[:6] == ["it", "Recommend", "100", "3", "2", "True"]


REFUSED: list[tuple[type[Kind], dict[str, Any], str]] = [
    (OptimizationPolicy, {"mode": "auto"}, "spec.mode"),
    (OptimizationPolicy, {"updateStrategy": {"template": "Always"}}, "spec.updateStrategy.template"),
    (
        OptimizationPolicy,
        {"updateStrategy": {"windows": [{"start": "24:00"}]}},
        "spec.updateStrategy.windows[0].start",
    ),
    (OptimizationPolicy, {"weight": 0}, "spec.weight"),
    (OptimizationPolicy, {"weight": 1001}, "spec.weight"),
    (OptimizationPolicy, {"weight": "100"}, "spec.weight"),
    (
        OptimizationPolicy,
        {"selector": {"namespaces": {"allow": ["Shop"]}}},
        "spec.selector.namespaces.allow[0]",
    ),
    (
        OptimizationPolicy,
        {"selector": {"namespaces": {"deny": ["a", "b", "a"]}}},
        "spec.selector.namespaces.deny[2]",
    ),
    (
        OptimizationPolicy,
        {"selector": {"workloadTypes": {"include": ["Job", "CronJob"], "exclude": ["Job"]}}},
        "spec.selector.workloadTypes.exclude",
    ),
    (
        OptimizationPolicy,
        {"selector": {"workloadTypes": {"include": ["deployment"]}}},
        "spec.selector.workloadTypes.include[0]",
    ),
    (
        OptimizationPolicy,
        {"selector": {"workloadSelector": {"matchLabels": {"a b": "c"}}}},
        "spec.selector.workloadSelector.matchLabels",
    ),
    (
        OptimizationPolicy,
        {"selector": {"workloadSelector": {"matchLabels": {"app": "c d"}}}},
        "spec.selector.workloadSelector.matchLabels.app",
    ),
    (
        OptimizationPolicy,
        {"selector": {"namespaceSelector": {"matchExpressions": [{"key": "app", "operator": "In"}]}}},
        "spec.selector.namespaceSelector.matchExpressions[0].values",
    ),
    (
        OptimizationPolicy,
        {
            "selector": {
                "namespaceSelector": {
                    "matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]
                }
            }
        },
        "spec.selector.namespaceSelector.matchExpressions[0].values",
    ),
    (OptimizationPolicy, {"metricsConfig": {"provider": "My Prometheus"}}, "spec.metricsConfig.provider"),
    (OptimizationPolicy, {"metricsConfig": {"rollingWindow": "14d"}}, "spec.metricsConfig.rollingWindow"),
    (OptimizationPolicy, {"metricsConfig": {"rollingWindow": "30s"}}, "spec.metricsConfig.rollingWindow"),
    (OptimizationPolicy, {"metricsConfig": {"rollingWindow": 24}}, "spec.metricsConfig.rollingWindow"),
    (OptimizationPolicy, {"metricsConfig": {"percentile": "P80"}}, "spec.metricsConfig.percentile"),
    (OptimizationPolicy, {"metricsConfig": {"safetyFactor": 0.9}}, "spec.metricsConfig.safetyFactor"),
    (OptimizationPolicy, {"metricsConfig": {"safetyFactor": "1.2"}}, "spec.metricsConfig.safetyFactor"),
    (OptimizationPolicy, {"resourceBounds": {"cpu": {"min": "4", "max": 2}}}, "spec.resourceBounds.cpu.min"),
    (OptimizationPolicy, {"resourceBounds": {"memory": {"max": "1Mi"}}}, "spec.resourceBounds.memory.min"),
    (OptimizationPolicy, {"resourceBounds": {"cpu": {"min": 0, "max": "0"}}}, "spec.resourceBounds.cpu.max"),
    (OptimizationPolicy, {"resourceBounds": {"memory": {"max": "1.5GB"}}}, "spec.resourceBounds.memory.max"),
    (OptimizationPolicy, {"resourceBounds": {"cpu": {"min": "-100m"}}}, "spec.resourceBounds.cpu.min"),
    (OptimizationPolicy, {"resourceBounds": {"cpu": {"min": -1}}}, "spec.resourceBounds.cpu.min"),
    (OptimizationPolicy, {"resourceBounds": {"cpu": {"max": 1.5}}}, "spec.resourceBounds.cpu.max"),
    (OptimizationPolicy, {"resourceBounds": {"cpu": "4"}}, "spec.resourceBounds.cpu"),
    (OptimizationPolicy, {"updateStrategy": {"allowRecreate": "no"}}, "spec.updateStrategy.allowRecreate"),
    (OptimizationPolicy, {"limitPolicy": {"memory": {"mode": "KeepRatio"}}}, "spec.limitPolicy"),
    (
        OptimizationPolicy,
        {"updateStrategy": LIMITS_MAY_CHANGE, "limitPolicy": {"cpu": {"mode": "Multiplier"}}},
        "spec.limitPolicy.cpu.multiplier",
    ),
    (
        OptimizationPolicy,
        {
            "updateStrategy": LIMITS_MAY_CHANGE,
            "limitPolicy": {"memory": {"mode": "Remove", "headroom": "1Gi"}},
        },
        "spec.limitPolicy.memory.headroom",
    ),
    (OptimizationPolicy, {"reconciliationInterval": "5s"}, "spec.reconciliationInterval"),
    (Intent, {"objectives": [OBJECTIVE]}, "spec.targetRef"),
    (Intent, {"targetRef": TARGET, "objectives": []}, "spec.objectives"),
    (
        Intent,
        {"targetRef": TARGET, "objectives": [{**OBJECTIVE, "name": f"o{n}"} for n in range(6)]},
        "spec.objectives",
    ),
    (Intent, {"targetRef": TARGET, "objectives": [OBJECTIVE, OBJECTIVE]}, "spec.objectives[1]"),
    (Intent, {"targetRef": TARGET, "objectives": [OBJECTIVE], "priority": 0}, "spec.priority"),
    (
        Intent,
        {"targetRef": TARGET, "objectives": [{**OBJECTIVE, "tolerance": -0.1}]},
        "spec.objectives[0].tolerance",
    ),
    (
        Intent,
        {"targetRef": TARGET, "objectives": [{"name": "p99", "value": 1}]},
        "spec.objectives[0].measuredBy",
    ),
    (KPIProfile, {"query": "up"}, "spec.type"),
    (KPIProfile, {"type": "carbon"}, "spec.type"),
    (KPIProfile, {"type": "custom"}, "spec.query"),
    (KPIProfile, {"type": "latency", "props": {"endpoint": "prometheus:9090"}}, "spec.props"),
    (
        NodeMetric,
        {"metricCollectPolicy": {"reportIntervalSeconds": 600}},
        "spec.metricCollectPolicy.reportIntervalSeconds",
    ),
    (NodeQoSPolicy, {"cpuSuppress": {"thresholdPercent": 101}}, "spec.cpuSuppress.thresholdPercent"),
    (NodeQoSPolicy, {"cpuBurst": {"policy": "always"}}, "spec.cpuBurst.policy"),
    (NodeQoSPolicy, {"cpuEvict": {"satisfactionLowerPercent": 90}}, "spec.cpuEvict.satisfactionLowerPercent"),
    (
        NodeQoSPolicy,
        {"cpuSuppress": {"thresholdPercent": 10, "minPercent": 90}},
        "spec.cpuSuppress.minPercent",
    ),
    (NodeQoSPolicy, {"memoryEvict": {"lowerPercent": 70}}, "spec.memoryEvict.lowerPercent"),
    (
        NodeQoSPolicy,
        {"resctrl": {"be": {"catRangeStartPercent": 30}}},
        "spec.resctrl.be.catRangeStartPercent",
    ),
    (NodeQoSPolicy, {"blkio": {"be": [{"name": "/dev/sda", "readIOPS": -1}]}}, "spec.blkio.be[0].readIOPS"),
]


@pytest.mark.parametrize(("kind", "spec", "field"), REFUSED, ids=[field for _, _, field in REFUSED])
def test_crd_rejects_the_same_field_as_the_model(
    kinds: Kinds, kind: type[Kind], spec: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidObjectError) as ours:
        kind.read({"spec": spec})
    assert [problem.split(": ")[0] for problem in ours.value.problems] == [field]
    with pytest.raises(RefusedError) as theirs:
        kinds.create(kind, spec)
    assert field in theirs.value.fields


def test_crd_names_a_misspelt_field_as_the_model_does(kinds: Kinds) -> None:
    with pytest.raises(InvalidObjectError, match=r"^spec.selector.namespace: unknown field"):
        OptimizationPolicy.read({"spec": {"selector": {"namespace": {}}}})
    with pytest.raises(RefusedError, match=r'unknown field "spec.selector.namespace"'):
        kinds.create(OptimizationPolicy, {"selector": {"namespace": {}}})


# Right and wrong values for the fields that have something to agree on; most of what comes out is valid.
def maybe(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


texts = st.sampled_from(
    ["100m", "2", "1.5Gi", "0", "1e3", "12E", "5.", ".5", "1e-3", "0.1n", "64Mi", "10000000Ki"]
)
wrong_texts = st.sampled_from(
    ["", "m", "-1", "+1", "1.5GB", "1e", "1e100", "1.2.3", " 1", "1Ki ", "٣", "0" * 33]
)
quantities = texts | st.integers(0, 2**53) | wrong_texts
bounds = maybe(min=quantities, max=quantities)
durations = st.sampled_from(
    [
        "5m",
        "24h",
        "90s",
        "1h30m",
        "1.5h",
        "10s",
        "9s",
        "8760h",
        "8761h",
        "0",
        "-5m",
        "1d",
        "",
        "1",
        "61s1ms",
        "1h1h",
    ]
)
names = st.sampled_from(["default", "shop", "kube-system", "a" * 63, "a" * 64, "Shop", "-a", ""])
kind_names = st.sampled_from(["Deployment", "Job", "Rollout.argoproj.io", "deployment", "A.b.", "X"])
labels = st.dictionaries(
    st.sampled_from(["app", "example.com/app", "a" * 63, "a" * 64, "a b", "/a", "A.b_c-d"]),
    st.sampled_from(["", "web", "a" * 63, "a" * 64, "a b", "-", "a.b_c-d"]),
    max_size=2,
)
requirements = st.fixed_dictionaries(
    {
        "key": st.sampled_from(["app", "a b"]),
        "operator": st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "in"]),
    },
    optional={"values": st.lists(st.sampled_from(["web", "a b", ""]), max_size=2)},
)
label_selectors = maybe(matchLabels=labels, matchExpressions=st.lists(requirements, max_size=2))
limit_rules = maybe(
    mode=st.sampled_from(["Keep", "KeepRatio", "Multiplier", "Headroom", "Remove"]),
    multiplier=st.sampled_from([1, 1.5, 100, 0.9, 101]),
    headroom=quantities,
)
steps = maybe(increase=st.sampled_from([0.5, 2, 100, 0]), decrease=st.sampled_from([0, 0.3, 0.9, 1]))
windows = maybe(
    days=st.lists(st.sampled_from(["Mon", "Sun", "Someday"]), max_size=3),
    start=st.sampled_from(["00:00", "23:59", "24:00", "7:00", "07:60"]),
    end=st.sampled_from(["05:30", "noon"]),
    timeZone=st.sampled_from(["UTC", "Europe/Berlin", "Etc/GMT+1", "Europe Berlin", ""]),
)
PARTS: dict[str, st.SearchStrategy[Any]] = dict(  # noqa: C408 - as `maybe` is given them
    mode=st.sampled_from(["Auto", "Recommend", "Disabled", "auto", 1]),
    weight=st.integers(-1, 1002),
    selector=maybe(
        namespaceSelector=label_selectors,
        workloadSelector=label_selectors,
        namespaces=maybe(allow=st.lists(names, max_size=3), deny=st.lists(names, max_size=2)),
        workloadTypes=maybe(
            include=st.lists(kind_names, max_size=3), exclude=st.lists(kind_names, max_size=3)
        ),
    ),
    metricsConfig=maybe(
        provider=st.sampled_from(["prometheus", "metrics-server", "Mine", ""]),
        rollingWindow=durations,
        percentile=st.sampled_from(["P50", "P90", "P95", "P99", "p90"]),
        safetyFactor=st.sampled_from([1, 1.2, 10, 0.99, 10.5]),
        minimumHistory=durations,
    ),
    strategy=maybe(
        name=names,
        settings=st.dictionaries(
            st.text(max_size=3), st.integers(-(2**63), 2**63 - 1) | st.booleans(), max_size=2
        ),
    ),
    resourceBounds=maybe(cpu=bounds, memory=bounds),
    updateStrategy=maybe(
        allowRecreate=st.booleans(),
        updateRequestsOnly=st.booleans(),
        keepQosClass=st.booleans(),
        hpaMode=st.sampled_from(["Rescale", "Hold", "Fight"]),
        template=st.sampled_from(["Never", "AsNeeded", "Always", "Sometimes"]),
        takeOwnership=st.booleans(),
        canary=maybe(percent=st.integers(-1, 102), observation=durations, patience=durations),
        minInterval=durations,
        windows=st.lists(windows, max_size=2),
        startupBoost=maybe(factor=st.sampled_from([1, 2.5, 10, 0.9, 11]), duration=durations),
    ),
    changes=maybe(
        minimum=st.sampled_from([0, 0.1, 1, 1.1]), stabilization=durations, cpu=steps, memory=steps
    ),
    limitPolicy=maybe(cpu=limit_rules, memory=limit_rules),
    reconciliationInterval=durations,
)
specs = maybe(**PARTS)


def our_verdict(spec: dict[str, Any]) -> tuple[OptimizationPolicy | None, list[str]]:
    try:
        return OptimizationPolicy.read({"spec": spec, "metadata": {"name": "it"}}), []
    except InvalidObjectError as refused:
        return None, refused.problems


def their_verdict(kinds: Kinds, spec: dict[str, Any]) -> tuple[dict[str, Any] | None, set[str]]:
    try:
        return kinds.create(OptimizationPolicy, spec), set()
    except RefusedError as refused:
        return None, refused.fields


@settings(max_examples=150)
@given(spec=specs)
def test_crd_accepts_exactly_the_policies_that_the_model_accepts(kinds: Kinds, spec: dict[str, Any]) -> None:
    ours, problems = our_verdict(spec)
    theirs, fields = their_verdict(kinds, spec)
    assert (ours is None) == (theirs is None), f"we: {problems}, the server: {fields}"
    if ours is not None and theirs is not None:
        assert OptimizationPolicy.read(theirs).spec == ours.spec


def is_good(spec: dict[str, Any]) -> bool:
    return our_verdict(spec)[0] is not None


def good(part: str) -> st.SearchStrategy[Any]:
    return PARTS[part].filter(lambda value: is_good({part: value}))


# Part by part, for few are good in all that they say.
good_specs = maybe(**{part: good(part) for part in PARTS}).filter(is_good)


@settings(max_examples=100)
@given(spec=good_specs)
def test_crd_stores_a_policy_with_the_defaults_of_the_model(kinds: Kinds, spec: dict[str, Any]) -> None:
    ours, _ = our_verdict(spec)
    assert ours is not None
    written = ours.to_manifest()["spec"]
    again = kinds.create(OptimizationPolicy, written)
    assert again["spec"] == written
