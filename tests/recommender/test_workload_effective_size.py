"""Recommendations start from the size in effect: whatever becomes of pods, a workload keeps the size that it was given."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actuation.builders import MIB, NOW
from actuation.world import KEY, World, run
from trimtab.actuation.change_annotations import AppliedSizes, ChangeAnnotations, encode_change_annotations
from trimtab.actuation.decide.observation import DesiredChange
from trimtab.actuation.effective_size import PodSync
from trimtab.actuation.executor import ChangeExecutor
from trimtab.actuation.hold import HOLD_ANNOTATION, Hold, read_hold
from trimtab.api.optimizationpolicy import OptimizationPolicySpec, WorkloadState
from trimtab.kube.kinds.pods import Resources
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.policy.resolver import build_default_policy
from trimtab.recommender.cohort import ContainerEstimate
from trimtab.recommender.workload import WorkloadRecommendation, recommend_workload
from trimtab.sizing.constraints import Constraints
from trimtab.sizing.evidence import Evidence
from trimtab.sizing.policy_rules import PolicyRules
from trimtab.sizing.proposal import Proposal, ResourceTarget

SPEC = OptimizationPolicySpec.model_validate(
    {
        "mode": "Auto",
        "updateStrategy": {"updateRequestsOnly": False, "minInterval": "1h", "canary": {"observation": "5m"}},
    }
)
RULES = PolicyRules.from_spec(SPEC)
MOST_STEPS = 400


class Sized:
    """A workload whose use never changes, its cluster, and the operator's parts that size it."""

    def __init__(self, template: Resources, *, cpu: float, memory: float, replicas: int) -> None:
        self.world = World(template={"web": template}, replicas=replicas)
        self.proposal = Proposal(
            strategy="trimtab",
            cpu=ResourceTarget(cpu, cpu * 0.8, cpu * 1.2),
            memory=ResourceTarget(memory, memory * 0.8, memory * 1.2),
        )
        self.actuator = ChangeExecutor(self.world, self.world.records, may_write=lambda: True)

    def get_estimate(self, _: str) -> ContainerEstimate:
        now, proposal = self.world.now, self.proposal
        return ContainerEstimate(
            proposal,
            Evidence(
                samples=20_000,
                first_sample_at=now - 14 * 86_400,
                run_seconds=14 * 86_400.0,
                last_sample_at=now,
                cpu_peak=int(proposal.cpu.target * 0.9),
                memory_peak=int(proposal.memory.target * 0.8),
                throttled_share=0.0,
            ),
        )

    def recommend(self) -> WorkloadRecommendation:
        return recommend_workload(
            run(self.world.get_workload(KEY)),
            run(self.world.list_pods()),
            rules=RULES,
            estimate=self.get_estimate,
            constraints=Constraints(),
            source="test",
            now=self.world.now,
        )

    def desired_change(self) -> DesiredChange:
        return self.recommend().to_desired_change(
            SPEC.update_strategy, can_resize_in_place=True, blocked_reason=""
        )

    def reconcile(self, desired_change: DesiredChange | None = None) -> None:
        run(self.actuator.reconcile(KEY, desired_change or self.desired_change(), now=self.world.now))

    def changes(self) -> list[str]:
        return [message for _, reason, message in self.world.events if reason == "Resizing"]

    def settle(self) -> None:
        """Until it has what is recommended."""
        for _ in range(MOST_STEPS):
            self.reconcile()
            self.world.pass_time(300)
            if (
                self.world.change_annotations.change is None
                and self.recommend().sizes == self.recommend().effective
            ):
                return
        raise AssertionError("it never settles")


def scale_to_zero(world: World) -> None:
    world.replicas = 0
    world.pods_by_name.clear()


def scale(world: World, replicas: int) -> None:
    world.replicas = replicas
    while len(world.pods_by_name) < replicas:
        world.add_pod()
    while len(world.pods_by_name) > replicas:
        world.remove_pod()


