"""The operator's settings: fields, defaults and validation.

The defaults are the careful ones. Secrets never appear here: a field names the file that holds one. `loader` reads the
values, `reloader` follows changes.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import Field, PrivateAttr, model_validator

from trimtab.actuation.decide.maintenance_windows import describe_unknown_time_zone
from trimtab.actuation.rate_limiter import DisruptionLimit, DisruptionLimits
from trimtab.actuation.resources import NO_LIMITS
from trimtab.api.duration import Duration
from trimtab.api.errors import validation_problem
from trimtab.api.fields import Bool, DurationRange, Int, Name, NamespaceName, Number, PluginName, UniqueItems
from trimtab.api.meta import LabelKey, LabelValue
from trimtab.api.model import ApiModel
from trimtab.api.optimizationpolicy import MaintenanceWindow, OptimizationPolicySpec
from trimtab.errors import TrimtabError
from trimtab.kube.runtime.lease_rules import LeaseTiming
from trimtab.operator.config.intents import IntentSettings
from trimtab.operator.config.org_limits import OrganisationLimits
from trimtab.operator.config.types import (
    Address,
    KpiEndpoint,
    OpenCostURL,
    PromQL,
    StoreURL,
    WebhookURL,
    find_secrets,
)
from trimtab.prices import CPU_HOUR, GIB_HOUR, MAX_PRICE
from trimtab.usage.discovery import MONITORING_NAMESPACES
from trimtab.usage.mounted_secret import CREDENTIAL_FIELDS, replace_credentials
from trimtab.usage.prometheus.namespace_scope import QueryRules
from trimtab.usage.prometheus.promql import LABEL_NAME
from trimtab.usage.source import SOURCES, Source


@dataclass(frozen=True)
class _RequiresRestart:
    """A marker for fields that are read only at the start."""


REQUIRES_RESTART: Final = _RequiresRestart()


_NAMESPACES: Final = "discovery_namespaces"
SECRET_SEPARATOR: Final = ":"  # noqa: S105 - a sign
"""The sign between the names of a source and of a policy's Secret, which neither contains."""


class MetricsSource(ApiModel):
    """The source of usage."""

    provider: PluginName = "prometheus"
    """The source for policies that name none: prometheus, metrics-server, or the name of a plugin."""

    settings: dict[str, Any] = Field(default_factory=dict)
    """The provider's settings, in its own spelling. Give a secret as the file that holds it: token_file, password_file."""

    secret: Name | None = None
    """The name of a Secret with the credentials, mounted in `secretsFolder`; the chart mounts it. Its keys are token, or
    username and password, and ca.crt, tls.crt and tls.key. A rotation takes effect without a restart."""

    @model_validator(mode="after")
    def _check_provider_settings(self) -> Self:
        for name in find_secrets(self.settings):
            raise validation_problem(
                "a secret is not allowed here; name a file that holds it, such as token_file",
                field=f"settings.{name}",
            )
        try:
            parsed = SOURCES.parse_settings(self.provider, self.settings)
        except TrimtabError as error:
            raise validation_problem(str(error)) from None
        if self.secret and not self.takes_credentials:
            raise validation_problem(f"{self.provider} takes no credentials; remove it", field="secret")
        given = sorted(CREDENTIAL_FIELDS & parsed.model_fields_set)
        if self.secret and given:
            raise validation_problem(f"settings.{given[0]} is given too; remove one", field="secret")
        return self

    @property
    def takes_credentials(self) -> bool:
        """True if the provider can authenticate itself by a Secret."""
        return "username_file" in SOURCES.load_type(self.provider).settings_type.model_fields

    def with_secret(self, folder: Path) -> Self:
        """Return this source with the credentials of a mounted Secret instead of its own."""
        return self.model_copy(
            update={"secret": None, "settings": replace_credentials(self.settings, folder)}
        )

    @property
    def settings_problem(self) -> str:
        """The reason why the settings are invalid, as they may be with the credentials of a Secret; empty if they are not."""
        try:
            SOURCES.parse_settings(self.provider, self.settings)
        except Exception as error:  # noqa: BLE001 - a plugin may raise anything
            return str(error) if isinstance(error, TrimtabError) else repr(error)
        return ""

    @property
    def shortest_step(self) -> float:
        """The seconds below which a step of this source would often have no sample."""
        kind = SOURCES.load_type(self.provider)
        return kind.shortest_step(SOURCES.parse_settings(self.provider, self.settings))

    def trust_namespaces(self, operator_namespace: str) -> Self:
        """Return this source so that a server is discovered in the operator's and in monitoring namespaces only.

        Else the Service of a tenant that carries the labels of a Prometheus would size everyone's workloads.
        """
        if self.provider != "prometheus" or "url" in self.settings or _NAMESPACES in self.settings:
            return self
        trusted = (operator_namespace, *MONITORING_NAMESPACES)
        return self.model_copy(update={"settings": {**self.settings, _NAMESPACES: trusted}})


