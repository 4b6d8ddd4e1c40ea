"""Options of pods: how they are asked for, and what becomes of a rollout that brings them, or does not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from actuation.builders import NOW, pod, workload
from trimtab.actuation.pod_options import (
    OPTIONS,
    PATIENCE,
    Options,
    OptionsMark,
    Phase,
    can_roll,
    changed,
    followed_up,
    options_of,
    options_patch,
    read_options,
)
from trimtab.api.pod_annotations import CACHE_CLASS, POWER_PROFILE
from trimtab.kube.kinds.workloads import Workload
from trimtab.kube.rest.resources import REPLICA_SETS

FAST = Options("guaranteed", "performance")


def asked(*, now: float = NOW, had: Options | None = None, cores: float = 1.5) -> OptionsMark:
    return changed(workload(), FAST, had=had or Options(), container="web", cores=cores, now=now)


def marked(mark: OptionsMark, **facts: object) -> Workload:
    return replace(workload(annotations={OPTIONS: mark.written()}), updated=1, ready=1, **facts)


def test_a_profile_is_asked_for_as_an_extended_resource_of_whole_cores_and_a_class_by_annotation() -> None:
    template = options_patch(asked())["spec"]["template"]
    assert template["metadata"]["annotations"] == {CACHE_CLASS: "guaranteed", POWER_PROFILE: "performance"}
    amount = {"power.intel.com/performance": "2"}
    assert template["spec"]["containers"] == [
        {"name": "web", "resources": {"requests": amount, "limits": amount}}
    ]


def test_a_profile_may_name_its_vendor() -> None:
    mark = replace(asked(), after=Options(None, "example.com/fast"))
    (container,) = options_patch(mark)["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"example.com/fast": "2"}


def test_what_is_not_chosen_any_more_is_given_up() -> None:
    assert options_patch(replace(asked(), after=Options()))["spec"]["template"] == {
        "metadata": {"annotations": {}}
    }


def test_a_rollout_that_has_come_to_its_end_is_settled() -> None:
    found = followed_up(marked(asked()), now=NOW + 30)
    assert found is not None
    assert (found.phase, found.in_effect) == (Phase.SETTLED, FAST)
    assert followed_up(marked(found), now=NOW + 10_000) is None


def test_a_rollout_is_waited_for_and_then_taken_back_to_what_was_before() -> None:
    before = Options("burstable", None)
    under_way = marked(replace(asked(had=before), updated=1), rolling=True)
    assert followed_up(under_way, now=NOW + PATIENCE - 1) is None
    found = followed_up(under_way, now=NOW + PATIENCE)
    assert found is not None
    assert (found.phase, found.in_effect) == (Phase.REVERTED, before)
    assert "spec" not in options_patch(found)["spec"]["template"]


def test_a_rollout_that_a_clock_ahead_has_begun_is_not_waited_for_until_then() -> None:
    found = followed_up(marked(replace(asked(now=NOW + 86_400), updated=1), rolling=True), now=NOW)
    assert found is not None
    assert (found.phase, found.since) == (Phase.REVERTED, NOW)


def test_a_second_choice_during_a_rollout_goes_back_to_what_was_before_the_first() -> None:
    first = replace(asked(had=Options("burstable", None)), after=Options("guaranteed", None))
    second = changed(
        marked(first), FAST, had=Options("guaranteed", None), container="web", cores=1, now=NOW + 5
    )
    assert second.before == Options("burstable", None)


def test_a_mark_that_was_copied_from_elsewhere_or_cannot_be_read_says_nothing() -> None:
    assert read_options(marked(replace(asked(), uid="another"))) is None
    assert read_options(workload(annotations={OPTIONS: "by hand"})) is None


def test_options_come_only_to_pods_that_a_rollout_replaces() -> None:
    assert can_roll(workload())
    assert not can_roll(workload(update="OnDelete"))
    assert not can_roll(workload(resource=REPLICA_SETS))
    assert not can_roll(workload(paused=True))
    assert not can_roll(workload(partition=1))


def test_what_most_pods_have_is_what_there_is() -> None:
    fast = replace(pod("web-1"), annotations=((CACHE_CLASS, "guaranteed"),))
    assert options_of([pod("web-0"), fast, fast]) == Options("guaranteed", None)
    assert options_of([]) == Options()


@given(replicas=st.integers(2, 300), seconds=st.integers(5, int(PATIENCE) - 60))
def test_options_rollout_that_makes_progress_is_not_reverted(replicas: int, seconds: int) -> None:
    mark = changed(
        workload(replicas=replicas), Options("guaranteed"), had=Options(), container="web", cores=1.0, now=NOW
    )
    now = NOW
    for updated in range(1, replicas):
        now += seconds
        seen = workload(
            replicas=replicas,
            rolling=True,
            updated=updated,
            ready=replicas,
            annotations={OPTIONS: mark.written()},
        )
        mark = followed_up(seen, now=now) or mark
        assert mark.phase is Phase.ROLLING
    # And once it stands still, it is.
    stuck = workload(
        replicas=replicas,
        rolling=True,
        updated=replicas - 1,
        ready=replicas,
        annotations={OPTIONS: mark.written()},
    )
    mark = followed_up(stuck, now=now + 61) or mark
    stuck = workload(
        replicas=replicas,
        rolling=True,
        updated=replicas - 1,
        ready=replicas,
        annotations={OPTIONS: mark.written()},
    )
    after = followed_up(stuck, now=now + 62 + PATIENCE)
    assert after is not None
    assert after.phase is Phase.REVERTED
