"""Discover the usage sources of a cluster: metrics-server and servers that speak PromQL.

PromQL servers are found by the labels that charts and operators put on Services. Servers that aggregate
several Prometheus instances are preferred to a single Prometheus. A result is a candidate: no query has been
sent to it.

Everyone who may create a Service can label it as a Prometheus. Who acts on usage without a person looking at it,
as the operator does, therefore accepts candidates of trusted namespaces only.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from trimtab.kube.rest.capabilities import is_path_served
from trimtab.kube.rest.client import Client, Object
from trimtab.kube.rest.resources import SERVICES

METRICS_SERVER_API = "/apis/metrics.k8s.io/v1beta1"
"""The path that the server itself answers, as everybody may ask; to list nodes or pods needs rights."""

MONITORING_NAMESPACES = (
    "kube-prometheus-stack",
    "kube-system",
    "mimir",
    "monitoring",
    "observability",
    "openshift-monitoring",
    "prometheus",
    "thanos",
    "victoria-metrics",
)
"""The namespaces that monitoring is usually installed in, and that tenants usually cannot write to."""

_FLAVOURS = (
    ("Thanos", "app.kubernetes.io/component=query,app.kubernetes.io/name=thanos"),
    ("Thanos", "app.kubernetes.io/name=thanos-query"),
    ("Thanos", "app=thanos-query"),
    ("VictoriaMetrics", "app.kubernetes.io/name=vmselect"),
    ("VictoriaMetrics", "app.kubernetes.io/name=vmsingle"),
    ("VictoriaMetrics", "app.kubernetes.io/name=victoria-metrics-single"),
    ("Mimir", "app.kubernetes.io/name=mimir,app.kubernetes.io/component=query-frontend"),
    ("Mimir", "app.kubernetes.io/name=mimir,app.kubernetes.io/component=nginx"),
    ("Prometheus", "app=kube-prometheus-stack-prometheus"),
    ("Prometheus", "operated-prometheus=true"),
    ("Prometheus", "app.kubernetes.io/name=prometheus,app.kubernetes.io/component=server"),
    ("Prometheus", "app=prometheus,component=server"),
    ("Prometheus", "app.kubernetes.io/name=prometheus"),
    ("Prometheus", "app=prometheus-server"),
    ("Prometheus", "app=prometheus"),
)

_PATHS = {("Mimir", "mimir"): "/prometheus", ("VictoriaMetrics", "vmselect"): "/select/0/prometheus"}


@dataclass(frozen=True, slots=True)
class PromQLServer:
    """A Service that looks like a PromQL server."""

    flavour: str
    namespace: str
    service: str
    port: int

    path: str = ""
    """The path under which the server has /api/v1."""

    selector: str = ""
    """The label selector that the Service matched."""

    headless: bool = False
    """True if the Service has no address of its own; the Prometheus Operator adds one such beside the chart's."""

    def is_ambiguous_with(self, other: PromQLServer) -> bool:
        """Return whether nothing but their names tells which of two Services to prefer."""
        if self.flavour != other.flavour:
            return False
        if self.namespace != other.namespace:
            return True
        return self.selector == other.selector and self.headless == other.headless

    @property
    def url(self) -> str:
        """Return the server's address inside the cluster."""
        return f"http://{self.service}.{self.namespace}.svc:{self.port}{self.path}"

    @property
    def proxy_path(self) -> str:
        """Return the path on the API server whose proxy forwards requests to this Service."""
        services = SERVICES.path(namespace=self.namespace)
        return f"{services}/http:{self.service}:{self.port}/proxy{self.path}"


async def has_metrics_server(client: Client) -> bool:
    """Return whether the resource metrics API is registered and responds."""
    return await is_path_served(client, METRICS_SERVER_API)


async def find_promql_servers(
    client: Client, namespaces: Collection[str] | None = None
) -> list[PromQLServer]:
    """Return the candidates in these namespaces, by default in all, best first, each Service once."""
    found: dict[tuple[str, str], PromQLServer] = {}
    services = [
        service
        for service in await client.list_objects(SERVICES)
        if namespaces is None or service["metadata"]["namespace"] in namespaces
    ]
    for flavour, selector in _FLAVOURS:
        wanted = dict(term.split("=") for term in selector.split(","))
        for service in services:
            metadata = service["metadata"]
            labels = metadata.get("labels") or {}
            if wanted.items() <= labels.items() and (port := _find_query_port(service)):
                key = (metadata["namespace"], metadata["name"])
                path = _PATHS.get((flavour, wanted.get("app.kubernetes.io/name", "")), "")
                headless = service["spec"].get("clusterIP") == "None"
                found.setdefault(key, PromQLServer(flavour, *key, port, path, selector, headless))
    return list(found.values())


def _find_query_port(service: Object) -> int | None:
    """Return the port of the query API: a port named for HTTP, or else the first one."""
    ports = service["spec"].get("ports") or []
    named = [
        port
        for port in ports
        if port.get("name") in {"http-web", "web", "http", "http-metrics", "http-query"}
    ]
    return next((int(port["port"]) for port in [*named, *ports]), None)
