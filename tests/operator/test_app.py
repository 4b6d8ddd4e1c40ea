"""The operator's report of missing prerequisites of its cluster."""

import asyncio
import socket
from types import SimpleNamespace
from typing import cast

import pytest
from structlog.testing import capture_logs

from harness.builders.manifests import find_document
from harness.e2e.informer_probe import eventually
from trimtab.kube.cache.informer_set import NOT_SERVED
from trimtab.operator import app
from trimtab.operator.app import (
    find_missing_prerequisites,
    read_replica_name,
    report_missing_prerequisites,
    sync_problem,
)
from trimtab.operator.cluster_state import ClusterState
from trimtab.operator.config.model import OperatorConfig

DEPLOYMENT_ENV = {"POD_NAME": {"fieldRef": {"fieldPath": "metadata.name"}}}
GONE = {"optimizationpolicies.trimtab.io": NOT_SERVED}


def test_app_replica_has_the_name_of_its_pod_on_the_host_network() -> None:
    (container,) = find_document("deployment.yaml", "Deployment")["spec"]["template"]["spec"]["containers"]
    assert {each["name"]: each["valueFrom"] for each in container["env"]} == DEPLOYMENT_ENV
    assert read_replica_name({"POD_NAME": "trimtab-operator-5d9-x2"}) == "trimtab-operator-5d9-x2"
    assert read_replica_name({}) == socket.gethostname()


def test_app_reports_missing_prerequisites_with_the_fix() -> None:
    found = dict(find_missing_prerequisites(GONE, {"default"}, OperatorConfig()))
    assert found["optimizationpolicies.trimtab.io"].startswith("trimtab crds | kubectl apply")
    assert found["namespace trimtab-system"].startswith("kubectl create namespace trimtab-system")


@pytest.mark.parametrize("troubles", [{}, dict.fromkeys(GONE, "503: storage is (re)initializing")])
def test_app_reports_nothing_if_prerequisites_are_met(troubles: dict[str, str]) -> None:
    assert not list(find_missing_prerequisites(troubles, {"default", "trimtab-system"}, OperatorConfig()))


def test_app_needs_no_namespace_without_leader_election() -> None:
    alone = OperatorConfig.model_validate({"leaderElection": {"enabled": False}})
    assert not list(find_missing_prerequisites({}, {"default"}, alone))


def test_app_readiness_names_what_is_not_synced() -> None:
    troubles = {"limitranges": "limitranges is forbidden; grant list and watch on it"}
    waiting = SimpleNamespace(is_synced=False, errors_by_resource=lambda: GONE | troubles)
    problem = "the informers are listing the cluster's objects; limitranges: limitranges is forbidden; grant list and watch on it"
    assert sync_problem(cast("ClusterState", waiting)) == problem
    assert not sync_problem(cast("ClusterState", SimpleNamespace(is_synced=True)))


async def test_app_reports_a_lost_prerequisite_once_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "PREREQUISITE_CHECK_INTERVAL", 0.01)
    looks: list[int] = []
    troubles: dict[str, str] = {}

    def errors_by_resource() -> dict[str, str]:
        looks.append(len(troubles))
        return troubles

    namespaces = [SimpleNamespace(name="trimtab-system")]
    catalog = cast(
        "ClusterState", SimpleNamespace(namespaces=namespaces, errors_by_resource=errors_by_resource)
    )
    with capture_logs() as logs:
        reporting = asyncio.create_task(report_missing_prerequisites(catalog, OperatorConfig))
        await eventually(lambda: len(looks) > 1, what="a look while all is there")
        assert logs == []
        troubles.update(GONE)
        await eventually(lambda: sum(looks) > 2, what="a third look since the kind is gone")
        reporting.cancel()
    (problem,) = logs
    assert problem["fix"].startswith("trimtab crds | kubectl apply")
