"""A Secret that is mounted as a folder: which settings its keys give, and that rotated files are read again."""

import base64
from pathlib import Path

import pytest

from trimtab.usage.mounted_secret import replace_credentials
from trimtab.usage.prometheus.endpoint import find_endpoints
from trimtab.usage.prometheus.settings import PrometheusSettings
from trimtab.usage.prometheus.source import Prometheus

OWN = {"url": "https://prometheus:9090", "token_file": "/own/token", "tenant": "platform"}


def mount(folder: Path, **keys: str) -> Path:
    for key, text in keys.items():
        (folder / key.replace("_", ".")).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("keys", "fields"),
    [
        ({"token"}, {"token_file"}),
        ({"username", "password"}, {"username_file", "password_file"}),
        ({"username", "password", "token"}, {"token_file"}),
        ({"tls.crt", "tls.key", "ca.crt"}, {"cert_file", "key_file", "ca_file"}),
        ({"token", "ca.crt"}, {"token_file", "ca_file"}),
        # What is not complete is not used beside what is; of a half pair alone, the missing file is named when it is read.
        ({"ca.crt"}, {"ca_file", "token_file"}),
        ({"username"}, {"username_file", "password_file"}),
        ({"password", "ca.crt"}, {"username_file", "password_file", "ca_file"}),
        ({"tls.key"}, {"cert_file", "key_file"}),
        ({"tls.crt", "username"}, {"cert_file", "key_file", "username_file", "password_file"}),
        ({"tls.crt", "username", "password"}, {"username_file", "password_file"}),
        ({"tls.crt", "token"}, {"token_file"}),
        (set(), {"token_file"}),
    ],
)
def test_replace_credentials_takes_the_keys_of_the_secret(
    tmp_path: Path, keys: set[str], fields: set[str]
) -> None:
    mount(tmp_path, **dict.fromkeys(keys, "x"))
    found = replace_credentials(OWN, tmp_path)
    assert found.keys() == {"url", "tenant", *fields}
    assert all(Path(found[field]).parent == tmp_path for field in fields)
    assert PrometheusSettings(**found).tenant == "platform"


def test_replace_credentials_keeps_the_own_ca_without_one_in_the_secret(tmp_path: Path) -> None:
    own = {**OWN, "ca_file": "/own/ca.crt", "cloud_identity": "aws"}
    assert replace_credentials(own, mount(tmp_path, token="x"))["ca_file"] == "/own/ca.crt"


@pytest.mark.parametrize(
    ("own", "keys"),
    [
        ({"cloud_identity": "aws", "aws_region": "eu-west-1"}, {"token"}),
        ({"insecure": True}, {"token", "ca.crt"}),
        ({"insecure": True, "username": "ann", "password_file": "/own"}, {"tls.crt", "tls.key", "ca.crt"}),
    ],
)
def test_replace_credentials_drops_what_the_secret_makes_meaningless(
    tmp_path: Path, own: dict[str, object], keys: set[str]
) -> None:
    found = PrometheusSettings(**replace_credentials(own, mount(tmp_path, **dict.fromkeys(keys, "x"))))
    replaced = found.aws_region, found.cloud_identity, found.username, found.insecure
    assert replaced == (None, None, None, False)


def test_replace_credentials_keeps_insecure_without_a_ca_in_the_secret(tmp_path: Path) -> None:
    assert replace_credentials({"insecure": True}, mount(tmp_path, token="x"))["insecure"]


@pytest.mark.parametrize(
    ("key", "missing"),
    [
        ("username", "password_file"),
        ("password", "username_file"),
        ("tls_crt", "key_file"),
        ("tls_key", "cert_file"),
    ],
)
async def test_source_names_the_missing_half_of_a_secret(tmp_path: Path, key: str, missing: str) -> None:
    own = {"url": "https://127.0.0.1:1", "retries": 0}
    settings = PrometheusSettings(**replace_credentials(own, mount(tmp_path, **{key: "x"})))
    async with Prometheus(settings) as source:
        health = await source.check()
    assert missing in health.detail + health.advice


async def test_rotated_user_and_password_are_used_without_a_restart(tmp_path: Path) -> None:
    mount(tmp_path, username="ann\n", password="one")
    settings = PrometheusSettings(**replace_credentials(OWN, tmp_path))
    ((connection, _),) = await find_endpoints(settings, None)

    async def shown() -> str:
        credential = await connection.credentials.get_credential()
        assert credential.authorization is not None
        return base64.b64decode(credential.authorization.reveal().removeprefix("Basic ")).decode()

    assert await shown() == "ann:one"
    for name, text in (("username", "ben"), ("password", "two-two")):
        (tmp_path / "new").write_text(text)
        (tmp_path / "new").rename(tmp_path / name)
    assert await shown() == "ben:two-two"
