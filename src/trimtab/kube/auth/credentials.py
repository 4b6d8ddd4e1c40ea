"""Credentials that authenticate this client to the API server.

A `CredentialProvider` returns a `ClientCredential`: an Authorization header, a client certificate, or both. It is a
snapshot, so a rejected request can name the one that was rejected, and a hundred requests rejected at once renew it
once. This module has the credentials that the kubeconfig or files hold; those that a program issues are in
`exec_plugin`.

Tokens, passwords and keys pass through records that get printed, logged and shown in tracebacks. As `RedactedText`
they show as an ellipsis everywhere; only the line that sends one calls `reveal()`. The type protects against
mistakes, not against hostile code.
"""

import base64
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from trimtab.kube.auth.credential_sources import CredentialSource, InlineCredentialSource, LastGoodValue
from trimtab.kube.auth.tls import KeyPair
from trimtab.kube.errors import ConfigError


class RedactedText:
    """Text whose repr hides it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text itself."""
        return self._text

    def __repr__(self) -> str:
        return "RedactedText(…)"

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RedactedText) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


def decode_redacted(kind: type, value: Any) -> Any:
    """Decode text into RedactedText, as a msgspec `dec_hook`."""
    if kind is not RedactedText:
        raise NotImplementedError
    if not isinstance(value, str):
        raise TypeError(f"Expected `str`, got `{type(value).__name__}`")
    return RedactedText(value)


Clock = Callable[[], datetime]


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class ClientCredential:
    """The Authorization header and the client certificate of a request; `renew` compares it by identity."""

    authorization: RedactedText | None = None
    certificate: KeyPair | None = None


class CredentialProvider(Protocol):
    """A source of credentials that may change over time."""

    async def get_credential(self) -> ClientCredential:
        """Return the current credential, the same object until it changes; cheap if nothing changed."""

    async def renew(self, rejected: ClientCredential) -> bool:
        """Replace the credential that the server rejected; return True if a retry makes sense."""


class LocalCredentialProvider:
    """Credentials from the kubeconfig or files: a token, a user name and password, or a client certificate; otherwise
    anonymous.

    Unusable credentials are rejected when the provider is created.
    """

    def __init__(
        self,
        *,
        token: CredentialSource | None = None,
        password: tuple[str | CredentialSource, CredentialSource] | None = None,
        certificate: tuple[CredentialSource, CredentialSource] | None = None,
        now: Clock = utc_now,
    ) -> None:
        self._token = token
        user = password[0] if password else None
        self._password = password[1] if password else None
        self._user = InlineCredentialSource("user", user.encode()) if isinstance(user, str) else user
        self._certificate = certificate[0] if certificate else None
        self._key = certificate[1] if certificate else None
        self._now = now
        self._latest: LastGoodValue[tuple[bytes | None, ...], ClientCredential] = LastGoodValue(self._build)
        self._load_current()

    async def get_credential(self) -> ClientCredential:
        return self._load_current()

    async def renew(self, rejected: ClientCredential) -> bool:
        for material in self._sources:
            if material:
                material.invalidate()
        return self._load_current() is not rejected

    @property
    def _sources(self) -> tuple[CredentialSource | None, ...]:
        return self._token, self._user, self._password, self._certificate, self._key

    def _load_current(self) -> ClientCredential:
        proof = self._latest.get(tuple(material.read() if material else None for material in self._sources))
        pair = proof.certificate
        # The API server responds to an expired certificate with a bare 401, which does not name the cause.
        if pair and self._certificate and not proof.authorization and pair.expires_at <= self._now():
            raise ConfigError(
                f"{self._certificate.where}: the certificate expired on {pair.expires_at:%Y-%m-%d %H:%M} UTC; renew it"
            )
        return proof

    def _build(self, contents: tuple[bytes | None, ...]) -> ClientCredential:
        token, user, password, shown, key = contents
        authorization, pair = None, None
        if user is not None and password is not None:
            authorization = format_basic_authorization(
                user.decode().strip("\r\n"), RedactedText(password.decode().strip("\r\n"))
            )
        if self._token and token:
            authorization = format_bearer_authorization(token, where=self._token.where)
        if self._certificate and self._key and shown and key:
            pair = KeyPair.read(shown, key, where=(self._certificate.where, self._key.where))
        return ClientCredential(authorization, pair)


def format_bearer_authorization(token: bytes, *, where: str) -> RedactedText:
    """Format the Authorization header of a bearer token."""
    text = token.decode("ascii", "replace").strip()
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise ConfigError(f"{where}: must be one line of printable characters without spaces")
    return RedactedText(f"Bearer {text}")


def format_basic_authorization(username: str, password: RedactedText) -> RedactedText:
    """Format the Authorization header of a user name and a password."""
    pair = f"{username}:{password.reveal()}".encode()
    return RedactedText(f"Basic {base64.b64encode(pair).decode()}")
