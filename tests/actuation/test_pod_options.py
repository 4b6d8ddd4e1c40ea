"""Options of pods: how they are asked for, and what becomes of a rollout that brings them, or does not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from actuation.builders import NOW, pod, workload
from trimtab.actuation.pod_options import (
    OPTIONS_ANNOTATION,
    PROGRESS_DEADLINE,
    OptionsAnnotation,
    OptionsPhase,
    PodOptions,
    advance_options_change,
    build_options_patch,
    most_common_options,
    read_options_annotation,
    start_options_change,
    supports_rollout,
)
from trimtab.api.nodeqospolicy import CACHE_CLASS, POWER_PROFILE
from trimtab.kube.kinds.workloads import Workload
from trimtab.kube.rest.resources import REPLICA_SETS

FAST = PodOptions("guaranteed", "performance")


def requested_options(
    *, now: float = NOW, had: PodOptions | None = None, cores: float = 1.5
) -> OptionsAnnotation:
    return start_options_change(
        workload(), FAST, had=had or PodOptions(), container="web", cores=cores, now=now
    )


def annotated_workload(mark: OptionsAnnotation, **facts: object) -> Workload:
    return replace(
        workload(annotations={OPTIONS_ANNOTATION: mark.encode()}),
        updated_replicas=1,
        ready_replicas=1,
        **facts,
    )


def test_pod_options_request_a_profile_as_extended_resource_and_a_class_by_annotation() -> None:
    template = build_options_patch(requested_options())["spec"]["template"]
    assert template["metadata"]["annotations"] == {CACHE_CLASS: "guaranteed", POWER_PROFILE: "performance"}
    amount = {"power.intel.com/performance": "2"}
    assert template["spec"]["containers"] == [
        {"name": "web", "resources": {"requests": amount, "limits": amount}}
    ]


def test_pod_options_profile_may_name_its_vendor() -> None:
    mark = replace(requested_options(), after=PodOptions(None, "example.com/fast"))
    (container,) = build_options_patch(mark)["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"example.com/fast": "2"}


def test_pod_options_remove_what_is_no_longer_chosen() -> None:
    assert build_options_patch(replace(requested_options(), after=PodOptions()))["spec"]["template"] == {
        "metadata": {"annotations": {}}
    }


def test_pod_options_rollout_that_ended_is_settled() -> None:
    found = advance_options_change(annotated_workload(requested_options()), now=NOW + 30)
    assert found is not None
    assert (found.phase, found.in_effect) == (OptionsPhase.SETTLED, FAST)
    assert advance_options_change(annotated_workload(found), now=NOW + 10_000) is None


def test_pod_options_rollout_is_waited_for_and_reverted() -> None:
    before = PodOptions("burstable", None)
    under_way = annotated_workload(replace(requested_options(had=before), updated=1), is_rolling_out=True)
    assert advance_options_change(under_way, now=NOW + PROGRESS_DEADLINE - 1) is None
    found = advance_options_change(under_way, now=NOW + PROGRESS_DEADLINE)
    assert found is not None
    assert (found.phase, found.in_effect) == (OptionsPhase.REVERTED, before)
    assert "spec" not in build_options_patch(found)["spec"]["template"]


def test_pod_options_rollout_started_by_a_clock_ahead_is_not_waited_for() -> None:
    found = advance_options_change(
        annotated_workload(replace(requested_options(now=NOW + 86_400), updated=1), is_rolling_out=True),
        now=NOW,
    )
    assert found is not None
    assert (found.phase, found.since) == (OptionsPhase.REVERTED, NOW)


def test_pod_options_second_choice_reverts_to_before_the_first() -> None:
    first = replace(
        requested_options(had=PodOptions("burstable", None)), after=PodOptions("guaranteed", None)
    )
    second = start_options_change(
        annotated_workload(first),
        FAST,
        had=PodOptions("guaranteed", None),
        container="web",
        cores=1,
        now=NOW + 5,
    )
    assert second.before == PodOptions("burstable", None)


def test_pod_options_ignore_a_copied_or_unreadable_annotation() -> None:
    assert read_options_annotation(annotated_workload(replace(requested_options(), uid="another"))) is None
    assert read_options_annotation(workload(annotations={OPTIONS_ANNOTATION: "by hand"})) is None


def test_options_come_only_to_pods_that_a_rollout_replaces() -> None:
    assert supports_rollout(workload())
    assert not supports_rollout(workload(update="OnDelete"))
    assert not supports_rollout(workload(resource=REPLICA_SETS))
    assert not supports_rollout(workload(paused=True))
    assert not supports_rollout(workload(partition=1))


def test_pod_options_are_those_of_most_pods() -> None:
    fast = replace(pod("web-1"), annotations=((CACHE_CLASS, "guaranteed"),))
    assert most_common_options([pod("web-0"), fast, fast]) == PodOptions("guaranteed", None)
    assert most_common_options([]) == PodOptions()


@given(replicas=st.integers(2, 300), seconds=st.integers(5, int(PROGRESS_DEADLINE) - 60))
def test_options_rollout_that_makes_progress_is_not_reverted(replicas: int, seconds: int) -> None:
    mark = start_options_change(
        workload(replicas=replicas),
        PodOptions("guaranteed"),
        had=PodOptions(),
        container="web",
        cores=1.0,
        now=NOW,
    )
    now = NOW
    for updated in range(1, replicas):
        now += seconds
        seen = workload(
            replicas=replicas,
            is_rolling_out=True,
            updated_replicas=updated,
            ready_replicas=replicas,
            annotations={OPTIONS_ANNOTATION: mark.encode()},
        )
        mark = advance_options_change(seen, now=now) or mark
        assert mark.phase is OptionsPhase.ROLLING
    # And once it stands still, it is.
    stuck = workload(
        replicas=replicas,
        is_rolling_out=True,
        updated_replicas=replicas - 1,
        ready_replicas=replicas,
        annotations={OPTIONS_ANNOTATION: mark.encode()},
    )
    mark = advance_options_change(stuck, now=now + 61) or mark
    stuck = workload(
        replicas=replicas,
        is_rolling_out=True,
        updated_replicas=replicas - 1,
        ready_replicas=replicas,
        annotations={OPTIONS_ANNOTATION: mark.encode()},
    )
    after = advance_options_change(stuck, now=now + 62 + PROGRESS_DEADLINE)
    assert after is not None
    assert after.phase is OptionsPhase.REVERTED
