"""A recommendation contains the next step and the final target; the same guards compute both."""

from hypothesis import given, settings
from hypothesis import strategies as st

from sizing.containers import (
    NOW,
    WELL_KNOWN,
    any_evidence,
    any_pod,
    any_proposal,
    any_rules,
    any_surroundings,
    proposing,
    rules,
)
from trimtab.api.quantity import MIB
from trimtab.kube.kinds.pods import Container, Resources
from trimtab.sizing.constraints import Constraints
from trimtab.sizing.evidence import Evidence
from trimtab.sizing.policy_rules import PolicyRules
from trimtab.sizing.recommend import recommend_pod
from trimtab.sizing.recommendation import Recommendation

SMALL = Resources(20, None, 64 * MIB, None)


def recommended(cpu: float, *, evidence: Evidence = WELL_KNOWN, quota: int | None = None) -> Recommendation:
    """Return the recommendation of the default policy, which lets CPU triple at once, for a container of 20m."""
    (found,) = recommend_pod(
        [Container("web", "main", SMALL)],
        proposals={"web": proposing(cpu)},
        evidence={"web": evidence},
        rules=rules(),
        constraints=Constraints(quota=Resources(quota)),
        now=NOW,
    )
    return found


def test_recommendation_in_steps_has_next_step_and_target() -> None:
    found = recommended(178)
    assert found.resources.cpu_request == 60
    assert found.target.cpu_request == 180
    assert found.target.memory_request == found.resources.memory_request == SMALL.memory_request


def test_recommendation_that_takes_one_step_is_its_own_target() -> None:
    found = recommended(50)
    assert found.resources.cpu_request == 50
    assert found.target == found.resources


def test_recommendation_without_change_targets_the_current_size() -> None:
    found = recommended(178, evidence=Evidence(samples=1, first_sample_at=NOW, last_sample_at=NOW))
    assert found.no_change_reason
    assert found.target == found.resources == SMALL


def test_target_stays_within_admitted_range() -> None:
    assert recommended(178, quota=100).target.cpu_request == 120


def test_target_is_not_smaller_if_the_policy_forbids_decreases() -> None:
    (found,) = recommend_pod(
        [Container("web", "main", Resources(1000))],
        proposals={"web": proposing(100)},
        evidence={"web": WELL_KNOWN},
        rules=rules(changes={"cpu": {"decrease": 0}}),
        constraints=Constraints(),
        now=NOW,
    )
    assert found.target == found.resources == Resources(1000)


@settings(max_examples=300)
@given(data=st.data(), pod=any_pod(), asked=any_rules, around=any_surroundings)
def test_target_equals_recommendation_without_step_limits(
    data: st.DataObject, pod: tuple[Container, ...], asked: PolicyRules, around: Constraints
) -> None:
    proposals = {one.name: data.draw(any_proposal) for one in pod}
    evidence = {one.name: data.draw(any_evidence) for one in pod}

    def found(by: PolicyRules) -> tuple[Recommendation, ...]:
        return recommend_pod(
            pod, proposals=proposals, evidence=evidence, rules=by, constraints=around, now=NOW
        )

    for container, each, whole in zip(pod, found(asked), found(asked.without_step_limits()), strict=True):
        assert each.target in (whole.resources, each.resources)
        assert whole.target == whole.resources, "without steps there is nothing beyond"
        if each.no_change_reason is not None:
            assert each.target == container.resources
        if each.target != each.resources:
            assert "largest step" in each.text
