"""Plugins over real gRPC: how they come, what they are asked, and that none of them can do harm."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from harness.builders.certificates import LOOPBACK, Authority
from intents.plugins.test_plugins import ACTUATOR, Lever, info
from trimtab.intents.plugins.protocol import (
    REGISTER,
    PluginTls,
    dial,
)
from trimtab.intents.plugins.registry import PluginRegistry
from trimtab.intents.plugins.server import ActuatorService, serve_plugin


@pytest.fixture
def registry() -> Iterator[PluginRegistry]:
    registry = PluginRegistry(timeout=2.0)
    yield registry
    registry.close()


def test_registry_requires_mutual_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "own", "own")
    ours, theirs = (authority.issue(name, hosts=(*LOOPBACK, f"DNS:{name}")) for name in ("operator", "lever"))
    stranger = Authority(tmp_path / "other", "other").issue("stranger", hosts=LOOPBACK)
    registry = PluginRegistry(tls=PluginTls(ours.cert, ours.key, authority.cert))
    service = ActuatorService(Lever(), lambda *_: "")
    with registry.serve("localhost:0") as port:
        place = f"localhost:{port}"
        with serve_plugin(
            service,
            name="lever",
            address="localhost:0",
            register_at=place,
            tls=PluginTls(theirs.cert, theirs.key, authority.cert),
        ) as plugin:
            assert plugin.registered.wait(30)
            assert [each.info.name for each in registry.list_available(ACTUATOR)] == ["lever"]
        with (
            dial(place, PluginTls(stranger.cert, stranger.key, authority.cert)) as channel,
            pytest.raises(grpc.RpcError),
        ):
            REGISTER.invoke(channel, info("localhost:1"), timeout=5)
        with dial(place, None) as channel, pytest.raises(grpc.RpcError):
            REGISTER.invoke(channel, info("localhost:1"), timeout=5)


def test_registry_and_plugin_reload_renewed_certificates(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "own", "own")
    ours, theirs = (authority.issue(name, hosts=(*LOOPBACK, f"DNS:{name}")) for name in ("operator", "lever"))
    trusted = tmp_path / "trusted"
    shutil.copy(authority.cert, trusted)
    registry = PluginRegistry(tls=PluginTls(ours.cert, ours.key, trusted))
    service = ActuatorService(Lever(), lambda *_: "")
    plugin_tls = PluginTls(theirs.cert, theirs.key, trusted)
    with registry.serve("localhost:0") as port:
        place = f"localhost:{port}"
        with serve_plugin(
            service, name="lever", address="localhost:0", register_at=place, tls=plugin_tls
        ) as plugin:
            assert plugin.registered.wait(30)
            (there,) = registry.list_all()
            renewed = Authority(tmp_path / "new", "new")
            for name, pair in (("operator", ours), ("lever", theirs)):
                fresh = renewed.issue(name, hosts=(*LOOPBACK, f"DNS:{name}"))
                shutil.copy(fresh.cert, pair.cert)
                shutil.copy(fresh.key, pair.key)
            with dial(place, plugin_tls) as channel, pytest.raises(grpc.RpcError):
                REGISTER.invoke(channel, info(plugin.endpoint), timeout=30)  # half of it is there
            shutil.copy(renewed.cert, trusted)
            with dial(place, plugin_tls) as channel:
                REGISTER.invoke(channel, info(plugin.endpoint), timeout=30)
            there.channel.close()
            for now in (1e9, 2e9):  # the first check finds that it is unavailable, and reconnects
                registry.check(now)
            assert registry.list_available(ACTUATOR) == [there]
