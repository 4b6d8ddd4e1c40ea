"""Memory facts of pods: OOM kills with their limits, and effective sizes."""

import msgspec
import numpy as np
import pytest

from actuation.builders import NOW, pod, workload
from trimtab.actuation.change_annotations import (
    AppliedSizes,
    ChangeAnnotations,
    OngoingChange,
    Phase,
    PodHealth,
    UpdateMethod,
)
from trimtab.api.optimizationpolicy import OptimizationPolicySpec
from trimtab.api.quantity import MIB
from trimtab.kube.kinds.pods import Container, ContainerTermination, Pod, Resources
from trimtab.recommender.cohort import ContainerEstimate, EvidenceCohort, StrategyCohort, StrategySpec
from trimtab.recommender.oom_kills import OomKill, find_oom_kills, observed_sizes
from trimtab.recommender.workload import strategy_spec_from_policy
from trimtab.sizing.constraints import Constraints
from trimtab.sizing.policy_rules import PolicyRules
from trimtab.sizing.recommend import recommend_container
from trimtab.usage.pod_ownership import WorkloadContainer
from trimtab.usage.workload_usage import WorkloadOom, WorkloadUsage

NAME = WorkloadContainer("shop", "Deployment", "web", "web")
GIB = 1024 * MIB
HOUR, DAY = 3600.0, 86400.0
CUT, FULL = Resources(100, None, 250 * MIB, 250 * MIB), Resources(100, None, GIB, GIB)
STRATEGIES = ("percentile", "peak", "krr", "vpa", "trimtab", "seasonal", "autopilot-window", "autopilot-ml")


def of_image(image: str, name: str = "web-0", *, created: int = NOW - 100, killed: bool = False) -> Pod:
    exits = {"web": ContainerTermination("OOMKilled", 137, NOW - 5)} if killed else {}
    made = pod(name, sizes={"web": CUT}, exits=exits, created=created)
    containers = tuple(msgspec.structs.replace(each, image=image) for each in made.containers)
    return msgspec.structs.replace(made, containers=containers)


def test_oom_kills_carry_image_and_sizes_of_the_newest_pod() -> None:
    old, new = of_image("web:1", killed=True), of_image("web:2", "web-1", created=NOW - 10)
    (kill,) = find_oom_kills(NAME, [old, new])
    (now,) = observed_sizes(workload(template={"web": FULL}), [old, new], [NAME])
    (before,) = observed_sizes(workload(template={"web": FULL}), [old], [NAME])
    assert kill.image == before.image != now.image
    assert 0 not in {kill.image, now.image}


def test_memory_sizes_are_those_of_most_pods_and_the_largest_earlier_size() -> None:
    found = workload(template={"web": FULL})
    (size,) = observed_sizes(found, [pod(sizes={"web": CUT})], [NAME])
    assert (size.memory, size.before) == (250 * MIB, GIB)
    larger = {"web": Resources(100, None, 2 * GIB, None)}
    applied = AppliedSizes(id="x", at=NOW, sizes={"web": CUT}, template={}, before=larger, until=NOW)
    (size,) = observed_sizes(found, [pod(sizes={"web": CUT})], [NAME], ChangeAnnotations(applied=applied))
    assert size.before == 2 * GIB
    (resting,) = observed_sizes(found, [], [NAME])
    assert resting.memory == GIB, "between two runs of a CronJob the template has the size"


@pytest.mark.parametrize(
    ("resources", "cpu"),
    [
        (Resources(100, 500, None, None), 0.5),
        (Resources(100, None, None, None), -0.1),
        (Resources(None, None, None, None), 0.0),
    ],
)
def test_cpu_size_is_the_limit_or_else_the_negative_request(resources: Resources, cpu: float) -> None:
    (size,) = observed_sizes(workload(template={"web": FULL}), [pod(sizes={"web": resources})], [NAME])
    assert size.cpu == cpu