HAPPENINGS: dict[str, Callable[[World], None]] = {
    "all pods are replaced": World.deploy_version,
    "a pod is drained": lambda world: next(map(world.replace_pod, list(world.pods_by_name)), None),
    "it is scaled out": lambda world: scale(world, min(world.replicas * 3 + 1, 12)),
    "it is scaled in": lambda world: scale(world, max(1, world.replicas // 2)),
    "it is scaled to zero": scale_to_zero,
    "a minute passes": lambda world: world.pass_time(60),
    "hours pass": lambda world: world.pass_time(4 * 3600),
}
amounts = st.tuples(st.integers(50, 4000), st.integers(64, 4096))


@settings(max_examples=100)
@given(
    template=amounts,
    use=amounts,
    replicas=st.integers(1, 4),
    happenings=st.lists(
        st.tuples(st.sampled_from(sorted(HAPPENINGS)), st.sampled_from(sorted(HAPPENINGS))), max_size=6
    ),
)
def test_sizing_starts_no_change_for_pod_events(
    template: tuple[int, int], use: tuple[int, int], replicas: int, happenings: list[tuple[str, str]]
) -> None:
    """Once a workload has what is recommended, it keeps it; also where a recommendation is older than its pods."""
    cpu, memory = template
    sized = Sized(
        Resources(cpu, cpu * 2, memory * MIB, memory * MIB * 2),
        cpu=use[0],
        memory=use[1] * MIB,
        replicas=replicas,
    )
    sized.settle()
    has, before = sized.recommend().effective, sized.changes()
    for happens, meanwhile in happenings:
        HAPPENINGS[happens](sized.world)
        recommended = sized.recommend()
        assert (recommended.sizes, recommended.effective) == (has, has), happens
        HAPPENINGS[meanwhile](sized.world)
        sized.reconcile(
            recommended.to_desired_change(SPEC.update_strategy, can_resize_in_place=True, blocked_reason="")
        )
        sized.reconcile()
        sized.world.pass_time(15)
    for _ in range(12):  # not all pods are resized at once
        sized.reconcile()
        sized.world.pass_time(15)
    assert sized.changes() == before
    assert sized.world.sizes <= {tuple(has.items())}


TEMPLATE, APPLIED = Resources(1000, None, 1024 * MIB, None), Resources(130, None, 256 * MIB, None)
LITTLE, GIVEN = Resources(100, 200, 256 * MIB, 512 * MIB), Resources(2000, 4000, 256 * MIB, 512 * MIB)


@pytest.mark.parametrize(
    ("template", "applied", "cpu"), [(TEMPLATE, APPLIED, 128.0), (LITTLE, GIVEN, 1950.0)]
)
def test_sizing_of_a_pod_that_was_just_replaced_keeps_the_applied_size(
    template: Resources, applied: Resources, cpu: float
) -> None:
    """A service that used 1.9 cores was given 300m, a step away from the 100m of its template."""
    sized = Sized(template, cpu=cpu, memory=230.0 * MIB, replicas=1)
    done = AppliedSizes(id="a", at=NOW - 86_400, sizes={"web": applied}, template={"web": template})
    sized.world.annotations = encode_change_annotations(ChangeAnnotations(applied=done), uid="uid-web")
    assert sized.recommend().sizes == {"web": applied}
    sized.reconcile()
    sized.world.pass_time(15)
    assert sized.changes() == []
    assert sized.world.sizes == {(("web", applied),)}


def test_executor_starts_no_change_from_a_recommendation_older_than_the_last_change() -> None:
    """In one reconcile a change came to its end, and what was recommended before it began the next one, backwards."""
    sized = Sized(Resources(4000, None, 512 * MIB, None), cpu=100.0, memory=450.0 * MIB, replicas=1)
    outdated = sized.desired_change()
    sized.reconcile(outdated)
    sized.settle()
    started = len(sized.changes())
    assert started > 1
    sized.world.pass_time(4 * 3600)
    sized.reconcile(outdated)
    assert len(sized.changes()) == started


@pytest.mark.parametrize(
    ("mode", "facts", "enabled"),
    [
        ("Auto", {}, True),
        ("Recommend", {}, False),
        ("Recommend", {"intent": "shop/web"}, True),
        ("Recommend", {"hold": Hold(who="ann", why="", sizes={"web": APPLIED})}, True),
        ("Recommend", {"hold": Hold(who="ann", why="")}, False),
        ("Auto", {"hold": Hold(who="ann", why="")}, True),
        ("Auto", {"vpa": "web"}, False),
        ("Auto", {"can_resize_in_place": False}, False),
    ],
)
def test_effective_policy_syncs_pods_where_changes_are_allowed(
    *, mode: str, facts: dict[str, object], enabled: bool
) -> None:
    config = OperatorConfig.model_validate({"defaultPolicy": {"mode": mode}})
    world = World(template={"web": TEMPLATE}, replicas=1)
    workload = run(world.get_workload(KEY))
    policy = build_default_policy(config)
    assert policy
    found = policy.pod_sync(workload, run(world.list_pods()), config, **facts)  # type: ignore[arg-type]
    assert found == PodSync(enabled=enabled)


def test_sizing_of_a_held_workload_gives_new_pods_its_size_and_starts_no_change() -> None:
    """They kept the size of their template for as long as it was held, and got no relief."""
    config = OperatorConfig.model_validate({"defaultPolicy": {"mode": "Auto"}})
    sized = Sized(LITTLE, cpu=3900.0, memory=400.0 * MIB, replicas=4)
    world = sized.world
    world.apply_size_earlier({"web": GIVEN})
    world.annotations |= {HOLD_ANNOTATION: "until the sale is over"}
    world.add_pod()
    world.replace_pod("web-0")
    workload = run(world.get_workload(KEY))
    policy, hold = build_default_policy(config), read_hold(workload.annotations)
    assert policy
    assert policy.blocked_reason(workload, config, hold=hold) == ""
    desired_change = sized.recommend().to_desired_change(
        SPEC.update_strategy, can_resize_in_place=True, blocked_reason="", hold_reason=str(hold or "")
    )
    assert desired_change.sizes != {"web": GIVEN}
    report = run(sized.actuator.reconcile(KEY, desired_change, now=world.now))
    world.pass_time(15)
    assert report
    assert (report.state, report.reason) == (
        WorkloadState.RECOMMENDED,
        "the workload is held by an annotation: until the sale is over",
    )
    assert world.sizes == {(("web", GIVEN),)}
    assert sized.changes() == []
