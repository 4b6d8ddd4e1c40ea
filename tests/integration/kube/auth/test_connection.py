"""Each way of saying who we are, on the real API server; those by a plugin need a process."""

import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.builders.certificates import Pair
from harness.cluster.cluster import Cluster
from kube.auth.test_access_to_cluster import (  # noqa: F401 - tests and fixtures
    ADMIN,
    BY_CERTIFICATE,
    Asker,
    Ways,
    server,
    session,
    test_client_authenticates_by_certificate_files,
    test_client_sends_the_rotated_token_of_a_pod,
    test_client_without_credentials_is_anonymous,
    test_we_can_act_as_somebody_else,
    ways,
)
from trimtab.kube.auth.connection import load_connection
from trimtab.kube.rest.client import Client


def exec_user(script: Path, version: str) -> dict[str, Any]:
    settings = {"command": str(script), "apiVersion": f"client.authentication.k8s.io/{version}"}
    return {"exec": settings | {"interactiveMode": "Never"}}


def write_plugin(script: Path, *, version: str = "v1", **status: str) -> None:
    answer = {
        "apiVersion": f"client.authentication.k8s.io/{version}",
        "kind": "ExecCredential",
        "status": status,
    }
    script.write_text(f"#!/bin/sh\necho run >> {script}.runs\nprintf %s {shlex.quote(json.dumps(answer))}\n")
    script.chmod(0o755)


def runs(script: Path) -> int:
    return Path(f"{script}.runs").read_text().count("run")


def pem(pair: Pair) -> dict[str, str]:
    return {"clientCertificateData": pair.cert.read_text(), "clientKeyData": pair.key.read_text()}


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_client_authenticates_by_plugin_token(
    version: str, cluster: Cluster, ways: Ways, server: Asker, tmp_path: Path
) -> None:
    script = tmp_path / "plugin"
    write_plugin(script, version=version, token=cluster.token)
    assert await server.name(ways.as_user(exec_user(script, version))) == ADMIN


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_client_authenticates_by_plugin_certificates_one_after_another(
    version: str, cluster: Cluster, ways: Ways, server: Asker, tmp_path: Path
) -> None:
    script = tmp_path / "plugin"
    write_plugin(script, version=version, **pem(Pair(cluster.client_cert, cluster.client_key)))
    way = ways.as_user(exec_user(script, version))
    assert await server.name(way) == BY_CERTIFICATE
    # The pool still holds a connection that showed the first certificate.
    write_plugin(
        script,
        version=version,
        **pem(cluster.credentials.authority.issue("next-by-certificate", group="system:masters")),
    )
    assert await way.renew(await way.get_identity())
    assert await server.name(way) == "next-by-certificate"


async def test_credentials_renew_a_refused_plugin_token_once(
    cluster: Cluster, ways: Ways, server: Asker, tmp_path: Path
) -> None:
    script = tmp_path / "plugin"
    write_plugin(script, token="not-a-token")
    way = ways.as_user(exec_user(script, "v1"))
    refused = await way.get_identity()
    status, _ = await server.ask(way, refused)
    assert status == 401
    write_plugin(script, token=cluster.token)
    assert await way.renew(refused)
    assert await way.renew(refused)
    assert await server.name(way) == ADMIN
    assert runs(script) == 2


async def test_client_renews_a_refused_token(cluster: Cluster, ways: Ways, tmp_path: Path) -> None:
    script = tmp_path / "plugin"
    write_plugin(script, token="not-a-token")
    way = ways.as_user(exec_user(script, "v1"))
    await way.get_identity()
    write_plugin(script, token=cluster.token)
    async with Client(way) as client:
        assert await client.get_version()
    assert runs(script) == 2


async def test_client_and_kubectl_are_the_same_user_with_the_same_files(
    cluster: Cluster, tmp_path: Path, server: Asker
) -> None:
    """Three files, the context, the cluster and the user each in another, and names that are taken twice."""
    whole = yaml.safe_load(cluster.kubeconfig.read_text())
    decoy = {"name": "admin", "user": {"token": "wrong"}}
    parts = [
        {"contexts": whole["contexts"]},
        {"clusters": whole["clusters"], "current-context": "trimtab"},
        {"users": whole["users"], "current-context": "lost"},
        {"users": [decoy]},
    ]
    for number, part in enumerate(parts):
        (tmp_path / str(number)).write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **part}))
    listed = ":".join(str(tmp_path / name) for name in ("0", "missing", "1", "2", "3"))
    ours = await server.name(load_connection(environ={**os.environ, "KUBECONFIG": listed}))
    assert ours == kubectl_user(cluster, listed) == ADMIN


def kubectl_user(cluster: Cluster, kubeconfig: str) -> str:
    """Return the user of kubectl with these files."""
    kubectl = cluster.directory / "bin" / "kubectl"
    environ = os.environ | cluster.environment | {"KUBECONFIG": kubeconfig}
    done = subprocess.run(
        [kubectl, "auth", "whoami", "-o", "json"], env=environ, capture_output=True, check=True
    )
    return str(json.loads(done.stdout)["status"]["userInfo"]["username"])
