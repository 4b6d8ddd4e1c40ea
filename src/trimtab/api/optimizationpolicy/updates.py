"""The way recommendations are applied: which changes are made and how large one is, in place or by replacing pods, canary
pods first, and in maintenance windows.
"""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from trimtab.api.duration import Duration
from trimtab.api.fields import Bool, DurationRange, Int, Number, TextPattern, UniqueItems
from trimtab.api.model import ApiModel, ValidationRule


class StepLimits(ApiModel):
    """The largest change in one step, as a share of the request."""

    increase: Annotated[Number, Field(ge=0.01, le=100)] = 2.0
    """The largest increase in one change; 2 allows three times the request. After an OOM kill, memory may grow
    more."""

    decrease: Annotated[Number, Field(ge=0, le=0.9)] = 0.5
    """The largest decrease in one change; 0.5 allows half the request, 0 never lowers it."""


class MemoryStepLimits(StepLimits):
    """The largest change of memory in one step, as a share of the request; too little memory kills the container."""

    decrease: Annotated[Number, Field(ge=0, le=0.9)] = 0.3
    """The largest decrease in one change; 0.3 leaves 70 % of the request, 0 never lowers it."""


class UsageShiftMode(StrEnum):
    """The reaction to a sudden change of the usage pattern of a container."""

    HOLD_DECREASES = "HoldDecreases"
    REPORT = "Report"
    IGNORE = "Ignore"


class ChangePolicy(ApiModel):
    """The smallest change that is made, and the largest in one step."""

    minimum: Annotated[Number, Field(ge=0, le=1)] = 0.2
    """The smallest change that is made, as a share of the target; 0.2 leaves a request alone that is within a fifth of
    its target. A change that restarts pods has to be a quarter larger."""

    stabilization: Annotated[Duration, DurationRange("0s", "24h")] = Duration.parse("24h")
    """A request is lowered only to the highest target of this period, up to 24h, so that capacity released at night
    is not missing in the morning; 0s lowers it at once. Increases are never delayed. The strategy trimtab sizes CPU
    for the whole period instead if pods are resized in place. Pods are restarted to be made smaller only once in this
    period."""

    cpu: StepLimits = StepLimits()
    """The largest change of CPU in one step."""

    memory: MemoryStepLimits = MemoryStepLimits()
    """The largest change of memory in one step."""

    usage_shift: UsageShiftMode = UsageShiftMode.HOLD_DECREASES
    """The reaction to usage that for hours is outside of what the same time of day had in the last one or two weeks.
    HoldDecreases reports it and lowers nothing until the new pattern is learned, a day after the last unusual hour and at
    most three days; Report reports it in an Event and the status; Ignore does neither."""


class HpaMode(StrEnum):
    """The handling of a resource whose utilization a HorizontalPodAutoscaler keeps at a target."""

    RESCALE = "Rescale"
    HOLD = "Hold"


class TemplateUpdate(StrEnum):
    """The time when the pod template of a workload is updated."""

    NEVER = "Never"
    AS_NEEDED = "AsNeeded"
    ALWAYS = "Always"


class Canary(ApiModel):
    """The canary pods of a change, and the observation of the change."""

    renamed: ClassVar = {"patience": "evidenceTimeout"}

    percent: Annotated[Int, Field(ge=1, le=100)] = 10
    """The share of the pods that get a change first, at least one; 100 changes all pods at once."""

    observation: Annotated[Duration, DurationRange("1s", "24h")] = Duration.parse("10m")
    """The time for which restarts, OOM kills, throttling and readiness are compared with before, first for the canary
    pods and then for all pods."""

    evidence_timeout: Annotated[Duration, DurationRange("1s", "24h")] = Duration.parse("30m")
    """The additional time to wait for missing evidence; without any by then, the change is reverted."""


class Weekday(StrEnum):
    """A day of the week."""

    MON = "Mon"
    TUE = "Tue"
    WED = "Wed"
    THU = "Thu"
    FRI = "Fri"
    SAT = "Sat"
    SUN = "Sun"


_ClockTime = Annotated[str, TextPattern("^([01][0-9]|2[0-3]):[0-5][0-9]$", "a time of day, such as 22:30", 5)]