class AdditionalMetricsSource(MetricsSource):
    """A further source of usage, for policies that name it."""

    name: PluginName | None = None
    """The name for metricsConfig.provider of policies; the provider's name if left out."""

    provider: PluginName
    """The source: prometheus, metrics-server, or the name of a plugin."""

    @property
    def source_name(self) -> str:
        """The name that policies use for this source."""
        return self.name or self.provider


class StoreSettings(ApiModel):
    """The store for learned state and history."""

    url: StoreURL = "trimtab.db"
    """The path of a file, sqlite:///FILE, or postgresql://USER@HOST/DATABASE?passfile=FILE. Replicas that share learned
    state need PostgreSQL."""


class LearningSettings(ApiModel):
    """The settings for reading usage and learning from it."""

    step: Annotated[Duration, DurationRange("1s", "15m")] = Duration.parse("1m")
    """The time between two current samples. Not shorter than `step` and `interval` in the settings of a polled source
    (metrics-server: 1m); for Prometheus, not shorter than the scrape interval."""

    history: Annotated[Duration, DurationRange("0s", "2160h")] = Duration.parse("192h")
    """The history to read for new containers, if the source stores it. It is also the time after an OOM kill, one day at
    least, during which a container does not get less memory."""

    history_step: Annotated[Duration, DurationRange("1s", "1h")] = Duration.parse("5m")
    """The time between two samples of history."""

    lateness: Annotated[Duration, DurationRange("0s", "6h")] = Duration.parse("30m")
    """The time by which samples may reach the source late, for example by remote write; Trimtab waits this long for them."""


class DisruptionLimitSettings(ApiModel):
    """The number of pods that may be changed concurrently and per minute."""

    renamed: ClassVar = {"atOnce": "maxConcurrent", "perMinute": "maxPerMinute"}

    max_concurrent: Annotated[Int, Field(ge=1)]
    """The maximum number of pods under change at the same time."""

    max_per_minute: Annotated[Int, Field(ge=1)]
    """The maximum number of changes started per minute."""

    @property
    def limit(self) -> DisruptionLimit:
        return DisruptionLimit(max_concurrent=self.max_concurrent, max_per_minute=self.max_per_minute)


class ClusterDisruptionLimit(DisruptionLimitSettings):
    """The limits for changes in the whole cluster."""

    max_concurrent: Annotated[Int, Field(ge=1)] = 50
    """The maximum number of pods under change at the same time."""

    max_per_minute: Annotated[Int, Field(ge=1)] = 120
    """The maximum number of changes started per minute."""


class NamespaceDisruptionLimit(DisruptionLimitSettings):
    """The limits for changes in each namespace."""

    max_concurrent: Annotated[Int, Field(ge=1)] = 20
    """The maximum number of pods under change at the same time."""

    max_per_minute: Annotated[Int, Field(ge=1)] = 60
    """The maximum number of changes started per minute."""


class NodeDisruptionLimit(DisruptionLimitSettings):
    """The limits for changes on each node."""

    max_concurrent: Annotated[Int, Field(ge=1)] = 3
    """The maximum number of pods under change at the same time."""

    max_per_minute: Annotated[Int, Field(ge=1)] = 10
    """The maximum number of changes started per minute."""


