"""Attacks by plugins: taking the name of another plugin, and having the operator connect to other servers."""

from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from harness.builders.certificates import LOOPBACK, Authority
from intents.plugins.test_plugins import ACTUATOR, Lever, info
from trimtab.intents.plugins.protocol import INFO, REGISTER, PluginTls, dial, listen
from trimtab.intents.plugins.registry import PluginRegistry
from trimtab.intents.plugins.server import ActuatorService, serve_plugin

LEVER = ActuatorService(Lever(), lambda *_: "")


@pytest.fixture
def issue(tmp_path: Path) -> Callable[..., PluginTls]:
    """Issue the certificates of a party, all by the authority that the operator trusts."""
    authority = Authority(tmp_path / "authority", "authority")

    def make(name: str, *names: str) -> PluginTls:
        pair = authority.issue(name, hosts=(*LOOPBACK, *(f"DNS:{each}" for each in names)))
        return PluginTls(pair.cert, pair.key, authority.cert)

    return make


@pytest.fixture
def registry(issue: Callable[..., PluginTls]) -> Iterator[PluginRegistry]:
    registry = PluginRegistry(tls=issue("operator"), allowed_endpoints=("*.plugins.svc:9000",))
    yield registry
    registry.close()


def register(port: int, tls: PluginTls, endpoint: str, *, name: str = "lever") -> str:
    """Send a registration and return the operator's refusal; empty if it accepts."""
    with dial(f"127.0.0.1:{port}", tls) as channel:
        try:
            REGISTER.invoke(channel, info(endpoint, name=name), timeout=10)
        except grpc.RpcError as refused:
            return str(refused)
    return ""


def test_plugin_registry_refuses_a_name_that_the_certificate_does_not_prove(
    registry: PluginRegistry, issue: Callable[..., PluginTls]
) -> None:
    attacker = issue("attacker", "attacker")
    with (
        registry.serve("127.0.0.1:0") as port,
        serve_plugin(
            LEVER,
            name="lever",
            address="127.0.0.1:0",
            register_at=f"127.0.0.1:{port}",
            tls=issue("lever", "lever"),
        ) as owner,
        serve_plugin(LEVER, name="lever", address="127.0.0.1:0", tls=attacker) as taken,
    ):
        assert owner.registered.wait(30)
        assert "the certificate is for" in register(port, attacker, taken.endpoint)
        found = registry.get(ACTUATOR, "lever")
        assert found is not None
        assert found.info.endpoint == owner.endpoint


def test_plugin_registry_refuses_a_server_that_does_not_prove_the_name(
    registry: PluginRegistry, issue: Callable[..., PluginTls]
) -> None:
    """The endpoint may be reached by somebody else when the operator connects, such as after a restart."""
    server, port = listen("127.0.0.1:0", issue("attacker", "attacker"), [(INFO, lambda _: info("x:1"))])
    try:
        with registry.serve("127.0.0.1:0") as at:
            refusal = register(at, issue("lever", "lever"), f"127.0.0.1:{port}")
        assert "does not answer as lever" in refusal
    finally:
        server.stop(None)


@pytest.mark.parametrize(
    ("endpoint", "why"),
    [
        ("kubernetes.default.svc:443", "is not at"),
        ("169.254.169.254:80", "is not at"),
        ("10.0.0.9:10250", "is not at"),
        ("[::ffff:10.0.0.9]:443", "is not at"),
        ("lever.plugins.svc:9001", "is not at"),
        ("lever.plugins.svc:9000:9001", "must be HOST:PORT"),
    ],
)
def test_plugin_registry_connects_to_no_server_that_a_plugin_chooses(
    registry: PluginRegistry, issue: Callable[..., PluginTls], endpoint: str, why: str
) -> None:
    with registry.serve("127.0.0.1:0") as port:
        assert why in register(port, issue("lever", "lever"), endpoint)
