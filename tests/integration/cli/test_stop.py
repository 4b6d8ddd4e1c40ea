"""`trimtab stop` and `trimtab resume` on a real API server, seen with the rights of operator and agent."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from harness.cluster.account import account, become
from harness.cluster.cluster import Cluster
from trimtab.cli import run
from trimtab.kube.auth import load_connection
from trimtab.kube.cache.informer_set import InformerSet
from trimtab.kube.kinds.emergency_stop import STOP_NAME, EmergencyStopWatch
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.rbac import SYSTEM_NAMESPACE, Component

PATH = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps/{STOP_NAME}"
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> Iterator[Call]:
    """Runs a command against the cluster; no stop is left behind."""

    def call(*arguments: str) -> tuple[int, str, str]:
        code = run([*arguments, "--kubeconfig", str(cluster.kubeconfig)])
        shown = capsys.readouterr()
        return code, " ".join(shown.out.split()), " ".join(shown.err.split())

    yield call
    cluster.kubectl("delete", "configmap", STOP_NAME, "-n", SYSTEM_NAMESPACE, "--ignore-not-found")


@pytest.mark.parametrize("process", ["operator", "agent"])
async def test_stop_reaches_operator_and_agents_with_the_rights_of_their_manifests(
    cluster: Cluster, call: Call, tmp_path: Path, process: Component
) -> None:
    kubeconfig = yaml.safe_load(cluster.kubeconfig.read_text())
    kubeconfig["users"][0]["user"] |= become(process)
    (tmp_path / "config").write_text(yaml.safe_dump(kubeconfig))
    with account(cluster, process):
        async with Client(load_connection(kubeconfig=tmp_path / "config")) as client:
            informers = InformerSet(client)
            watch = EmergencyStopWatch(informers, SYSTEM_NAMESPACE)

            async def wait_for(reason: str | None) -> None:
                while (watch.current.reason if watch.current else None) != reason:
                    await asyncio.sleep(0.05)

            running = asyncio.create_task(informers.run())
            try:
                async with asyncio.timeout(60):
                    await informers.wait_synced()
                    assert informers.errors_by_resource() == {}
                    await wait_for(None)
                    code, _, _ = await asyncio.to_thread(call, "stop", "--reason", "checkout\x1b[2J is slow")
                    assert code == 0
                    await wait_for(r"checkout\x1b[2J is slow")
                    await asyncio.to_thread(call, "resume")
                    await wait_for(None)
            finally:
                running.cancel()
                await asyncio.wait([running])


def test_stop_and_resume_a_second_time_change_nothing(cluster: Cluster, call: Call) -> None:
    with account(cluster, "operator"):
        assert "stopped. Operator and agents" in call("stop", "--reason", "first")[1]
        assert "emergency stop" in call("doctor")[1]
        code, shown, _ = call("stop", "--reason", "second")
        assert (code, "is stopped already" in shown) == (0, True)
        assert cluster.call("GET", PATH)["data"]["reason"] == "first"
        assert "resumed" in call("resume")[1]
        code, shown, _ = call("resume")
        assert (code, "there is no emergency stop" in shown) == (0, True)


def test_stop_names_the_option_where_the_namespace_does_not_exist(call: Call) -> None:
    code, _, error = call("stop", "--namespace", "nowhere")
    assert code == 2
    assert "there is no namespace nowhere; name that of Trimtab with --namespace" in error


async def test_stop_is_unknown_to_an_account_that_may_not_read_it(cluster: Cluster, tmp_path: Path) -> None:
    kubeconfig = yaml.safe_load(cluster.kubeconfig.read_text())
    kubeconfig["users"][0]["user"] |= {"as": "nobody", "as-groups": ["system:authenticated"]}
    (tmp_path / "config").write_text(yaml.safe_dump(kubeconfig))
    async with Client(load_connection(kubeconfig=tmp_path / "config")) as client:
        informers = InformerSet(client)
        watch = EmergencyStopWatch(informers, SYSTEM_NAMESPACE)
        assert "not known" in watch.reason
        running = asyncio.create_task(informers.run())
        try:
            async with asyncio.timeout(60):
                await informers.wait_synced()
            assert watch.current is None
            assert "It is not known if Trimtab was stopped" in watch.reason
            assert "forbidden" in watch.reason
            assert "grant list and watch on it" in watch.problem
        finally:
            running.cancel()
            await asyncio.wait([running])