class DisruptionSettings(ApiModel):
    """The disruption limits for changes; reverting a harmful change does not wait."""

    cluster: ClusterDisruptionLimit = ClusterDisruptionLimit()
    """The limits for the whole cluster."""

    namespace: NamespaceDisruptionLimit = NamespaceDisruptionLimit()
    """The limits for each namespace."""

    node: NodeDisruptionLimit = NodeDisruptionLimit()
    """The limits for each node."""

    @property
    def limits(self) -> DisruptionLimits:
        return DisruptionLimits(
            cluster=self.cluster.limit, namespace=self.namespace.limit, node=self.node.limit
        )


class Guardrail(ApiModel):
    """A number that must stay low during and after a change. While it is unknown, no change starts."""

    name: Name
    """The name in statuses and Events, such as error-rate."""

    query: PromQL
    """PromQL that returns one number; higher is worse. "$namespace", "$kind" and "$workload", in quotes, stand for the workload."""

    max: Number = 0.0
    """The largest acceptable number. 0 suits a comparison, such as errors > bool 5."""

    def is_satisfied(self, number: float | None) -> bool | None:
        """Return True if the number is acceptable; None if it is missing or not a number."""
        return None if number is None or math.isnan(number) else number <= self.max


class TenantQuerySettings(ApiModel):
    """The PromQL that users write in KPIProfiles, and in policies outside the operator's namespace."""

    namespace_label: Annotated[str, Field(pattern=f"^{LABEL_NAME.pattern}$")] = "namespace"
    """The label by which series name their namespace. Queries read only series that have it with the namespace of the
    Intent or workload."""

    unrestricted_namespaces: Annotated[tuple[NamespaceName, ...], UniqueItems()] = ()
    """The namespaces, besides the operator's own, whose queries may read all series."""

    endpoints: Annotated[tuple[KpiEndpoint, ...], Field(max_length=64), UniqueItems()] = ()
    """The servers that props.endpoint of a KPIProfile may name, such as http://prometheus.monitoring:9090. They are
    queried without credentials."""


class LeaderElectionSettings(ApiModel):
    """The election of the replica that works."""

    renamed: ClassVar = {"duration": "leaseDuration", "retry": "retryPeriod"}

    enabled: Bool = True
    """Elect a leader among replicas. Without an election, run a single replica."""

    name: Name = "trimtab-operator"
    """The name of the Lease."""

    lease_duration: Annotated[Duration, DurationRange("1s", "1h")] = Duration.parse("15s")
    """The time without a leader after one died."""

    renew_deadline: Annotated[Duration, DurationRange("1s", "1h")] = Duration.parse("10s")
    """The time for which a leader works without a successful renewal; it must be shorter than leaseDuration."""

    retry_period: Annotated[Duration, DurationRange("100ms", "1h")] = Duration.parse("2s")
    """The time between two renewals of a leader, and between two attempts of a candidate."""

    @property
    def timing(self) -> LeaseTiming:
        return LeaseTiming(
            self.lease_duration.seconds, self.renew_deadline.seconds, self.retry_period.seconds
        )

    @model_validator(mode="after")
    def _check_timing(self) -> Self:
        try:
            _ = self.timing
        except ValueError as error:
            raise validation_problem(str(error)) from None
        return self


class FailurePolicy(StrEnum):
    """The API server's decision about a policy when no webhook answers."""

    FAIL = "Fail"
    IGNORE = "Ignore"


class CertificateFiles(ApiModel):
    """A certificate that another tool issues and renews, such as cert-manager; it is read again when it changes."""

    certificate: Path
    """The certificate and its chain, as PEM."""

    key: Path
    """The private key, as PEM."""

    authority: Path
    """The CA certificate that the API server trusts, as PEM."""


