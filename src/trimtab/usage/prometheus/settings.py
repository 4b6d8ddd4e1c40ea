"""What a user may say about a PromQL server: where it is, who we are to it, which series are meant, how hard to ask."""

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
from trimtab.usage.prometheus.promql import LABEL_NAME, METRIC_NAME


def _require_one_line(text: str) -> str:
    if any(sign in text for sign in "\r\n\0"):
        raise ValueError("must be one line, without a break at its end")
    return text


def _require_mapping(given: object, info: ValidationInfo) -> object:
    if isinstance(given, str):
        name = info.field_name
        raise ValueError(  # noqa: TRY004 - which pydantic takes for a refusal
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
        raise ValueError("must not hold a password; set username and password_file")
    return str(url.with_query(None).with_fragment(None)).rstrip("/")


class PrometheusSettings(Settings):
    """How to read usage from Prometheus, Thanos, Mimir or VictoriaMetrics."""

    url: Annotated[str, AfterValidator(_validate_url)] | None = None
    """Its address, with the path under which /api/v1 is (Mimir: /prometheus). Found by Service labels if not given."""

    reach: Literal["auto", "direct", "proxy"] = "auto"
    """How to reach a server that was found: directly, as a pod can, or through the API server's proxy; auto knows."""

    token_file: Path | None = None
    """A file with a bearer token; read again when it changes."""

    username: str | None = None
    """The user of basic authentication."""

    password_file: Path | None = None
    """A file with the user's password; read again when it changes."""

    ca_file: Path | None = None
    """The authority that vouches for the server, PEM; the system's if not given."""

    cert_file: Path | None = None
    """The certificate that we show, PEM; read again when it changes."""

    key_file: Path | None = None
    """The key of the certificate, PEM."""

    insecure: bool = False
    """Believe any server certificate. For trying out only."""

    headers: Headers = Field(default_factory=dict)
    """Headers to send with every query."""

    tenant: HeaderLine | None = None
    """The tenant of Mimir or Cortex, sent as X-Scope-OrgID; several are joined by |."""

    labels: Annotated[dict[LabelName, str], BeforeValidator(_require_mapping)] = Field(default_factory=dict)
    """Labels that a series must have, such as cluster=prod where one server holds many clusters."""

    cluster_label: LabelName = "cluster"
    """The label by which such a server tells clusters apart."""

    namespace_label: LabelName | None = None
    """The label with the namespace; detected if not given, like the two below."""

    pod_label: LabelName | None = None
    """The label with the pod's name."""

    container_label: LabelName | None = None
    """The label with the container's name."""

    cpu_rule: MetricName | None = None
    """A recording rule that has the cores in use by each container, to be read instead of the raw counter."""

    memory_rule: MetricName | None = None
    """A recording rule that has the working set of each container in bytes, to be read instead of the raw series."""

    throttling: bool = True
    """Read how much of the time containers were held back by their CPU limits."""

    ooms: bool = True
    """Read which containers were killed for memory."""

    raw_samples: bool = True
    """Take long windows as raw samples by remote read where the server has it, which costs it far less than queries."""

    rate_window: Annotated[float, Field(ge=0)] = 0.0
    """Seconds over which CPU is averaged; 0 for a step, or four scrapes where that is more."""

    timeout: Annotated[float, Field(gt=0)] = 60.0
    """Seconds that one query may take. One that takes longer is split."""

    concurrency: Annotated[int, Field(ge=1, le=64)] = 4
    """How many queries run at the same time."""

    retries: Annotated[int, Field(ge=0, le=10)] = 5
    """How often a query that failed for the time being is tried again, waiting longer each time."""

    points_a_series: Annotated[int, Field(ge=1, le=11_000)] = 10_000
    """The most steps in one query. Prometheus itself allows 11,000."""

    samples_a_query: Annotated[int, Field(ge=1)] = 500_000
    """The most samples that one query should give back."""

    bytes_an_answer: Annotated[int, Field(ge=1024)] = 128 << 20
    """The largest answer taken in; what would be larger is asked for in parts."""

    @model_validator(mode="after")
    def _check_credentials(self) -> Self:
        if self.token_file and self.username:
            raise ValueError("token_file and username are both given; remove one")
        if (self.username is None) != (self.password_file is None):
            raise ValueError("username and password_file belong together; give both")
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file and key_file belong together; give both")
        if self.ca_file and self.insecure:
            raise ValueError("ca_file and insecure are both given; remove one")
        named = (self.namespace_label, self.pod_label, self.container_label)
        if any(named) and not all(named):
            raise ValueError("namespace_label, pod_label and container_label belong together; give all")
        return self
