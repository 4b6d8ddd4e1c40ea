"""Faults of the operator's processes and of what people write for it: kills, leaders, clocks, configuration, policies.

`Operations` starts and ends the replicas, and edits the configuration and the policies at the times of the plan.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from trimtab.actuation.hold import HOLD_ANNOTATION, HOLD_MANAGER, Hold
from trimtab.api.optimizationpolicy import OptimizationPolicySpec
from trimtab.kube.kinds.policies import Policy
from trimtab.kube.rest.resources import INTENTS, OPTIMIZATION_POLICIES
from trimtab.lab.faults.cluster_fault import scale_resources
from trimtab.lab.faults.plan import Fault, FaultDetails, FaultKind
from trimtab.lab.faults.previous_version import downgrade_status, downgrade_store
from trimtab.lab.faults.replica import Replica, SharedCluster
from trimtab.lab.faults.worlds import WorldSpec, draw_config, draw_managed, draw_policy
from trimtab.lab.simulator.election import SimulatedLeases
from trimtab.lab.simulator.objects import derive_uid
from trimtab.operator.config.model import OperatorConfig

_SHORT = (60.0, 1800.0)
_CHANGES = ("annotate", "resize")


def _draw_kill(rng: random.Random, world: WorldSpec) -> FaultDetails:
    del world
    # Mostly within a few calls after the moment: a change makes a few calls, and then nothing for minutes.
    return FaultDetails(amount=float(rng.choice([1, 2, 3, 5, 8, 13, 40, 200])))


def _draw_clock(rng: random.Random, world: WorldSpec) -> FaultDetails:
    del world
    return FaultDetails(amount=rng.choice([-7200.0, -3600.0, -300.0, -5.0, 5.0, 300.0, 3600.0, 86400.0]))


def _draw_policy(rng: random.Random, world: WorldSpec) -> FaultDetails:
    return FaultDetails(target=rng.choice(sorted(world.policies)) if world.policies else "")


def _draw_workload(rng: random.Random, world: WorldSpec) -> FaultDetails:
    return FaultDetails(target=str(draw_managed(rng, world)), amount=rng.choice([0.0, 0.0, 0.8, 1.5]))


KINDS = (
    FaultKind(
        name="process-killed",
        sentence="The process is killed between two awaits, before or after the effect of a call, and started again.",
        draw=_draw_kill,
        duration=_SHORT,
        weight=4.0,
        calls=("annotate", "resize", "evict", "patch", "status"),
    ),
    FaultKind(
        name="process-restarted",
        calls=_CHANGES,
        sentence="The process is stopped in an orderly way and started again.",
        duration=_SHORT,
    ),
    FaultKind(
        name="second-leader",
        calls=_CHANGES,
        sentence="A second process leads at the same time.",
        duration=(600.0, 7200.0),
    ),
    FaultKind(
        name="lease-taken",
        calls=_CHANGES,
        sentence="Another process holds the Lease.",
        duration=(600.0, 7200.0),
    ),
    FaultKind(
        name="clock-jump", calls=_CHANGES, sentence="The clock of the process jumps.", draw=_draw_clock
    ),
    FaultKind(
        name="store-rolled-back",
        sentence="The store is restored from a backup.",
        duration=(3600.0, 6 * 3600.0),
    ),
    FaultKind(name="store-damaged", sentence="The file of the store is damaged.", duration=_SHORT),
    FaultKind(
        name="operator-upgraded",
        sentence="The operator replaces one of the version before, and finds its store and its statuses of Intents.",
        calls=("annotate", "resize", "scale"),
        duration=_SHORT,
    ),
    FaultKind(
        name="config-dry-run", calls=_CHANGES, sentence="The configuration is set to dryRun for a while."
    ),
    FaultKind(
        name="config-limits", calls=_CHANGES, sentence="The organisation's limits are lowered for a while."
    ),
    FaultKind(
        name="config-rewritten",
        calls=_CHANGES,
        sentence="The configuration gets other windows, guardrails, disruption limits, excluded namespaces and forbidden modes for a while.",
    ),
    FaultKind(
        name="config-invalid", sentence="The file of the configuration is invalid; the last valid one stays."
    ),
    FaultKind(
        name="policy-mode",
        calls=_CHANGES,
        sentence="A policy's mode is changed for a while.",
        draw=_draw_policy,
    ),
    FaultKind(
        name="policy-edited",
        calls=_CHANGES,
        sentence="A policy's bounds are changed for a while.",
        draw=_draw_policy,
    ),
    FaultKind(
        name="policy-deleted",
        calls=_CHANGES,
        sentence="A policy is deleted, and created again.",
        draw=_draw_policy,
    ),
    FaultKind(
        name="policy-rewritten",
        sentence="A policy gets other windows, bounds, budgets, another strategy and selector for a while.",
        draw=_draw_policy,
        calls=_CHANGES,
    ),
    FaultKind(
        name="held",
        calls=_CHANGES,
        sentence="A person holds a workload as it is or at other sizes, and releases it.",
        draw=_draw_workload,
    ),
)


class Operations:
    """The replicas of the operator, and the people who run it."""

    def __init__(self, shared: SharedCluster, world: WorldSpec) -> None:
        self._shared = shared
        self._spec = world
        self.replicas: list[Replica] = []
        """The living processes."""
        self.retired: list[Replica] = []
        """The processes that have ended."""
        self.target = 1
        """The number of processes that run, disturbances aside; without any, faults of processes do not happen."""
        self._count = 0
        self._restarts: list[float] = []
        """The times at which processes are started again."""
        self._second: dict[int, Replica] = {}
        self._backups: dict[int, Path] = {}
        self._configs: list[OperatorConfig] = [shared.config.current]
        self._begin: Mapping[str, Callable[[Fault], Awaitable[None]]] = {
            "process-killed": self._kill,
            "process-restarted": self._restart,
            "second-leader": self._start_second,
            "lease-taken": self._take_lease,
            "clock-jump": self._jump,
            "store-rolled-back": self._back_up,
            "store-damaged": self._damage_store,
            "operator-upgraded": self._upgrade,
            "config-dry-run": self._edit_config,
            "config-limits": self._edit_config,
            "config-rewritten": self._edit_config,
            "config-invalid": self._break_config,
            "policy-mode": self._edit_policy,
            "policy-edited": self._edit_policy,
            "policy-rewritten": self._edit_policy,
            "policy-deleted": self._delete_policy,
            "held": self._hold,
        }
        self._end: Mapping[str, Callable[[Fault], Awaitable[None]]] = {
            "second-leader": self._end_second,
            "clock-jump": self._jump_back,
            "store-rolled-back": self._restore_backup,
            "config-dry-run": self._reset_config,
            "config-limits": self._reset_config,
            "config-rewritten": self._reset_config,
            "config-invalid": self._repair_config,
            "policy-mode": self._reset_policy,
            "policy-edited": self._reset_policy,
            "policy-rewritten": self._reset_policy,
            "policy-deleted": self._recreate_policy,
            "held": self._release,
        }
        self._agenda: list[tuple[float, int, Fault, Callable[[Fault], Awaitable[None]]]] = []
        shared.injector.subscribe(self._schedule)

    def _schedule(self, fault: Fault) -> None:
        start, end = self._shared.injector.period(fault)
        for at, handlers in ((start, self._begin), (end, self._end)):
            if fault.kind in handlers:
                self._agenda.append((at, fault.seed, fault, handlers[fault.kind]))
        self._agenda.sort(key=lambda entry: entry[:2])

    @property
    def next_due(self) -> float | None:
        """The time of the next event; None if there is none any more."""
        times = [self._shared.world.start + self._agenda[0][0]] if self._agenda else []
        return min([*times, *self._restarts], default=None)

    async def process_due(self) -> None:
        """Do what is due, and replace processes that have been killed."""
        world = self._shared.world
        while self._agenda and world.start + self._agenda[0][0] <= world.control_time:
            _, _, fault, handler = self._agenda.pop(0)
            if self.target or fault.kind == "held":
                await handler(fault)
        await self.bury()
        while self._restarts and self._restarts[0] <= world.control_time:
            self._restarts.pop(0)
            await self.start_replica()

    async def bury(self) -> None:
        """Remove the processes that were killed, and have each started again soon, as a Deployment does."""
        for replica in [each for each in self.replicas if each.is_dead]:
            await replica.kill()
            self.replicas.remove(replica)
            self.retired.append(replica)
            if replica not in self._second.values():
                self._schedule_start()

    async def start_replica(self, leases: SimulatedLeases | None = None) -> Replica:
        """Start one more process."""
        self._count += 1
        replica = Replica(f"operator-{self._count}", self._shared, leases=leases)
        self.replicas.append(replica)
        await replica.start()
        return replica

    async def stop(self) -> None:
        """Stop all processes."""
        for replica in self.replicas:
            await replica.stop()

    def _schedule_start(self) -> None:
        self._restarts.append(self._shared.world.control_time + 20.0)
        self._restarts.sort()

    async def _kill_now(self) -> None:
        for replica in self.replicas:
            replica.gate.is_dead = True
        await self.bury()

    # Processes

    def _leading(self) -> list[Replica]:
        """Return the process that leads, or any other if none does."""
        return sorted(self.replicas, key=lambda replica: not replica.is_leading)[:1]

    async def _kill(self, fault: Fault) -> None:
        for replica in self._leading():
            replica.gate.kill_at = replica.gate.calls + int(fault.amount)
            self._record(fault, f"{replica.name} in {fault.amount:g} calls")

    async def _restart(self, fault: Fault) -> None:
        for replica in self._leading():
            self._record(fault, replica.name)
            await replica.stop()
        await self.bury()

    async def _start_second(self, fault: Fault) -> None:
        self._record(fault, "a second leader starts")
        self._second[fault.seed] = await self.start_replica(SimulatedLeases())

    async def _end_second(self, fault: Fault) -> None:
        if (replica := self._second.get(fault.seed)) in self.replicas and replica is not None:
            await replica.stop()
            await self.bury()

    async def _take_lease(self, fault: Fault) -> None:
        self._record(fault, "lease")
        name = self._shared.config.current.leader_election.name
        start, end = self._shared.injector.period(fault)
        self._shared.leases.take(name, holder="another", seconds=max(1.0, end - start))

    async def _jump(self, fault: Fault) -> None:
        self._record(fault, f"by {fault.amount:g} s")
        for replica in self.replicas:
            replica.skew += fault.amount

    async def _jump_back(self, fault: Fault) -> None:
        del fault
        for replica in self.replicas:
            replica.skew = 0.0

    # The store

    async def _back_up(self, fault: Fault) -> None:
        self._backups[fault.seed] = _copy_store(self._shared.store_path, f"backup-{fault.seed}")

    async def _restore_backup(self, fault: Fault) -> None:
        if backup := self._backups.pop(fault.seed, None):
            await self._kill_now()
            self._record(fault, "store")
            _remove_store(self._shared.store_path)
            for part in _list_parts(backup):
                shutil.move(
                    part,
                    self._shared.store_path.with_name(
                        part.name.replace(backup.name, self._shared.store_path.name)
                    ),
                )

    async def _damage_store(self, fault: Fault) -> None:
        await self._kill_now()
        self._record(fault, "store")
        _remove_store(self._shared.store_path, only_logs=True)
        size = self._shared.store_path.stat().st_size
        with self._shared.store_path.open("r+b") as file:
            file.seek(min(4096, size // 2))
            file.write(b"\xde\xad\xbe\xef" * 1024)

    async def _upgrade(self, fault: Fault) -> None:
        await self._kill_now()
        self._record(fault, "store and statuses")
        downgrade_store(self._shared.store_path)
        for (resource, _, _), record in list(self._shared.hub.objects.items()):
            if resource == INTENTS:
                status = downgrade_status(record.status)
                old = msgspec.structs.replace(record, status=status, version=record.version + 1)
                self._shared.hub.put(INTENTS, old)

    # The configuration

    async def _edit_config(self, fault: Fault) -> None:
        self._record(fault, "configuration")
        rng = self._shared.injector.rng(fault)
        match fault.kind:
            case "config-dry-run":
                change: dict[str, Any] = {"dryRun": True}
            case "config-limits":
                change = {"limits": {"maxCpu": "200m", "maxMemory": "128Mi"}}
            case _:
                limits = rng.choice([{"excludedNamespaces": ["shop"]}, {"forbiddenModes": ["Auto"]}, {}])
                change = {**draw_config(rng), "limits": limits, "dryRun": False}
        document = {**self._spec.config, **change}
        self._set_config(OperatorConfig.model_validate(document))

    async def _reset_config(self, fault: Fault) -> None:
        del fault
        self._set_config(self._spec.build_config())

    def _set_config(self, config: OperatorConfig) -> None:
        # The Lease is read only at the start.
        election = self._shared.config.current.leader_election
        self._shared.config.current = config.model_copy(update={"leader_election": election})

    async def _break_config(self, fault: Fault) -> None:
        self._record(fault, "configuration")
        self._shared.config.problem = "config.yaml: limits.maxCpu: 'lots' is not a quantity"

    async def _repair_config(self, fault: Fault) -> None:
        del fault
        self._shared.config.problem = ""

    # Policies and holds

    def _find_policy(self, fault: Fault) -> Policy | None:
        home = self._shared.config.current.namespace
        found: Policy | None = self._shared.hub.objects.get((OPTIMIZATION_POLICIES, home, fault.target))
        return found

    async def _edit_policy(self, fault: Fault) -> None:
        if policy := self._find_policy(fault):
            rng = self._shared.injector.rng(fault)
            document = dict(self._spec.policies[fault.target])
            if fault.kind == "policy-mode":
                document["mode"] = rng.choice(["Auto", "Recommend", "Disabled"])
            elif fault.kind == "policy-rewritten":
                document = draw_policy(rng, sorted({each.namespace for each in self._spec.workloads}))
            else:
                document["resourceBounds"] = {
                    "cpu": {"min": "20m", "max": rng.choice(["100m", "1"])},
                    "memory": {"min": rng.choice(["32Mi", "512Mi"]), "max": "1Gi"},
                }
            self._record(fault, f"{policy}: {document['mode']}")
            self._put_policy(policy, OptimizationPolicySpec.model_validate(document))

    async def _reset_policy(self, fault: Fault) -> None:
        if policy := self._find_policy(fault):
            self._put_policy(policy, self._spec.build_policies()[fault.target])

    def _put_policy(self, policy: Policy, spec: OptimizationPolicySpec) -> None:
        self._shared.hub.put(
            OPTIMIZATION_POLICIES,
            msgspec.structs.replace(
                policy, spec=spec, generation=policy.generation + 1, version=policy.version + 1
            ),
        )

    async def _delete_policy(self, fault: Fault) -> None:
        if policy := self._find_policy(fault):
            self._record(fault, str(policy))
            deleted = msgspec.structs.replace(policy, version=policy.version + 1)
            self._shared.hub.remove(OPTIMIZATION_POLICIES, deleted)

    async def _recreate_policy(self, fault: Fault) -> None:
        home = self._shared.config.current.namespace
        if fault.target in self._spec.policies and self._find_policy(fault) is None:
            now = int(self._shared.world.control_time)
            self._shared.hub.put(
                OPTIMIZATION_POLICIES,
                Policy(
                    namespace=home,
                    name=fault.target,
                    uid=derive_uid("policy", fault.target, fault.seed),
                    version=now,
                    generation=1,
                    created=now,
                    spec=self._spec.build_policies()[fault.target],
                    problem="",
                ),
            )

    async def _hold(self, fault: Fault) -> None:
        for key, workload in self._shared.world.workloads.items():
            if str(key) == fault.target:
                self._record(fault, fault.target)
                sizes = {
                    each.name: scale_resources(each.resources, fault.amount) for each in workload.containers
                }
                hold = Hold(who="somebody", why="until the sale is over", sizes=sizes if fault.amount else {})
                workload.annotations[HOLD_MANAGER] = {HOLD_ANNOTATION: hold.encode()}
                self._shared.world.mark_changed(workload)

    async def _release(self, fault: Fault) -> None:
        for key, workload in self._shared.world.workloads.items():
            if str(key) == fault.target:
                workload.annotations.pop(HOLD_MANAGER, None)
                self._shared.world.mark_changed(workload)

    def _record(self, fault: Fault, detail: str) -> None:
        self._shared.injector.record(fault, detail)


def _list_parts(store: Path) -> list[Path]:
    """List the file of a store and its write-ahead log."""
    return [part for suffix in ("", "-wal", "-shm") if (part := Path(f"{store}{suffix}")).exists()]


def _copy_store(store: Path, name: str) -> Path:
    copy = store.with_name(name)
    for part in _list_parts(store):
        shutil.copy(part, f"{copy}{part.name.removeprefix(store.name)}")
    return copy


def _remove_store(store: Path, *, only_logs: bool = False) -> None:
    for part in _list_parts(store)[1 if only_logs else 0 :]:
        part.unlink()
