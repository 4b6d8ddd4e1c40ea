"""Pod admission: a new pod gets the size that `sync_pods` would give it, if nothing can reject it."""

from collections.abc import Collection
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from actuation.builders import (
    LARGE,
    MIB,
    NOW,
    SMALL,
    desired_change,
    observation,
    pod,
    some_resources,
    workload,
)
from trimtab.actuation.actions import ResizePod
from trimtab.actuation.change_annotations import (
    AppliedSizes,
    ChangeAnnotations,
    OngoingChange,
    Phase,
    PodHealth,
    UpdateMethod,
)
from trimtab.actuation.decide.pod_admission import admission_size
from trimtab.actuation.decide.sync_pods import sync_work
from trimtab.actuation.effective_size import raise_cpu
from trimtab.actuation.resources import Sizes, container_sizes, restrict_to_fields
from trimtab.api.duration import Duration
from trimtab.api.optimizationpolicy import StartupBoost
from trimtab.kube.kinds.pod_requests import qos_class
from trimtab.kube.kinds.pods import Container, Pod, Resources
from trimtab.kube.kinds.quotas import LimitRange, LimitRangeItem, ResourceList, ResourceQuota, ResourceRatios
from trimtab.kube.kinds.workloads import Workload

MADE = {"web": LARGE}
GROWN = Resources(500, None, 160 * MIB, 256 * MIB)
GUARANTEED = Resources(200, 200, 64 * MIB, 64 * MIB)


def applied_annotations(template: Sizes, sizes: Sizes) -> ChangeAnnotations:
    return ChangeAnnotations(
        applied=AppliedSizes(id="x", at=NOW - 99, sizes=dict(sizes), template=dict(template))
    )


def resized_workload(template: Sizes, sizes: Sizes, **flags: Any) -> Workload:
    """A workload that was resized while its template stayed."""
    return workload(template=template, change_annotations=applied_annotations(template, sizes), **flags)


def new_pod(sizes: Sizes = MADE) -> Pod:
    return pod(sizes=sizes, created=0, ready=False, phase="", node="")


def admitted_size(
    of: Pod,
    on: Workload,
    *,
    alone: Collection[str] = (),
    limit_ranges: tuple[LimitRange, ...] = (),
    quotas: tuple[ResourceQuota, ...] = (),
) -> Sizes:
    return admission_size(of, on, excluded=alone, limit_ranges=limit_ranges, quotas=quotas)


def limit_range(type_: str = "Container", **bounds: Any) -> tuple[LimitRange, ...]:
    said = {
        "min": ResourceList(),
        "max": ResourceList(),
        "max_limit_request_ratio": ResourceRatios(),
    } | bounds
    limits = LimitRangeItem(type=type_, default_request=ResourceList(), default_limit=ResourceList(), **said)
    return (LimitRange(namespace="shop", name="l", uid="l", version=1, limits=(limits,)),)


def quota(**hard: ResourceList) -> tuple[ResourceQuota, ...]:
    every = dict.fromkeys(("hard_requests", "hard_limits", "used_requests", "used_limits"), ResourceList())
    return (ResourceQuota(namespace="shop", name="q", uid="q", version=1, is_scoped=False, **every | hard),)


def with_sizes(of: Pod, sizes: Sizes) -> Pod:
    containers = tuple(
        msgspec.structs.replace(each, resources=sizes.get(each.name, each.resources))
        for each in of.containers
    )
    return msgspec.structs.replace(of, containers=containers)


@given(
    template=st.dictionaries(st.sampled_from(["web", "log", "job"]), some_resources(), min_size=1),
    wanted=st.dictionaries(st.sampled_from(["web", "log", "job"]), some_resources()),
    in_place=st.booleans(),
    filled=some_resources(),
    alone=st.frozensets(st.sampled_from(["web", "log", "job"])),
)
def test_pod_admission_gives_the_size_that_sync_pods_would_give(
    *, template: Sizes, wanted: Sizes, in_place: bool, filled: Resources, alone: frozenset[str]
) -> None:
    made = {name: _fill_defaults(each, filled) for name, each in template.items()}
    if in_place:  # as a change in place is: of the containers that are there, and nothing added or removed
        wanted = {name: restrict_to_fields(made[name], wanted.get(name, filled)) for name in made}
    on, as_made = resized_workload(template, wanted), new_pod(made)
    sizes = admitted_size(as_made, on, alone=alone)
    case = observation(desired_change(excluded_containers=alone), pods=[as_made], on=on)
    would = [each.sizes for each in sync_work(case).resizes if isinstance(each, ResizePod)]
    after = with_sizes(as_made, sizes)
    if sizes:
        assert would == [container_sizes(after.containers)]
        assert (
            sync_work(observation(desired_change(excluded_containers=alone), pods=[after], on=on)).resizes
            == []
        )
        assert admitted_size(after, on, alone=alone) == {}, (
            "asked again, as by reinvocationPolicy, it has nothing to add"
        )
        assert sizes.keys() <= wanted.keys() - alone
    assert _qos(after) == _qos(as_made)
    ours = made | {name: each for name, each in wanted.items() if in_place and name not in alone}
    if ours != made:
        assume(_qos(with_sizes(as_made, ours)) == _qos(as_made))
        assert sizes


def _fill_defaults(each: Resources, by: Resources) -> Resources:
    """Fill in what the template leaves open, as a LimitRange does."""
    cpu = each.cpu_limit or (max(by.cpu_limit, each.cpu_request or 0) if by.cpu_limit else None)
    return msgspec.structs.replace(each, cpu_limit=cpu)


def _qos(of: Pod) -> str:
    return qos_class(each.resources for each in of.containers)


