"""Worlds drawn by a seed in which anything may happen: replaced pods, an autoscaler, failed writes, evictions, windows.

Each step draws at most one event, reconciles and passes time. The same seed gives the same course of events.
"""

from dataclasses import replace
from random import Random
from typing import Any

from actuation.builders import MIB, desired_change, harm_signals
from actuation.test_crashes import CANARY, FAULTS, NEW, OLD, POISON, WAYS, Trouble
from actuation.world import KEY, KilledError, World, run
from trimtab.actuation.decide.health import ThrottlingSample
from trimtab.actuation.decide.observation import DesiredChange
from trimtab.actuation.executor import ChangeExecutor
from trimtab.actuation.hold import Hold
from trimtab.actuation.resources import Sizes
from trimtab.api.duration import Duration
from trimtab.api.optimizationpolicy import MaintenanceWindow, StartupBoost, TemplateUpdate
from trimtab.kube.errors import Forbidden, Invalid, NotFound, Status
from trimtab.kube.kinds.heap_flags import HeapFlags
from trimtab.kube.kinds.pods import Resources

LESS = {"web": Resources(50, None, 64 * MIB, 128 * MIB)}
MORE = {"web": Resources(100, None, 256 * MIB, 256 * MIB)}
LIMITED = {"web": Resources(250, 300, 128 * MIB, 256 * MIB)}
OPEN_AT_NIGHT = (MaintenanceWindow(start="08:00", end="08:20", time_zone="UTC"),)
NEVER_OPEN = (MaintenanceWindow(start="00:00", end="01:00", time_zone="No/Where"),)
TEMPLATES = ("old", "new", "other")
STEPS = (0, 1, 15, 30, 30, 30, 60, 300, 900, 3600)
LATER_STEPS = (600, 3600, 43_200)


class EditedWorld(World):
    """A world in which others edit the template, too, so that a size may come from nowhere in the annotations."""

    def _check_written_down(self, sizes: Sizes) -> None:
        del sizes