def test_changed_cpu_limit_of_a_pod_explains_other_usage() -> None:
    cohort = EvidenceCohort(until=0.0)
    cohort.add([NAME])
    begin, found = float(NOW) // DAY * DAY, workload(template={"web": FULL})
    for day in range(10):
        limit = 1000 if day < 9 else 2000
        sizes = observed_sizes(found, [pod(sizes={"web": Resources(100, limit, GIB, GIB)})], [NAME])
        cohort.observe_sizes(sizes, now=begin + day * DAY)
        load = usage(begin + day * DAY, np.full(288, 300.0 * MIB), step=300.0)
        load.cpu[:] = limit / 1000
        cohort.observe_usage(load, running=[NAME], until=begin)
    (evidence,) = cohort.collect_evidence([NAME], now=begin + 10 * DAY, is_long_running=True)
    assert evidence.usage_shift is None


def decrease(started: int) -> ChangeAnnotations:
    return ChangeAnnotations(
        change=OngoingChange(
            id="x",
            started=started,
            method=UpdateMethod.IN_PLACE,
            phase=Phase.PROMOTING,
            since=started,
            before={"web": FULL},
            after={"web": CUT},
            template={"web": FULL},
            health=PodHealth(pods=1),
        )
    )


def test_oom_kill_before_a_running_decrease_uses_the_earlier_size() -> None:
    """Its pod has been made smaller since: what killed it was more."""
    dead = pod(sizes={"web": CUT}, exits={"web": ContainerTermination("OOMKilled", 137, NOW - 5)})
    (kill,) = find_oom_kills(NAME, [dead], decrease(NOW - 3))
    assert kill.limit == GIB
    (kill,) = find_oom_kills(NAME, [dead], decrease(NOW - 9))
    assert kill.limit == 250 * MIB, "it may have had either"


@pytest.mark.parametrize(("settled", "limit"), [(-1, GIB), (0, 250 * MIB), (1, 250 * MIB)])
def test_oom_kill_in_the_second_of_a_raise_uses_the_earlier_size(settled: int, limit: int) -> None:
    """Otherwise a needless increase would follow and count as a leak."""
    raised = pod(sizes={"web": FULL}, exits={"web": ContainerTermination("OOMKilled", 137, NOW)})
    change = OngoingChange(
        id="x",
        started=NOW - 9,
        method=UpdateMethod.IN_PLACE,
        phase=Phase.VERIFYING,
        since=NOW - 9,
        settled=NOW + settled,
        before={"web": CUT},
        after={"web": FULL},
        template={"web": CUT},
        health=PodHealth(pods=1),
    )
    (kill,) = find_oom_kills(NAME, [raised], ChangeAnnotations(change=change))
    assert kill.limit == limit


def usage(
    begin: float, memory: np.ndarray, ooms: tuple[WorkloadOom, ...] = (), *, step: float = 60.0
) -> WorkloadUsage:
    """Samples of one container."""
    return WorkloadUsage(
        containers=(NAME,),
        roles=("main",),
        start=begin,
        step=step,
        cpu=np.full((memory.size, 1), 0.05),
        memory=memory[:, None],
        throttled=None,
        container=np.zeros(1, np.intp),
        replica=np.zeros(1, np.intp),
        ooms=ooms,
        unowned=(),
    )


class Known:
    """The proposal and the evidence of a container."""

    def __init__(self, sizing: StrategySpec) -> None:
        self.strategy, self.evidence = StrategyCohort(sizing, until=0.0), EvidenceCohort(until=0.0)
        for cohort in (self.strategy, self.evidence):
            cohort.add([NAME])

    def observe_usage(
        self, usage: WorkloadUsage, *, running: list[WorkloadContainer] | None, until: float
    ) -> None:
        self.strategy.observe_usage(usage, running=running, until=until)
        self.evidence.observe_usage(usage, running=running, until=until)

    def take_in_kills(self, kills: list[OomKill]) -> set[OomKill]:
        new = self.evidence.observe_ooms(kills)
        self.strategy.observe_ooms(new)
        return new

    def learned(self, now: float) -> ContainerEstimate:
        evidence = self.evidence.collect_evidence([NAME], now=now, is_long_running=True)[0]
        return ContainerEstimate(self.strategy.get_proposal(NAME, now=now), evidence)


