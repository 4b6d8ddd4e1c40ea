"""Targets: objects that tenants write, as the caches, the command line, the webhook and the change executor read them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import yaml
from structlog.testing import capture_logs

from actuation.builders import NOW, desired_change, observation, pod, workload
from harness.builders import objects
from security.fuzz.engine import RunInput, Target
from trimtab.actuation.change_annotations import (
    AppliedSizes,
    ChangeAnnotations,
    OngoingChange,
    Phase,
    PodHealth,
    RevertRecord,
    UpdateMethod,
    encode_change_annotations,
)
from trimtab.actuation.decide.maintenance_windows import next_opening, open_seconds
from trimtab.actuation.decide.transitions import decide
from trimtab.actuation.hold import HOLD_ANNOTATION, Hold, read_hold
from trimtab.actuation.pod_options import (
    OPTIONS_ANNOTATION,
    OptionsAnnotation,
    OptionsPhase,
    read_options_annotation,
)
from trimtab.api import Intent, KPIProfile, NodeQoSPolicy, OptimizationPolicy
from trimtab.api.duration import Duration
from trimtab.api.errors import DurationError, InvalidObjectError, QuantityError
from trimtab.api.kind import Kind
from trimtab.api.optimizationpolicy import MaintenanceWindow
from trimtab.api.quantity import Quantity, parse_memory_bytes, parse_millicores
from trimtab.http_server import serve_application
from trimtab.kube.cache.list_pages import PageDecoder
from trimtab.kube.cache.projection import Projection
from trimtab.kube.cache.watch import WatchEventDecoder
from trimtab.kube.errors import KubeError
from trimtab.kube.kinds.custom import (
    intent_projection,
    kpi_profile_projection,
    node_report_projection,
    qos_policy_projection,
)
from trimtab.kube.kinds.hpas import hpa_projection
from trimtab.kube.kinds.nodes import node_projection
from trimtab.kube.kinds.pods import Resources, pod_projection
from trimtab.kube.kinds.policies import policy_projection
from trimtab.kube.kinds.quotas import limit_range_projection, resource_quota_projection
from trimtab.kube.kinds.vpas import vpa_projection
from trimtab.kube.kinds.workloads import workload_projection
from trimtab.kube.rest.resources import DEPLOYMENTS, JOBS, PODS, Resource
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.policy.validation import GUARDRAIL_ANNOTATION
from trimtab.operator.webhook.server import MUTATE_PATH, PODS_PATH, VALIDATE_PATH, AdmissionHandlers
from trimtab.sizing.guards.heap import detect_heap
from trimtab.yaml_documents import load_yaml

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
ROLLOUTS = Resource("argoproj.io", "v1alpha1", "rollouts", "Rollout")
KINDS: Mapping[str, type[Kind]] = {
    kind.__name__: kind for kind in (OptimizationPolicy, Intent, KPIProfile, NodeQoSPolicy)
}
GUARDRAIL = 'sum(rate(errors_total{namespace="$namespace",pod=~"$pods"}[5m])) > bool 5'


def read_example(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
    return loaded


_POLICY, _INTENT, _PROFILE, _QOS = map(
    read_example, ("optimizationpolicy", "intent", "kpiprofile", "nodeqospolicy")
)
_POLICY["metadata"]["annotations"] = {GUARDRAIL_ANNOTATION: GUARDRAIL}
_POLICY["spec"]["strategy"] = {"name": "percentile", "settings": {"a": {"b": [1, None]}}}
_METADATA = {
    "name": "web",
    "namespace": "shop",
    "uid": "1-2-3",
    "resourceVersion": "17",
    "generation": 3,
    "creationTimestamp": "2026-11-01T08:00:30Z",
    "labels": {"app": "web"},
    "annotations": {"trimtab.io/hold": '{"who":"ann","why":"sale"}', "other": "x"},
    "ownerReferences": [{"kind": "ReplicaSet", "name": "web-1", "uid": "u", "controller": True}],
}
_CONTAINER = {
    "name": "app",
    "image": "app:1",
    "command": ["java", "-Xmx2g", "$(OPTS)"],
    "env": [{"name": "OPTS", "value": "-XX:MaxRAMPercentage=75"}, {"name": "GOMEMLIMIT", "value": "1GiB"}],
    "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "1.5Gi"}},
    "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}],
}
_TEMPLATE = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {
        "containers": [_CONTAINER],
        "initContainers": [_CONTAINER | {"restartPolicy": "Always"}],
        "resources": {"requests": {"cpu": 1}},
        "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}],
        "nodeSelector": {"zone": "a"},
    },
}
_WORKLOAD = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": _METADATA,
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]},
        "template": _TEMPLATE,
        "strategy": {"type": "RollingUpdate"},
        "paused": False,
    },
    "status": {"observedGeneration": 3, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 1},
}  # fmt: skip
_VPA = {
    "metadata": _METADATA,
    "spec": {
        "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "updatePolicy": {"updateMode": "Auto"},
        "recommenders": [{"name": "trimtab"}],
        "resourcePolicy": {
            "containerPolicies": [
                {
                    "containerName": "*",
                    "mode": "Auto",
                    "minAllowed": {"cpu": "10m", "memory": "1Mi"},
                    "maxAllowed": {"cpu": 2, "memory": "1e9"},
                    "controlledResources": ["cpu"],
                }
            ]
        },
    },
    "status": {"recommendation": {"containerRecommendations": []}},
}
_HPA = {
    "metadata": _METADATA,
    "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": 1,
        "maxReplicas": 10,
        "metrics": [{"resource": {"name": "cpu", "target": {"averageUtilization": 60}}}],
    },
    "status": {"currentMetrics": [{"resource": {"name": "cpu", "current": {"averageUtilization": 50}}}]},
}
_LIMIT_RANGE = {
    "metadata": _METADATA,
    "spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi"}, "maxLimitRequestRatio": {"cpu": "2"}}]},
}  # fmt: skip
_QUOTA = {
    "metadata": _METADATA,
    "spec": {"hard": {"requests.cpu": "10", "limits.memory": "1Gi"}, "scopes": ["NotTerminating"]},
    "status": {"hard": {"requests.cpu": "10"}, "used": {"requests.cpu": "500m"}},
}
_NODE = objects.node("n1")
_NODE_METRIC = read_example("nodemetric")
_POD = objects.pod("web-1", owned=True)
_POD["status"] = objects.pod_status(_POD)

PROJECTIONS: Mapping[str, tuple[Callable[[], Projection[Any]], dict[str, Any]]] = {
    "pods": (pod_projection, _POD),
    "deployments": (partial(workload_projection, DEPLOYMENTS), _WORKLOAD),
    "jobs": (
        partial(workload_projection, JOBS),
        {"metadata": _METADATA, "spec": {"template": _TEMPLATE, "parallelism": 2, "suspend": False}},
    ),
    "rollouts": (partial(workload_projection, ROLLOUTS), _WORKLOAD),
    "vpas": (vpa_projection, _VPA),
    "hpas": (hpa_projection, _HPA),
    "limitranges": (limit_range_projection, _LIMIT_RANGE),
    "resourcequotas": (resource_quota_projection, _QUOTA),
    "nodes": (node_projection, _NODE),
    "optimizationpolicies": (policy_projection, _POLICY),
    "intents": (intent_projection, _INTENT),
    "kpiprofiles": (kpi_profile_projection, _PROFILE),
    "nodeqospolicies": (qos_policy_projection, _QOS),
    "nodemetrics": (node_report_projection, _NODE_METRIC),
}
_NEIGHBOUR = {"name": "neighbour", "namespace": "other", "uid": "neighbour", "resourceVersion": "18"}


@contextmanager
def _open_caches(name: str) -> Iterator[RunInput]:
    """Put an object into a list page and a watch beside a neighbour, which must arrive whatever the object is."""
    make, good = PROJECTIONS[name]
    projection = make()
    pages, events = PageDecoder(PODS, projection), WatchEventDecoder(projection)
    neighbour = msgspec.json.encode(good | {"metadata": _NEIGHBOUR})

    def run(data: bytes) -> str:
        # The API server sends one JSON object in one line.
        if not data.startswith(b"{") or b"\n" in data or not is_json(data):
            return "not an object"
        with capture_logs() as logs:
            records, _ = pages.decode(b'{"metadata":{},"items":[%s,%s]}' % (data, neighbour))
            assert any(record.name == "neighbour" for record in records), "the object hides its neighbour"
            lines = b"".join(b'{"type":"ADDED","object":%s}\n' % each for each in (data, neighbour))
            found = events.decode(lines)
            assert found[-1].object.metadata.name == "neighbour"
            assert projection.project(found[-1].object).name == "neighbour"
            for event in found[:-1]:
                if event.type != "DELETED":
                    try:
                        projection.project(event.object)
                    except (ValueError, RecursionError):  # as the informer does
                        return "ignored"
        assert all(len(str(log)) < 10_000 for log in logs)
        return f"{len(records)} records"

    yield run


def is_json(data: bytes) -> bool:
    """Return True for a JSON document however deep; nested objects are what an API server may send, too."""
    try:
        msgspec.json.decode(data)
    except RecursionError:
        return data.count(b"[") == data.count(b"]") and data.count(b"{") == data.count(b"}")
    except ValueError:
        return False
    return True


def _read_manifest(data: bytes) -> str:
    """Read a YAML document as one of our kinds, as the command line does."""
    try:
        loaded = load_yaml(data)
    except yaml.YAMLError:
        return "not YAML"
    if not isinstance(loaded, dict):
        return "not an object"
    kind = KINDS.get(str(loaded.get("kind")), OptimizationPolicy)
    try:
        found = kind.read(loaded)
    except InvalidObjectError as error:
        for problem in error.problems:
            assert problem.isprintable(), problem
        raise
    finally:
        kind.list_deprecated_fields(loaded)
    assert kind.read(found.to_manifest()) == found
    return kind.__name__


def _parse_quantity(data: bytes) -> str:
    text = data.decode(errors="replace")
    found = Quantity.parse(text)
    assert str(Quantity.parse(str(found)))
    assert hash(found) == hash(Quantity.parse(text))
    float(found.cores)
    return f"{parse_millicores(text) >= 0} {parse_memory_bytes(text) >= 0}"


def _parse_duration(data: bytes) -> str:
    found = Duration.parse(data.decode(errors="replace"))
    assert Duration.parse(str(found)) == found
    return str(found.seconds > 0)


def _read_window(data: bytes) -> str:
    try:
        stated = msgspec.json.decode(data, type=dict[str, Any])
    except (ValueError, RecursionError):
        return "not an object"
    try:
        window = MaintenanceWindow.model_validate(stated)
    except ValueError:
        return "invalid"
    opening = next_opening([window], now=NOW)
    assert 0 <= open_seconds([window], since=NOW - 86_400, now=NOW) <= 86_400
    return str(opening is not None)


def _decide_on_annotations(data: bytes) -> str:
    """Let the change executor decide on a workload with these annotations."""
    try:
        annotations = msgspec.json.decode(data, type=dict[str, str])
    except (ValueError, RecursionError):
        annotations = {HOLD_ANNOTATION: data.decode(errors="replace")}
    on = workload(annotations=annotations, replicas=2)
    hold = read_hold(on.annotations)
    read_options_annotation(on)
    desired = desired_change(hold_reason=str(hold) if hold and not hold.sizes else "")
    if hold is not None and hold.sizes:
        desired = hold.apply_to(desired)
    decision = decide(observation(desired, pods=[pod(), pod("web-1")], on=on))
    for action in decision.actions:
        text = str(getattr(action, "message", getattr(action, "reason", "")))
        assert len(text) < 4000, (type(action), text[:300])
        assert text.isprintable(), (type(action), text[:300])
    return f"{decision.transition.id} {[type(action).__name__ for action in decision.actions]}"


def _annotation_seeds() -> list[bytes]:
    small, large = Resources(100, None, 1 << 26, 1 << 28), Resources(400, None, 1 << 27, 1 << 28)
    change = OngoingChange(
        id="c", started=NOW - 60, method=UpdateMethod.IN_PLACE, phase=Phase.CANARY, since=NOW - 60,
        before={"web": small}, after={"web": large}, template={"web": small}, health=PodHealth(pods=2),
        canaries=("uid-web-0",), ends={"uid-web-0": NOW + 5}, pod_overrides={"uid-web-1": {"web": small}},
    )  # fmt: skip
    applied = AppliedSizes(
        id="a", at=NOW - 7200, sizes={"web": small}, template={"web": small}, before={"web": large},
        until=NOW - 7000, restarted=NOW - 9000, started={"web": 1 << 28},
    )  # fmt: skip
    reverted = RevertRecord(id="r", at=NOW - 900, why="it was OOM-killed", times=3, until=NOW + 900)
    options = OptionsAnnotation(
        uid="uid-web", phase=OptionsPhase.ROLLING, since=NOW - 60, container="web", cores=2
    )
    hold = Hold(who="ann", why="the sale", at=NOW, sizes={"web": large})
    records = [
        ChangeAnnotations(),
        *(
            ChangeAnnotations(change=msgspec.structs.replace(change, phase=phase), applied=applied)
            for phase in Phase
        ),
        ChangeAnnotations(applied=applied, reverted=reverted),
    ]
    return [
        msgspec.json.encode(
            {HOLD_ANNOTATION: hold.encode(), OPTIONS_ANNOTATION: options.encode()}
            | encode_change_annotations(each, uid="uid-web")
        )
        for each in records
    ] + [msgspec.json.encode(encode_change_annotations(each, uid="uid-web")) for each in records]


def _detect_heap(data: bytes) -> str:
    text = data.decode(errors="replace")
    args, *variables = text.split("\n")
    env = {name: value for name, _, value in (each.partition("=") for each in variables)}
    heap = detect_heap([args], env, 1 << 30)
    return "none" if heap is None else heap.source.partition(" in ")[0][:20]


@contextmanager
def _open_webhook(path: str) -> Iterator[RunInput]:
    """Post to the operator's real webhook server over loopback."""
    with asyncio.Runner() as runner:
        handlers = AdmissionHandlers(config=OperatorConfig, policies=tuple, size_pod=lambda _: {})
        serving = serve_application(handlers.build_application(), "127.0.0.1:0")
        port = runner.run(serving.__aenter__())

        async def open_session() -> aiohttp.ClientSession:
            return aiohttp.ClientSession(f"http://127.0.0.1:{port}")

        session = runner.run(open_session())

        async def post(data: bytes) -> tuple[int, bytes]:
            async with session.post(path, data=data) as answer:
                return answer.status, await answer.read()

        def run(data: bytes) -> str:
            with capture_logs() as logs:
                status, body = runner.run(post(data))
            failed = [log.get("exc_info") for log in logs if log["event"] == "webhook.failed"]
            assert status in {200, 400, 413}, f"status {status} {failed}"
            if status != 200:
                assert len(body) < 1000
                return str(status)
            response = msgspec.json.decode(body)["response"]
            problems = [
                each["message"] for each in response.get("status", {}).get("details", {}).get("causes", ())
            ]
            assert all(problem.isprintable() for problem in problems), problems
            assert len(body) < 20_000 + 2 * len(data)
            return f"{response['allowed']} {[problem[:30] for problem in problems][:2]}"

        try:
            yield run
        finally:
            runner.run(session.close())
            runner.run(serving.__aexit__(None, None, None))


