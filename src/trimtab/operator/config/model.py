"""What the operator can be told, as one model: its fields, their defaults, and what is refused.

The defaults are the careful ones. A secret never stands here: a field names the file that holds it. Left out: where
the values come from (`layers`), and what happens when they change under way (`live`).
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from trimtab.actuation.rate_limiter import DisruptionLimit, DisruptionLimits
from trimtab.api.duration import Duration
from trimtab.api.errors import validation_problem
from trimtab.api.fields import Bool, DurationRange, Int, Name, NamespaceName, Number, PluginName, UniqueItems
from trimtab.api.model import ApiModel
from trimtab.api.optimizationpolicy import MaintenanceWindow, OptimizationPolicySpec
from trimtab.errors import TrimtabError
from trimtab.kube.runtime.lease_rules import LeaseTiming
from trimtab.operator.config.intents import IntentSettings
from trimtab.operator.config.org_limits import OrganisationLimits
from trimtab.operator.config.types import Address, PromQL, StoreURL, WebhookURL, find_secrets
from trimtab.usage.source import SOURCES


@dataclass(frozen=True)
class _RequiresRestart:
    """Marks a field that is read once, at the start."""


REQUIRES_RESTART: Final = _RequiresRestart()


class MetricsSource(ApiModel):
    """Where usage comes from."""

    provider: PluginName = "prometheus"
    """The source for policies that name none: prometheus, metrics-server, or the name of a plugin."""

    settings: dict[str, Any] = Field(default_factory=dict)
    """Settings of the provider, in its own spelling; what there is depends on it. A secret is given as the file that
    holds it: token_file, password_file."""

    @model_validator(mode="after")
    def _check_provider_settings(self) -> Self:
        for name in find_secrets(self.settings):
            raise validation_problem(
                "a secret must not stand here; name a file that holds it, such as token_file",
                field=f"settings.{name}",
            )
        try:
            SOURCES.parse_settings(self.provider, self.settings)
        except TrimtabError as error:
            raise validation_problem(str(error)) from None
        return self


class AdditionalMetricsSource(MetricsSource):
    """Where usage comes from for policies that ask for it."""

    name: PluginName | None = None
    """What metricsConfig.provider of a policy calls it; its provider's name when left out."""

    provider: PluginName
    """The source: prometheus, metrics-server, or the name of a plugin."""

    @property
    def source_name(self) -> str:
        return self.name or self.provider


class StoreSettings(ApiModel):
    """Where what was learned is kept."""

    url: StoreURL = "trimtab.db"
    """The path of a file, sqlite:///FILE, or postgresql://USER@HOST/DATABASE?passfile=FILE. Replicas that shall
    share what they learn need PostgreSQL."""


class LearningSettings(ApiModel):
    """How usage is read and learned from."""

    step: Annotated[Duration, DurationRange("1s", "15m")] = Duration.parse("1m")
    """The time between two samples of the present; no shorter than usage is measured (metrics-server: 1m), or samples seem
    to be missing and nothing is made smaller."""

    history: Annotated[Duration, DurationRange("0s", "2160h")] = Duration.parse("192h")
    """How much of the past is read for containers that are new to us, where the source knows it; and for how long after an
    OOM kill, a day at least, a container gets no less memory."""

    history_step: Annotated[Duration, DurationRange("1s", "1h")] = Duration.parse("5m")
    """The time between two samples of the past."""

    lateness: Annotated[Duration, DurationRange("0s", "6h")] = Duration.parse("30m")
    """How late samples may reach the source, as by remote write, and still be learned from: that long is waited for them."""


class DisruptionLimitSettings(ApiModel):
    """How many pods are changed, at once and in a minute."""

    at_once: Annotated[Int, Field(ge=1)]
    """Pods under change at the same time."""

    per_minute: Annotated[Int, Field(ge=1)]
    """Changes begun in a minute."""

    @property
    def limit(self) -> DisruptionLimit:
        return DisruptionLimit(max_concurrent=self.at_once, max_per_minute=self.per_minute)


class ClusterDisruptionLimit(DisruptionLimitSettings):
    """How fast changes are made in the whole cluster."""

    at_once: Annotated[Int, Field(ge=1)] = 50
    """Pods under change at the same time."""

    per_minute: Annotated[Int, Field(ge=1)] = 120
    """Changes begun in a minute."""


