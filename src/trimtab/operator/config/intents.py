"""The settings of the Intent controller: planner, actuators, guardrails and plugins."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PrivateAttr, model_validator

from trimtab.actuation.resources import SizeLimits
from trimtab.api.duration import Duration
from trimtab.api.errors import validation_problem
from trimtab.api.fields import Bool, DurationRange, Int, NamespaceName, Number, PluginName, Text, UniqueItems
from trimtab.api.kpiprofile import KPIType
from trimtab.api.model import ApiModel
from trimtab.api.quantity import Quantity
from trimtab.errors import TrimtabError
from trimtab.intents.actuator import ACTUATORS
from trimtab.intents.kpi.measurement import LINKERD_QUERIES
from trimtab.intents.planner import PLANNERS, SearchBudget
from trimtab.operator.config.org_limits import OrganisationLimits
from trimtab.operator.config.types import Address
from trimtab.usage.prometheus.template import find_query_problem


def _default_actuators() -> dict[str, dict[str, Any]]:
    return {name: {} for name in ("scaleOut", "scaleIn", "rmPod", "resizeCPU", "resizeMemory")}


class IntentGuardrail(ApiModel):
    """The limits for the Intents of some namespaces. If several apply to a namespace, the tightest one is used."""

    renamed: ClassVar = {
        "capCpu": "maxTotalCpu",
        "capMemory": "maxTotalMemory",
        "capPods": "maxTotalPods",
        "forbidden": "forbiddenActuators",
    }

    namespaces: Annotated[tuple[NamespaceName, ...], UniqueItems()] = ()
    """The namespaces that the limits apply to; all namespaces if left out."""

    min_replicas: Annotated[Int, Field(ge=0)] = 1
    """The minimum number of pods of a workload."""

    max_replicas: Annotated[Int, Field(ge=1)] = 128
    """The maximum number of pods of a workload."""

    max_cpu: Quantity | None = None
    """The maximum CPU request of a container."""

    max_memory: Quantity | None = None
    """The maximum memory request of a container."""

    max_total_cpu: Quantity | None = None
    """The maximum CPU that the targets of all Intents of a namespace may request together."""

    max_total_memory: Quantity | None = None
    """The maximum memory that the targets of all Intents of a namespace may request together."""

    max_total_pods: Annotated[Int, Field(ge=0)] | None = None
    """The maximum number of pods that the targets of all Intents of a namespace may have together."""

    max_priority: Annotated[Number, Field(ge=0.01, le=1)] = 1.0
    """The highest priority that is respected; an Intent with a higher one is treated as if it had this one."""

    max_priority_outside: Annotated[Number, Field(ge=0, le=1)] = 0.0
    """The highest priority that is respected by Intents of other namespaces. With 0 they keep their resources, and
    namespaces take turns for free capacity."""

    forbidden_actuators: Annotated[tuple[Text, ...], UniqueItems()] = ()
    """The actuators that must not be used."""

    freeze: Text = ""
    """The reason why no action may be taken at present, such as the peak season; actions are allowed if this is empty."""

    explore: Bool = False
    """Allow small actions whose effect is not certain to be good, so that it can be learned."""

    def applies_to(self, namespace: str) -> bool:
        return not self.namespaces or namespace in self.namespaces

    def within(self, limits: OrganisationLimits) -> Self:
        """Return this guardrail with maxima that are not above those of the organisation."""
        return self.model_copy(
            update={
                "max_cpu": _lower(self.max_cpu, limits.max_cpu),
                "max_memory": _lower(self.max_memory, limits.max_memory),
            }
        )


def _lower(one: Quantity | None, other: Quantity | None) -> Quantity | None:
    return min((each for each in (one, other) if each is not None), default=None)


class PluginCertificateFiles(ApiModel):
    """The files for mutual TLS between the operator and its plugins."""

    certificate: Path
    """The operator's certificate, as PEM."""

    key: Path
    """The private key of the certificate, as PEM."""

    authority: Path
    """The CA certificate that plugins' certificates must be signed by, as PEM."""


class ConfiguredPlugin(ApiModel):
    """A plugin at a fixed endpoint, which does not register itself."""

    type: Literal["actuator", "planner"]
    """The type of the plugin: actuator or planner."""

    name: PluginName
    """The name of the plugin."""

    endpoint: Text
    """The endpoint that the plugin listens on: HOST:PORT or unix:PATH."""


class RemotePluginSettings(ApiModel):
    """The actuators and planners that run as processes of their own and are called by gRPC."""

    renamed: ClassVar = {"known": "static"}

    address: Address | None = None
    """The address on which plugins register; they cannot register if this is left out. A change requires a restart."""

    certificate_files: PluginCertificateFiles | None = None
    """The files for mutual TLS. The certificate of a plugin that registers must have the plugin's name as DNS name. Without
    the files nothing is encrypted and the address must be a loopback address, which suits plugins in the operator's pod.
    The files may be renewed; other paths require a restart."""

    endpoints: Annotated[tuple[Text, ...], Field(max_length=32)] = ()
    """The endpoints that plugins may register besides the address that they call from, such as `*.plugins.svc:9000`; `*`
    stands for any characters. A change requires a restart."""

    static: Annotated[tuple[ConfiguredPlugin, ...], Field(max_length=32), UniqueItems(("type", "name"))] = ()
    """The plugins at fixed endpoints, which do not register themselves. A change requires a restart."""

    timeout: Annotated[Duration, DurationRange("10ms", "1m")] = Duration.parse("1s")
    """The time that a plugin may take for an answer while a plan is made."""

    @model_validator(mode="after")
    def _check_encryption(self) -> Self:
        if self.address and not self.certificate_files:
            host = self.address.rpartition(":")[0].strip("[]")
            if host not in {"127.0.0.1", "::1", "localhost"}:
                raise validation_problem(
                    "plugins without certificateFiles need a loopback address, such as 127.0.0.1:9444",
                    field="address",
                )
        return self


