"""Invariants about Intents, about recommendations for VPAs, and about everything that stops Trimtab."""

from __future__ import annotations

from typing import Any

import msgspec

from trimtab.actuation.hold import read_hold
from trimtab.api.quantity import parse_memory_bytes, parse_millicores
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.rest.resources import VPAS
from trimtab.lab.faults.invariant import Invariant, RunState, find_controlling_intent
from trimtab.lab.faults.records import Write

_SAME_PLAN = 1.0
"""The seconds within which two actions belong to one plan."""
_FAILING = ("api-", "admission-", "clock-jump", "process-", "intent-", "lease-taken")
"""The beginnings of the kinds of faults by which an action fails and is repeated, or by which it is forgotten."""


class ScaledByIntentOnly(Invariant):
    name = "scaled-by-intent-only"
    sentence = (
        "A workload is scaled only while an active Intent controls it and no HorizontalPodAutoscaler does."
    )

    def on_write(self, write: Write) -> None:
        replica = self.state.find_replica(write.process)
        if write.verb != "scale" or replica is None:
            return
        cluster_state = replica.process.operator.cluster_state
        self.check(bool(find_controlling_intent(replica, write.workload)), "without an Intent", write)
        if workload := cluster_state.get(write.workload):
            self.check(not cluster_state.list_hpas(workload), "beside an HPA", write)


class GuardrailsKept(Invariant):
    name = "intent-guardrails-kept"
    sentence = "An Intent leads no workload beyond the numbers of pods of its guardrails."

    def on_write(self, write: Write) -> None:
        if write.verb != "scale" or write.replicas is None:
            return
        before, after = write.replicas
        for guardrail in self.state.config().intents.guardrails_for(write.workload.namespace):
            self.check(after >= min(guardrail.min_replicas, before), "below", guardrail.min_replicas, write)
            self.check(after <= max(guardrail.max_replicas, before), "above", guardrail.max_replicas, write)


class CoolDownRespected(Invariant):
    name = "intent-cool-down-respected"
    sentence = (
        "Between two scalings of a workload by one process lies the cool-down, unless one of them failed."
    )

    def __init__(self, state: RunState) -> None:
        super().__init__(state)
        self._scaled: dict[tuple[WorkloadKey, str], tuple[float, int]] = {}
        """The last scaling of a workload by a process, and how often actions may have failed until then."""

    def on_write(self, write: Write) -> None:
        if write.verb != "scale":
            return
        key = write.workload, write.process
        counts = self.state.injector.counts.items()
        failures = sum(count for kind, count in counts if kind.startswith(_FAILING))
        last, self._scaled[key] = self._scaled.get(key), (write.at, failures)
        if last is None or write.at - last[0] < _SAME_PLAN or failures != last[1]:
            return
        waited = write.at - last[0]
        self.check(
            waited >= self.state.config().intents.cool_down.seconds, "after", round(waited), "s", write
        )


class VpaBoundsKept(Invariant):
    name = "vpa-bounds-kept"
    sentence = "A recommendation for a VerticalPodAutoscaler is within its bounds."

    def __init__(self, state: RunState) -> None:
        super().__init__(state)
        self._seen: dict[str, int] = {}

    def on_step(self) -> None:
        for (resource, _, _), vpa in self.state.objects.items():
            if resource != VPAS or self._seen.get(vpa.uid) == vpa.version:
                continue
            self._seen[vpa.uid] = vpa.version
            status: dict[str, Any] = msgspec.json.decode(vpa.status)
            for each in (status.get("recommendation") or {}).get("containerRecommendations") or ():
                bounds, target = vpa.container_policy(each["containerName"]), each["target"]
                cpu, memory = parse_millicores(target["cpu"]), parse_memory_bytes(target["memory"])
                for least, amount, most in (
                    (bounds.min_allowed.cpu, cpu, bounds.max_allowed.cpu),
                    (bounds.min_allowed.memory, memory, bounds.max_allowed.memory),
                ):
                    self.check((least or 0) <= amount <= (most or amount), vpa.name, amount, least, most)


class StopRespected(Invariant):
    name = "stop-respected"
    sentence = "A process that knows of an emergency stop changes nothing."

    def on_write(self, write: Write) -> None:
        replica = self.state.find_replica(write.process)
        if replica and write.verb in {"resize", "evict", "patch", "scale", "annotate", "options"}:
            self.check(replica.process.operator.emergency_stop.current is None, write)


class HoldRespected(Invariant):
    name = "hold-respected"
    sentence = "While a person holds a workload at its size, no change of it starts and it is not scaled."

    def on_write(self, write: Write) -> None:
        starts = write.new and write.new.change and not (write.old and write.old.change)
        if write.verb != "scale" and not starts:
            return
        replica = self.state.find_replica(write.process)
        workload = replica.process.operator.cluster_state.get(write.workload) if replica else None
        hold = read_hold(workload.annotations) if workload else None
        self.check(hold is None or bool(hold.sizes), hold, write)


INVARIANTS: tuple[type[Invariant], ...] = (
    ScaledByIntentOnly,
    GuardrailsKept,
    CoolDownRespected,
    VpaBoundsKept,
    StopRespected,
    HoldRespected,
)
