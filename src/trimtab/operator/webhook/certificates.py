"""Serving certificates: generate them, check them, and load them from files or a Secret.

Each generated certificate has a CA of its own, whose key is discarded after signing: nothing can sign another certificate,
and only the serving key needs protection. An API server that trusts the old and the new CA at once
(`ServingCertificate.authority` holds both) does not notice a renewal.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import structlog

from trimtab.kube.errors import ConfigError, Conflict, NotFound
from trimtab.kube.rest.client import Client, Object
from trimtab.kube.rest.resources import Resource
from trimtab.lazy import LazyModule
from trimtab.operator.config.model import CertificateFiles

if TYPE_CHECKING:
    from cryptography import exceptions, x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
else:  # an operator without webhook saves 10 MiB
    exceptions, x509 = LazyModule("cryptography.exceptions"), LazyModule("cryptography.x509")
    hashes, serialization, ec = (
        LazyModule(f"cryptography.hazmat.primitives.{name}")
        for name in ("hashes", "serialization", "asymmetric.ec")
    )

_SKEW = timedelta(minutes=10)
"""The tolerance for an API server's clock that is behind."""

_MAX_AUTHORITIES = 8
"""The maximum number of CAs that are trusted beside the one in use."""

_RENEWAL_SHARE = 1 / 3
"""The share of its validity at which a certificate is renewed: weeks in which a failure can be noticed."""


@dataclass(frozen=True)
class ServingCertificate:
    """A serving certificate, its key, and the CAs that the API server trusts, all as PEM."""

    certificate: bytes
    key: bytes = field(repr=False)
    authority: bytes

    @property
    def expires(self) -> datetime:
        return _leaf(self).not_valid_after_utc

    def trusted_until(self) -> datetime:
        """The expiry of the last CA, and so of everything that they signed."""
        return max(each.not_valid_after_utc for each in x509.load_pem_x509_certificates(self.authority))

    def has_authority(self) -> bool:
        """Return True if the CAs are certificates."""
        try:
            return bool(x509.load_pem_x509_certificates(self.authority))
        except ValueError:
            return False

    def is_valid(self) -> bool:
        """Return True if it can serve: a certificate with names, its key, and a CA."""
        try:
            leaf = _leaf(self)
            _ = _alternative_names(leaf), x509.load_pem_x509_certificates(self.authority)
            key = serialization.load_pem_private_key(self.key, password=None)
        except (ValueError, TypeError, exceptions.UnsupportedAlgorithm, x509.ExtensionNotFound):
            return False
        return key.public_key() == leaf.public_key()

    def is_valid_for(self, names: Sequence[str], *, now: datetime) -> bool:
        """Return True if it covers all of these names, and is valid now and for a while yet."""
        leaf = _leaf(self)
        begins, ends = leaf.not_valid_before_utc, leaf.not_valid_after_utc
        is_good = begins <= now < ends - (ends - begins) * _RENEWAL_SHARE
        return is_good and set(map(_general_name, names)) <= set(_alternative_names(leaf))

    def with_previous_authority(
        self, before: ServingCertificate | None, *, now: datetime
    ) -> ServingCertificate:
        """Return this certificate with the previous CA trusted too, for as long as that is in use."""
        if before is None or before.expires <= now:
            return self
        latest = x509.load_pem_x509_certificates(before.authority)[0]
        return replace(self, authority=self.authority + latest.public_bytes(serialization.Encoding.PEM))


def add_authority(authority: bytes, known: bytes, *, now: datetime) -> bytes:
    """Return the trusted CAs with one added; `known` itself if it is among them.

    A valid CA is never removed, because another replica may still serve a certificate of it. Of too many, the latest
    are kept.
    """
    ours = x509.load_pem_x509_certificates(authority)
    try:
        theirs = x509.load_pem_x509_certificates(known)
    except ValueError:  # nothing is trusted yet, or what is trusted is no certificate
        theirs = []
    if set(ours) <= set(theirs):
        return known
    others = [each for each in theirs if each not in ours and each.not_valid_after_utc > now]
    pem = serialization.Encoding.PEM
    return b"".join(each.public_bytes(pem) for each in (*ours, *others[:_MAX_AUTHORITIES]))


