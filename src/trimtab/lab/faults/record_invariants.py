"""Invariants about what the operator says that it did: history, Events, metrics, and the pods after a revert."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from contextlib import closing

from trimtab.actuation.change_annotations import Phase
from trimtab.actuation.decide.observation import State
from trimtab.actuation.resources import container_sizes, has_size, has_template_size
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.lab.faults.invariant import Invariant, RunState
from trimtab.lab.faults.records import EmittedEvent, Write

_LOSING = ("store-", "process-", "operator-upgraded", "second-leader", "lease-taken", "api-", "clock-jump")
"""The beginnings of the kinds of faults after which the history need not have what was done."""
_WHAT = ("applying", "applied", "reverted", "refused")
_EVENTS = {"Resizing": "applying", "Resized": "applied", "Reverted": "reverted"}
"""The transitions that Events report, by their reasons."""
_TOLERANCE = 2.0
"""The seconds by which an entry may differ from its write: times are written as whole seconds."""


class HistoryAgrees(Invariant):
    name = "history-agrees"
    sentence = "The history has each change that was made, and none that was not."

    def __init__(self, state: RunState) -> None:
        super().__init__(state)
        self._done: dict[tuple[WorkloadKey, str], list[float]] = defaultdict(list)

    def on_write(self, write: Write) -> None:
        if what := _describe_transition(write):
            self._done[write.workload, what].append(write.at)

    def at_end(self) -> None:
        if not self.state.store_path.exists():
            return  # no operator ran in this cluster
        recorded: dict[tuple[WorkloadKey, str], list[float]] = defaultdict(list)
        with closing(sqlite3.connect(f"file:{self.state.store_path}?mode=ro", uri=True)) as store:
            rows = store.execute(
                "SELECT kind, namespace, name, what, timestamp FROM trimtab_history"
            ).fetchall()
        for kind, namespace, name, what, at in rows:
            if what in _WHAT:
                recorded[WorkloadKey(kind, namespace, name), what].append(float(at))
        for (key, what), times in recorded.items():
            for at in times:
                known = any(abs(each - at) <= _TOLERANCE for each in self._done[key, what])
                self.check(known, key, what, "at", at, "is in the history, and was never written")
        if any(name.startswith(_LOSING) for name in self.state.injector.counts):
            return
        for (key, what), times in list(self._done.items()):
            for at in times:
                known = any(abs(each - at) <= _TOLERANCE for each in recorded[key, what])
                self.check(known, key, what, "at", at, "was written, and is not in the history")


class RevertRestores(Invariant):
    name = "revert-restores"
    sentence = "After a revert that names nothing else, no pod has the size of the change."

    def on_write(self, write: Write) -> None:
        if _describe_transition(write) != "reverted" or write.old is None or write.new is None:
            return
        change, reverted = write.old.change, write.new.reverted
        workload = self.state.world.workloads.get(write.workload)
        if change is None or reverted is None or workload is None or "not everything" in reverted.why:
            return
        template = container_sizes(workload.containers)
        for pod in workload.pods.values():
            record = pod.to_record("")
            # Pods that came since the operator looked have the size of their template.
            is_back = not has_size(record, change.after) or has_size(record, change.previous_size(record))
            self.check(is_back or has_template_size(record, template), pod.name, write)


class EventsAgree(Invariant):
    name = "events-agree"
    sentence = "An Event that a change began, ended or was reverted follows the annotations that say so."

    def __init__(self, state: RunState) -> None:
        super().__init__(state)
        self._last: dict[tuple[str, WorkloadKey], str] = {}

    def on_write(self, write: Write) -> None:
        if what := _describe_transition(write):
            self._last[write.process, write.workload] = what

    def on_event(self, event: EmittedEvent) -> None:
        if what := _EVENTS.get(event.reason):
            last = self._last.get((event.process, event.workload))
            self.check(last == what, event, "although the last record is", last)


class MetricsAgree(Invariant):
    name = "metrics-agree"
    sentence = "The counters of started changes and of reverts are those of the changes that were made."

    def __init__(self, state: RunState) -> None:
        super().__init__(state)
        self._done: Counter[str] = Counter()

    def on_write(self, write: Write) -> None:
        self._done[_describe_transition(write)] += 1

    def at_end(self) -> None:
        counted: Counter[str] = Counter()
        for replica in self.state.all_replicas():
            for family in replica.metrics.registry.collect():
                for sample in family.samples:
                    if sample.name == "trimtab_reverts_total":
                        counted["reverted"] += int(sample.value)
                    starts = sample.labels.get("from") == State.IDLE != sample.labels.get("to")
                    if sample.name == "trimtab_change_transitions_total" and starts:
                        counted["applying"] += int(sample.value)
        loses = any(name.startswith(_LOSING) for name in self.state.injector.counts)
        # Two leaders that start the same change in the same second cannot tell whose write arrived: both count it.
        doubles = bool(self.state.injector.counts["second-leader"])
        for what in ("applying", "reverted"):
            done, known = self._done[what], counted[what]
            agrees = (doubles or known <= done) and (loses or known == done)
            self.check(agrees, what, known, "counted of", done)


def _describe_transition(write: Write) -> str:
    """Return what the history says of a write of annotations; empty if nothing."""
    if write.verb != "annotate" or write.new is None:
        return ""
    old, new = write.old, write.new
    had, has = old.change if old else None, new.change
    if has and not had:
        return "applying"
    if not had or has:
        return ""
    reverted = new.reverted if new.reverted != (old.reverted if old else None) else None
    if reverted and reverted.refused:
        return "refused"
    return "reverted" if had.phase is Phase.REVERTING and new.reverted else "applied"


INVARIANTS: tuple[type[Invariant], ...] = (HistoryAgrees, RevertRestores, EventsAgree, MetricsAgree)
