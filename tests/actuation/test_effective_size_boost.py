"""Startup boost: more CPU until a pod is ready, then its own size again."""

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actuation.builders import NOW, SMALL, desired_change, observation, pod, some_resources, workload
from trimtab.actuation.actions import ResizePod, Wait
from trimtab.actuation.change_annotations import AppliedSizes, ChangeAnnotations
from trimtab.actuation.decide.transitions import next_actions
from trimtab.actuation.effective_size import decide_boost, raise_cpu
from trimtab.actuation.resources import Sizes
from trimtab.api.duration import Duration
from trimtab.api.optimizationpolicy import StartupBoost
from trimtab.kube.kinds.pod_requests import qos_class
from trimtab.kube.kinds.pods import Resources

RULE = StartupBoost(factor=3, duration=Duration.parse("2m"))
OWN = {"web": SMALL}
BOOSTED = raise_cpu(OWN, 3)


def test_startup_boost_lasts_until_the_pod_is_ready() -> None:
    starting = pod(created=NOW - 10, ready=False)
    assert decide_boost(starting, OWN, RULE, now=NOW).sizes == {"web": Resources(300, None, *_memory(SMALL))}
    assert decide_boost(pod(sizes=BOOSTED, created=NOW - 10), OWN, RULE, now=NOW).sizes == OWN


def test_startup_boost_ends_for_a_pod_that_is_never_ready() -> None:
    slow = pod(sizes=BOOSTED, created=NOW - 120, ready=False)
    assert decide_boost(slow, OWN, RULE, now=NOW - 1).recheck_at == NOW
    assert decide_boost(slow, OWN, RULE, now=NOW).sizes == OWN


def test_startup_boost_of_an_earlier_factor_is_removed() -> None:
    assert decide_boost(pod(sizes=raise_cpu(OWN, 5)), OWN, RULE, now=NOW).sizes == OWN


def test_startup_boost_leaves_a_pod_of_another_size() -> None:
    other = {"web": Resources(500, None, 1, 2)}
    assert decide_boost(pod(sizes=other), OWN, RULE, now=NOW).sizes is None
    assert decide_boost(pod(sizes=other, created=NOW, ready=False), OWN, RULE, now=NOW).sizes is None


@given(some_resources(), st.floats(1, 10))
def test_startup_boost_keeps_the_qos_class(own: Resources, factor: float) -> None:
    raised = raise_cpu({"web": own}, factor)["web"]
    assert qos_class([raised]) == qos_class([own])
    assert _memory(raised) == _memory(own)


def test_startup_boost_delays_a_change_while_a_pod_starts() -> None:
    wanted = desired_change(startup_boost=RULE)
    starting = pod(created=NOW - 10, ready=False)
    (action,) = next_actions(observation(wanted, pods=[starting], on=workload()))
    assert isinstance(action, ResizePod)
    assert action.sizes == BOOSTED
    boosted = pod(sizes=BOOSTED, created=NOW - 10, ready=False)
    assert next_actions(observation(wanted, pods=[boosted])) == [
        Wait(NOW + 110, "pods are starting with more CPU (updateStrategy.startupBoost)")
    ]


def test_startup_boost_equal_to_the_template_stays_while_the_pod_starts() -> None:
    """Or it would be given one and the other in turn for as long as it starts."""
    change_annotations = ChangeAnnotations(
        applied=AppliedSizes(id="x", at=NOW - 99, sizes=OWN, template=BOOSTED)
    )
    starting = pod(sizes=BOOSTED, created=NOW - 10, ready=False)
    case = observation(
        desired_change(OWN, startup_boost=RULE),
        pods=[starting],
        on=workload(template=BOOSTED, change_annotations=change_annotations),
    )
    assert next_actions(case) == [
        Wait(NOW + 110, "pods are starting with more CPU (updateStrategy.startupBoost)")
    ]
    (action,) = next_actions(replace(case, pods=[pod(sizes=BOOSTED, created=NOW - 10)]))
    assert isinstance(action, ResizePod)
    assert action.sizes == OWN


def boosted_and_back(*, template: Sizes, made: Sizes) -> tuple[Sizes, Sizes]:
    """The size that a pod has while it starts, and when it is ready."""
    found = dict(made)
    sizes = []
    for ready in (False, True):
        there = pod(sizes=found, created=NOW - 10, ready=ready)
        case = observation(
            desired_change({}, startup_boost=RULE), pods=[there], on=workload(template=template)
        )
        for action in next_actions(case):
            if isinstance(action, ResizePod):
                found |= action.sizes
        sizes.append(dict(found))
    return sizes[0], sizes[1]


@pytest.mark.parametrize("filled", [Resources(100), Resources(100, 200), Resources(None, 200)])
def test_startup_boost_does_not_raise_cpu_that_admission_defaulted(
    filled: Resources,
) -> None:
    """A mesh injects one container, and a LimitRange fills in what the template leaves open for the other."""
    opened, injected = Resources(None, None, *_memory(SMALL)), {"proxy": filled.with_implied_requests()}
    got = {
        "web": msgspec.structs.replace(filled.with_implied_requests(), memory_request=SMALL.memory_request)
    }
    assert boosted_and_back(template=OWN, made=OWN | injected) == (BOOSTED | injected, OWN | injected)
    assert boosted_and_back(template={"web": opened}, made=got) == (got, got)


def test_startup_boost_reads_requests_from_a_template_with_limits_only() -> None:
    made = {"web": Resources(100, 100, *_memory(SMALL))}
    limits = {"web": Resources(None, 100, *_memory(SMALL))}
    assert boosted_and_back(template=limits, made=made) == (raise_cpu(made, 3), made)


def test_startup_boost_is_not_what_admission_defaulted() -> None:
    open_template = {"web": Resources(None, None, *_memory(SMALL))}
    case = observation(
        desired_change(OWN, startup_boost=RULE), pods=[pod()], on=workload(template=open_template)
    )
    assert next_actions(case) == []


def test_startup_boost_is_omitted_if_it_would_restart_a_container() -> None:
    starting = pod(created=NOW - 10, ready=False, restarts_when_resized=True)
    assert not any(
        isinstance(action, ResizePod)
        for action in next_actions(observation(desired_change(startup_boost=RULE), pods=[starting]))
    )


def _memory(resources: Resources) -> tuple[int | None, int | None]:
    return resources.memory_request, resources.memory_limit