def test_pod_admission_skips_an_excluded_container() -> None:
    both = {"web": LARGE, "proxy": LARGE}
    on = resized_workload(both, {"web": SMALL, "proxy": SMALL})
    assert admitted_size(new_pod(both), on, alone={"proxy"}) == {"web": SMALL}


def test_pod_admission_gives_a_smaller_size_of_the_workload() -> None:
    assert admitted_size(new_pod(), resized_workload(MADE, {"web": SMALL})) == {"web": SMALL}


def changing_workload(phase: Phase) -> Workload:
    change = OngoingChange(
        id="y",
        started=NOW,
        method=UpdateMethod.IN_PLACE,
        phase=phase,
        since=NOW,
        before={"web": SMALL},
        after={"web": GROWN},
        template=MADE,
        health=PodHealth(pods=1),
    )
    return workload(
        template=MADE,
        change_annotations=msgspec.structs.replace(applied_annotations(MADE, {"web": SMALL}), change=change),
    )


@pytest.mark.parametrize(
    ("phase", "size"),
    [
        (Phase.CANARY, SMALL),
        (Phase.PROMOTING, GROWN),
        (Phase.VERIFYING, GROWN),
        (Phase.REVERTING, SMALL),
    ],
)
def test_pod_admission_during_a_change_gives_the_size_of_all_pods(phase: Phase, size: Resources) -> None:
    assert admitted_size(new_pod(), changing_workload(phase)) == {"web": size}


@pytest.mark.parametrize(
    ("what", "on"),
    [
        ("nothing was applied", workload(template=MADE)),
        (
            "the template was changed since",
            workload(template=MADE, change_annotations=applied_annotations({"web": SMALL}, MADE)),
        ),
        ("the workload is going", resized_workload(MADE, {"web": SMALL}, deleting=True)),
        ("its annotations were copied from another", resized_workload(MADE, {"web": SMALL}, uid="another")),
        ("a container is to come, or gone", resized_workload(MADE, {"web": SMALL, "injected": SMALL})),
    ],
)
def test_pod_admission_leaves_a_pod_unchanged_where(what: str, on: Workload) -> None:
    assert admitted_size(new_pod(), on) == {}, what


def test_pod_admission_neither_adds_nor_removes_a_request_or_limit() -> None:
    other = Resources(100, 200, 64 * MIB, None)
    assert admitted_size(new_pod(), resized_workload(MADE, {"web": other})) == {
        "web": Resources(100, None, 64 * MIB, 256 * MIB)
    }


def test_pod_admission_never_changes_the_qos_class() -> None:
    burstable = {"web": Resources(100, 200, 64 * MIB, 64 * MIB)}
    assert admitted_size(new_pod(burstable), resized_workload(burstable, {"web": GUARANTEED})) == {}


def test_pod_admission_leaves_a_pod_that_another_sized() -> None:
    other = new_pod({"web": Resources(123, None, 99 * MIB, 256 * MIB)})
    assert admitted_size(other, resized_workload(MADE, {"web": SMALL})) == {}


def test_pod_admission_sizes_sidecars_but_no_init_containers() -> None:
    others = (
        Container("setup", "init", LARGE),
        Container("proxy", "sidecar", LARGE),
        Container("added", "main", LARGE),
    )
    whole = msgspec.structs.replace(new_pod(), containers=(*new_pod().containers, *others))
    on = resized_workload({"web": LARGE, "proxy": LARGE}, {"web": SMALL, "proxy": SMALL})
    assert admitted_size(whole, on) == {"web": SMALL, "proxy": SMALL}


@pytest.mark.parametrize(
    ("limits", "is_sized"),
    [
        (limit_range(), True),
        (
            limit_range(
                min=ResourceList(100, 64 * MIB),
                max=ResourceList(None, 256 * MIB),
                max_limit_request_ratio=ResourceRatios(None, 4),
            ),
            True,
        ),
        (limit_range(min=ResourceList(cpu=101)), False),
        (limit_range(min=ResourceList(memory=65 * MIB)), False),
        (limit_range(max=ResourceList(memory=255 * MIB)), False),
        (limit_range(max_limit_request_ratio=ResourceRatios(memory=3.9)), False),
        (limit_range("Pod", max=ResourceList(cpu=100_000)), False),
        (limit_range("PersistentVolumeClaim"), True),
    ],
)
def test_pod_admission_skips_a_size_that_a_limit_range_rejects(
    limits: tuple[LimitRange, ...], *, is_sized: bool
) -> None:
    assert (
        bool(admitted_size(new_pod(), resized_workload(MADE, {"web": SMALL}), limit_ranges=limits))
        is is_sized
    )


def test_pod_admission_grows_only_without_a_quota_and_shrinks_always() -> None:
    grown, shrunk = resized_workload({"web": SMALL}, {"web": LARGE}), resized_workload(MADE, {"web": SMALL})
    of_memory, of_objects = quota(hard_limits=ResourceList(memory=1 << 40)), quota()
    assert admitted_size(new_pod({"web": SMALL}), grown, quotas=of_objects) == {"web": LARGE}
    assert admitted_size(new_pod({"web": SMALL}), grown, quotas=of_memory) == {}
    assert admitted_size(new_pod(), shrunk, quotas=of_memory) == {"web": SMALL}


def test_pod_admission_leaves_the_startup_boost_to_sync_pods() -> None:
    on, rule = resized_workload(MADE, {"web": SMALL}), StartupBoost(factor=3, duration=Duration.parse("2m"))
    there = msgspec.structs.replace(with_sizes(new_pod(), admitted_size(new_pod(), on)), created=NOW)
    case = observation(desired_change(startup_boost=rule), pods=[there], on=on)
    (action,) = sync_work(case).resizes
    assert isinstance(action, ResizePod)
    assert action.sizes == raise_cpu({"web": SMALL}, 3)
