"""`trimtab import vpa` with VPA's real CRDs on the real API server."""

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from harness.builders.vpa_checkpoints import export_checkpoint
from harness.cluster.cluster import Cluster
from trimtab.cli import run
from trimtab.recommender.cohort import StrategyCohort
from trimtab.recommender.cohort_store import state_key
from trimtab.scan.vpa_import import STRATEGY_SPEC
from trimtab.sizing.strategies.vpa import VpaSettings, VpaStrategy
from trimtab.store import Store
from trimtab.usage.pod_ownership import WorkloadContainer

NOW = 1_800_000_000.0
Object = dict[str, Any]


def deployment(name: str, labels: dict[str, str]) -> Object:
    container = {"name": "app", "image": "app:1", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    template = {"metadata": {"labels": {"app": "all"}}, "spec": {"containers": [container]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "all"}}, "template": template},
    }


def autoscaler(name: str, *, mode: str | None = None, **policy: Any) -> Object:
    return {
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": name},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            **({"updatePolicy": {"updateMode": mode}} if mode else {}),
            **({"resourcePolicy": {"containerPolicies": [policy]}} if policy else {}),
        },
    }


def checkpoint() -> Object:
    sizer = VpaStrategy(1, VpaSettings())
    for minute in range(0, 3 * 1440, 30):
        sizer.observe(NOW - 3 * 86400 + minute * 60, np.array([0.25]), np.array([3e8]))
    return export_checkpoint(sizer, 0, now=NOW, vpa_name="web", container_name="app")


@pytest.fixture
def scene(cluster: Cluster, vpa_kinds: None, namespace: str) -> str:
    bounds = {"minAllowed": {"cpu": "50m"}, "maxAllowed": {"cpu": "2", "memory": "4Gi"}}
    objects = [
        deployment("web", {"app": "web", "team": "a"}),
        deployment("api", {"team": "a"}),
        autoscaler("web", mode="Recreate", containerName="*", controlledValues="RequestsOnly", **bounds),
        autoscaler("api", mode="Off", containerName="app", controlledResources=["cpu"]),
        autoscaler("gone"),
        checkpoint(),
    ]
    cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=yaml.safe_dump_all(objects))
    return namespace


def imported(cluster: Cluster, *options: str) -> int:
    return run(["import", "vpa", "--kubeconfig", str(cluster.kubeconfig), *options])


def test_import_vpa_writes_an_equivalent_policy_for_each_vpa(
    cluster: Cluster, scene: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert imported(cluster, "--namespace", scene) == 1
    out, err = capsys.readouterr()
    policies = {each["metadata"]["name"]: each["spec"] for each in yaml.safe_load_all(out)}
    assert policies["web"] == {
        "mode": "Auto",
        "selector": {
            "workloadSelector": {"matchLabels": {"app": "web"}},
            "workloadTypes": {"include": ["Deployment"]},
        },
        "strategy": {"name": "vpa"},
        "containers": [
            {
                "name": "*",
                "resourceBounds": {"cpu": {"min": "50m", "max": "2"}, "memory": {"max": "4Gi"}},
            }
        ],
        "updateStrategy": {"allowInPlaceResize": False, "allowRecreate": True, "updateRequestsOnly": True},
    }
    assert policies["api"]["mode"] == "Recommend"
    assert policies["api"]["selector"]["workloadSelector"]["matchLabels"] == {"trimtab.io/policy": "api"}
    assert f"{scene}/gone: its target, Deployment gone, does not exist" in err
    assert f"kubectl label -n {scene} deployments.apps/api trimtab.io/policy=api" in err
    assert policies["api"]["containers"] == [{"name": "app", "controlledResources": ["cpu"]}]


def test_import_vpa_policies_are_accepted_by_the_server(
    cluster: Cluster, scene: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["crds"])
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=capsys.readouterr().out)
    cluster.kubectl("wait", "--for=condition=Established", "crd/optimizationpolicies.trimtab.io")
    assert imported(cluster, "--namespace", scene, "--directory", str(tmp_path)) == 1
    assert {each.name for each in tmp_path.iterdir()} == {f"{scene}.web.yaml", f"{scene}.api.yaml"}
    cluster.kubectl("apply", "--dry-run=server", "-f", str(tmp_path))


async def test_import_vpa_stores_checkpoints_where_the_operator_reads_them(
    cluster: Cluster, scene: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = str(tmp_path / "trimtab.db")
    options = ["--namespace", scene, "--store", store, "--output", "json"]
    await asyncio.to_thread(imported, cluster, *options)
    out, err = capsys.readouterr()
    assert len(json.loads(out)) == 2
    assert f"{store}: imported VPA's checkpoints of 1 container" in err
    uid = cluster.call("GET", "/api/v1/namespaces/kube-system")["metadata"]["uid"]
    async with Store.open(store) as opened:
        kept = await opened.states.load(state_key(uid, STRATEGY_SPEC, 0))
    assert kept
    cohort = StrategyCohort(STRATEGY_SPEC, until=0.0)
    cohort.restore(kept.data)
    proposed = cohort.get_proposal(WorkloadContainer(scene, "Deployment", "web", "app"), now=NOW)
    assert proposed.cpu.target == pytest.approx(1.15 * 250, rel=0.2)
    assert await asyncio.to_thread(imported, cluster, *options) == 2
    assert "the store already has the state of strategy vpa" in capsys.readouterr().err


def test_import_vpa_without_vpas_fails_with_one_line(
    cluster: Cluster, vpa_kinds: None, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert imported(cluster, "--namespace", namespace) == 2
    assert "the cluster has no VerticalPodAutoscaler to import" in capsys.readouterr().err
