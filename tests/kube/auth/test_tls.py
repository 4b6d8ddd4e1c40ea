"""Certificates and authorities: what OpenSSL is given, and what is said when it cannot use it."""

import ssl

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.kube.auth.credential_sources import InlineCredentialSource
from trimtab.kube.auth.tls import KeyPair, Trust
from trimtab.kube.errors import ConfigError

WHERE = ("client-certificate", "client-key")


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
