"""The commands use exactly the rights that deploy/scan grants, as a ServiceAccount on a real API server."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from harness.cluster.account import DEPLOY, account
from harness.cluster.cluster import Cluster
from harness.faults.faultproxy import FaultProxy
from integration.operator.test_rights import Use, needed_rights
from scan.scene import ScannedCluster
from trimtab.cli import run
from trimtab.kube.rest.rbac import RBAC_RULES, SYSTEM_NAMESPACE, Component

USER = "system:serviceaccount:default:reader"
SUBJECT = {"kind": "ServiceAccount", "name": "reader", "namespace": "default"}
CONFIGURATION = str(DEPLOY / "operator" / "config.yaml")
RIGHTS = str(DEPLOY / "scan" / "rights.yaml")
RBAC = "/apis/rbac.authorization.k8s.io/v1"
CUSTOM = "survey.example"
"""The API group of the custom workload of the scene, which needs a right of its own."""

Command = Callable[..., tuple[int, str, str]]


def _grant(cluster: Cluster, namespace: str | None, kind: str, name: str) -> None:
    """Bind a role to the reader, in one namespace or everywhere."""
    path = f"{RBAC}/namespaces/{namespace}/rolebindings" if namespace else f"{RBAC}/clusterrolebindings"
    if not cluster.has(f"{path}/{name}"):
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
        cluster.call("POST", path, {"metadata": {"name": name}, "roleRef": role, "subjects": [SUBJECT]})


@pytest.fixture
def installed(cluster: Cluster, vpa_kinds: None) -> Iterator[Cluster]:
    """The kinds, and the operator's account and configuration; the reader has the rights of the manifest."""
    cluster.learn()
    with account(cluster, "operator"):
        cluster.kubectl("apply", "--server-side", "-f", CONFIGURATION, "-f", RIGHTS)
        custom = {"apiGroups": [CUSTOM], "resources": ["fleets"], "verbs": ["list"]}
        if not cluster.has(f"{RBAC}/clusterroles/fleets"):
            cluster.call("POST", f"{RBAC}/clusterroles", {"metadata": {"name": "fleets"}, "rules": [custom]})
        _grant(cluster, None, "ClusterRole", "trimtab-scan")
        _grant(cluster, None, "ClusterRole", "fleets")
        _grant(cluster, SYSTEM_NAMESPACE, "Role", "trimtab-scan")
        yield cluster
        cluster.kubectl("delete", "--ignore-not-found", "-f", CONFIGURATION, "-f", RIGHTS)
        cluster.kubectl("delete", "--ignore-not-found", "clusterrolebinding", "trimtab-scan", "fleets")


