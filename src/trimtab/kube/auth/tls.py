"""TLS to the API server: whom we trust, and the certificate that we show.

Only what the standard library needs told lives here. Go's verifier, which wrote most kubeconfigs' authorities,
accepts an intermediate as a root and certificates without key identifiers; the context is set to agree with it.
Keys never touch a disk on their way into OpenSSL.
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
        """Check that the two belong together; `where` says where each stands, for the message if not."""
        leaf = _CERTIFICATE.search(certificate)
        if not leaf:
            raise ConfigError(f"{where[0]}: no PEM certificate in it")
        if b"PRIVATE KEY-----" not in key:
            raise ConfigError(f"{where[1]}: no PEM private key in it")
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
            raise ConfigError(f"{where[0]} or {where[1]}: damaged PEM, OpenSSL cannot read it") from None
        except (ValueError, IndexError, StopIteration):
            raise ConfigError(f"{where[0]}: damaged PEM, no certificate can be read from it") from None
        return pair

    def load_into(self, context: ssl.SSLContext) -> None:
        """Let connections made with this context show the certificate."""
        with _in_memory(self.certificate) as certificate, _in_memory(self.key) as key:
            context.load_cert_chain(certificate, key, password=_refuse_passphrase)


class Trust:
    """Which servers we believe: those an authority vouches for, those the system trusts, or any.

    An authority that cannot be used is refused at once.
    """

    def __init__(self, authority: CredentialSource | None, *, insecure: bool = False) -> None:
        self._authority = authority
        self._insecure = insecure
        self._latest: LastGoodValue[tuple[bytes | None, KeyPair | None], ssl.SSLContext] = LastGoodValue(
            self._build
        )
        self.get_context(None)

    def get_context(self, certificate: KeyPair | None) -> ssl.SSLContext:
        """The settings of a connection that shows this certificate; the same object until something changed."""
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
                # Only comments around the certificates can hold anything else than ASCII.
                context.load_verify_locations(cadata=authority.decode("ascii", "ignore"))
            except (ssl.SSLError, ValueError):
                raise ConfigError(
                    f"{self._authority.where}: no PEM certificate can be read from it"
                ) from None
        if shown:
            shown.load_into(context)
        return context


class _EncryptedKeyError(Exception):
    """The private key asks for a passphrase."""


def _refuse_passphrase() -> NoReturn:
    """Without this OpenSSL would stop and ask on the terminal."""
    raise _EncryptedKeyError


@contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """A path under which OpenSSL, which takes key pairs from files only, finds these bytes."""
    with os.fdopen(os.memfd_create("trimtab"), "wb") as file:
        file.write(content)
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"


def _read_expiry(pem: str) -> datetime:
    """When a certificate ends. The API server says only 401 about an expired one, and Python cannot tell."""
    certificate = _iter_elements(memoryview(ssl.PEM_cert_to_DER_cert(pem)))
    to_be_signed = _iter_elements(next(_iter_elements(next(certificate)[1]))[1])
    # RFC 5280: [0] version, serial number, signature, issuer, validity = notBefore, notAfter
    validity = [content for tag, content in to_be_signed if tag != 0xA0][3]
    tag, text = list(_iter_elements(validity))[1]
    digits = bytes(text).decode("ascii")
    return datetime.strptime(digits, "%y%m%d%H%M%SZ" if tag == 0x17 else "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _iter_elements(der: memoryview) -> Iterator[tuple[int, memoryview]]:
    """The tags and contents of DER elements that follow each other."""
    while der:
        tag, length, start = der[0], der[1], 2
        if length & 0x80:
            start += length & 0x7F
            length = int.from_bytes(der[2:start], "big")
        yield tag, der[start : start + length]
        der = der[start + length :]