def _reviews(good: dict[str, Any]) -> list[bytes]:
    request = {"uid": "1", "operation": "CREATE", "object": good}
    updated = request | {"operation": "UPDATE", "oldObject": good | {"spec": {"mode": "Auto"}}}
    return [msgspec.json.encode({"kind": "AdmissionReview", "request": each}) for each in (request, updated)]


TARGETS = (
    *(
        Target(
            name=f"cache-{name}",
            seeds=[msgspec.json.encode(good)],
            start=partial(_open_caches, name),
            errors=(KubeError,),
            json_share=0.98,
        )
        for name, (_, good) in PROJECTIONS.items()
    ),
    Target(
        name="manifests",
        seeds=[(EXAMPLES / f"{name}.yaml").read_bytes() for name in ("optimizationpolicy", "intent", "kpiprofile", "nodeqospolicy", "recommend")]
        + [msgspec.json.encode(each) for each in (_POLICY, _INTENT, _PROFILE, _QOS)],
        tokens=tuple(b"spec: metadata: kind: 100m 1Gi 1h -1 [] {} null : - mode weight besideHpa pace &a *a << !!int !!python/name:os.system ? |".split(b" ")),
        run=_read_manifest,
        errors=(InvalidObjectError,),
    ),
    Target(
        name="quantities",
        seeds=[b"100m", b"1.5Gi", b"1e3", b"+.5Ki", b"-12E", b"0", b"9223372036854775807", b"1e-9", b"1n"],
        tokens=tuple(b". e E 0 9 - + Ki Ei m n u k i e9999999 e-9999999 e2147483647".split(b" ")),
        run=_parse_quantity,
        errors=(QuantityError,),
    ),
    Target(
        name="durations",
        seeds=[b"90s", b"1h30m", b"1.5h", b"-2m", b"0", b"1us", "3µs".encode(), b"292y", b".5s"],
        tokens=tuple(b". h m s ms us ns - + 0 9 d 00000000000000000000".split(b" ")),
        run=_parse_duration,
        errors=(DurationError,),
    ),
    Target(
        name="windows",
        seeds=[
            msgspec.json.encode({"days": ["Mon", "Sun"], "start": start, "end": end, "timeZone": zone})
            for start, end, zone in (("09:00", "16:00", "Europe/Berlin"), ("23:30", "01:00", "UTC"), ("00:00", "00:00", "../../etc/passwd"), ("24:00", "7:5", "Pacific/Apia"))
        ],
        run=_read_window,
        errors=(),
    ),
    Target(name="annotations", seeds=_annotation_seeds(), run=_decide_on_annotations, errors=(), json_share=0.9),
    Target(
        name="heap-flags",
        seeds=[
            b"java -Xmx2g -XX:MaxDirectMemorySize=1g\nJAVA_TOOL_OPTIONS=-Xmx512m\nMAX_HEAP_SIZE=2G",
            b"node --max-old-space-size=4096 server.js\nNODE_OPTIONS=--max_old_space_size_percentage=75",
            b"app\nGOMEMLIMIT=1GiB\nDOTNET_GCHeapHardLimit=0x40000000\nDOTNET_GCHeapHardLimitPercent=50",
            b"java -XX:MaxRAMPercentage=75.0 -XX:MaxRAM=4g -XX:MinRAMPercentage=50 -XX:MaxRAMFraction=2",
        ],
        tokens=tuple(b"-Xmx -XX:MaxRAM= -XX:MaxRAMPercentage= -XX:MaxRAMFraction= 0 0.0 1e9 999999999999999999 g t = \n $(X) java".split(b" ")),
        run=_detect_heap,
        errors=(),
    ),
    Target(name="webhook-validate", seeds=_reviews(_POLICY), start=partial(_open_webhook, VALIDATE_PATH), errors=(), json_share=0.9),
    Target(name="webhook-mutate", seeds=_reviews(_POLICY), start=partial(_open_webhook, MUTATE_PATH), errors=(), json_share=0.9),
    Target(name="webhook-pods", seeds=_reviews(_POD), start=partial(_open_webhook, PODS_PATH), errors=(), json_share=0.9),
)  # fmt: skip
