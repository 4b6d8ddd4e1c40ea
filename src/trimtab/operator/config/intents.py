"""What an administrator says about intents: which planner and actuators there are, and what none may go beyond."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

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
from trimtab.operator.config.types import Address
from trimtab.usage.prometheus.template import find_query_problem


def _default_actuators() -> dict[str, dict[str, Any]]:
    return {name: {} for name in ("scaleOut", "scaleIn", "rmPod", "resizeCPU", "resizeMemory")}


class IntentGuardrail(ApiModel):
    """What intents of some namespaces may not go beyond. Where several speak of a namespace, the tightest holds."""

    namespaces: Annotated[tuple[NamespaceName, ...], UniqueItems()] = ()
    """Of which namespaces; of all when left out."""

    min_replicas: Annotated[Int, Field(ge=0)] = 1
    """The fewest pods of a workload."""

    max_replicas: Annotated[Int, Field(ge=1)] = 128
    """The most pods of a workload."""

    max_cpu: Quantity | None = None
    """The most CPU of a container."""

    max_memory: Quantity | None = None
    """The most memory of a container."""

    cap_cpu: Quantity | None = None
    """The most CPU that the targets of all intents of a namespace may ask for together."""

    cap_memory: Quantity | None = None
    """The most memory, likewise."""

    cap_pods: Annotated[Int, Field(ge=0)] | None = None
    """The most pods, likewise."""

    max_priority: Annotated[Number, Field(ge=0.01, le=1)] = 1.0
    """The highest priority that counts: an intent that claims more has this."""

    forbidden: Annotated[tuple[Text, ...], UniqueItems()] = ()
    """Actuators that may not be used."""

    freeze: Text = ""
    """Why nothing may be done at present, such as the peak season; empty when something may."""

    explore: Bool = False
    """Whether a small step may be tried whose effect is only likely to be good."""

    def applies_to(self, namespace: str) -> bool:
        return not self.namespaces or namespace in self.namespaces


class PluginCertificateFiles(ApiModel):
    """Our certificate towards plugins, and the authority of theirs; each side shows its own."""

    certificate: Path
    """The certificate, PEM."""

    key: Path
    """Its key, PEM."""

    authority: Path
    """The authority that plugins' certificates are of, PEM."""


class ConfiguredPlugin(ApiModel):
    """A plugin that need not register."""

    type: Literal["actuator", "planner"]
    """What it is."""

    name: PluginName
    """What it is called."""

    endpoint: Text
    """Where it listens: HOST:PORT or unix:PATH."""


class RemotePluginSettings(ApiModel):
    """Actuators and planners in processes of their own, over gRPC."""

    address: Address | None = None
    """Where plugins register; they cannot when left out. A change waits for a restart."""

    certificate_files: PluginCertificateFiles | None = None
    """TLS, in both directions. When left out nothing is encrypted, which suits plugins in the operator's own pod
    only: the address must then be one of the loopback. Files may be renewed; other ones wait for a restart."""

    known: Annotated[tuple[ConfiguredPlugin, ...], Field(max_length=32), UniqueItems(("type", "name"))] = ()
    """Plugins that need not register. A change waits for a restart."""

    timeout: Annotated[Duration, DurationRange("10ms", "1m")] = Duration.parse("1s")
    """How long a plugin may take for an answer while a plan is made."""

    @model_validator(mode="after")
    def _check_encryption(self) -> Self:
        if self.address and not self.certificate_files:
            host = self.address.rpartition(":")[0].strip("[]")
            if host not in {"127.0.0.1", "::1", "localhost"}:
                raise validation_problem(
                    "needs certificateFiles, or an address of the loopback, such as 127.0.0.1:9444",
                    field="address",
                )
        return self


class IntentSettings(ApiModel):
    """How intents are looked after."""

    enabled: Bool = True
    """Whether they are; Intents and KPIProfiles are passed over when false."""

    interval: Annotated[Duration, DurationRange("1s", "10m")] = Duration.parse("15s")
    """How often objectives are measured, and planned for where they are missed."""

    cool_down: Annotated[Duration, DurationRange("1s", "1h")] = Duration.parse("1m")
    """The time after an action in which no other action is taken, so that its effect can be measured first."""

    release_after: Annotated[Duration, DurationRange("0s", "24h")] = Duration.parse("5m")
    """How long all objectives must have been met before resources are given back."""

    stale: Annotated[Duration, DurationRange("5s", "1h")] = Duration.parse("1m")
    """How old the newest sample of a KPI may be; older, it is unknown. A change waits for a restart."""

    timeout: Annotated[Duration, DurationRange("100ms", "5m")] = Duration.parse("10s")
    """How long a Prometheus may take for an answer. A change waits for a restart."""

    queries: dict[KPIType, Annotated[str, Field(max_length=8192)]] = Field(default_factory=dict)
    """PromQL by the type of a KPIProfile that has no query of its own; Linkerd's for latency and throughput when left
    out. In it $namespace, $kind and $name stand for the target, and $pods for a pattern of its pods' names."""

    utilities: dict[KPIType, Annotated[Number, Field(gt=0)]] = Field(default_factory=dict)
    """How much objectives of a type count where not all can be met; 1 when left out."""

    planner: Text = "astar"
    """The planner, or the name of a planner plugin."""

    planners: dict[NamespaceName, Text] = Field(default_factory=dict)
    """The planner of single namespaces."""

    states: Annotated[Int, Field(ge=1, le=1_000_000)] = SearchBudget().max_states
    """The number of states that a plan may examine."""

    planning: Annotated[Duration, DurationRange("1ms", "1m")] = Duration.parse("1s")
    """The time that a plan may take; the best state found until then is the plan."""

    actuators: dict[Text, dict[str, Any]] = Field(default_factory=_default_actuators)
    """The actuators that may be used, each with its settings; plugins that register are among them by themselves."""

    learn_every: Annotated[Duration, DurationRange("10s", "24h")] = Duration.parse("5m")
    """The interval at which effects are learned again."""

    look_back: Annotated[Duration, DurationRange("1m", "8760h")] = Duration.parse("720h")
    """How far back events are learned from."""

    guardrails: Annotated[tuple[IntentGuardrail, ...], Field(max_length=64)] = (IntentGuardrail(),)
    """What intents may not go beyond."""

    plugins: RemotePluginSettings = RemotePluginSettings()
    """Actuators and planners in processes of their own."""

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
        plugins = {each.name for each in self.plugins.known if each.type == "planner"}
        for field, name in (
            ("planner", self.planner),
            *((f"planners.{n}", p) for n, p in self.planners.items()),
        ):
            if name not in PLANNERS.names() and name not in plugins and not self.plugins.address:
                raise validation_problem(
                    f'"{name}" is not known; there are: {", ".join(PLANNERS.names())}', field=field
                )
        return self

    @property
    def default_queries(self) -> dict[KPIType, str]:
        """The query for each type that has one."""
        return {**LINKERD_QUERIES, **self.queries}

    def planner_for(self, namespace: str) -> str:
        return self.planners.get(namespace, self.planner)

    def guardrails_for(self, namespace: str) -> list[IntentGuardrail]:
        return [each for each in self.guardrails if each.applies_to(namespace)]
