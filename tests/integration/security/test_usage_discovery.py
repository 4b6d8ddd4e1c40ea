"""A Service that a tenant labels as a Prometheus must not become the operator's usage source, nor see its token."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from harness.cluster.cluster import Cluster
from harness.cluster.namespaces import fresh_namespace
from trimtab.kube.rest.client import Client
from trimtab.operator.config.model import OperatorConfig
from trimtab.usage.errors import SourceRefused
from trimtab.usage.prometheus import PrometheusSettings
from trimtab.usage.prometheus.endpoint import find_endpoints

THANOS = {"app.kubernetes.io/component": "query", "app.kubernetes.io/name": "thanos"}
PROMETHEUS = {"app.kubernetes.io/name": "prometheus"}


@pytest.fixture
def other_namespace(cluster: Cluster) -> Iterator[str]:
    """Create a second namespace."""
    with fresh_namespace(cluster) as name:
        yield name


def _create_service(cluster: Cluster, namespace: str, name: str, labels: dict[str, str]) -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"ports": [{"name": "http", "port": 9090}], "selector": {"app": name}},
    }
    cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(service))


def _operator_settings(home: str, **settings: object) -> PrometheusSettings:
    config = OperatorConfig.model_validate({"namespace": home, "metricsSource": {"settings": settings}})
    return PrometheusSettings.model_validate(config.sources[""].settings)


async def test_operator_ignores_service_with_prometheus_labels_of_a_tenant(
    cluster: Cluster, client: Client, namespace: str, other_namespace: str
) -> None:
    home, tenant = namespace, other_namespace
    _create_service(cluster, tenant, "better-than-prometheus", THANOS)
    with pytest.raises(SourceRefused, match=f"no Service in the namespaces {home}, .*discovery_namespaces"):
        await find_endpoints(_operator_settings(home), client)
    _create_service(cluster, home, "prometheus", PROMETHEUS)
    ((_, path),) = await find_endpoints(_operator_settings(home), client)
    assert f"/namespaces/{home}/services/http:prometheus:9090" in path
    allowed = _operator_settings(home, discovery_namespaces=[tenant])
    ((_, path),) = await find_endpoints(allowed, client)
    assert f"/namespaces/{tenant}/services/" in path


async def test_operator_names_ambiguous_services(
    cluster: Cluster, client: Client, namespace: str, other_namespace: str
) -> None:
    for where in (namespace, other_namespace):
        _create_service(cluster, where, "prometheus", PROMETHEUS)
    trusted = sorted((namespace, other_namespace))
    settings = _operator_settings(namespace, discovery_namespaces=trusted)
    names = f"{trusted[0]}/prometheus, {trusted[1]}/prometheus"
    with pytest.raises(SourceRefused, match=f"several Services .* Prometheus server: {names}; set url"):
        await find_endpoints(settings, client)


@pytest.mark.parametrize("reach", ["direct", "proxy"])
@pytest.mark.parametrize("credential", ["token_file", "username", "headers"])
async def test_credentials_are_never_sent_to_a_discovered_service(
    cluster: Cluster, client: Client, namespace: str, tmp_path: Path, reach: str, credential: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    settings_by_credential: dict[str, dict[str, object]] = {
        "token_file": {"token_file": secret},
        "username": {"username": "trimtab", "password_file": secret},
        "headers": {"headers": {"Authorization": "Bearer secret"}},
    }
    _create_service(cluster, namespace, "prometheus", PROMETHEUS)
    settings = PrometheusSettings.model_validate({"reach": reach, **settings_by_credential[credential]})
    with pytest.raises(SourceRefused, match=f"{credential} is set without url"):
        await find_endpoints(settings, client)
