"""Informers among faults: they lose and delay events, and never the list with which they begin."""

from __future__ import annotations

import pytest

from trimtab.kube.kinds.pods import pod_projection
from trimtab.kube.rest.resources import PODS
from trimtab.lab.faults.plan import Fault, FaultInjector, FaultPlan
from trimtab.lab.faults.trace import RunTrace
from trimtab.lab.faults.watch_faults import FaultyInformers, WatchHub
from trimtab.lab.faults.worlds import draw_world
from trimtab.lab.simulator.world import SimulatedWorld


@pytest.mark.parametrize("kind", ["watch-gap", "watch-stale", "watch-missed-event"])
def test_process_that_starts_during_a_fault_has_all_objects(kind: str) -> None:
    """Extreme seed 36: without its pods, a workload's change was given up with "the workload has no pods any more"."""
    spec = draw_world(0)
    world = SimulatedWorld(spec.build_scenario(), seed=spec.seed, start=spec.start)
    plan = FaultPlan(faults=(Fault(kind=kind, start=0.0, end=3600.0),))
    injector = FaultInjector(plan, elapsed=lambda: 1.0, trace=RunTrace(lambda: world.now))
    hub = WatchHub(world)
    informers = FaultyInformers(world, hub, injector)
    cache = informers.watch_resource(PODS, pod_projection())
    informers.sync()
    assert len(cache) == len(world.pods)
    hub.remove(PODS, next(iter(world.pods.values())).to_record(""))
    informers.sync()
    assert len(cache) == len(world.pods), "later events are lost or late"
    assert injector.counts[kind] == 1