def cohort_of(strategy: str) -> tuple[Known, PolicyRules]:
    spec = OptimizationPolicySpec.model_validate(
        {"mode": "Auto", "strategy": {"name": strategy}, "updateStrategy": {"updateRequestsOnly": False}}
    )
    return Known(strategy_spec_from_policy(spec)), PolicyRules.from_spec(spec)


def sized(cohort: Known, rules: PolicyRules, has: Resources, now: float) -> Resources:
    learned = cohort.learned(now)
    return recommend_container(
        Container("web", "main", has),
        proposal=learned.proposal,
        evidence=learned.evidence,
        rules=rules,
        constraints=Constraints(qos_class="Burstable"),
        now=now,
    ).resources


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_strategy_keeps_killed_container_above_the_killed_size(
    strategy: str,
) -> None:
    """After a kill at 1Gi a day ago `percentile` proposed 360Mi and `peak` 343Mi."""
    cohort, rules = cohort_of(strategy)
    begin, quiet = float(NOW) // HOUR * HOUR, np.full(288, 300.0 * MIB)
    cohort.observe_usage(usage(begin - 2 * DAY, quiet, step=300.0), running=[NAME], until=begin)
    cohort.observe_usage(usage(begin - DAY, quiet, step=300.0), running=[NAME], until=begin)
    kill = OomKill(NAME, begin - 60, float(GIB), float(GIB))
    assert cohort.take_in_kills([kill]) == {kill}
    has = FULL
    for day in range(11):
        has = sized(cohort, rules, has, begin + day * DAY)
        if day < 8:
            assert 1228 * MIB < (has.memory_limit or 0) <= 1300 * MIB
        cohort.observe_usage(usage(begin + day * DAY, quiet, step=300.0), running=[NAME], until=begin)
    if strategy in {"percentile", "peak"}:
        assert (has.memory_limit or 0) < GIB, "it is over after that"


def test_backfilled_oom_kill_counts_at_the_limit_once_known() -> None:
    cohort, rules = cohort_of("percentile")
    begin, quiet = float(NOW) // HOUR * HOUR, np.full(1440, 297.0 * MIB)
    for day in (2, 1):
        ooms = (WorkloadOom(begin - DAY + 300, 0, 297.0 * MIB),) if day == 1 else ()
        cohort.observe_usage(usage(begin - day * DAY, quiet, ooms), running=None, until=begin)
    found = workload(template={"web": FULL})
    cohort.evidence.observe_sizes(observed_sizes(found, [pod(sizes={"web": FULL})], [NAME]), now=begin)
    assert sized(cohort, rules, FULL, begin).memory_limit == 1229 * MIB


def test_oom_kill_without_limit_counts_with_usage_or_request() -> None:
    cohort = Known(StrategySpec.from_settings("percentile", {}))
    cohort.observe_usage(usage(NOW - 600.0, np.full(10, 500.0 * MIB)), running=[NAME], until=NOW)
    cohort.take_in_kills([OomKill(NAME, NOW - 60.0, 0.0, 200.0 * MIB)])
    (kills,) = cohort.learned(NOW).evidence.kills
    assert kills.memory == 500 * MIB


@pytest.mark.parametrize("strategy", ["percentile", "vpa", "peak", "trimtab"])
def test_nightly_job_is_not_reduced_before_its_run(strategy: str) -> None:
    """The peak of a day was forgotten after 22 hours: with `percentile` it was killed in 7 of 9 nights."""
    cohort, rules = cohort_of(strategy)
    begin, has = 20_833 * DAY, FULL
    for hour in range(9 * 24):
        minutes = begin + hour * HOUR + 60 * np.arange(60)
        of_day = minutes % DAY / HOUR
        memory = np.where((of_day >= 3.1) & (of_day < 3.6), 900.0, 200.0) * MIB
        assert memory.max() <= (has.memory_limit or 0)
        cohort.observe_usage(usage(minutes[0], memory), running=[NAME], until=minutes[-1])
        has = sized(cohort, rules, has, minutes[0] + HOUR)
