"""The settings of a PromQL server: its address, credentials, labels and query limits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StringConstraints,
    ValidationInfo,
    model_validator,
)
from yarl import URL

from trimtab.plugins import Settings
from trimtab.usage.discovery import MONITORING_NAMESPACES
from trimtab.usage.prometheus.promql import LABEL_NAME, METRIC_NAME


def _require_one_line(text: str) -> str:
    if any(sign in text for sign in "\r\n\0"):
        raise ValueError("must be one line, without a break at its end")
    return text


def _require_mapping(given: object, info: ValidationInfo) -> object:
    if isinstance(given, str):
        name = info.field_name
        raise ValueError(  # noqa: TRY004 - pydantic expects a ValueError
            f"write each entry as {name}.NAME=VALUE on the command line, or as {{NAME: VALUE}} in a file"
        )
    return given


HeaderLine = Annotated[str, AfterValidator(_require_one_line)]
Headers = Annotated[dict[HeaderLine, HeaderLine], BeforeValidator(_require_mapping)]
LabelName = Annotated[str, StringConstraints(pattern=f"^{LABEL_NAME.pattern}$")]
MetricName = Annotated[str, StringConstraints(pattern=f"^{METRIC_NAME.pattern}$")]


def _validate_url(text: str) -> str:
    try:
        url = URL(text)
    except ValueError:
        url = URL()
    if url.scheme not in {"http", "https"} or not url.host:
        raise ValueError("must look like http://HOST:PORT")
    if url.user or url.password:
        raise ValueError("must not contain a password; set username and password_file")
    return str(url.with_query(None).with_fragment(None)).rstrip("/")


class PrometheusSettings(Settings):
    """The settings of a Prometheus, Thanos, Mimir or VictoriaMetrics source."""

    url: Annotated[str, AfterValidator(_validate_url)] | None = None
    """The address with the path above /api/v1 (Mimir: /prometheus); by default found by Service labels."""

    reach: Literal["auto", "direct", "proxy"] = "auto"
    """The route to a discovered server: direct, by the API server's proxy, or auto (direct in a pod)."""

    discovery_namespaces: tuple[str, ...] | None = None
    """The namespaces in which a server without url is found by its labels. By default the operator searches its own
    namespace and the usual ones of monitoring, and a command all namespaces; several servers are an error."""

    token_file: Path | None = None
    """A file with a bearer token; it is reread when it changes."""

    username: str | None = None
    """The user of basic authentication."""

    username_file: Path | None = None
    """A file with the user of basic authentication, instead of username; it is reread when it changes."""

    password_file: Path | None = None
    """A file with the user's password; it is reread when it changes."""

    cloud_identity: Literal["aws", "google", "azure"] | None = None
    """Authenticate by the pod's identity in a cloud: aws signs requests for Amazon Managed Prometheus (EKS Pod Identity or
    IRSA), google and azure send a token of workload identity."""

    aws_region: Annotated[str, StringConstraints(pattern="^[a-z0-9-]+$")] | None = None
    """The region of the workspace; the default is $AWS_REGION."""

    ca_file: Path | None = None
    """The CA certificate of the server, PEM; by default the system's CAs."""

    cert_file: Path | None = None
    """The client certificate, PEM; it is reread when it changes."""

    key_file: Path | None = None
    """The key of the client certificate, PEM."""

    insecure: bool = False
    """Accept any server certificate. For tests only."""

    headers: Headers = Field(default_factory=dict)
    """Headers to send with every query."""

    tenant: HeaderLine | None = None
    """The tenant of Mimir or Cortex, sent as X-Scope-OrgID; several are separated by |."""

    labels: Annotated[dict[LabelName, str], BeforeValidator(_require_mapping)] = Field(default_factory=dict)
    """Labels that a series must have, such as cluster=prod if one server stores many clusters."""

    cluster_label: LabelName = "cluster"
    """The label with the cluster's name on a server that stores many clusters."""

    namespace_label: LabelName | None = None
    """The label with the namespace; detected by default, like the next two."""

    pod_label: LabelName | None = None
    """The label with the pod's name."""

    container_label: LabelName | None = None
    """The label with the container's name."""

    exporter_namespaces: tuple[str, ...] = MONITORING_NAMESPACES
    """The namespaces whose exporters may report on containers of others, where series name the namespace of the exporter
    too, such as beside exported_namespace. Others could forge the usage of any container. With namespace_label, all may
    unless this is set."""

    cpu_rule: MetricName | None = None
    """A recording rule with each container's CPU usage in cores, to read instead of the raw counter."""

    memory_rule: MetricName | None = None
    """A recording rule with each container's working set in bytes, to read instead of the raw series."""

    throttling: bool = True
    """Read the share of time in which containers are throttled by their CPU limits."""

    ooms: bool = True
    """Read OOM kills."""

    raw_samples: bool = True
    """Read long windows as raw samples by remote read if supported; this costs the server far less."""

    rate_window: Annotated[float, Field(ge=0)] = 0.0
    """The seconds over which CPU is averaged; 0 means one step, or four scrapes if that is longer."""

    timeout: Annotated[float, Field(gt=0)] = 60.0
    """The timeout of a query in seconds; a slower query is split."""

    concurrency: Annotated[int, Field(ge=1, le=64)] = 4
    """The maximum number of concurrent queries."""

    retries: Annotated[int, Field(ge=0, le=10)] = 5
    """The maximum number of retries after a transient failure, with increasing delays."""

    points_a_series: Annotated[int, Field(ge=1, le=11_000)] = 10_000
    """The maximum number of steps in one query. Prometheus itself allows 11,000."""

    samples_a_query: Annotated[int, Field(ge=1)] = 500_000
    """The maximum number of samples that one query should return."""

    bytes_an_answer: Annotated[int, Field(ge=1024)] = 128 << 20
    """The maximum size of a response in bytes; larger reads are split."""

    @model_validator(mode="after")
    def _check_credentials(self) -> Self:
        user = self.username or self.username_file
        if self.username and self.username_file:
            raise ValueError("username and username_file are both given; remove one")
        if self.token_file and user:
            raise ValueError("token_file and username are both given; remove one")
        if self.cloud_identity and (self.token_file or user):
            raise ValueError("cloud_identity and token_file or username are both given; remove one")
        if self.aws_region and self.cloud_identity != "aws":
            raise ValueError("aws_region has no effect without cloud_identity aws; remove it")
        if (user is None) != (self.password_file is None):
            raise ValueError("username and password_file belong together; give both")
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file and key_file belong together; give both")
        if self.ca_file and self.insecure:
            raise ValueError("ca_file and insecure are both given; remove one")
        named = (self.namespace_label, self.pod_label, self.container_label)
        if any(named) and not all(named):
            raise ValueError("namespace_label, pod_label and container_label belong together; give all")
        return self
