"""Certificates and authorities: what OpenSSL is given, and what is said when it cannot use it."""

import ssl
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from harness.builders.certificates import Authority, Pair
from kube.auth.test_tls import WHERE, complaint
from trimtab.kube.auth.credential_sources import FileCredentialSource, InlineCredentialSource
from trimtab.kube.auth.tls import KeyPair, Trust


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"), "test-ca")


@pytest.fixture(scope="module")
def pair(authority: Authority) -> Pair:
    return authority.issue("alice")


@pytest.fixture(scope="module")
def other(authority: Authority) -> Pair:
    return authority.issue("bob")


def openssl(*arguments: str | Path, stdin: bytes = b"") -> bytes:
    return subprocess.run(["openssl", *arguments], input=stdin, capture_output=True, check=True).stdout


def test_tls_pair_knows_its_expiry(pair: Pair) -> None:
    read = KeyPair.read(pair.cert.read_bytes(), pair.key.read_bytes(), where=WHERE)
    told = openssl("x509", "-in", pair.cert, "-noout", "-enddate").decode().strip().removeprefix("notAfter=")
    assert read.expires_at == datetime.fromtimestamp(ssl.cert_time_to_seconds(told), UTC)


def test_tls_pair_parses_an_expiry_after_2049(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key", tmp_path / "certificate"
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "36500")
    openssl("req", "-x509", *curve, "-subj", "/CN=long", "-keyout", key, "-out", certificate)
    assert KeyPair.read(certificate.read_bytes(), key.read_bytes(), where=WHERE).expires_at.year > 2100


def test_tls_pair_may_be_in_one_file(pair: Pair) -> None:
    both = pair.key.read_bytes() + pair.cert.read_bytes()
    assert KeyPair.read(both, both, where=WHERE).certificate == both


def test_tls_pair_rejects_the_key_of_another_certificate(pair: Pair, other: Pair) -> None:
    said = complaint(pair.cert.read_bytes(), other.key.read_bytes())
    assert said == "client-key: is not the key of the certificate in client-certificate"


def test_tls_pair_rejects_a_key_of_another_kind(pair: Pair) -> None:
    said = complaint(pair.cert.read_bytes(), openssl("genrsa", "2048"))
    assert said == "client-key: is not the key of the certificate in client-certificate"


def test_tls_pair_rejects_an_encrypted_key_without_prompting(pair: Pair) -> None:
    locked = openssl("pkey", "-in", pair.key, "-aes256", "-passout", "pass:hunter2")
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
def test_damaged_pem_is_said_to_be_so(
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


def test_settings_are_made_anew_only_when_authority_or_certificate_changed(
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