def generate_certificate(names: Sequence[str], *, now: datetime, validity: timedelta) -> ServingCertificate:
    """Generate a certificate for these host names or addresses, with a CA of its own."""
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name(
        [
            x509.NameAttribute(
                x509.oid.NameOID.COMMON_NAME, f"trimtab webhook authority {now:%Y-%m-%dT%H:%M:%S}"
            )
        ]
    )
    subject = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, "trimtab webhook")])

    def begun(name: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(issuer)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _SKEW)
            .not_valid_after(now + validity)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        )

    authority = (
        begun(issuer, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    leaf = (
        begun(subject, key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
        )
        .sign(authority_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    return ServingCertificate(
        certificate=leaf.public_bytes(pem),
        key=key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
        authority=authority.public_bytes(pem),
    )


def _leaf(pair: ServingCertificate) -> x509.Certificate:
    return x509.load_pem_x509_certificates(pair.certificate)[0]


def _alternative_names(leaf: x509.Certificate) -> x509.SubjectAlternativeName:
    return leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


class FileCertificate:
    """The certificate in these files."""

    def __init__(self, files: CertificateFiles) -> None:
        self._files = files

    async def current(self) -> ServingCertificate:
        """Return the present content of the files."""
        return await asyncio.to_thread(self._read)

    def _read(self) -> ServingCertificate:
        files = self._files
        try:
            pair = ServingCertificate(
                certificate=files.certificate.read_bytes(),
                key=files.key.read_bytes(),
                authority=files.authority.read_bytes(),
            )
        except OSError as error:
            raise ConfigError(
                f"webhook.certificateFiles: {error.filename} cannot be read: {error.strerror}"
            ) from None
        if not pair.has_authority():
            raise ConfigError(
                f"webhook.certificateFiles.authority: {files.authority} is not a certificate; write it as PEM"
            )
        return pair


log = structlog.get_logger(__name__)

SECRETS = Resource("", "v1", "secrets", "Secret")

_KEYS = {"certificate": "tls.crt", "key": "tls.key", "authority": "ca.crt"}
_ATTEMPTS = 5


class SecretCertificate:
    """The certificate in a Secret, for these names of the webhook."""

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        secret: str,
        names: Sequence[str],
        validity: timedelta,
        now: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._secret = secret
        self._names = names
        self._validity = validity
        self._now = now

    async def current(self) -> ServingCertificate:
        """Return the certificate to use; generate one if there is none, it expires soon, or it covers other names."""
        for attempt in range(1, _ATTEMPTS + 1):
            found = await self._read()
            pair = _decode_certificate(found)
            if pair is not None and pair.is_valid_for(self._names, now=self._now()):
                return pair
            renewed = generate_certificate(
                self._names, now=self._now(), validity=self._validity
            ).with_previous_authority(pair, now=self._now())
            try:
                await self._write(found, renewed)
            except Conflict:  # another replica was first: use what it wrote
                if attempt == _ATTEMPTS:
                    raise
                continue
            log.info(
                "webhook.certificate_generated", secret=self._secret, expires=renewed.expires.isoformat()
            )
            return renewed
        raise AssertionError("unreachable")

    async def _read(self) -> Object | None:
        try:
            return await self._client.get(SECRETS, self._secret, namespace=self._namespace)
        except NotFound:
            return None

    async def _write(self, found: Object | None, pair: ServingCertificate) -> None:
        data = {key: base64.b64encode(getattr(pair, name)).decode() for name, key in _KEYS.items()}
        if found is None:
            metadata = {"name": self._secret, "namespace": self._namespace}
            body = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls"}
            await self._client.create(
                SECRETS, {**body, "metadata": metadata, "data": data}, namespace=self._namespace
            )
        else:
            await self._client.replace(SECRETS, {**found, "data": data})


def _decode_certificate(secret: Object | None) -> ServingCertificate | None:
    """Return the certificate in a Secret; None if it cannot serve, so that a new one is generated."""
    data = (secret or {}).get("data") or {}
    try:
        pair = ServingCertificate(**{name: base64.b64decode(data[key]) for name, key in _KEYS.items()})
    except (KeyError, ValueError):
        return None
    return pair if pair.is_valid() else None
