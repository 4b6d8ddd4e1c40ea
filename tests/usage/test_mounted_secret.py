"""A Secret that is mounted as a folder: which settings its keys give, and that rotated files are read again."""

import base64
from pathlib import Path

import pytest

from trimtab.usage.mounted_secret import replace_credentials
from trimtab.usage.prometheus.endpoint import find_endpoints
from trimtab.usage.prometheus.settings import PrometheusSettings

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
        # What is not complete is not used, and the token that is missing is named when it is read.
        ({"ca.crt"}, {"ca_file", "token_file"}),
        ({"username"}, {"token_file"}),
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