class MaintenanceWindow(ApiModel):
    """A time of the week in which changes may be made."""

    days: Annotated[tuple[Weekday, ...], Field(max_length=7), UniqueItems()] = ()
    """The days on which the window starts: Mon, Tue, Wed, Thu, Fri, Sat, Sun; every day when left out."""

    start: _ClockTime = "00:00"
    """The time when the window starts, such as 22:00."""

    end: _ClockTime = "00:00"
    """The time when the window ends, such as 05:30; if it is at or before start, the window ends on the next day."""

    time_zone: Annotated[
        str, TextPattern("^[A-Za-z][-A-Za-z0-9_+/]*$", "a time zone, such as UTC or Europe/Berlin", 64)
    ] = "UTC"
    """The time zone of start and end, such as Europe/Berlin. The admission webhook rejects an unknown one; without the
    webhook, its window never opens."""


class StartupBoost(ApiModel):
    """More CPU for a pod until it is ready."""

    factor: Annotated[Number, Field(ge=1, le=10)] = 2.0
    """The factor for CPU request and limit while a pod starts."""

    duration: Annotated[Duration, DurationRange("1s", "1h")] = Duration.parse("5m")
    """The longest time for which a pod keeps the boost, ready or not."""


class UpdateStrategy(ApiModel):
    """The way recommendations are applied in mode Auto."""

    rules = (
        ValidationRule(
            field="template",
            message="may be Always only where allowRecreate is true, since a changed template restarts pods",
            predicate=lambda self: self.template is not TemplateUpdate.ALWAYS or self.allow_recreate,
            cel="self.template != 'Always' || self.allowRecreate",
        ),
    )

    renamed: ClassVar = {"besideHpa": "hpaMode"}

    allow_in_place_resize: Bool = True
    """Resize running pods without a restart if the cluster supports it."""

    allow_recreate: Bool = False
    """Replace a running pod that cannot be resized, or whose node has no capacity for it; its PodDisruptionBudget is
    respected. If false, such a change is skipped or reverted, and the status gives the reason."""

    allow_recreate_on_oom: Annotated[Bool, Field(alias="allowRecreateOnOOM")] = False
    """Replace running pods as allowRecreate does, but only to give more memory to a container that was just
    OOM-killed."""

    update_requests_only: Bool = True
    """Change requests and leave limits unchanged, except that a memory limit is raised after an OOM kill unless
    limitPolicy keeps it. If false, limits follow limitPolicy."""

    keep_qos_class: Bool = True
    """Keep the QoS class of every pod: requests of a Guaranteed pod stay equal to its limits, and a BestEffort pod
    gets none. If false, the class may change, for which pods have to be replaced."""

    hpa_mode: HpaMode = HpaMode.RESCALE
    """The handling of a resource whose utilization a HorizontalPodAutoscaler keeps at a target. Rescale lowers a
    request only as far as the utilization stays at or below the target; Hold does not change it."""

    template: TemplateUpdate = TemplateUpdate.AS_NEEDED
    """The update of the pod template. Never does not change it; AsNeeded changes it if that restarts nothing, as with
    a CronJob, or if allowRecreate allows replacing pods and there is no other way; Always changes it, which starts a
    rollout."""

    take_ownership: Bool = False
    """Take over the resources in a pod template from another field manager, such as a GitOps tool. If false, the
    change is skipped and the status names the owner."""

    canary: Canary = Canary()
    """The canary pods of a change, its observation, and its revert on harm."""

    min_interval: Annotated[Duration, DurationRange("0s", "8760h")] = Duration.parse("1h")
    """The minimum time between two changes of a workload; more memory after an OOM kill does not wait."""

    windows: Annotated[tuple[MaintenanceWindow, ...], Field(max_length=16)] = ()
    """The times when changes may be made; any time when left out. Reverting a harmful change does not wait for a
    window."""

    startup_boost: StartupBoost | None = None
    """More CPU for each pod until it is ready; none when left out."""

    @property
    def restarts_pods(self) -> bool:
        """Every change replaces pods, whatever the cluster supports."""
        return not self.allow_in_place_resize or self.template is TemplateUpdate.ALWAYS
