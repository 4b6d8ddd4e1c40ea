"""Find and merge kubeconfig files and select a context, by kubectl's rules.

- A file that the user names is read alone and must exist. Otherwise $KUBECONFIG lists files, separated by colons; else
  it is ~/.kube/config. Missing files among those are skipped.
- If several files define the same name, the first definition is used whole, and so is the first current-context.
- A relative path is relative to the file that contains it.

`kubeconfig_entries` interprets the entries.
"""

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from trimtab.kube.auth.credential_sources import (
    CredentialSource,
    FileCredentialSource,
    InlineCredentialSource,
)
from trimtab.kube.auth.credentials import RedactedText
from trimtab.kube.auth.kubeconfig_file import (
    KubeconfigCluster,
    KubeconfigContext,
    KubeconfigUser,
    decode_kubeconfig,
)
from trimtab.kube.errors import ConfigError

T = TypeVar("T")

_MAX_SHOWN = 10
"""The most contexts that a message names."""


@dataclass(frozen=True)
class KubeconfigEntry(Generic[T]):
    """A cluster, user or context, with the file that defines it."""

    value: T
    file: Path
    title: str

    def where(self, name: str = "") -> str:
        """Return the name of this entry, or of one of its fields, for messages."""
        return f"{self.file}: {self.title}" + (f": {name}" if name else "")

    def resolve_path(self, name: str) -> Path:
        return self.file.absolute().parent / name

    def credential_source(self, name: str, *, data: str | RedactedText, path: str) -> CredentialSource | None:
        """Return the bytes of a field that has two forms: `name` holds a path, `name`-data holds base64."""
        if data and path:
            raise ConfigError(f"{self.where()}: has both {name} and {name}-data; remove one")
        if path:
            return FileCredentialSource(self.resolve_path(path), where=self.where(name))
        if not data:
            return None
        text = data.reveal() if isinstance(data, RedactedText) else data
        try:
            content = base64.b64decode("".join(text.split()), validate=True)
        except (binascii.Error, ValueError):
            raise ConfigError(
                f"{self.where()}: {name}-data is not base64; encode the PEM file with `base64 -w0`"
            ) from None
        return InlineCredentialSource(self.where(f"{name}-data"), content)


@dataclass(frozen=True)
class Kubeconfig:
    """The merged entries of one or several files."""

    files: tuple[Path, ...] = ()
    current_context: str = ""
    clusters: dict[str, KubeconfigEntry[KubeconfigCluster]] = field(default_factory=dict)
    users: dict[str, KubeconfigEntry[KubeconfigUser]] = field(default_factory=dict)
    contexts: dict[str, KubeconfigEntry[KubeconfigContext]] = field(default_factory=dict)

    def select_context(self, context: str | None) -> tuple[str, KubeconfigEntry[KubeconfigContext]]:
        """Return the named context, or the current one."""
        files = ", ".join(map(str, self.files)) or "no kubeconfig"
        name = context or self.current_context
        if not name:
            raise ConfigError(f"{files}: no current-context; choose one of these contexts: {self._names()}")
        if name not in self.contexts:
            asked = "" if context else "current-context names "
            raise ConfigError(
                f"{files}: {asked}context {name!r}, which does not exist; the contexts are: {self._names()}"
            )
        return name, self.contexts[name]

    def _names(self) -> str:
        shown = sorted(self.contexts)[:_MAX_SHOWN]
        more = len(self.contexts) - len(shown)
        return ", ".join(shown) + (f" and {more} more" if more else "") or "none"

    def get_cluster(self, context: KubeconfigEntry[KubeconfigContext]) -> KubeconfigEntry[KubeconfigCluster]:
        name = context.value.cluster
        if name not in self.clusters:
            raise ConfigError(
                f"{context.where('cluster')}: "
                + (f"there is no cluster named {name!r}" if name else "names no cluster")
            )
        return self.clusters[name]

    def get_user(self, context: KubeconfigEntry[KubeconfigContext]) -> KubeconfigEntry[KubeconfigUser]:
        """Return the user of a context; a context without a user is anonymous."""
        name = context.value.user
        if not name:
            return KubeconfigEntry(KubeconfigUser(), context.file, context.title)
        if name not in self.users:
            raise ConfigError(f"{context.where('user')}: there is no user named {name!r}")
        return self.users[name]


def read_kubeconfig(given: str | Path | None, *, environ: Mapping[str, str]) -> Kubeconfig:
    """Read the named file, or merge those that kubectl would read; the result is empty if there are none."""
    if given is not None:
        if _is_missing(Path(given)):
            raise ConfigError(f"kubeconfig {given} does not exist; check the path")
        return _merge([_read(Path(given))])
    paths = [path for path in default_paths(environ) if not _is_missing(path)]
    return _merge(map(_read, paths))


def default_paths(environ: Mapping[str, str]) -> list[Path]:
    """List the paths that kubectl reads by default."""
    if listed := environ.get("KUBECONFIG"):
        return [Path(name) for name in dict.fromkeys(listed.split(":")) if name]
    home = environ.get("HOME")
    return [Path(home) / ".kube" / "config"] if home else []


def _is_missing(path: Path) -> bool:
    """Return True if nothing exists there; a file that cannot be inspected may exist, and reading it gives the
    reason.
    """
    try:
        path.stat()
    except OSError as error:
        return isinstance(error, FileNotFoundError | NotADirectoryError)
    return False


def _merge(files: Iterable[Kubeconfig]) -> Kubeconfig:
    merged = Kubeconfig()
    for file in files:
        merged = Kubeconfig(
            files=merged.files + file.files,
            current_context=merged.current_context or file.current_context,
            clusters=file.clusters | merged.clusters,
            users=file.users | merged.users,
            contexts=file.contexts | merged.contexts,
        )
    return merged


def _read(path: Path) -> Kubeconfig:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    file = decode_kubeconfig(content, path)
    return Kubeconfig(
        files=(path,),
        current_context=file.current_context,
        clusters=_index_by_name([(entry.name, entry.cluster) for entry in file.clusters], path, "cluster"),
        users=_index_by_name([(entry.name, entry.user) for entry in file.users], path, "user"),
        contexts=_index_by_name([(entry.name, entry.context) for entry in file.contexts], path, "context"),
    )


def _index_by_name(entries: Sequence[tuple[str, T]], path: Path, kind: str) -> dict[str, KubeconfigEntry[T]]:
    found: dict[str, KubeconfigEntry[T]] = {}
    for name, value in entries:
        if name in found:
            raise ConfigError(f"{path}: two entries named {name!r} under {kind}s; rename or remove one")
        found[name] = KubeconfigEntry(value, path, f"{kind} {name!r}")
    return found
