"""The certificate that somebody else makes and renews, in files; read again at every look."""

from __future__ import annotations

import asyncio

from trimtab.kube.errors import ConfigError
from trimtab.operator.config import CertificateFiles
from trimtab.operator.webhook.certificate import Pair


class GivenCertificate:
    """The certificate in these files."""

    def __init__(self, files: CertificateFiles) -> None:
        self._files = files

    async def current(self) -> Pair:
        """What the files hold now."""
        return await asyncio.to_thread(self._read)

    def _read(self) -> Pair:
        files = self._files
        try:
            pair = Pair(
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
                f"webhook.certificateFiles.authority: {files.authority} is no certificate; it has to be PEM"
            )
        return pair