@pytest.fixture
def command(fault_proxy: FaultProxy, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command as the reader, behind the proxy."""
    kubeconfig = yaml.safe_load(fault_proxy.kubeconfig.read_text())
    kubeconfig["users"][0]["user"] |= {"as": USER}
    fault_proxy.kubeconfig.write_text(yaml.safe_dump(kubeconfig))

    def command(*arguments: str) -> tuple[int, str, str]:
        code = run([*arguments, "--kubeconfig", str(fault_proxy.kubeconfig)])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return command


def granted_rights(*components: Component) -> set[Use]:
    return {
        Use(rule.group, rule.resource, verb)
        for component in components
        for rule in RBAC_RULES[component]
        for verb in rule.verbs
    }


@pytest.fixture
def shop_reader(installed: Cluster, lightly_used_cluster: ScannedCluster) -> Iterator[None]:
    """The reader with the rights in one namespace and in that of the operator only."""
    namespace = lightly_used_cluster.namespace
    installed.kubectl("delete", "clusterrolebinding", "trimtab-scan")
    _grant(installed, namespace, "ClusterRole", "trimtab-scan")
    yield
    installed.kubectl("delete", "rolebinding", "trimtab-scan", "-n", namespace)


async def test_patch_writes_with_rights_in_one_namespace_and_that_of_the_operator(
    shop_reader: None,
    lightly_used_cluster: ScannedCluster,
    command: Command,
    fault_proxy: FaultProxy,
    tmp_path: Path,
) -> None:
    """The labels of the namespace decide about policies; it is read alone, where all may not be listed."""
    town = lightly_used_cluster
    deployment = town.cluster.kubectl("get", "deployment", "web", "-n", town.namespace, "-o", "yaml")
    (tmp_path / "web.yaml").write_text(deployment)
    write = ("patch", "-n", town.namespace, "--format", "manifests", "--file", str(tmp_path), "--write")
    async with asyncio.timeout(30):  # the server hears of a role a little later than it answers for it
        while (
            "writes nothing"
            in (result := await asyncio.to_thread(command, *write, "--prometheus", town.prometheus))[2]
        ):
            await asyncio.sleep(0.5)
    assert (tmp_path / "web.yaml").read_text() != deployment, result
    used = {use for asked, code in fault_proxy.answered if code == 200 for use in needed_rights(asked, code)}
    assert Use("", "namespaces", "get") in used
    assert Use("", "namespaces", "list") not in used


async def test_patch_names_the_policies_that_it_may_not_read(
    shop_reader: None,
    installed: Cluster,
    lightly_used_cluster: ScannedCluster,
    command: Command,
    tmp_path: Path,
) -> None:
    town = lightly_used_cluster
    installed.kubectl("delete", "rolebinding", "trimtab-scan", "-n", SYSTEM_NAMESPACE)
    (tmp_path / "web.yaml").write_text("{}")
    write = ("patch", "-n", town.namespace, "--format", "manifests", "--file", str(tmp_path), "--write")
    async with asyncio.timeout(30):
        while True:
            code, _, said = await asyncio.to_thread(command, *write, "--prometheus", town.prometheus)
            if "optimizationpolicies.trimtab.io is forbidden" in said:
                break
            await asyncio.sleep(0.5)
    assert code != 0
    assert f'in the namespace "{SYSTEM_NAMESPACE}"' in said
    assert "namespaces is forbidden" not in said
    assert "get the right to read them, or add --ignore-policies" in " ".join(said.split())


async def test_commands_use_exactly_the_rights_of_the_manifest(
    installed: Cluster, lightly_used_cluster: ScannedCluster, command: Command, fault_proxy: FaultProxy
) -> None:
    town = lightly_used_cluster
    prometheus = ("--prometheus", town.prometheus)
    for arguments in (
        ("scan", *prometheus),
        ("explain", f"{town.namespace}/Deployment/web", *prometheus),
        ("diff", *prometheus),
        ("scan",),  # looks for a Prometheus, and for metrics-server
        ("scan", "--source", "metrics-server"),
    ):
        _, _, said = await asyncio.to_thread(command, *arguments)
        assert "forbidden" not in said, arguments
    # A command that covers one namespace reads that alone, as the test above shows.
    refused = [str(asked.path) for asked, code in fault_proxy.answered if code == 403]
    assert refused == []
    used = {use for asked, code in fault_proxy.answered for use in needed_rights(asked, code)}
    own = {use for use in used if use.group != CUSTOM}
    assert own | {Use("", "namespaces", "get")} == granted_rights("scan", "scan-policies")


async def test_doctor_finds_all_rights_of_the_manifest(installed: Cluster, command: Command) -> None:
    _, shown, _ = await asyncio.to_thread(command, "doctor", "--output", "json")
    found = {each["check"]: each for each in json.loads(shown)}
    assert found["rights of scan"]["state"] == "ok"
    assert [each for each in found.values() if "forbidden" in each["found"]] == []


async def test_stop_and_resume_need_exactly_their_rights(
    installed: Cluster, command: Command, fault_proxy: FaultProxy
) -> None:
    rules = [
        {"apiGroups": [rule.group], "resources": [rule.resource], "verbs": [*rule.verbs]}
        for rule in RBAC_RULES["stop"]
    ]
    role = {"metadata": {"name": "stop"}, "rules": rules}
    installed.call("POST", f"{RBAC}/namespaces/{SYSTEM_NAMESPACE}/roles", role)
    _grant(installed, SYSTEM_NAMESPACE, "Role", "stop")
    for name in ("stop", "resume"):
        async with asyncio.timeout(30):  # the server hears of a role a little later than it answers for it
            while (await asyncio.to_thread(command, name))[0] != 0:
                await asyncio.sleep(0.2)
    used = {
        use for asked, code in fault_proxy.answered if code < 300 for use in needed_rights(asked, code)
    } - {Use("authentication.k8s.io", "selfsubjectreviews", "create")}  # granted to everybody
    assert used == granted_rights("stop")
    installed.kubectl("delete", "role,rolebinding", "stop", "-n", SYSTEM_NAMESPACE)


def test_manifest_grants_exactly_the_rights_of_the_commands() -> None:
    cluster_role, role = yaml.safe_load_all(Path(RIGHTS).read_text())
    granted = {
        (Use(group, resource, verb), tuple(rule.get("resourceNames", ())), each is role)
        for each in (cluster_role, role)
        for rule in each["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    components: tuple[Component, ...] = ("scan", "scan-policies")
    assert granted == {
        (Use(rule.group, rule.resource, verb), rule.names, rule.own_namespace)
        for component in components
        for rule in RBAC_RULES[component]
        for verb in rule.verbs
    }
