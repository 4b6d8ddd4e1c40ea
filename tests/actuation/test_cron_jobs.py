"""A CronJob is sized by its template alone, which may belong to somebody else."""

from collections.abc import Callable

import pytest

from actuation.builders import desired_change
from actuation.world import World, resources, run
from trimtab.actuation.deadlines import DEADLINES
from trimtab.actuation.executor import ChangeExecutor
from trimtab.api.optimizationpolicy import WorkloadState
from trimtab.kube.errors import FieldManagerConflict, Invalid, Status
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.rest.resources import CRON_JOBS

KEY = WorkloadKey("CronJob", "shop", "web")
OLD, NEW = {"web": resources(1000, 512)}, {"web": resources(400, 256)}
ENOUGH = {"web": 100 << 20}


def template_owned_elsewhere() -> FieldManagerConflict:
    return FieldManagerConflict(Status(message='conflict with "argocd": .spec', code=409, reason="Conflict"))


def forbidden() -> Invalid:
    return Invalid(Status(message="denied by a policy of the cluster", code=422))


class CronJobWorld(World):
    """A CronJob whose template the server refuses to change while `error` is set."""

    def __init__(self, error: Callable[[], Exception] | None) -> None:
        super().__init__(template=OLD, replicas=0, resource=CRON_JOBS)
        self.replicas = 1  # its Jobs count its pods
        self.error: Callable[[], Exception] | None = error
        self.intercept_write = self._refuse

    def _refuse(self, moment: str) -> None:
        if self.error and moment == "before patch_template":
            raise self.error()


@pytest.mark.parametrize("error", [template_owned_elsewhere, forbidden])
def test_cron_job_with_a_refused_template_is_skipped_and_not_reverted(
    error: Callable[[], Exception] | None,
) -> None:
    """Each attempt counted as a harmful change, with an alert, and four Events."""
    world = CronJobWorld(error)
    executor = ChangeExecutor(world, world.records, may_write=lambda: True)
    wanted = desired_change(NEW, needed_memory=ENOUGH)
    states = set()
    for _ in range(50):
        found = run(executor.reconcile(KEY, wanted, now=world.now))
        assert found is not None
        states.add(found.state)
        world.pass_time(60)
    assert states == {WorkloadState.SKIPPED}
    assert found is not None
    assert found.reason.startswith("the workload cannot be sized: ")
    assert world.template == OLD
    assert world.change_annotations.change is None
    assert {reason for _, reason, _ in world.events} == {"Resizing", "Refused"}
    assert sum(reason == "Refused" for _, reason, _ in world.events) == 1
    # Each further attempt comes after a longer time.
    attempts = []
    for minute in range(24 * 60):
        before = len(world.events)
        run(executor.reconcile(KEY, wanted, now=world.now))
        if len(world.events) > before:
            attempts.append(minute)
        world.pass_time(60)
    assert 2 <= len(attempts) <= 5


def test_cron_job_is_sized_as_soon_as_its_template_is_accepted() -> None:
    world = CronJobWorld(template_owned_elsewhere)
    executor = ChangeExecutor(world, world.records, may_write=lambda: True)
    run(executor.reconcile(KEY, desired_change(NEW, needed_memory=ENOUGH), now=world.now))
    assert world.template == OLD
    world.error = None
    world.pass_time(DEADLINES.rejection)
    run(
        executor.reconcile(KEY, desired_change(NEW, needed_memory=ENOUGH, take_ownership=True), now=world.now)
    )
    assert world.template == NEW


def test_cron_job_whose_template_is_set_back_is_not_reverted() -> None:
    world = CronJobWorld(None)
    executor = ChangeExecutor(world, world.records, may_write=lambda: True)
    states = set()
    for step in range(200):
        found = run(executor.reconcile(KEY, desired_change(NEW, needed_memory=ENOUGH), now=world.now))
        assert found is not None
        states.add(found.state)
        if step % 5 == 4:
            world.template = dict(OLD)
        world.pass_time(30)
    assert WorkloadState.REVERTED not in states
    assert world.written.count("patch_template") <= 2
