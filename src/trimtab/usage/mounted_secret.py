"""Take the credentials of a usage source from a Secret that is mounted as a folder, a file for each key.

The kubelet replaces the files when the Secret changes, and sources read them again, so that a rotation needs no restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

_FIELDS = {
    "token": "token_file",
    "username": "username_file",
    "password": "password_file",
    "ca.crt": "ca_file",
    "tls.crt": "cert_file",
    "tls.key": "key_file",
}
"""The setting for each key of a Secret; the keys of types that Kubernetes defines have their names."""
_PAIRS = (("username_file", "password_file"), ("cert_file", "key_file"))
CREDENTIAL_FIELDS = frozenset({*_FIELDS.values(), "username", "cloud_identity", "aws_region"})
"""The settings that authenticate a source, or the server to it."""


def replace_credentials(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the settings of a source with the credentials of a mounted Secret instead of its own."""
    found = {field for key, field in _FIELDS.items() if (folder / key).exists()}
    if "token_file" in found:
        found -= {*_PAIRS[0]}
    halves = {field for pair in _PAIRS if len(found & {*pair}) == 1 for field in pair}
    if not found - halves - {"ca_file"}:
        # Missing until the Secret has it: the source names the file that it cannot read.
        found |= halves or {"token_file"}
    else:
        found -= halves
    replaced = {*CREDENTIAL_FIELDS, "insecure"} if "ca_file" in found else CREDENTIAL_FIELDS - {"ca_file"}
    kept = {field: value for field, value in settings.items() if field not in replaced}
    return kept | {field: folder / key for key, field in _FIELDS.items() if field in found}