class WebhookSettings(ApiModel):
    """The admission webhook for OptimizationPolicies, and for pods."""

    renamed: ClassVar = {"certificateLasts": "certificateValidity"}

    enabled: Bool = True
    """Validate policies when they are written, beyond what their CRD validates."""

    address: Address = ":9443"
    """The address to listen on, with TLS; without a host, all IPv4 and IPv6 addresses."""

    failure_policy: FailurePolicy = FailurePolicy.FAIL
    """The decision when no webhook answers: Fail denies every policy write, Ignore admits it without validation."""

    pods: Bool = False
    """Create pods of resized workloads with the size in effect, instead of resizing them right afterwards. No pod is
    denied for it; if no webhook answers within 2 seconds, the pod is created unchanged."""

    certificate_files: CertificateFiles | None = None
    """The certificate by files. If left out, the operator generates its own, keeps it in a Secret that its replicas
    share, and renews it."""

    secret: Name = "trimtab-webhook"  # noqa: S105 - a name
    """The Secret for the generated certificate."""

    certificate_validity: Annotated[Duration, DurationRange("1h", "8760h")] = Duration.parse("2160h")
    """The validity of a generated certificate; it is renewed when a third of that is left."""

    service: Name = "trimtab-webhook"
    """The Service through which the API server reaches the webhook, in the operator's namespace."""

    url: WebhookURL | None = None
    """The URL by which the API server reaches the webhook if it runs outside the cluster, such as
    https://10.0.0.5:9443; the Service if left out. Outside a pod, nothing is registered without it."""


class NodePrice(ApiModel):
    """The price of the nodes with some labels."""

    labels: Annotated[dict[LabelKey, LabelValue], Field(min_length=1, max_length=8)]
    """The labels that a node must have, such as node.kubernetes.io/instance-type, topology.kubernetes.io/region and
    karpenter.sh/capacity-type."""

    hour: Annotated[Number, Field(ge=0, le=MAX_PRICE)]
    """The price that you pay for such a node for one hour; `discount` does not apply to it."""


class PriceSettings(ApiModel):
    """The prices by which the dashboard and the metrics show costs."""

    cpu: Annotated[Number, Field(ge=0, le=MAX_PRICE)] = CPU_HOUR
    """The price of one core for one hour; the default is OpenCost's."""

    memory: Annotated[Number, Field(ge=0, le=MAX_PRICE)] = GIB_HOUR
    """The price of one GiB of memory for one hour; the default is OpenCost's."""

    currency: Annotated[str, Field(pattern=r"^[\p{L}\p{N}\p{Sc} .']{1,8}$")] = "$"
    """The currency sign or word in front of amounts."""

    discount: Annotated[Number, Field(ge=0, le=1)] = 0.0
    """The share of the prices of CPU and memory that you do not pay, such as 0.3 for committed use."""

    nodes: Annotated[tuple[NodePrice, ...], Field(max_length=1000)] = ()
    """Prices of nodes by their labels; the first entry that matches counts. The price of any other node is that of its
    CPU and memory."""

    workloads: Annotated[Int, Field(ge=0, le=10_000)] = 0
    """The number of workloads that have metrics of cost and savings of their own, those with the highest cost; each has
    five series."""

    open_cost: OpenCostURL | None = None
    """The address of OpenCost's API, such as http://opencost.opencost:9003, whose costs of nodes replace those above.
    The URL has no credentials."""

    open_cost_cluster: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """This cluster's name in OpenCost, its CLUSTER_ID. If left out, nodes whose name several clusters have keep the costs
    above, and the log names them."""

    @property
    def paid_share(self) -> float:
        """The share of the prices of CPU and memory that is paid."""
        return 1 - self.discount


class LogFormat(StrEnum):
    """The format of the log."""

    JSON = "json"
    CONSOLE = "console"


class LogSettings(ApiModel):
    """The log on standard error."""

    format: LogFormat = LogFormat.JSON
    """The format: json for programs, console for people."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level that is logged."""


