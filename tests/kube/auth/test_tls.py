"""Certificates and authorities: what OpenSSL is given, and what is said when it cannot use it."""

import ssl
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.builders.certificates import Authority, Pair
from trimtab.kube.auth.credential_sources import FileCredentialSource, InlineCredentialSource
from trimtab.kube.auth.tls import KeyPair, Trust
from trimtab.kube.errors import ConfigError

WHERE = ("client-certificate", "client-key")


def _pem(
    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey,
    locked: serialization.KeySerializationEncryption | None = None,
) -> bytes:
    how = locked or serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how)


def complaint(certificate: bytes, key: bytes) -> str:
    with pytest.raises(ConfigError) as caught:
        KeyPair.read(certificate, key, where=WHERE)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@settings(max_examples=200)
@given(st.binary(max_size=200))
def test_tls_rejects_any_bytes_that_are_no_certificate(junk: bytes) -> None:
    pem = ssl.DER_cert_to_PEM_cert(junk).encode()
    assert "client-certificate" in complaint(pem, b"-----BEGIN PRIVATE KEY-----")


def test_tls_trusts_the_system_without_an_authority_and_everything_only_if_insecure() -> None:
    assert Trust(None).get_context(None).verify_mode is ssl.CERT_REQUIRED
    assert Trust(None, insecure=True).get_context(None).verify_mode is ssl.CERT_NONE


@pytest.mark.parametrize("content", [b"junk", b"", "größer".encode()])
def test_tls_rejects_an_authority_that_is_none(content: bytes) -> None:
    with pytest.raises(ConfigError, match="ca: no PEM certificate can be read from it"):
        Trust(InlineCredentialSource("ca", content))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "test-ca")


@pytest.fixture(scope="module")
def pair(authority: Authority) -> Pair:
    return authority.issue("alice")


@pytest.fixture(scope="module")
def other(authority: Authority) -> Pair:
    return authority.issue("bob")


def test_tls_pair_knows_its_expiry(pair: Pair) -> None:
    read = KeyPair.read(pair.cert.read_bytes(), pair.key.read_bytes(), where=WHERE)
    assert read.expires_at == x509.load_pem_x509_certificate(pair.cert.read_bytes()).not_valid_after_utc


def test_tls_pair_parses_an_expiry_after_2049(authority: Authority) -> None:
    """Later times are encoded in another way: with a year of four digits."""
    pair = authority.issue("long", validity=timedelta(days=36500))
    read = KeyPair.read(pair.cert.read_bytes(), pair.key.read_bytes(), where=WHERE)
    assert read.expires_at == x509.load_pem_x509_certificate(pair.cert.read_bytes()).not_valid_after_utc
    assert read.expires_at.year > 2100


def test_tls_pair_may_be_in_one_file(pair: Pair) -> None:
    both = pair.key.read_bytes() + pair.cert.read_bytes()
    assert KeyPair.read(both, both, where=WHERE).certificate == both


def test_tls_pair_rejects_the_key_of_another_certificate(pair: Pair, other: Pair) -> None:
    said = complaint(pair.cert.read_bytes(), other.key.read_bytes())
    assert said == "client-key: is not the key of the certificate in client-certificate"


def test_tls_pair_rejects_a_key_of_another_kind(pair: Pair) -> None:
    said = complaint(pair.cert.read_bytes(), _pem(rsa.generate_private_key(65537, 2048)))
    assert said == "client-key: is not the key of the certificate in client-certificate"


def test_tls_pair_rejects_an_encrypted_key_without_prompting(pair: Pair) -> None:
    key = serialization.load_pem_private_key(pair.key.read_bytes(), password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    locked = _pem(key, serialization.BestAvailableEncryption(b"hunter2"))
    assert "client-key: the key is locked with a passphrase" in complaint(pair.cert.read_bytes(), locked)


@pytest.mark.parametrize(
    ("certificate", "key", "message"),
    [
        (b"junk", None, "client-certificate: contains no PEM certificate"),
        (None, b"junk", "client-key: contains no PEM private key"),
        (
            b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----",
            None,
            "client-certificate: no certificate can be read from it, the PEM data is damaged",
        ),
        (
            b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----",
            None,
            "client-certificate: no certificate can be read from it, the PEM data is damaged",
        ),
        (
            None,
            b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----",
            "client-key: OpenSSL cannot read it, the PEM data is damaged",
        ),
    ],
)
def test_tls_reports_damaged_pem(
    certificate: bytes | None, key: bytes | None, message: str, pair: Pair
) -> None:
    assert message in complaint(certificate or pair.cert.read_bytes(), key or pair.key.read_bytes())


def test_tls_pair_hides_its_key_when_printed(pair: Pair) -> None:
    read = KeyPair.read(pair.cert.read_bytes(), pair.key.read_bytes(), where=WHERE)
    assert "BEGIN" not in repr(read)


def test_tls_trusts_only_the_given_authority(authority: Authority) -> None:
    context = Trust(InlineCredentialSource("ca", authority.cert.read_bytes())).get_context(None)
    assert len(context.get_ca_certs()) == 1
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_tls_authority_file_may_hold_several_and_comments(authority: Authority, tmp_path: Path) -> None:
    second = Authority(tmp_path, "second-ca")
    content = b"".join(
        ["# größer\n".encode(), authority.cert.read_bytes(), b"# 2\n", second.cert.read_bytes()]
    )
    assert len(Trust(InlineCredentialSource("ca", content)).get_context(None).get_ca_certs()) == 2


def test_tls_settings_are_recreated_only_if_authority_or_certificate_changed(
    authority: Authority, pair: Pair, tmp_path: Path
) -> None:
    file = tmp_path / "ca.crt"
    file.write_bytes(authority.cert.read_bytes())
    trust = Trust(FileCredentialSource(file, where="ca"))
    shown = KeyPair.read(pair.cert.read_bytes(), pair.key.read_bytes(), where=WHERE)
    first = trust.get_context(shown)
    assert trust.get_context(shown) is first
    assert trust.get_context(None) is not first
    before = trust.get_context(shown)
    (tmp_path / "new").write_bytes(Authority(tmp_path / "second", "second-ca").cert.read_bytes())
    (tmp_path / "new").rename(file)
    assert trust.get_context(shown) is not before
    file.write_bytes(b"half a fi")
    assert trust.get_context(shown).get_ca_certs()[0]["subject"] == ((("commonName", "second-ca"),),)