class DrawnWorld:
    """One workload over some hours, and somebody who asks for one change after another."""

    def __init__(self, seed: int, *, lags: bool = False) -> None:
        self.draw = draw = Random(seed)
        self.lag = Random(seed + 1) if lags else None
        """Draws how far the records of informers lag; apart, so that the other events of a seed stay the same."""
        self.terms = terms = WAYS[draw.choice(sorted(WAYS))]
        self.world = EditedWorld(
            template=terms.template,
            replicas=draw.randint(1, 6),
            resource=terms.resource,
            update=terms.update,
        )
        if terms.template != OLD:
            self.world.apply_size_earlier(OLD)
        elif draw.random() < 0.1:
            self.world.apply_size_earlier(NEW)
        if draw.random() < 0.2:
            self.world.heaps = (HeapFlags("web", "-XX:MaxRAMPercentage=75", ()),)
        self.world.needed_memory = 48 * MIB
        policy: dict[str, Any] = dict(terms.policy)
        updates = [TemplateUpdate.AS_NEEDED, TemplateUpdate.AS_NEEDED, TemplateUpdate.NEVER]
        # A policy may roll pods for each change only if it allows to replace them.
        updates += [TemplateUpdate.ALWAYS] * ("allow_recreate" in policy)
        policy["template"] = draw.choice(updates)
        policy["take_ownership"] = draw.random() < 0.2
        policy["min_interval"] = Duration.from_seconds(draw.choice([0, 0, 60, 3600]))
        if draw.random() < 0.25:
            policy["windows"] = draw.choice([OPEN_AT_NIGHT, OPEN_AT_NIGHT, NEVER_OPEN])
        if draw.random() < 0.2:
            policy["startup_boost"] = StartupBoost(factor=2.0, duration=Duration.from_seconds(120))
        self.desired: DesiredChange = desired_change(
            draw.choice([NEW, NEW, LESS, POISON, LIMITED]), needed_memory={"web": 0}, canary=CANARY, **policy
        )
        if draw.random() < 0.15:
            self.desired = replace(self.desired, memory_limits_fixed=True)
        if draw.random() < 0.1:
            self.desired = replace(self.desired, excluded_containers=frozenset({"proxy"}))
        if draw.random() < 0.2:
            self.desired = replace(self.desired, stabilization=7200)
        self.executor = ChangeExecutor(self.world, self.world.records, may_write=lambda: True)

    def step(self) -> None:
        if self.draw.random() < 0.5:
            self.draw.choice(EVENTS)(self)
        if self.lag:
            self.lag_behind(self.lag)
        try:
            run(self.executor.reconcile(KEY, self.desired, now=self.world.now))
        except KilledError:
            self.restart()
        self.world.pass_time(self.draw.choice(STEPS if self.draw.random() < 0.95 else LATER_STEPS))

    # Events

    def lag_behind(self, lag: Random) -> None:
        """Let informers deliver only a part of what happened, after somebody else resized a pod perhaps."""
        pods = list(self.world.pods_by_name.values())
        if pods and lag.random() < 0.1:
            other = lag.choice(pods)
            other.spec = {**other.spec, **lag.choice([LESS, LIMITED])}
        self.world.records.lags = lag.random() < 0.8
        for watch in self.world.records.pending:
            self.world.records.deliver(watch, lag.choice([0, 0, 0, 1, 2, 4, 100]))

    def restart(self) -> None:
        self.world.records.restart()
        self.executor = ChangeExecutor(self.world, self.world.records, may_write=lambda: True)

    def fault(self) -> None:
        self.world.intercept_write = Trouble(self.draw.choice(sorted(FAULTS)), self.draw.randint(1, 6))

    def refuse(self) -> None:
        what = self.draw.choice(["resize", "patch_template", "annotate", "evict"])
        code = self.draw.choice([Forbidden, Invalid, NotFound])

        def fail(moment: str) -> None:
            if moment == f"before {what}":
                raise code(Status(message=f"{what} is not allowed", code=code.code))

        self.world.intercept_write = fail

    def recover(self) -> None:
        self.world.intercept_write = lambda _: None
        self.world.full, self.world.fitting_size, self.world.resizable = "", None, True
        self.world.needed_memory, self.world.crash_loops, self.world.paused = 48 * MIB, False, False
        for live in self.world.pods_by_name.values():
            live.resize_rejection = ""

    def scale(self) -> None:
        """Scale out or in, as an autoscaler does."""
        for _ in range(self.draw.randint(1, 3)):
            if self.draw.random() < 0.5 and len(self.world.pods_by_name) < 8:
                self.world.replicas += 1
                self.world.add_pod()
            elif len(self.world.pods_by_name) > 1:
                self.world.replicas -= 1
                self.world.remove_pod()

    def scale_to_zero_or_back(self) -> None:
        if self.world.replicas and self.draw.random() < 0.3:
            self.world.replicas = 0
            self.world.pods_by_name.clear()
        elif not self.world.replicas:
            self.world.replicas = 2
            self.world.add_pod()
            self.world.add_pod()

    def replace_pod(self) -> None:
        if self.world.pods_by_name:
            self.world.replace_pod(self.draw.choice(sorted(self.world.pods_by_name)))

    def lose_pods(self) -> None:
        """Lose pods that a quota does not let return."""
        for _ in range(self.draw.randint(1, 2)):
            self.world.remove_pod()

    def fill_node(self) -> None:
        pods = list(self.world.pods_by_name.values())
        if pods:
            self.draw.choice(pods).resize_rejection = self.draw.choice(["Deferred", "Infeasible", "Error"])

    def fill_all_nodes(self) -> None:
        self.world.full = self.draw.choice(["", "Deferred", "Infeasible"])

    def limit_new_pods(self) -> None:
        self.world.fitting_size = self.draw.choice([None, OLD, OLD | LESS, {"web": Resources(1, 1, 1, 1)}])

    def stop_resizing(self) -> None:
        self.world.resizable = False

    def deploy(self) -> None:
        self.world.deploy_version()

    def edit_template(self) -> None:
        sizes: Sizes = self.draw.choice([OLD, OLD | NEW, OLD | LIMITED])
        self.world.template = {**self.world.template, **sizes}

    def kill_pods(self) -> None:
        self.world.needed_memory = self.draw.choice([100 * MIB, 10**12])
        self.world.crash_loops = self.draw.random() < 0.5

    def pause(self) -> None:
        self.world.paused = not self.world.paused

    def shift_clock(self) -> None:
        self.world.clock_ahead = self.draw.choice([0, 2, 7200])

    def set_sizes(self) -> None:
        sizes = self.draw.choice([OLD, NEW, LESS, MORE, LIMITED, {}])
        self.desired = replace(self.desired, sizes=sizes, is_urgent=False)

    def request_relief(self) -> None:
        urgent = self.draw.random() < 0.7
        self.desired = replace(self.desired, sizes=MORE, is_urgent=urgent)

    def hold(self) -> None:
        self.desired = replace(self.desired, hold_reason=self.draw.choice(["", "", "held by ann"]))

    def hold_at_size(self) -> None:
        self.desired = Hold(who="ann", why="", sizes=self.draw.choice([OLD, NEW])).apply_to(self.desired)

    def block(self) -> None:
        self.desired = replace(
            self.desired, blocked_reason=self.draw.choice(["", "", "the mode is Recommend"])
        )

    def lose_usage(self) -> None:
        self.desired = replace(self.desired, usage_error=self.draw.choice(["", "", "Prometheus is away"]))

    def outdate(self) -> None:
        self.desired = replace(self.desired, computed_from=self.draw.choice([None, None, NEW, OLD]))

    def check_guardrails(self) -> None:
        holds = self.draw.choice([True, True, False, None])
        throttled = self.draw.choice([None, 0.0, 0.01, 0.9])
        samples = (
            {}
            if throttled is None
            else {name: [ThrottlingSample(self.world.now - 1, throttled)] for name in self.world.pods_by_name}
        )
        signals = harm_signals(guardrails={"errors": holds}, throttled=samples)
        self.desired = replace(self.desired, harm_signals=signals)

    def open_windows(self) -> None:
        windows = self.draw.choice([(), (), OPEN_AT_NIGHT, NEVER_OPEN])
        strategy = self.desired.strategy.model_copy(update={"windows": windows})
        self.desired = replace(self.desired, strategy=strategy)


EVENTS = [
    DrawnWorld.restart,
    DrawnWorld.fault,
    DrawnWorld.fault,
    DrawnWorld.refuse,
    DrawnWorld.recover,
    DrawnWorld.recover,
    DrawnWorld.scale,
    DrawnWorld.scale,
    DrawnWorld.scale_to_zero_or_back,
    DrawnWorld.replace_pod,
    DrawnWorld.replace_pod,
    DrawnWorld.lose_pods,
    DrawnWorld.fill_node,
    DrawnWorld.fill_node,
    DrawnWorld.fill_all_nodes,
    DrawnWorld.limit_new_pods,
    DrawnWorld.stop_resizing,
    DrawnWorld.deploy,
    DrawnWorld.edit_template,
    DrawnWorld.kill_pods,
    DrawnWorld.pause,
    DrawnWorld.shift_clock,
    DrawnWorld.set_sizes,
    DrawnWorld.set_sizes,
    DrawnWorld.request_relief,
    DrawnWorld.hold,
    DrawnWorld.hold_at_size,
    DrawnWorld.block,
    DrawnWorld.lose_usage,
    DrawnWorld.outdate,
    DrawnWorld.check_guardrails,
    DrawnWorld.open_windows,
]