class OperatorConfig(ApiModel):
    """All settings of the operator."""

    renamed: ClassVar = {"pace": "disruptionLimits", "otherMetricsSources": "additionalMetricsSources"}

    _stop_reason: str = PrivateAttr(default="")

    dry_run: Bool = False
    """Change nothing in the cluster, whatever policies say: only recommend."""

    metrics_source: Annotated[MetricsSource, REQUIRES_RESTART] = Field(default_factory=MetricsSource)
    """The default source of usage."""

    additional_metrics_sources: Annotated[
        tuple[AdditionalMetricsSource, ...], Field(max_length=16), REQUIRES_RESTART
    ] = ()
    """Further sources of usage, for policies that name them."""

    store: Annotated[StoreSettings, REQUIRES_RESTART] = StoreSettings()
    """The store for learned state and history."""

    learning: Annotated[LearningSettings, REQUIRES_RESTART] = LearningSettings()
    """The settings for reading usage and learning from it."""

    disruption_limits: DisruptionSettings = DisruptionSettings()
    """The disruption limits for changes."""

    maintenance_windows: Annotated[tuple[MaintenanceWindow, ...], Field(max_length=16)] = ()
    """The times at which changes are allowed, for all policies; a policy's own windows restrict them further. Changes
    are allowed at any time if left out."""

    guardrails: Annotated[tuple[Guardrail, ...], Field(max_length=16), UniqueItems(("name",))] = ()
    """The queries to watch after every change, besides restarts, OOM kills, throttling and readiness."""

    tenant_queries: TenantQuerySettings = TenantQuerySettings()
    """The PromQL that users write in KPIProfiles, and in policies outside the operator's namespace."""

    default_policy: OptimizationPolicySpec | None = None
    """The spec of a policy for workloads that no policy selects; every policy takes precedence. Without it they are not
    sized. Its strategy also serves VerticalPodAutoscalers whose workload no policy selects."""

    prices: PriceSettings = PriceSettings()
    """The prices by which the dashboard and the metrics show costs."""

    cost_annotations: Annotated[tuple[LabelKey, ...], Field(max_length=8), REQUIRES_RESTART] = ()
    """Annotations of workloads, such as example.com/cost-centre, by which the dashboard groups costs; it groups by any
    label without them. Values of more than 256 characters do not count."""

    reconciliation_interval: Annotated[Duration, DurationRange("10s", "24h")] = Duration.parse("5m")
    """The interval between two reconciles of a workload, for policies that set none."""

    limits: OrganisationLimits = OrganisationLimits()
    """The limits that no policy may exceed."""

    intents: IntentSettings = Field(default_factory=IntentSettings)
    """The settings of the Intent controller."""

    namespace: Annotated[NamespaceName, REQUIRES_RESTART] = "trimtab-system"
    """The operator's own namespace, which holds its Lease, Secret and Service."""

    secrets_folder: Annotated[Path, REQUIRES_RESTART] = Path("/run/trimtab/secrets")
    """The folder in which Secrets of the operator's namespace are mounted, each as a folder of its name."""

    watch_namespaces: Annotated[
        tuple[NamespaceName, ...], Field(max_length=64), UniqueItems(), REQUIRES_RESTART
    ] = ()
    """The only namespaces to work in, with Roles in each of them instead of ClusterRoles; all namespaces if left out.
    Nodes are then unknown: sizes have no bound by them, Intents do not scale out, and no webhook is registered."""

    leader_election: Annotated[LeaderElectionSettings, REQUIRES_RESTART] = LeaderElectionSettings()
    """The election of the replica that works."""

    webhook: Annotated[WebhookSettings, REQUIRES_RESTART] = WebhookSettings()
    """The admission webhook."""

    address: Annotated[Address, REQUIRES_RESTART] = ":8080"
    """The address of /metrics, /healthz and /readyz; without a host, all IPv4 and IPv6 addresses."""

    logs: LogSettings = LogSettings()
    """The log's format and level."""

    @property
    def freeze_reason(self) -> str:
        """The reason why nothing in the cluster may be changed: an emergency stop, or a dry run; empty if changes may be
        made.
        """
        return self._stop_reason or ("the operator runs with dryRun" if self.dry_run else "")

    @property
    def stop_reason(self) -> str:
        """The description of the emergency stop in effect; empty if there is none."""
        return self._stop_reason

    def with_stop_reason(self, reason: str) -> Self:
        """Return this configuration during an emergency stop, or while it is not known if there is one."""
        copy = self.model_copy()
        copy._stop_reason = reason  # noqa: SLF001 - of the same class
        return copy

    @property
    def query_rules(self) -> QueryRules:
        """The rules for queries that users write."""
        given = self.tenant_queries
        return QueryRules(
            label=given.namespace_label,
            trusted_namespaces=frozenset({self.namespace, *given.unrestricted_namespaces}),
            endpoints=frozenset(given.endpoints),
        )

    @property
    def sources(self) -> dict[str, MetricsSource]:
        """All sources by the name that policies use; the default source has an empty name."""
        named = {each.source_name: each for each in self.additional_metrics_sources}
        return {
            name: (
                each.with_secret(self.secrets_folder / each.secret) if each.secret else each
            ).trust_namespaces(self.namespace)
            for name, each in {"": self.metrics_source, **named}.items()
        }

    def find_source(self, name: str) -> MetricsSource:
        """Return a source by its name, which a policy's Secret may follow; KeyError if there is none."""
        provider, _, secret = name.partition(SECRET_SEPARATOR)
        found = self.sources["" if provider == self.metrics_source.provider and secret else provider]
        return found.with_secret(self.secrets_folder / secret) if secret else found

    @property
    def source_names(self) -> tuple[str, ...]:
        """The names that policies may use as their provider; the first one is the default source."""
        return (self.metrics_source.provider, *(each.source_name for each in self.additional_metrics_sources))

    @property
    def can_evaluate_promql(self) -> bool:
        """True if a configured source evaluates PromQL, as guardrails need; whether it answers is known later."""
        providers = (
            self.metrics_source.provider,
            *(each.provider for each in self.additional_metrics_sources),
        )
        return any(SOURCES.load_type(each).promql is not Source.promql for each in providers)

    def resolve_source(self, spec: OptimizationPolicySpec) -> str | None:
        """Return the name of a policy's source, empty for the default one; None if there is no such source.

        The name of a Secret that the policy gives follows it.
        """
        provider, secret = spec.metrics_config.provider, spec.metrics_config.secret
        if provider is not None and provider not in self.source_names:
            return None
        if secret:
            return f"{provider or self.metrics_source.provider}{SECRET_SEPARATOR}{secret}"
        return "" if provider == self.metrics_source.provider else provider or ""

    @model_validator(mode="after")
    def _bound_intents(self) -> Self:
        if self.limits.size_limits != NO_LIMITS:
            self.intents.apply_limits(self.limits)
        return self

    @model_validator(mode="after")
    def _check_time_zones(self) -> Self:
        spec = self.default_policy
        for field, windows in (
            ("maintenanceWindows", self.maintenance_windows),
            ("defaultPolicy.updateStrategy.windows", spec.update_strategy.windows if spec else ()),
        ):
            for place, window in enumerate(windows):
                if problem := describe_unknown_time_zone(window.time_zone):
                    raise validation_problem(problem, field=f"{field}[{place}].timeZone")
        return self

    @model_validator(mode="after")
    def _check_source_names(self) -> Self:
        for place, name in enumerate(self.source_names[1:]):
            if name in self.source_names[: place + 1]:
                raise validation_problem(
                    f'"{name}" is the name of another source; give this one another',
                    field=f"additionalMetricsSources[{place}].name",
                )
        return self

    @model_validator(mode="after")
    def _check_step(self) -> Self:
        """Reject a step in which a source often has no sample: most of the usage would seem to be missing."""
        for source in (self.metrics_source, *self.additional_metrics_sources):
            if self.learning.step.seconds < source.shortest_step:
                least = f"{source.shortest_step:g}s"
                raise validation_problem(
                    f"{source.provider} does not have a sample in each step of {self.learning.step.seconds:g}s; "
                    f"use at least {least}, or set step and interval in its settings to what it measures",
                    field="learning.step",
                )
        return self


def restart_fields() -> tuple[str, ...]:
    """Return the fields for which a change takes effect only after a restart."""
    return tuple(
        name for name, field in OperatorConfig.model_fields.items() if REQUIRES_RESTART in field.metadata
    )
