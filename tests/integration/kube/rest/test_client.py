"""Requests to the real API server: what the fake one must answer alike, and what only the real one has."""

import asyncio

import pytest

from harness.cluster.cluster import Cluster
from kube.rest.test_client import (  # noqa: F401 - tests and fixtures
    TestEveryRefusal,
    config_map,
    connected,
    test_client_apply_owns_its_fields_and_releases_omitted_ones,
    test_client_creates_reads_changes_and_deletes,
    test_client_deletes_only_the_object_with_that_uid,
    test_client_dry_run_is_validated_and_stores_nothing,
    test_client_lists_in_pages_and_whole,
    test_client_resizes_a_pod_through_its_subresource,
    test_client_sends_each_kind_of_patch,
    test_client_takes_a_field_of_another_manager_only_by_force,
    test_status_and_scale_are_written_through_their_subresources,
)
from trimtab.kube import errors
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.resources import (
    SERVICES,
    Resource,
)


async def test_internal_error_by_a_broken_admission_webhook(client: Client, namespace: str) -> None:
    webhooks = Resource(
        "admissionregistration.k8s.io",
        "v1",
        "validatingwebhookconfigurations",
        "ValidatingWebhookConfiguration",
        namespaced=False,
    )
    webhook = {
        "name": "broken.trimtab.io",
        "clientConfig": {"url": "https://127.0.0.1:9/"},
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["services"],
            }
        ],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 1,
    }
    await client.create(webhooks, {"metadata": {"name": namespace}, "webhooks": [webhook]})
    try:
        service = {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}}
        with pytest.raises(errors.InternalError, match=r"broken\.trimtab\.io"):
            for _ in range(100):  # the server takes a moment to know of a new webhook
                await client.create(SERVICES, service, namespace=namespace, dry_run=True)
                await asyncio.sleep(0.1)
    finally:
        await client.delete(webhooks, namespace)


async def test_unavailable_when_an_aggregated_api_has_no_server(cluster: Cluster, client: Client) -> None:
    services = Resource("apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False)
    spec = {
        "group": "absent.trimtab.io",
        "version": "v1",
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "insecureSkipTLSVerify": True,
        "service": {"name": "absent", "namespace": "default", "port": 443},
    }
    await client.create(services, {"metadata": {"name": "v1.absent.trimtab.io"}, "spec": spec})
    try:
        async with connected(cluster) as impatient:
            with pytest.raises(errors.Unavailable):
                for _ in range(100):
                    try:
                        await impatient.request("GET", "/apis/absent.trimtab.io/v1/things", read=bytes)
                    except errors.NotFound:  # until the server knows of the new API
                        await asyncio.sleep(0.1)
    finally:
        await client.delete(services, "v1.absent.trimtab.io")
