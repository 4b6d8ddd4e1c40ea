"""Credentials that we hold ourselves: given as they are now, kept while they are being replaced, never shown."""

from datetime import timedelta
from pathlib import Path

import pytest

from harness.builders.certificates import Authority, Pair
from kube.auth.test_credentials import replace, written
from trimtab.kube.auth.credential_sources import FileCredentialSource
from trimtab.kube.auth.credentials import (
    LocalCredentialProvider,
)
from trimtab.kube.auth.tls import KeyPair
from trimtab.kube.errors import ConfigError


def certificate(pair: Pair) -> tuple[FileCredentialSource, FileCredentialSource]:
    return FileCredentialSource(pair.cert, where="client-certificate"), FileCredentialSource(
        pair.key, where="client-key"
    )


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "test-ca")


async def test_credentials_send_token_and_certificate(authority: Authority) -> None:
    pair = authority.issue("alice")
    proof = await LocalCredentialProvider(
        token=written("abc"), certificate=certificate(pair)
    ).get_credential()
    assert proof.authorization
    assert proof.certificate
    assert proof.certificate.certificate == pair.cert.read_bytes()


async def test_credentials_wait_for_a_matching_certificate_and_key(
    authority: Authority, tmp_path: Path
) -> None:
    old, new = authority.issue("old"), authority.issue("new")
    live = Pair(cert=tmp_path / "tls.crt", key=tmp_path / "tls.key")
    live.cert.write_bytes(old.cert.read_bytes())
    live.key.write_bytes(old.key.read_bytes())
    credentials = LocalCredentialProvider(certificate=certificate(live))
    before = await credentials.get_credential()
    replace(live.cert, new.cert.read_text())
    assert await credentials.get_credential() is before
    replace(live.key, new.key.read_text())
    proof = await credentials.get_credential()
    assert proof.certificate
    assert proof.certificate.certificate == new.cert.read_bytes()


# Expiry


def test_credentials_reject_an_expired_certificate_with_advice(authority: Authority) -> None:
    pair = authority.issue("alice")
    read = KeyPair.read(pair.cert.read_bytes(), pair.key.read_bytes(), where=("c", "k"))
    with pytest.raises(
        ConfigError, match=r"client-certificate \(.*alice.crt\): the certificate expired on .* UTC; renew it"
    ):
        LocalCredentialProvider(certificate=certificate(pair), now=lambda: read.expires_at)


async def test_credentials_reject_a_certificate_once_it_expires(authority: Authority) -> None:
    pair = authority.issue("alice")
    read = KeyPair.read(pair.cert.read_bytes(), pair.key.read_bytes(), where=("c", "k"))
    now = read.expires_at - timedelta(seconds=1)
    credentials = LocalCredentialProvider(certificate=certificate(pair), now=lambda: now)
    assert (await credentials.get_credential()).certificate
    now = read.expires_at
    with pytest.raises(ConfigError, match="expired"):
        await credentials.get_credential()


async def test_credentials_accept_an_expired_certificate_beside_a_token(authority: Authority) -> None:
    pair = authority.issue("alice")
    read = KeyPair.read(pair.cert.read_bytes(), pair.key.read_bytes(), where=("c", "k"))
    credentials = LocalCredentialProvider(
        token=written("abc"), certificate=certificate(pair), now=lambda: read.expires_at
    )
    assert (await credentials.get_credential()).authorization
