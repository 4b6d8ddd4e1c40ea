"""The certificate that replicas share: in a Secret, made by whoever comes first and renewed by whoever notices first.

The Secret is written over the version that was read and no other, so of two replicas that renew at once one loses and
takes what the other wrote.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import structlog

from trimtab.kube.client import Client, Object
from trimtab.kube.errors import Conflict, NotFound
from trimtab.kube.resources import Resource
from trimtab.operator.webhook.certificate import Pair, made

log = structlog.get_logger(__name__)

SECRETS = Resource("", "v1", "secrets", "Secret")

_KEYS = {"certificate": "tls.crt", "key": "tls.key", "authority": "ca.crt"}
_ATTEMPTS = 5


class SharedCertificate:
    """The certificate in a Secret, for these names of the webhook."""

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        secret: str,
        names: Sequence[str],
        lasts: timedelta,
        now: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._secret = secret
        self._names = names
        self._lasts = lasts
        self._now = now

    async def current(self) -> Pair:
        """The certificate to use now; a new one where there is none, or it ends soon, or is for other names."""
        for attempt in range(1, _ATTEMPTS + 1):
            found = await self._read()
            pair = _pair(found)
            if pair is not None and pair.serves(self._names, now=self._now()):
                return pair
            renewed = made(self._names, now=self._now(), lasts=self._lasts).after(pair, now=self._now())
            try:
                await self._write(found, renewed)
            except Conflict:  # another replica was first: what it wrote will do
                if attempt == _ATTEMPTS:
                    raise
                continue
            log.info("webhook.certificate_made", secret=self._secret, expires=renewed.expires.isoformat())
            return renewed
        raise AssertionError("unreachable")

    async def _read(self) -> Object | None:
        try:
            return await self._client.get(SECRETS, self._secret, namespace=self._namespace)
        except NotFound:
            return None

    async def _write(self, found: Object | None, pair: Pair) -> None:
        data = {key: base64.b64encode(getattr(pair, name)).decode() for name, key in _KEYS.items()}
        if found is None:
            metadata = {"name": self._secret, "namespace": self._namespace}
            body = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls"}
            await self._client.create(
                SECRETS, {**body, "metadata": metadata, "data": data}, namespace=self._namespace
            )
        else:
            await self._client.replace(SECRETS, {**found, "data": data})


def _pair(secret: Object | None) -> Pair | None:
    """What a Secret holds; None where that is no certificate that could serve us, which is then made anew."""
    data = (secret or {}).get("data") or {}
    try:
        pair = Pair(**{name: base64.b64decode(data[key]) for name, key in _KEYS.items()})
    except (KeyError, ValueError):
        return None
    return pair if pair.is_sound() else None