class IntentSettings(ApiModel):
    """The settings of the Intent controller."""

    renamed: ClassVar = {
        "stale": "maxSampleAge",
        "utilities": "objectiveWeights",
        "states": "maxStates",
        "planning": "planningTimeout",
        "learnEvery": "learningInterval",
        "lookBack": "learningPeriod",
    }

    enabled: Bool = True
    """Run the Intent controller. If false, Intents and KPIProfiles are ignored."""

    interval: Annotated[Duration, DurationRange("1s", "10m")] = Duration.parse("15s")
    """The interval at which objectives are measured, and plans are made for those that are missed."""

    cool_down: Annotated[Duration, DurationRange("1s", "1h")] = Duration.parse("1m")
    """The time after an action in which no other action is taken, so that its effect can be measured first."""

    release_after: Annotated[Duration, DurationRange("0s", "24h")] = Duration.parse("5m")
    """The time for which all objectives must have been met before resources are released."""

    max_sample_age: Annotated[Duration, DurationRange("5s", "1h")] = Duration.parse("1m")
    """The maximum age of the newest sample of a KPI; an older KPI is unknown. A change requires a restart."""

    timeout: Annotated[Duration, DurationRange("100ms", "5m")] = Duration.parse("10s")
    """The time that Prometheus may take for an answer. A change requires a restart."""

    queries: dict[KPIType, Annotated[str, Field(max_length=8192)]] = Field(default_factory=dict)
    """The PromQL for KPIProfiles without a query, by their type; by default Linkerd's metrics for latency and throughput.
    $namespace, $kind and $name stand for the target, $pods for a pattern of its pods' names."""

    objective_weights: dict[KPIType, Annotated[Number, Field(gt=0)]] = Field(default_factory=dict)
    """The weight of objectives by type, used if not all can be met; 1 if left out."""

    max_per_namespace: Annotated[Int, Field(ge=1)] = 200
    """The maximum number of Intents, and of KPIProfiles, of a namespace that are used: the oldest ones. Others get a status
    with this reason."""

    planner: Text = "astar"
    """The planner, or the name of a planner plugin."""

    planners: dict[NamespaceName, Text] = Field(default_factory=dict)
    """The planner by namespace, where it differs."""

    max_states: Annotated[Int, Field(ge=1, le=1_000_000)] = SearchBudget().max_states
    """The maximum number of states that the planner examines for a plan."""

    planning_timeout: Annotated[Duration, DurationRange("1ms", "1m")] = Duration.parse("1s")
    """The time that planning may take; the best plan found by then is used."""

    actuators: dict[Text, dict[str, Any]] = Field(default_factory=_default_actuators)
    """The actuators that may be used, each with its settings. Plugins that register are added automatically."""

    learning_interval: Annotated[Duration, DurationRange("10s", "24h")] = Duration.parse("5m")
    """The interval at which the effects of actions are fitted again."""

    learning_period: Annotated[Duration, DurationRange("1m", "8760h")] = Duration.parse("720h")
    """The age up to which recorded events are used for fitting effects."""

    guardrails: Annotated[tuple[IntentGuardrail, ...], Field(max_length=64)] = (IntentGuardrail(),)
    """The limits for Intents."""

    plugins: RemotePluginSettings = RemotePluginSettings()
    """The actuators and planners that run as processes of their own."""

    _limits: OrganisationLimits | None = PrivateAttr(default=None)

    def apply_limits(self, limits: OrganisationLimits) -> None:
        """Bound all guardrails: a tenant may write Intents, which would bypass the limits of policies."""
        self._limits = limits

    @model_validator(mode="after")
    def _check_references(self) -> Self:
        for type_, query in self.queries.items():
            if wrong := find_query_problem(query):
                raise validation_problem(wrong, field=f"queries.{type_}")
        for name, settings in self.actuators.items():
            try:
                ACTUATORS.parse_settings(name, settings)
            except TrimtabError as error:
                raise validation_problem(str(error), field=f"actuators.{name}") from None
        plugins = {each.name for each in self.plugins.static if each.type == "planner"}
        for field, name in (
            ("planner", self.planner),
            *((f"planners.{n}", p) for n, p in self.planners.items()),
        ):
            if name not in PLANNERS.names() and name not in plugins and not self.plugins.address:
                raise validation_problem(
                    f'there is no planner "{name}"; use one of: {", ".join(PLANNERS.names())}', field=field
                )
        return self

    @property
    def default_queries(self) -> dict[KPIType, str]:
        """The query for each type that has one."""
        return {**LINKERD_QUERIES, **self.queries}

    def planner_for(self, namespace: str) -> str:
        return self.planners.get(namespace, self.planner)

    def guardrails_for(self, namespace: str) -> list[IntentGuardrail]:
        """Return the guardrails of a namespace, within the limits of the organisation."""
        found = [each for each in self.guardrails if each.applies_to(namespace)]
        limits = self._limits
        if limits is None:
            return found
        return [each.within(limits) for each in found or (IntentGuardrail(),)]

    def size_limits(self, namespace: str) -> SizeLimits:
        """Return the most that an Intent of this namespace may let a container have."""
        guardrails = self.guardrails_for(namespace)
        return SizeLimits(
            cpu=min((each.max_cpu.millicores for each in guardrails if each.max_cpu), default=None),
            memory=min((each.max_memory.bytes for each in guardrails if each.max_memory), default=None),
        )
