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
CREDENTIAL_FIELDS = frozenset({*_FIELDS.values(), "username", "cloud_identity"})
"""The settings that authenticate a source, or the server to it."""


def replace_credentials(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the settings of a source with the credentials of a mounted Secret instead of its own."""
    found = {field: folder / key for key, field in _FIELDS.items() if (folder / key).exists()}
    if "token_file" in found:
        found = {
            field: path for field, path in found.items() if field not in {"username_file", "password_file"}
        }
    for pair in (("username_file", "password_file"), ("cert_file", "key_file")):
        if not found.keys() >= set(pair):
            found = {field: path for field, path in found.items() if field not in pair}
    if not found.keys() - {"ca_file"}:
        # Missing until the Secret has it: the source names the file that it cannot read.
        found["token_file"] = folder / "token"
    kept = {
        field: value
        for field, value in settings.items()
        if field not in CREDENTIAL_FIELDS or (field == "ca_file" and "ca_file" not in found)
    }
    return kept | found
