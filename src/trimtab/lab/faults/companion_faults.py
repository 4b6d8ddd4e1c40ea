"""Faults of the objects beside workloads: Intents and autoscalers that come, change and go, and emergency stops."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from trimtab.kube.kinds.custom import IntentRecord
from trimtab.kube.kinds.emergency_stop import STOP_NAME, EmergencyStop
from trimtab.kube.rest.resources import CONFIG_MAPS, HPAS, INTENTS, VPAS, Resource
from trimtab.lab.faults.cluster_fault import CHANGES, ClusterFault, FaultContext, cluster_fault
from trimtab.lab.faults.companions import HpaDraw, VpaDraw, draw_intent
from trimtab.lab.faults.plan import Fault, FaultDetails
from trimtab.lab.faults.worlds import WorldSpec
from trimtab.lab.simulator.objects import derive_uid
from trimtab.operator.config.model import OperatorConfig


def _draw_intent_target(rng: random.Random, world: WorldSpec) -> FaultDetails:
    """Draw the target of an Intent if there is one, and any workload otherwise."""
    targets = [each.target for each in world.companions.intents] or [each.key for each in world.workloads]
    return FaultDetails(target=str(rng.choice(targets)), amount=rng.choice([0.0, 0.3, 3.0]))


def _create_intent(context: FaultContext, fault: Fault) -> None:
    if workload := context.find_workload(fault):
        rng, key = context.injector.rng(fault), workload.spec.key
        draw = draw_intent(rng, key, name=f"sudden-{fault.seed}", is_service=bool(workload.spec.service))
        draw = msgspec.structs.replace(draw, active=True, priority=1.0)
        _create(context, fault, INTENTS, draw.build(created=int(context.world.control_time)))


def _create_vpa(context: FaultContext, fault: Fault) -> None:
    if workload := context.find_workload(fault):
        _create(context, fault, VPAS, VpaDraw(target=workload.spec.key, updates_pods=True).build())


def _create_hpa(context: FaultContext, fault: Fault) -> None:
    if workload := context.find_workload(fault):
        _create(context, fault, HPAS, HpaDraw(target=workload.spec.key, cpu=60).build())


def _stop(context: FaultContext, fault: Fault) -> None:
    now = int(context.world.control_time)
    stop = EmergencyStop(
        namespace=OperatorConfig().namespace,
        name=STOP_NAME,
        uid=derive_uid("stop", fault.seed),
        version=now,
        created=now,
        author="somebody",
        reason="the sale is on",
    )
    _create(context, fault, CONFIG_MAPS, stop)


def _create(context: FaultContext, fault: Fault, resource: Resource, record: Any) -> None:
    """Create an object, unless there is one of this name."""
    key = resource, record.namespace, record.name
    if key not in context.hub.objects:
        context.memory[fault.seed] = key
        context.hub.put(resource, record)
        context.injector.record(fault, f"{resource} {record.namespace}/{record.name}")


def _delete(context: FaultContext, fault: Fault) -> None:
    """Delete the object that a fault has created."""
    key: Any = context.memory.pop(fault.seed, None)
    if key and (record := context.hub.objects.get(key)):
        context.hub.remove(key[0], msgspec.structs.replace(record, version=record.version + 1))


def _edit_intents(context: FaultContext, fault: Fault) -> None:
    """Write other objectives to the Intents of a workload, or deactivate them."""
    found = [
        record
        for (resource, _, _), record in context.hub.objects.items()
        if resource == INTENTS and str(record.target) == fault.target
    ]
    context.memory[fault.seed] = found
    for record in found:
        objectives = tuple(
            each.model_copy(update={"value": each.value * (fault.amount or 1.0)})
            for each in record.spec.objectives
        )
        changed = {"objectives": objectives, "active": bool(fault.amount)}
        _put_spec(context, record, record.spec.model_copy(update=changed))
        context.injector.record(fault, str(record))


def _reset_intents(context: FaultContext, fault: Fault) -> None:
    found: Any = context.memory.pop(fault.seed, ())
    for record in found:
        _put_spec(context, record, record.spec)


def _put_spec(context: FaultContext, record: IntentRecord, spec: Any) -> None:
    if known := context.hub.objects.get((INTENTS, *record.key)):
        new = {"version": known.version + 1, "generation": known.generation + 1}
        context.hub.put(INTENTS, msgspec.structs.replace(known, spec=spec, **new))


FAULTS: tuple[ClusterFault, ...] = (
    cluster_fault(
        "intent-created",
        "An Intent takes a workload over from its policy, and is deleted later.",
        _create_intent,
        _delete,
        calls=CHANGES,
    ),
    cluster_fault(
        "intent-edited",
        "The Intents of a workload get other objectives, or are deactivated, for a while.",
        _edit_intents,
        _reset_intents,
        draw=_draw_intent_target,
        weight=1.5,
        calls=("annotate", "scale", "status"),
    ),
    cluster_fault(
        "vpa-created",
        "A VerticalPodAutoscaler that changes pods is created for a workload, and deleted later.",
        _create_vpa,
        _delete,
        calls=CHANGES,
    ),
    cluster_fault(
        "hpa-created",
        "A HorizontalPodAutoscaler is created for a workload, and deleted later.",
        _create_hpa,
        _delete,
        calls=CHANGES,
    ),
    cluster_fault(
        "emergency-stop",
        "Somebody stops Trimtab with `trimtab stop`, and resumes it later.",
        _stop,
        _delete,
        calls=CHANGES,
    ),
)