class NamespaceDisruptionLimit(DisruptionLimitSettings):
    """How fast changes are made in each namespace."""

    at_once: Annotated[Int, Field(ge=1)] = 20
    """Pods under change at the same time."""

    per_minute: Annotated[Int, Field(ge=1)] = 60
    """Changes begun in a minute."""


class NodeDisruptionLimit(DisruptionLimitSettings):
    """How fast changes are made on each node."""

    at_once: Annotated[Int, Field(ge=1)] = 3
    """Pods under change at the same time."""

    per_minute: Annotated[Int, Field(ge=1)] = 10
    """Changes begun in a minute."""


class DisruptionSettings(ApiModel):
    """How fast changes are made; taking back what hurts does not wait."""

    cluster: ClusterDisruptionLimit = ClusterDisruptionLimit()
    """In the whole cluster."""

    namespace: NamespaceDisruptionLimit = NamespaceDisruptionLimit()
    """In each namespace."""

    node: NodeDisruptionLimit = NodeDisruptionLimit()
    """On each node."""

    @property
    def limits(self) -> DisruptionLimits:
        return DisruptionLimits(
            cluster=self.cluster.limit, namespace=self.namespace.limit, node=self.node.limit
        )


class Guardrail(ApiModel):
    """A number that must stay low while and after a workload is changed; where it is unknown, no change begins."""

    name: Name
    """What it is called in a status and an Event, such as error-rate."""

    query: PromQL
    """PromQL that gives one number, of which more is worse. $namespace, $kind and $workload stand for the workload."""

    max: Number = 0.0
    """The guardrail holds while the number is at most this. 0 suits a comparison, such as errors > bool 5."""

    def is_satisfied(self, number: float | None) -> bool | None:
        """Whether it holds; None where that is unknown, because there is no number, or none that means one."""
        return None if number is None or math.isnan(number) else number <= self.max


class LeaderElectionSettings(ApiModel):
    """Which of several replicas works."""

    enabled: Bool = True
    """Whether there is an election. Without one, run a single replica."""

    name: Name = "trimtab-operator"
    """The name of the Lease."""

    duration: Annotated[Duration, DurationRange("1s", "1h")] = Duration.parse("15s")
    """How long nobody works after a leader died."""

    renew_deadline: Annotated[Duration, DurationRange("1s", "1h")] = Duration.parse("10s")
    """How long a leader goes on without a renewal; must be shorter than duration."""

    retry: Annotated[Duration, DurationRange("100ms", "1h")] = Duration.parse("2s")
    """How often a leader renews and a candidate looks."""

    @property
    def timing(self) -> LeaseTiming:
        return LeaseTiming(self.duration.seconds, self.renew_deadline.seconds, self.retry.seconds)

    @model_validator(mode="after")
    def _check_timing(self) -> Self:
        try:
            _ = self.timing
        except ValueError as error:
            raise validation_problem(str(error)) from None
        return self


class FailurePolicy(StrEnum):
    """What the API server does with a policy when no webhook answers."""

    FAIL = "Fail"
    IGNORE = "Ignore"


class CertificateFiles(ApiModel):
    """A certificate that somebody else makes and renews, such as cert-manager; read again when it changes."""

    certificate: Path
    """The certificate and what leads to its authority, PEM."""

    key: Path
    """Its key, PEM."""

    authority: Path
    """The authority that the API server is to trust, PEM."""


class WebhookSettings(ApiModel):
    """The admission webhook for OptimizationPolicies, and for pods."""

    enabled: Bool = True
    """Whether policies are checked when they are written, beyond what their CRD checks."""

    address: Address = ":9443"
    """Where it listens, over TLS; without a host, at every address, of IPv4 and IPv6."""

    failure_policy: FailurePolicy = FailurePolicy.FAIL
    """When no webhook answers: Fail refuses every policy that is written meanwhile, Ignore lets it in unchecked."""

    pods: Bool = False
    """Whether pods of workloads that were resized are made with the size in effect, and not resized right after. None is
    refused for it; a question that no webhook answers is over in 2 seconds."""

    certificate_files: CertificateFiles | None = None
    """A certificate by files. When left out, the operator makes its own, keeps it in a Secret that its replicas
    share, and renews it."""

    secret: Name = "trimtab-webhook"  # noqa: S105 - a name
    """The Secret that holds the certificate that the operator made."""

    certificate_lasts: Annotated[Duration, DurationRange("1h", "8760h")] = Duration.parse("2160h")
    """How long a certificate that the operator made is valid; it is renewed when a third of that is left."""

    service: Name = "trimtab-webhook"
    """The Service by which the API server finds the webhook, in the operator's namespace."""

    url: WebhookURL | None = None
    """The address by which the API server finds it when it runs outside the cluster, such as https://10.0.0.5:9443;
    the Service when left out. Outside a pod nothing is registered without it."""


