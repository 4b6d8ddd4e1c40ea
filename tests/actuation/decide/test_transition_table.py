"""The table of transitions: its rows have names, an end, and are all reached."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import pytest

from actuation.builders import MIB, NOW, desired_change, observation, pod, workload
from actuation.decide.test_transitions import AFTER, FIVE, change
from actuation.drawn_worlds import DrawnWorld
from trimtab.actuation.change_annotations import AppliedSizes, ChangeAnnotations, Phase, UpdateMethod
from trimtab.actuation.deadlines import Deadlines
from trimtab.actuation.decide.observation import (
    DesiredChange,
    LocalObservations,
    Observation,
    Rejection,
    State,
    rejection_key,
)
from trimtab.actuation.decide.transitions import TRANSITIONS, Decision, decide
from trimtab.actuation.resources import SizeLimits
from trimtab.api.optimizationpolicy import MaintenanceWindow, UpdateStrategy
from trimtab.kube.kinds.pods import Pod, PodResize, Resources
from trimtab.kube.rest.resources import CRON_JOBS

SEEDS = (1015, 1044, 1052, 1159, 1168, 1579, 1638, 1679, 1728, 1782, 1834, 1891, 2065)
"""Worlds that reach all rows together, but for those of `RARE`. After a change of the table other seeds may be needed."""
STEPS = 60

NIGHTS = (MaintenanceWindow(start="00:00", end="01:00", time_zone="UTC"),)
EVICTING = change(Phase.PROMOTING, method=UpdateMethod.RECREATE, patches_template=True)
FULL = PodResize("PodResizePending", "Infeasible", "no capacity")
MOVING = change(Phase.PROMOTING, evicts_pods=True, template=AFTER)


def observe(*, pods: Sequence[Pod] = FIVE, desired: DesiredChange | None = None, **facts: Any) -> Observation:
    on = workload(**{"replicas": len(pods)} | facts)
    return observation(desired or desired_change(allow_recreate=True), pods=pods, on=on, now=NOW + 60)


RARE = {
    "AnnotationsUnreadable": observe(annotations={"trimtab.io/change": "?"}),
    "Deleting": observe(deleting=True),
    "ClockCorrected": observe(
        change_annotations=ChangeAnnotations(
            applied=AppliedSizes(id="x", at=NOW + 86_400, sizes=AFTER, template=AFTER)
        )
    ),
    "TooManySizes": observe(
        pods=[pod(f"web-{n}", sizes={"web": Resources(100 + n, None, MIB, 256 * MIB)}) for n in range(300)]
    ),
    "TemplateUnobserved": observe(
        change_annotations=ChangeAnnotations(change=EVICTING),
        template=AFTER,
        update="OnDelete",
        is_spec_observed=False,
    ),
    "RenewalRecorded": observe(
        pods=[*FIVE[1:], pod("scaled-out", created=NOW + 1)],
        change_annotations=ChangeAnnotations(change=EVICTING),
        template=AFTER,
        update="OnDelete",
    ),
    "TemplateRefused": observation(
        desired_change(AFTER),
        pods=[],
        on=workload(
            resource=CRON_JOBS,
            change_annotations=ChangeAnnotations(
                change=change(Phase.PROMOTING, method=UpdateMethod.TEMPLATE, patches_template=True)
            ),
        ),
        local=LocalObservations(
            rejections={rejection_key("uid-web", AFTER): Rejection("it belongs to argocd", NOW)}
        ),
    ),
    "LimitsExceeded": observe(
        desired=replace(desired_change(), size_limits=SizeLimits(cpu=200)),
        change_annotations=ChangeAnnotations(change=change(Phase.PROMOTING)),
        pods=[pod(f"web-{n}", sizes=AFTER) for n in range(5)],
    ),
    "MoveOutsideWindow": observe(
        pods=[pod(f"web-{n}", sizes=AFTER, created=NOW - 1000 + n, resize=FULL) for n in range(5)],
        desired=desired_change(allow_recreate=True, windows=NIGHTS),
        change_annotations=ChangeAnnotations(change=MOVING),
        template=AFTER,
    ),
}
"""Observations of rows that the drawn worlds hardly ever reach."""


def test_transitions_have_unique_ids() -> None:
    assert [name for name, count in Counter(row.id for row in TRANSITIONS).items() if count > 1] == []


@pytest.mark.parametrize("state", [state for state in State if state is not State.IDLE])
def test_transitions_end_each_state_by_a_deadline(state: State) -> None:
    ends = [row.id for row in TRANSITIONS if state in row.states and row.targets - {state} and row.deadlines]
    assert ends, f"nothing ends the state {state} when pods, nodes and servers stay silent"


def test_transitions_name_deadlines_that_exist() -> None:
    known = {each.name for each in fields(Deadlines)}
    canary = UpdateStrategy.model_fields["canary"].annotation
    assert canary is not None
    known |= {f"canary.{each.alias or name}" for name, each in canary.model_fields.items()}
    assert {name for row in TRANSITIONS for name in row.deadlines} - known == set()


@pytest.mark.parametrize("state", State)
def test_transitions_leave_no_observation_without_a_row(state: State) -> None:
    last = [row for row in TRANSITIONS if state in row.states][-1]
    assert last.condition(None) is True  # type: ignore[arg-type]


def test_transitions_are_all_reached_and_lead_where_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    decisions: list[Decision] = []

    def note(observation: Observation) -> Decision:
        decisions.append(decide(observation))
        return decisions[-1]

    monkeypatch.setattr("trimtab.actuation.executor.decide", note)
    for seed in SEEDS:
        world = DrawnWorld(seed)
        for _ in range(STEPS):
            world.step()
    reached = {each.transition.id for each in decisions} | RARE.keys()
    assert {row.id for row in TRANSITIONS} - reached == set()
    for each in decisions:
        assert each.target is each.source or each.target in each.transition.targets, each.transition.id


@pytest.mark.parametrize("row", RARE)
def test_transitions_of_rare_observations_are_reached(row: str) -> None:
    assert decide(RARE[row]).transition.id == row
