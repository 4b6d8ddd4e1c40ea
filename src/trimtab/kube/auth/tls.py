"""TLS to the API server: the trusted CAs and the client certificate.

Go's verifier, which most kubeconfigs are written for, accepts an intermediate as a root and certificates without key
identifiers; the SSL context is configured to do the same. Keys are never written to disk on their way into OpenSSL.
"""

import os
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NoReturn, Self

from trimtab.kube.auth.credential_sources import CredentialSource, LastGoodValue
from trimtab.kube.errors import ConfigError

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


@dataclass(frozen=True)
class KeyPair:
    """A client certificate (PEM, with its intermediates) and its private key."""

    certificate: bytes = field(repr=False)
    key: bytes = field(repr=False)
    expires_at: datetime

    @classmethod
    def read(cls, certificate: bytes, key: bytes, *, where: tuple[str, str]) -> Self:
        """Check that the two belong together; `where` names the origin of each for the error message."""
        leaf = _CERTIFICATE.search(certificate)
        if not leaf:
            raise ConfigError(f"{where[0]}: contains no PEM certificate")
        if b"PRIVATE KEY-----" not in key:
            raise ConfigError(f"{where[1]}: contains no PEM private key")
        try:
            pair = cls(certificate, key, expires_at=_read_expiry(leaf.group().decode("ascii")))
            pair.load_into(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        except _EncryptedKeyError:
            raise ConfigError(
                f"{where[1]}: the key is locked with a passphrase; store it without one (openssl pkey)"
            ) from None
        except ssl.SSLError as error:
            if error.reason in {"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED"}:
                raise ConfigError(f"{where[1]}: is not the key of the certificate in {where[0]}") from None
            raise ConfigError(
                f"{where[0]} or {where[1]}: OpenSSL cannot read it, the PEM data is damaged"
            ) from None
        except (ValueError, IndexError, StopIteration):
            raise ConfigError(
                f"{where[0]}: no certificate can be read from it, the PEM data is damaged"
            ) from None
        return pair

    def load_into(self, context: ssl.SSLContext) -> None:
        """Make connections with this context present the certificate."""
        with _in_memory(self.certificate) as certificate, _in_memory(self.key) as key:
            context.load_cert_chain(certificate, key, password=_refuse_passphrase)


class Trust:
    """The servers to trust: those that a CA vouches for, those that the system trusts, or any.

    A CA bundle that cannot be read is rejected when the object is created.
    """

    def __init__(self, authority: CredentialSource | None, *, insecure: bool = False) -> None:
        self._authority = authority
        self._insecure = insecure
        self._latest: LastGoodValue[tuple[bytes | None, KeyPair | None], ssl.SSLContext] = LastGoodValue(
            self._build
        )
        self.get_context(None)

    def get_context(self, certificate: KeyPair | None) -> ssl.SSLContext:
        """Return the SSL context that presents this certificate; the same object until something changes."""
        return self._latest.get((self._authority.read() if self._authority else None, certificate))

    def _build(self, inputs: tuple[bytes | None, KeyPair | None]) -> ssl.SSLContext:
        authority, shown = inputs
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.set_alpn_protocols(["http/1.1"])
        if self._insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif authority is None or self._authority is None:
            context.load_default_certs()
        else:
            try:
                # Only comments around the certificates can contain non-ASCII characters.
                context.load_verify_locations(cadata=authority.decode("ascii", "ignore"))
            except (ssl.SSLError, ValueError):
                raise ConfigError(
                    f"{self._authority.where}: no PEM certificate can be read from it"
                ) from None
        if shown:
            shown.load_into(context)
        return context


class _EncryptedKeyError(Exception):
    """The private key needs a passphrase."""


def _refuse_passphrase() -> NoReturn:
    """Raise instead of returning a passphrase; otherwise OpenSSL would prompt on the terminal."""
    raise _EncryptedKeyError


@contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """Yield a path from which OpenSSL, which loads key pairs from files only, can read these bytes."""
    with os.fdopen(os.memfd_create("trimtab"), "wb") as file:
        file.write(content)
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"


def _read_expiry(pem: str) -> datetime:
    """Return the expiry of a certificate; the API server responds to an expired one with a bare 401, and Python's ssl
    cannot parse it.
    """
    certificate = _iter_elements(memoryview(ssl.PEM_cert_to_DER_cert(pem)))
    to_be_signed = _iter_elements(next(_iter_elements(next(certificate)[1]))[1])
    # RFC 5280: [0] version, serial number, signature, issuer, validity = notBefore, notAfter
    validity = [content for tag, content in to_be_signed if tag != 0xA0][3]
    tag, text = list(_iter_elements(validity))[1]
    digits = bytes(text).decode("ascii")
    return datetime.strptime(digits, "%y%m%d%H%M%SZ" if tag == 0x17 else "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _iter_elements(der: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Iterate over the tags and contents of consecutive DER elements."""
    while der:
        tag, length, start = der[0], der[1], 2
        if length & 0x80:
            start += length & 0x7F
            length = int.from_bytes(der[2:start], "big")
        yield tag, der[start : start + length]
        der = der[start + length :]
