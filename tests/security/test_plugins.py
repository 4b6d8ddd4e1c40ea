"""Attacks by plugins on the registration, as pure decisions."""

import pytest

from intents.plugins.test_plugins import info
from trimtab.intents.plugins.protocol import Caller
from trimtab.intents.plugins.registry import MAX_ENDPOINT, find_registration_problem

ALLOWED = ("*.plugins.svc:9000",)


@pytest.mark.parametrize(
    ("caller", "endpoint"),
    [
        ("10.1.2.3", "10.1.2.3:9000"),
        ("::ffff:10.1.2.3", "10.1.2.3:9000"),
        ("fd00::7", "[fd00:0::7]:9000"),
        ("127.0.0.1", "localhost:9000"),
        ("127.0.0.1", "unix:/run/lever.sock"),
        ("", "unix:/run/lever.sock"),
        ("10.1.2.3", "lever.plugins.svc:9000"),
    ],
)
def test_plugin_may_register_its_own_address_and_allowed_endpoints(caller: str, endpoint: str) -> None:
    assert find_registration_problem(info(endpoint), Caller(caller, frozenset({"lever"})), ALLOWED) == ""


@pytest.mark.parametrize(
    ("caller", "endpoint"),
    [
        ("10.1.2.3", "10.1.2.4:9000"),
        ("10.1.2.3", "localhost:9000"),
        ("10.1.2.3", "127.0.0.1:9000"),
        ("10.1.2.3", "unix:/var/run/containerd.sock"),
        ("10.1.2.3", "kubernetes.default.svc:443"),
        ("10.1.2.3", "lever.plugins.svc:9001"),
        ("", "10.1.2.3:9000"),
    ],
)
def test_plugin_may_not_register_the_address_of_another_server(caller: str, endpoint: str) -> None:
    problem = find_registration_problem(info(endpoint), Caller(caller, frozenset({"lever"})), ALLOWED)
    assert problem.startswith("endpoint: ")


@pytest.mark.parametrize("names", [frozenset[str](), frozenset({"other"}), frozenset({"*", "lever.svc"})])
def test_plugin_may_register_only_the_name_of_its_certificate(names: frozenset[str]) -> None:
    problem = find_registration_problem(info("10.1.2.3:9000"), Caller("10.1.2.3", names), ())
    assert problem.startswith("name: ")


def test_plugin_refusal_does_not_repeat_endpoints_of_any_length() -> None:
    problem = find_registration_problem(info("a" * 100_000 + ":1"), Caller("10.1.2.3", None), ())
    assert len(problem) < MAX_ENDPOINT + 100
