"""kubeconfig files: find, merge, and choose a context, by kubectl's rules.

- A file given by the user is read alone and must exist. Else $KUBECONFIG lists files, separated by colons; else
  it is ~/.kube/config. Of those, missing files are skipped.
- Where several files define the same name, the first wins, whole; so does the first current-context.
- A relative path is relative to the file that it stands in.

What the entries mean is not decided here: see `access`.
"""

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from trimtab.kube.auth.credential_sources import Kept, Material, Written
from trimtab.kube.auth.kubeconfig_file import Cluster, Context, User, decode
from trimtab.kube.auth.redacted import Secret
from trimtab.kube.errors import ConfigError

T = TypeVar("T")


@dataclass(frozen=True)
class Entry(Generic[T]):
    """A cluster, user or context, and where it was found."""

    value: T
    file: Path
    title: str

    def where(self, name: str = "") -> str:
        """How messages call this entry, or a field of it."""
        return f"{self.file}: {self.title}" + (f": {name}" if name else "")

    def path(self, name: str) -> Path:
        return self.file.absolute().parent / name

    def material(self, name: str, *, data: str | Secret, path: str) -> Material | None:
        """The bytes of a field that comes in two forms: `name` holds a path, `name`-data base64."""
        if data and path:
            raise ConfigError(f"{self.where()}: has both {name} and {name}-data; remove one")
        if path:
            return Kept(self.path(path), where=self.where(name))
        if not data:
            return None
        text = data.reveal() if isinstance(data, Secret) else data
        try:
            content = base64.b64decode("".join(text.split()), validate=True)
        except (binascii.Error, ValueError):
            raise ConfigError(
                f"{self.where()}: {name}-data is not base64; encode the PEM file with `base64 -w0`"
            ) from None
        return Written(self.where(f"{name}-data"), content)


@dataclass(frozen=True)
class Kubeconfig:
    """The entries of one or several files, merged."""

    files: tuple[Path, ...] = ()
    current: str = ""
    clusters: dict[str, Entry[Cluster]] = field(default_factory=dict)
    users: dict[str, Entry[User]] = field(default_factory=dict)
    contexts: dict[str, Entry[Context]] = field(default_factory=dict)

    def choose(self, context: str | None) -> tuple[str, Entry[Context]]:
        """The context of this name, or the current one."""
        files = ", ".join(map(str, self.files)) or "no kubeconfig"
        name = context or self.current
        if not name:
            raise ConfigError(f"{files}: no current-context; choose one of: {self._names()}")
        if name not in self.contexts:
            asked = "" if context else "current-context names "
            raise ConfigError(
                f"{files}: {asked}context {name!r}, which does not exist; there is: {self._names()}"
            )
        return name, self.contexts[name]

    def _names(self) -> str:
        return ", ".join(sorted(self.contexts)) or "none"

    def cluster_of(self, context: Entry[Context]) -> Entry[Cluster]:
        name = context.value.cluster
        if name not in self.clusters:
            raise ConfigError(
                f"{context.where('cluster')}: "
                + (f"there is no cluster named {name!r}" if name else "names no cluster")
            )
        return self.clusters[name]

    def user_of(self, context: Entry[Context]) -> Entry[User]:
        """The context's user; one that names none is anonymous."""
        name = context.value.user
        if not name:
            return Entry(User(), context.file, context.title)
        if name not in self.users:
            raise ConfigError(f"{context.where('user')}: there is no user named {name!r}")
        return self.users[name]


def read_kubeconfig(given: str | Path | None, *, environ: Mapping[str, str]) -> Kubeconfig:
    """The file given, or those that kubectl would read, merged; empty when there are none."""
    if given is not None:
        if _is_missing(Path(given)):
            raise ConfigError(f"kubeconfig {given} does not exist")
        return _merge([_read(Path(given))])
    paths = [path for path in usual_paths(environ) if not _is_missing(path)]
    return _merge(map(_read, paths))


def usual_paths(environ: Mapping[str, str]) -> list[Path]:
    """Where kubectl looks for a kubeconfig."""
    if listed := environ.get("KUBECONFIG"):
        return [Path(name) for name in dict.fromkeys(listed.split(":")) if name]
    home = environ.get("HOME")
    return [Path(home) / ".kube" / "config"] if home else []


def _is_missing(path: Path) -> bool:
    """Whether nothing is there; what may not be looked at may be there, and to read it tells why it cannot be."""
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
            current=merged.current or file.current,
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
    file = decode(content, path)
    return Kubeconfig(
        files=(path,),
        current=file.current_context,
        clusters=_by_name([(entry.name, entry.cluster) for entry in file.clusters], path, "cluster"),
        users=_by_name([(entry.name, entry.user) for entry in file.users], path, "user"),
        contexts=_by_name([(entry.name, entry.context) for entry in file.contexts], path, "context"),
    )


def _by_name(entries: Sequence[tuple[str, T]], path: Path, kind: str) -> dict[str, Entry[T]]:
    found: dict[str, Entry[T]] = {}
    for name, value in entries:
        if name in found:
            raise ConfigError(f"{path}: two entries named {name!r} under {kind}s; rename or remove one")
        found[name] = Entry(value, path, f"{kind} {name!r}")
    return found