class LogFormat(StrEnum):
    """Who reads the log."""

    JSON = "json"
    CONSOLE = "console"


class LogSettings(ApiModel):
    """What is logged, on standard error."""

    format: LogFormat = LogFormat.JSON
    """json for programs, console for people."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least that is logged."""


class OperatorConfig(ApiModel):
    """All that the operator can be told."""

    dry_run: Bool = False
    """Change nothing in the cluster, whatever policies say: recommend only."""

    metrics_source: Annotated[MetricsSource, REQUIRES_RESTART] = Field(default_factory=MetricsSource)
    """Where usage comes from."""

    other_metrics_sources: Annotated[
        tuple[AdditionalMetricsSource, ...], Field(max_length=16), REQUIRES_RESTART
    ] = ()
    """Where usage comes from for policies that name another source."""

    store: Annotated[StoreSettings, REQUIRES_RESTART] = StoreSettings()
    """Where what was learned is kept."""

    learning: Annotated[LearningSettings, REQUIRES_RESTART] = LearningSettings()
    """How usage is read and learned from."""

    pace: DisruptionSettings = DisruptionSettings()
    """How fast changes are made."""

    maintenance_windows: Annotated[tuple[MaintenanceWindow, ...], Field(max_length=16)] = ()
    """When changes may be made, for all policies; a policy's own windows narrow it further. At any time when left
    out."""

    guardrails: Annotated[tuple[Guardrail, ...], Field(max_length=16), UniqueItems(("name",))] = ()
    """What is watched after every change, besides restarts, OOM kills, throttling and readiness."""

    default_policy: OptimizationPolicySpec | None = None
    """The spec of a policy for workloads that no policy selects, which gives way to every policy; they are left alone
    when left out. Its strategy also answers VerticalPodAutoscalers whose workload no policy selects."""

    limits: OrganisationLimits = OrganisationLimits()
    """What no policy may go beyond."""

    intents: IntentSettings = Field(default_factory=IntentSettings)
    """How intents are looked after."""

    namespace: Annotated[NamespaceName, REQUIRES_RESTART] = "trimtab-system"
    """The operator's own namespace: of its Lease, its Secret, its Service."""

    leader_election: Annotated[LeaderElectionSettings, REQUIRES_RESTART] = LeaderElectionSettings()
    """Which of several replicas works."""

    webhook: Annotated[WebhookSettings, REQUIRES_RESTART] = WebhookSettings()
    """The admission webhook."""

    address: Annotated[Address, REQUIRES_RESTART] = ":8080"
    """Where /metrics, /healthz and /readyz are served; without a host, at every address, of IPv4 and IPv6."""

    logs: LogSettings = LogSettings()
    """What is logged."""

    @property
    def sources(self) -> dict[str, MetricsSource]:
        """All sources, by the name that a policy has for each; the one for policies that name none has none."""
        return {"": self.metrics_source} | {each.source_name: each for each in self.other_metrics_sources}

    @property
    def source_names(self) -> tuple[str, ...]:
        """What policies may name as their provider; the first is also that of policies that name none."""
        return (self.metrics_source.provider, *(each.source_name for each in self.other_metrics_sources))

    def resolve_source(self, spec: OptimizationPolicySpec) -> str | None:
        """The name of the source of a policy, empty for the one of all that name none; None when there is none such."""
        provider = spec.metrics_config.provider
        if provider in {None, self.metrics_source.provider}:
            return ""
        return provider if provider in self.source_names else None

    @model_validator(mode="after")
    def _check_source_names(self) -> Self:
        for place, name in enumerate(self.source_names[1:]):
            if name in self.source_names[: place + 1]:
                raise validation_problem(
                    f'"{name}" is the name of another source; give this one another',
                    field=f"otherMetricsSources[{place}].name",
                )
        return self


def restart_fields() -> tuple[str, ...]:
    """The fields of which a change takes effect at the next start only."""
    return tuple(
        name for name, field in OperatorConfig.model_fields.items() if REQUIRES_RESTART in field.metadata
    )
