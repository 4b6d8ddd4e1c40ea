"""Credentials from exec plugins, which are small programs here too, run for real."""

import asyncio
import base64
import json
import os
import pty
import shlex
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from harness import process
from harness.builders import kubeconfigs
from harness.builders.certificates import Authority
from trimtab.kube.auth.connection import Connection, load_connection
from trimtab.kube.auth.credentials import ClientCredential, decode_redacted
from trimtab.kube.auth.exec_plugin import ExecPlugin, summarize_output
from trimtab.kube.auth.kubeconfig import KubeconfigEntry
from trimtab.kube.auth.kubeconfig_file import ExecConfig
from trimtab.kube.errors import ConfigError

V1 = "client.authentication.k8s.io/v1"
V1BETA1 = "client.authentication.k8s.io/v1beta1"
NOW = datetime(2026, 11, 15, tzinfo=UTC)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "test-ca")


def credential(*, version: str = V1, **status: Any) -> str:
    return json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})


class Plugin:
    """A shell script that counts its runs; what it does can be changed between them."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "plugin"
        self._runs = folder / "runs"
        self.now = NOW
        self.does(f"echo {shlex.quote(credential(token='abc'))}")

    def does(self, script: str) -> None:
        self.path.write_text(f"#!/bin/sh\necho run >> {self._runs}\n{script}\n")
        self.path.chmod(0o755)

    def prints(self, text: str) -> None:
        self.does(f"cat <<'END'\n{text}\nEND")

    @property
    def runs(self) -> int:
        return len(self._runs.read_text().splitlines()) if self._runs.exists() else 0

    def credentials(self, *, timeout: float = 60, **settings: Any) -> ExecPlugin:
        given = {"command": str(self.path), "apiVersion": V1, "interactiveMode": "Never"} | settings
        return ExecPlugin(
            msgspec.convert(given, ExecConfig, dec_hook=decode_redacted),
            user=KubeconfigEntry(None, self.path.parent / "config", "user 'alice'"),
            cluster={"server": "https://c"},
            environ=os.environ,
            timeout=timeout,
            now=lambda: self.now,
        )


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    return Plugin(tmp_path)


async def token(credentials: ExecPlugin) -> str | None:
    proof = await credentials.get_credential()
    return proof.authorization.reveal() if proof.authorization else None


async def complaint(credentials: ExecPlugin) -> str:
    with pytest.raises(ConfigError) as caught:
        await credentials.get_credential()
    said = str(caught.value)
    assert "\n" not in said
    assert ": user 'alice': exec: " in said
    return said.partition(": exec: ")[2]


# Input and output


@pytest.mark.parametrize("version", [V1, V1BETA1])
async def test_exec_plugin_token_is_a_bearer_in_both_versions(version: str, plugin: Plugin) -> None:
    plugin.prints(credential(version=version, token="abc"))
    assert await token(plugin.credentials(apiVersion=version)) == "Bearer abc"


async def test_exec_plugin_certificate_and_key_are_a_pair(plugin: Plugin, authority: Authority) -> None:
    alice = authority.issue("alice")
    status = {"clientCertificateData": alice.cert.read_text(), "clientKeyData": alice.key.read_text()}
    plugin.prints(credential(**status))
    proof = await plugin.credentials().get_credential()
    assert proof.authorization is None
    assert proof.certificate
    assert proof.certificate.certificate == alice.cert.read_bytes()


async def test_exec_plugin_gets_arguments_variables_and_its_input(plugin: Plugin, tmp_path: Path) -> None:
    answer = shlex.quote(credential(token="abc"))
    plugin.does(f'echo "$1|$2|$A|$HOME|$KUBERNETES_EXEC_INFO" > {tmp_path}/received; echo {answer}')
    credentials = plugin.credentials(
        args=["a b", "c"], env=[{"name": "A", "value": "x"}], provideClusterInfo=True
    )
    await credentials.get_credential()
    *received, info = (tmp_path / "received").read_text().strip().split("|")
    assert received == ["a b", "c", "x", os.environ["HOME"]]
    assert json.loads(info) == {
        "apiVersion": V1,
        "kind": "ExecCredential",
        "spec": {"interactive": False, "cluster": {"server": "https://c"}},
    }


async def test_exec_plugin_gets_cluster_info_only_on_request(
    authority: Authority, plugin: Plugin, tmp_path: Path
) -> None:
    plugin.does(
        f'echo "$KUBERNETES_EXEC_INFO" > {tmp_path}/received; echo {shlex.quote(credential(token="abc"))}'
    )
    cluster = {
        "certificate-authority": str(authority.cert),
        "tls-server-name": "api",
        "proxy-url": "http://proxy:3128",
        "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x", "n": 1}}],
    }
    for ask in (True, False):
        settings = {
            "command": str(plugin.path),
            "apiVersion": V1,
            "interactiveMode": "Never",
            "provideClusterInfo": ask,
        }
        await connection(tmp_path, user={"exec": settings}, cluster=cluster).get_identity()
        received = json.loads((tmp_path / "received").read_text())["spec"].get("cluster")
        if not ask:
            assert received is None
            continue
        authority_data = received.pop("certificate-authority-data")
        assert received == {
            "server": kubeconfigs.SERVER,
            "tls-server-name": "api",
            "proxy-url": "http://proxy:3128",
            "config": {"audience": "x", "n": 1},
        }
        assert base64.b64decode(authority_data) == authority.cert.read_bytes()


def connection(
    folder: Path, *, user: Mapping[str, Any], cluster: Mapping[str, Any] | None = None
) -> Connection:
    path = kubeconfigs.write(folder / "config", user=user, cluster=cluster)
    return load_connection(kubeconfig=path, environ=os.environ)


async def test_exec_plugin_command_with_a_slash_is_relative_to_the_kubeconfig(
    plugin: Plugin, tmp_path: Path
) -> None:
    settings = {"command": "./plugin", "apiVersion": V1BETA1}
    plugin.prints(credential(version=V1BETA1, token="abc"))
    identity = await connection(tmp_path, user={"exec": settings}).get_identity()
    assert identity.headers["Authorization"] == "Bearer abc"


async def test_exec_plugin_is_not_run_if_the_user_has_a_token(plugin: Plugin, tmp_path: Path) -> None:
    settings = {"command": str(plugin.path), "apiVersion": V1, "interactiveMode": "Never"}
    identity = await connection(tmp_path, user={"exec": settings, "token": "mine"}).get_identity()
    assert identity.headers["Authorization"] == "Bearer mine"
    assert plugin.runs == 0


async def test_exec_plugin_changes_tls_settings_only_with_a_new_certificate(
    plugin: Plugin, authority: Authority, tmp_path: Path
) -> None:
    settings = {"command": str(plugin.path), "apiVersion": V1, "interactiveMode": "Never"}
    way = connection(tmp_path, user={"exec": settings})
    plugin.prints(credential(token="a"))
    first = await way.get_identity()
    assert await way.get_identity() is first
    plugin.prints(credential(token="b"))
    assert await way.renew(first)
    second = await way.get_identity()
    assert second is not first
    assert second.ssl is first.ssl
    alice = authority.issue("alice")
    pem = {"clientCertificateData": alice.cert.read_text(), "clientKeyData": alice.key.read_text()}
    plugin.prints(credential(token="b", **pem))
    assert await way.renew(second)
    assert (await way.get_identity()).ssl is not first.ssl


# How often it runs


async def test_exec_plugin_credential_without_expiry_is_kept(plugin: Plugin) -> None:
    credentials = plugin.credentials()
    assert await credentials.get_credential() is await credentials.get_credential()
    assert plugin.runs == 1


async def test_gos_time_that_is_none_is_no_end(plugin: Plugin) -> None:
    credentials = plugin.credentials()
    plugin.prints(credential(token="a", expirationTimestamp="0001-01-01T00:00:00Z"))
    assert await credentials.get_credential() is await credentials.get_credential()
    assert plugin.runs == 1


async def test_exec_plugin_credential_is_renewed_shortly_before_expiry(plugin: Plugin) -> None:
    credentials = plugin.credentials()
    plugin.prints(credential(token="a", expirationTimestamp="2026-11-15T01:00:00Z"))
    assert await token(credentials) == "Bearer a"
    plugin.prints(credential(token="b"))
    plugin.now = NOW + timedelta(minutes=59)
    assert await token(credentials) == "Bearer a"
    plugin.now = NOW + timedelta(minutes=59, seconds=30)
    assert await token(credentials) == "Bearer b"


async def test_exec_plugin_short_lived_credential_is_not_renewed_with_each_request(plugin: Plugin) -> None:
    credentials = plugin.credentials()
    plugin.prints(credential(token="a", expirationTimestamp="2026-11-15T00:00:10Z"))
    await credentials.get_credential()
    plugin.now = NOW + timedelta(seconds=8)
    await credentials.get_credential()
    assert plugin.runs == 1


async def test_exec_plugin_credential_expires_with_its_certificate(
    plugin: Plugin, authority: Authority
) -> None:
    alice = authority.issue("alice")
    status = {"clientCertificateData": alice.cert.read_text(), "clientKeyData": alice.key.read_text()}
    plugin.prints(credential(**status, expirationTimestamp="2999-01-01T00:00:00Z"))
    credentials = plugin.credentials()
    pair = (await credentials.get_credential()).certificate
    assert pair
    plugin.now = pair.expires_at
    await credentials.get_credential()
    assert plugin.runs == 2


async def test_exec_plugin_failed_early_renewal_keeps_the_valid_credential(
    plugin: Plugin,
) -> None:
    credentials = plugin.credentials()
    plugin.prints(credential(token="a", expirationTimestamp="2026-11-15T01:00:00Z"))
    await credentials.get_credential()
    plugin.does("exit 1")
    plugin.now = NOW + timedelta(minutes=59, seconds=45)
    with capture_logs() as logs:
        assert await token(credentials) == "Bearer a"
        assert await token(credentials) == "Bearer a"
    assert plugin.runs == 2
    assert [entry["log_level"] for entry in logs] == ["warning"]
    plugin.now = NOW + timedelta(hours=1)
    assert "exited with 1" in await complaint(credentials)


async def test_exec_plugin_runs_once_for_all_waiters(plugin: Plugin) -> None:
    credentials = plugin.credentials()
    proofs = await asyncio.gather(*(credentials.get_credential() for _ in range(50)))
    assert plugin.runs == 1
    assert all(proof is proofs[0] for proof in proofs)


async def test_exec_plugin_failure_reaches_all_waiters_once(plugin: Plugin) -> None:
    plugin.does("exit 3")
    credentials = plugin.credentials()
    outcomes = await asyncio.gather(
        *(credentials.get_credential() for _ in range(20)), return_exceptions=True
    )
    assert all(isinstance(outcome, ConfigError) for outcome in outcomes)
    assert plugin.runs == 1


async def test_exec_plugin_survives_a_cancelled_waiter(plugin: Plugin, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    plugin.does(f"read line < {gate}; echo {shlex.quote(credential(token='abc'))}")
    credentials = plugin.credentials()
    impatient, patient = (asyncio.create_task(credentials.get_credential()) for _ in range(2))
    await asyncio.sleep(0)
    impatient.cancel()
    await asyncio.gather(impatient, return_exceptions=True)
    await asyncio.to_thread(gate.write_text, "go\n")
    assert (await patient).authorization
    assert plugin.runs == 1


async def test_exec_plugin_runs_again_once_for_many_refusals(plugin: Plugin) -> None:
    credentials = plugin.credentials()
    refused = await credentials.get_credential()

    async def try_again() -> ClientCredential:
        assert await credentials.renew(refused)
        return await credentials.get_credential()

    await asyncio.gather(*(try_again() for _ in range(20)))
    await try_again()
    assert plugin.runs == 2


# What goes wrong


async def test_exec_plugin_missing_command_is_reported_with_the_install_hint(plugin: Plugin) -> None:
    credentials = plugin.credentials(
        command="no-such-plugin", installHint="Run:\n\x1b[1mbrew install it\x1b[0m"
    )
    assert await complaint(credentials) == "no-such-plugin: command not found; Run: brew install it"
    assert "put it on the PATH" in await complaint(plugin.credentials(command="no-such-plugin"))


async def test_exec_plugin_command_that_cannot_run_is_reported_with_the_reason(plugin: Plugin) -> None:
    plugin.path.chmod(0o644)
    assert (await complaint(plugin.credentials())).endswith("cannot be run: Permission denied")


async def test_exec_plugin_failure_quotes_the_end_of_its_output(plugin: Plugin) -> None:
    plugin.does("seq 1000 >&2; printf 'first\\n\\033[31mplease log in\\033[0m\\n' >&2; exit 7")
    said = await complaint(plugin.credentials())
    assert "exited with 7: …" in said
    assert said.endswith("1000 first please log in")
    assert len(said) < 500


async def test_exec_plugin_failure_without_output_is_reported(plugin: Plugin) -> None:
    plugin.does("exit 1")
    assert (await complaint(plugin.credentials())).endswith("exited with 1: it wrote nothing to stderr")


async def test_exec_plugin_that_hangs_is_stopped_with_its_children(plugin: Plugin, tmp_path: Path) -> None:
    plugin.does(f"sleep 1000 & echo $! > {tmp_path}/child; wait")
    assert "did not finish within 0.5 s" in await complaint(plugin.credentials(timeout=0.5))
    child = (tmp_path / "child").read_text().strip()
    status = Path(f"/proc/{child}/status")
    process.wait_for(
        lambda: not status.exists() or "(zombie)" in status.read_text(),
        what="the end of what the plugin started",
    )


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("", "its output is not an ExecCredential"),
        ("hunter2", "its output is not an ExecCredential: JSON is malformed"),
        ("\xff", "its output is not an ExecCredential"),
        ('{"token": "hunter2"}', f"its output is not an ExecCredential of {V1}"),
        (
            credential(version=V1BETA1, token="hunter2"),
            f"its output is not an ExecCredential of {V1}; set apiVersion",
        ),
        (json.dumps({"apiVersion": V1, "kind": "ExecCredential"}), "returned no status"),
        (credential(), "returned neither a token nor a certificate"),
        (credential(clientCertificateData="hunter2"), "returned a certificate or a key, but not both"),
        (
            credential(clientCertificateData="x", clientKeyData="hunter2"),
            "clientCertificateData: contains no PEM certificate",
        ),
        (credential(token=["hunter2"]), "Expected `str`, got `list` - at `$.status.token`"),
        (credential(token="hunter2", expirationTimestamp="soon"), "Invalid RFC3339 encoded datetime"),
        (credential(token="hunter2\nX: y"), "token: must be one line"),
    ],
)
async def test_exec_plugin_invalid_output_is_reported_and_not_shown(
    output: str, message: str, plugin: Plugin
) -> None:
    plugin.path.with_suffix(".txt").write_bytes(output.encode("latin-1"))
    plugin.does(f"cat {plugin.path}.txt")
    said = await complaint(plugin.credentials())
    assert message in said
    assert "hunter2" not in said


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"command": ""}, "exec: command is missing"),
        (
            {"apiVersion": "client.authentication.k8s.io/v1alpha1"},
            "v1alpha1' is not supported; use .*/v1 or .*/v1beta1",
        ),
        ({"interactiveMode": ""}, "interactiveMode must be one of Never, IfAvailable, Always"),
        ({"interactiveMode": "Sometimes"}, "interactiveMode must be one of Never, IfAvailable, Always"),
    ],
)
def test_exec_plugin_rejects_invalid_settings_before_it_runs(
    settings: dict[str, Any], message: str, plugin: Plugin
) -> None:
    with pytest.raises(ConfigError, match=message):
        plugin.credentials(**settings)


@pytest.mark.parametrize(
    "said",
    [
        "got eyJhbGciOiJSUzI1NiJ9.eyJodW50ZXIyIjoxfQ.c2ln-hunter2",
        "Authorization: Bearer hunter2",
        "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----",
        "-----BEGIN EC PRIVATE KEY-----\nhunter2",
    ],
)
def test_exec_plugin_output_is_quoted_without_secrets(said: str) -> None:
    assert "hunter2" not in summarize_output(said)


# Terminals


async def test_exec_plugin_that_needs_a_terminal_is_not_run_without_one(plugin: Plugin) -> None:
    assert "needs a terminal" in await complaint(plugin.credentials(interactiveMode="Always"))
    assert plugin.runs == 0


async def test_exec_plugin_with_optional_terminal_has_empty_input_without_one(plugin: Plugin) -> None:
    plugin.does(f"cat; echo {shlex.quote(credential(token='abc'))}")
    assert await token(plugin.credentials(interactiveMode="IfAvailable")) == "Bearer abc"


def test_exec_plugin_can_prompt_on_a_terminal(plugin: Plugin, tmp_path: Path) -> None:
    plugin.does(
        'echo "code, please" >&2; read code; '
        f"""echo '{credential(token="@")}' | sed "s/@/$code/" """
    )
    settings = {"command": str(plugin.path), "apiVersion": V1, "interactiveMode": "Always"}
    kubeconfigs.write(tmp_path / "config", user={"exec": settings})
    program = (
        "import asyncio; from trimtab.kube.auth.connection import load_connection; "
        f"way = load_connection(kubeconfig={str(tmp_path / 'config')!r}); "
        "print(asyncio.run(way.get_identity()).headers['Authorization'])"
    )
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=theirs, stdout=subprocess.PIPE, stderr=theirs
    ) as run:
        os.close(theirs)
        assert b"code, please" in os.read(ours, 1000)
        os.write(ours, b"1234\n")
        output, _ = run.communicate()
    os.close(ours)
    assert output == b"Bearer 1234\n"
