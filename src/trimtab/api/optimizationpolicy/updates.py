"""How a recommendation may be put into effect: in place or anew, a few pods first, and when."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from trimtab.api.duration import Duration
from trimtab.api.fields import Bool, DurationRange, Int, Number, TextPattern, UniqueItems
from trimtab.api.model import ApiModel, ValidationRule


class HpaMode(StrEnum):
    """What becomes of a resource whose utilisation a HorizontalPodAutoscaler holds to a target."""

    RESCALE = "Rescale"
    HOLD = "Hold"


class TemplateUpdate(StrEnum):
    """When the pod template of a workload follows its size."""

    NEVER = "Never"
    AS_NEEDED = "AsNeeded"
    ALWAYS = "Always"


class Canary(ApiModel):
    """How a change is tried before all pods get it, and watched when they have it."""

    percent: Annotated[Int, Field(ge=1, le=100)] = 10
    """The share of the pods that get a change first, at least one; 100 gives it to all at once."""

    observation: Annotated[Duration, DurationRange("1s", "24h")] = Duration.parse("10m")
    """How long restarts, OOM kills, throttling and readiness are compared with before, first for the canaries
    and then for all pods."""

    patience: Annotated[Duration, DurationRange("1s", "24h")] = Duration.parse("30m")
    """How much longer to wait for evidence that is missing; without any by then, the change is taken back."""


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
    """The days on which it starts: Mon, Tue, Wed, Thu, Fri, Sat, Sun; every day when left out."""

    start: _ClockTime = "00:00"
    """When it starts, such as 22:00."""

    end: _ClockTime = "00:00"
    """When it ends, such as 05:30; at or before start, it ends on the next day."""

    time_zone: Annotated[
        str, TextPattern("^[A-Za-z][-A-Za-z0-9_+/]*$", "a time zone, such as UTC or Europe/Berlin", 64)
    ] = "UTC"
    """The time zone of start and end, such as Europe/Berlin. In one that is not known, the window never opens."""


class StartupBoost(ApiModel):
    """More CPU for a pod until it is ready."""

    factor: Annotated[Number, Field(ge=1, le=10)] = 2.0
    """What CPU request and limit are multiplied by while a pod starts."""

    duration: Annotated[Duration, DurationRange("1s", "1h")] = Duration.parse("5m")
    """The longest that a pod keeps it, ready or not."""


class UpdateStrategy(ApiModel):
    """How a recommendation may be put into effect in mode Auto."""

    rules = (
        ValidationRule(
            field="template",
            message="may be Always only where allowRecreate is true, since a changed template restarts pods",
            predicate=lambda self: self.template is not TemplateUpdate.ALWAYS or self.allow_recreate,
            cel="self.template != 'Always' || self.allowRecreate",
        ),
    )

    allow_in_place_resize: Bool = True
    """Resize running pods without a restart where the cluster can."""

    allow_recreate: Bool = False
    """Where a running pod cannot be resized, or its node has no room for it, replace it; its PodDisruptionBudget is
    respected. When false such a change is skipped or taken back, and the status says so."""

    update_requests_only: Bool = True
    """Change requests and leave limits as they are. When false, limits follow limitPolicy."""

    keep_qos_class: Bool = True
    """Keep the QoS class of every pod: requests of a Guaranteed pod stay equal to its limits, and a BestEffort pod
    gets none. When false the class may change, for which pods have to be replaced."""

    beside_hpa: HpaMode = HpaMode.RESCALE
    """What becomes of a resource whose utilisation a HorizontalPodAutoscaler holds to a target. Rescale makes a
    request smaller only as far as the utilisation stays at or below the target; Hold leaves it alone."""

    template: TemplateUpdate = TemplateUpdate.AS_NEEDED
    """Whether the pod template follows. Never leaves it alone; AsNeeded changes it where that restarts nothing, as
    with a CronJob, or where allowRecreate lets pods be replaced and there is no other way; Always changes it, and
    so starts a rollout."""

    take_ownership: Bool = False
    """Take over the resources in a pod template from another field manager, such as a GitOps tool. When false,
    the change is skipped and the status names the owner."""

    canary: Canary = Canary()
    """How a change is tried, watched, and taken back when it hurts."""

    min_interval: Annotated[Duration, DurationRange("0s", "8760h")] = Duration.parse("1h")
    """The least time between two changes of a workload; more memory after an OOM kill does not wait."""

    windows: Annotated[tuple[MaintenanceWindow, ...], Field(max_length=16)] = ()
    """When changes may be made; at any time when left out. Taking back what hurts does not wait for a window."""

    startup_boost: StartupBoost | None = None
    """More CPU for each pod until it is ready; none when left out."""

    @property
    def restarts_pods(self) -> bool:
        """Whether every change replaces pods, whatever the cluster can do."""
        return not self.allow_in_place_resize or self.template is TemplateUpdate.ALWAYS
