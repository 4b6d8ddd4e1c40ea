"""Discover the usage sources of a cluster: metrics-server and servers that speak PromQL.

PromQL servers are found by the labels that charts and operators put on Services. Servers that aggregate
several Prometheus instances are preferred to a single Prometheus. A result is a candidate: no query has been
sent to it.
"""

from __future__ import annotations

from dataclasses import dataclass

from trimtab.kube.rest.capabilities import is_path_served
from trimtab.kube.rest.client import Client, Object
from trimtab.kube.rest.resources import SERVICES

METRICS_SERVER_API = "/apis/metrics.k8s.io/v1beta1/nodes"

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


async def find_promql_servers(client: Client) -> list[PromQLServer]:
    """Return the candidates, best first, each Service once."""
    found: dict[tuple[str, str], PromQLServer] = {}
    services = await client.list_objects(SERVICES)
    for flavour, selector in _FLAVOURS:
        wanted = dict(term.split("=") for term in selector.split(","))
        for service in services:
            metadata = service["metadata"]
            labels = metadata.get("labels") or {}
            if wanted.items() <= labels.items() and (port := _find_query_port(service)):
                key = (metadata["namespace"], metadata["name"])
                path = _PATHS.get((flavour, wanted.get("app.kubernetes.io/name", "")), "")
                found.setdefault(key, PromQLServer(flavour, *key, port, path))
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
