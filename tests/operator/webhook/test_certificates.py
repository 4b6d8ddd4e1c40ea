"""Certificates of our own making: believed by a verifier that is not ours, renewed in time, old beside new."""

import ssl
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from trimtab.operator.webhook.certificates import ServingCertificate, add_authority, generate_certificate

NOW = datetime.now(UTC)
DAY = timedelta(days=1)
NAMES = ("trimtab-webhook.trimtab-system.svc", "127.0.0.1")


@pytest.fixture(scope="module")
def pair() -> ServingCertificate:
    return generate_certificate(NAMES, now=NOW, validity=90 * DAY)


def test_certificate_is_renewed_after_two_thirds_of_its_validity(pair: ServingCertificate) -> None:
    assert pair.is_valid_for(NAMES, now=NOW + 59 * DAY)
    assert not pair.is_valid_for(NAMES, now=NOW + 61 * DAY)
    assert pair.expires > NOW + 61 * DAY


def test_certificate_from_the_future_is_renewed(pair: ServingCertificate) -> None:
    assert not pair.is_valid_for(NAMES, now=NOW - DAY)


def test_certificate_is_renewed_for_another_name(pair: ServingCertificate) -> None:
    assert pair.is_valid_for(NAMES[:1], now=NOW)
    assert not pair.is_valid_for(("other.svc",), now=NOW)


def test_certificate_that_can_serve_nobody_is_recognized(pair: ServingCertificate) -> None:
    """A Secret may hold what somebody else has put there."""
    other = generate_certificate(NAMES, now=NOW, validity=DAY)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "by its common name alone")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(NOW).not_valid_after(NOW + DAY)
    plain = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    assert pair.is_valid()
    assert not replace(pair, certificate=b"").is_valid()
    assert not replace(pair, authority=b"").is_valid()
    assert not replace(pair, key=b"").is_valid()
    assert not replace(pair, key=other.key).is_valid()
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    its_key = key.private_bytes(serialization.Encoding.PEM, *form)
    assert not replace(pair, certificate=plain, key=its_key).is_valid()


def test_certificate_bundle_keeps_the_old_authority_only_as_long_as_needed(
    pair: ServingCertificate,
) -> None:
    second = generate_certificate(NAMES, now=NOW + 60 * DAY, validity=90 * DAY).with_previous_authority(
        pair, now=NOW + 60 * DAY
    )
    assert len(x509.load_pem_x509_certificates(second.authority)) == 2
    assert pair.authority in second.authority
    third = generate_certificate(NAMES, now=NOW + 120 * DAY, validity=90 * DAY).with_previous_authority(
        second, now=NOW + 120 * DAY
    )
    assert len(x509.load_pem_x509_certificates(third.authority)) == 2
    assert pair.authority not in third.authority
    late = generate_certificate(NAMES, now=NOW + 99 * DAY, validity=90 * DAY).with_previous_authority(
        pair, now=NOW + 99 * DAY
    )
    assert len(x509.load_pem_x509_certificates(late.authority)) == 1


def test_certificate_keys_are_never_stored_or_shown(pair: ServingCertificate) -> None:
    assert pair.key.count(b"PRIVATE KEY") == 2
    assert b"PRIVATE KEY" not in pair.authority + pair.certificate
    assert "PRIVATE KEY" not in repr(pair)
    ssl.create_default_context(cadata=pair.authority.decode())


AUTHORITIES = [
    generate_certificate(["web"], now=NOW + n * DAY, validity=timedelta(days=90)).authority for n in range(12)
]


@given(st.lists(st.integers(0, 11), min_size=1, max_size=20))
def test_added_authority_is_trusted_beside_the_latest_that_are(order: list[int]) -> None:
    known = b""
    for number in order:
        before, known = known, add_authority(AUTHORITIES[number], known, now=NOW)
        trusted = x509.load_pem_x509_certificates(known)
        (added,) = x509.load_pem_x509_certificates(AUTHORITIES[number])
        assert added in trusted
        assert len(trusted) == len(set(trusted)) <= 9
        if before:
            latest = x509.load_pem_x509_certificates(before)[0]
            assert latest in trusted, "the certificate that is shown is of this one"
        assert add_authority(AUTHORITIES[number], known, now=NOW) == known


def test_authority_that_has_expired_is_trusted_no_more() -> None:
    later = NOW + timedelta(days=200)
    new = generate_certificate(["web"], now=later, validity=timedelta(days=90)).authority
    assert add_authority(new, AUTHORITIES[0], now=later) == new
    assert add_authority(new, b"no certificate", now=later) == new
