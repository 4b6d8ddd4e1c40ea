"""Who we are to the API server, and how we prove it.

Credentials give a `Proof`: an Authorization header, a client certificate, or both. A proof is a snapshot, so a
refused request can say which one was refused, and a hundred requests refused at once renew it once. Here are the
credentials that are at hand, in the kubeconfig or in files; those that a program hands out are in `exec_plugin`.
"""

import base64
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from trimtab.kube.auth.credential_sources import Latest, Material
from trimtab.kube.auth.redacted import Secret
from trimtab.kube.auth.tls import KeyPair
from trimtab.kube.errors import ConfigError

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Proof:
    """What proves to the server who we are. Compared by identity where it matters: see `renew`."""

    authorization: Secret | None = None
    certificate: KeyPair | None = None


class Credentials(Protocol):
    """Somebody's proof of who they are."""

    async def proof(self) -> Proof:
        """The proof to give now, the same object until it changes; cheap when nothing did."""

    async def renew(self, rejected: Proof) -> bool:
        """The server refused this proof: look for another. True when trying again makes sense."""


class AtHand:
    """A token, a name and password, or a client certificate that we hold ourselves; without any, we are anonymous.

    What cannot be used is refused at once.
    """

    def __init__(
        self,
        *,
        token: Material | None = None,
        password: tuple[str, Material] | None = None,
        certificate: tuple[Material, Material] | None = None,
        now: Clock = utc_now,
    ) -> None:
        self._token = token
        self._user = password[0] if password else ""
        self._password = password[1] if password else None
        self._shown = certificate[0] if certificate else None
        self._key = certificate[1] if certificate else None
        self._now = now
        self._latest: Latest[tuple[bytes | None, ...], Proof] = Latest(self._build)
        self._held()

    async def proof(self) -> Proof:
        return self._held()

    async def renew(self, rejected: Proof) -> bool:
        for material in self._materials:
            if material:
                material.forget()
        return self._held() is not rejected

    @property
    def _materials(self) -> tuple[Material | None, ...]:
        return self._token, self._password, self._shown, self._key

    def _held(self) -> Proof:
        proof = self._latest.of(tuple(material.read() if material else None for material in self._materials))
        pair = proof.certificate
        # An expired certificate gets a bare 401 from the server, which tells nobody what to do.
        if pair and self._shown and not proof.authorization and pair.expires <= self._now():
            raise ConfigError(
                f"{self._shown.where}: the certificate expired on {pair.expires:%Y-%m-%d %H:%M} UTC; renew it"
            )
        return proof

    def _build(self, contents: tuple[bytes | None, ...]) -> Proof:
        token, password, shown, key = contents
        authorization, pair = None, None
        if password is not None:
            authorization = basic(self._user, Secret(password.decode().strip("\r\n")))
        if self._token and token:
            authorization = bearer(token, where=self._token.where)
        if self._shown and self._key and shown and key:
            pair = KeyPair.read(shown, key, where=(self._shown.where, self._key.where))
        return Proof(authorization, pair)


def bearer(token: bytes, *, where: str) -> Secret:
    """The Authorization of a bearer token."""
    text = token.decode("ascii", "replace").strip()
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise ConfigError(f"{where}: must be one line of printable characters without spaces")
    return Secret(f"Bearer {text}")


def basic(username: str, password: Secret) -> Secret:
    """The Authorization of a name and a password."""
    pair = f"{username}:{password.reveal()}".encode()
    return Secret(f"Basic {base64.b64encode(pair).decode()}")
