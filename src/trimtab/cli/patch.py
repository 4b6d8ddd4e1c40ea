"""`trimtab patch`: recommendations as commands, patches and edits of users' own files, or applied right away."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from trimtab.cli.changing import Choosing, show_diff, tell
from trimtab.cli.looking import Looking
from trimtab.errors import TrimtabError
from trimtab.files import write as write_files
from trimtab.kube.auth import load_connection
from trimtab.kube.client import Client
from trimtab.kube.errors import ApiError, FieldOwned, describe
from trimtab.survey.patches.apply import apply_change
from trimtab.survey.patches.change import Change
from trimtab.survey.patches.owned import in_manifests, in_values
from trimtab.survey.patches.render import KUSTOMIZATIONS, command, edit, file_name, kustomization, manifest

Format = Literal["kubectl", "strategic", "kustomize", "helm", "manifests"]


def patch(
    *workload: str,
    form: Annotated[Format, Parameter(name="--format")] = "kubectl",
    directory: Path | None = None,
    file: Annotated[tuple[Path, ...], Parameter(name=["--file", "-f"])] = (),
    helm_path: tuple[str, ...] = (),
    write: bool = False,
    apply: bool = False,
    dry_run: Literal["none", "server"] = "none",
    yes: Annotated[bool, Parameter(name=["--yes", "-y"])] = False,
    force: bool = False,
    choosing: Choosing = Choosing(),  # noqa: B008 - it is frozen
    looking: Looking = Looking(),  # noqa: B008 - it is frozen
) -> int:
    """Write recommended resources as commands, patches or edits of your own files, or apply them.

    Commands to look through and run; a kustomize component; your own Helm values with comments and order kept:

        trimtab patch --namespace shop
        trimtab patch --namespace shop --format kustomize --directory overlays/sized
        trimtab patch shop/deployment/web --format helm --file values.yaml --write

    Ask the server what it would say, then apply:

        trimtab patch --namespace shop --apply --dry-run server
        trimtab patch --namespace shop --apply

    Exits with 1 when the server refused a change.

    Parameters
    ----------
    workload
        Only these, each as NAMESPACE/KIND/NAME; all when none is given.
    form
        kubectl commands; strategic-merge patches; kustomize patches with their entries; edits of helm values or of manifests, which are shown as a diff or written in place.
    directory
        Write patches as files into this folder instead of printing; a kustomization.yaml there gets the entries that it lacks.
    file
        The values file or manifest to edit, or a folder of manifests; may be given several times.
    helm_path
        Where a container's resources are in the values, as CONTAINER=web.resources or WORKLOAD/CONTAINER=…; found by what they hold now when not given.
    write
        Edit the files in place.
    apply
        Apply to the cluster, after a confirmation; that replaces pods, as every change of a template does.
    dry_run
        With --apply: server asks the API server for its verdict and changes nothing.
    yes
        With --apply: do not ask for confirmation.
    force
        With --apply: take fields over that another manager, such as a GitOps tool, has set.
    """
    _refuse_idle(form, directory, file, apply=apply, helm_path=bool(helm_path), write=write)
    if not apply and (dry_run != "none" or yes or force):
        raise TrimtabError("--dry-run, --yes and --force belong to --apply; add that, or leave them out")
    if apply and dry_run == "none" and not yes and not sys.stdin.isatty():
        raise TrimtabError("--apply: there is no terminal to confirm on; add --yes, or --dry-run server")
    places = _paths(helm_path)
    changes = asyncio.run(choosing.changes(looking, workload))
    if apply:
        return _apply(changes, choosing, looking, dry_run=dry_run == "server", yes=yes, force=force)
    if form == "helm":
        _edited({path: _read(path) for path in file}, _helm(file, changes, places), write=write)
    elif form == "manifests":
        files = _manifests(file, changes)
        found, left = in_manifests({str(path): text for path, text in files.items()}, changes)
        for change in left:
            tell(f"{change.workload.key}: left out: no file has its manifest")
        _edited(files, {Path(path): text for path, text in found.items()}, write=write)
    else:
        _patches(_possible(changes), form, directory)
    return 0


def _refuse_idle(
    form: Format, directory: Path | None, files: Sequence[Path], *, apply: bool, helm_path: bool, write: bool
) -> None:
    """Complain of what does not fit together, or is not there, before a cluster is looked at for long."""
    if apply and (directory or files or write):
        raise TrimtabError(
            "--apply: changes the cluster and no files; leave --directory, --file and --write out"
        )
    if (form in {"helm", "manifests"}) != bool(files):
        raise TrimtabError(f"--file: name the files to edit with --format helm or manifests; this is {form}")
    if write and not files:
        raise TrimtabError("--write: edits what --file names; add that with --format helm or manifests")
    if helm_path and form != "helm":
        raise TrimtabError(f"--helm-path: is about --format helm; this is {form}")
    if directory and form not in {"strategic", "kustomize"}:
        raise TrimtabError(
            f"--directory: takes patches; this is {form}, so take --format strategic or kustomize, or leave it out"
        )
    for path in files:
        try:
            path.stat()
        except OSError as error:
            raise TrimtabError(f"--file {path}: {error.strerror}") from None


# Files and commands


def _patches(changes: Sequence[Change], form: Format, directory: Path | None) -> None:
    if form == "kubectl":
        print("".join(f"{command(change)}\n" for change in changes), end="")
        return
    files = {file_name(change): manifest(change) for change in changes}
    if form == "kustomize":
        there = [directory / name for name in KUSTOMIZATIONS] if directory else []
        existing = next((path for path in there if path.exists()), None)
        name = existing.name if existing else KUSTOMIZATIONS[0]
        files[name] = kustomization(changes, _read(existing) if existing else None, where=name)
    if directory is None:
        print("---\n".join(f"# {name}\n{text}" for name, text in files.items()), end="")
    elif changes:
        write_files({directory / name: text for name, text in files.items()})
        print("\n".join(str(directory / name) for name in files))


def _possible(changes: Sequence[Change]) -> list[Change]:
    for change in changes:
        if change.obstacle:
            tell(f"{change.workload.key}: left out: {change.obstacle}")
    return [change for change in changes if not change.obstacle]


def _helm(files: Sequence[Path], changes: Sequence[Change], paths: Mapping[str, str]) -> dict[Path, str]:
    """Each file with the sizes that it has a place for."""
    found: dict[Path, str] = {}
    placeless: list[set[str]] = []
    for path in files:
        found[path], missing = in_values(_read(path), changes, where=str(path), paths=paths)
        placeless.append(set(missing))
    for container in sorted(set.intersection(*placeless)):
        tell(
            f"{container}: left out: no values hold what it has now; say where: --helm-path CONTAINER=path.to.resources"
        )
    return found


def _paths(given: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in given:
        container, equals, path = text.partition("=")
        if not equals or not container or not path:
            raise TrimtabError(f"--helm-path {text}: write it as CONTAINER=path.to.resources")
        found[container] = path
    return found


def _manifests(given: Sequence[Path], changes: Sequence[Change]) -> dict[Path, str]:
    """The files, and of folders those that name any of the workloads."""
    names = {change.workload.name for change in changes}
    found = {path: _read(path) for path in given if not path.is_dir()}
    for folder in (path for path in given if path.is_dir()):
        for path in sorted([*folder.rglob("*.yaml"), *folder.rglob("*.yml")]):
            text = _read(path)
            if "containers" not in text or not any(name in text for name in names):
                continue
            if "{{" in text:
                tell(
                    f"{path}: left out: it is a template and no plain YAML; edit its values with --format helm"
                )
            else:
                found[path] = text
    return found


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except OSError as error:
        raise TrimtabError(f"--file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TrimtabError(f"--file {path}: this is no text; name a YAML file") from None


def _edited(before: Mapping[Path, str], after: Mapping[Path, str], *, write: bool) -> None:
    changed = {path: text for path, text in after.items() if text != before[path]}
    if write:
        write_files(changed)
        print("".join(f"{path}\n" for path in changed), end="")
        return
    for path, text in changed.items():  # as it is in the file, whatever the terminal can show
        sys.stdout.buffer.write(edit(str(path), before[path], text).encode())


# The cluster


def _apply(
    changes: Sequence[Change], choosing: Choosing, looking: Looking, *, dry_run: bool, yes: bool, force: bool
) -> int:
    possible = _possible(changes)
    if not possible:
        tell("there is nothing to change")
        return 0
    connection = load_connection(kubeconfig=looking.kubeconfig, context=choosing.context)
    show_diff(possible)
    if not (dry_run or yes) and not _confirmed(len(possible), connection.context):
        tell("nothing was changed")
        return 0

    async def send() -> int:
        refused = 0
        async with Client(connection) as client:
            for change in possible:
                try:
                    await apply_change(client, change, force=force, dry_run=dry_run)
                except ApiError as error:
                    advice = (
                        "; --force takes them over" if isinstance(error, FieldOwned) and not force else ""
                    )
                    tell(f"{change.workload.key}: refused: {describe(error)}{advice}")
                    refused += 1
                else:
                    tell(f"{change.workload.key}: {'would be changed' if dry_run else 'changed'}")
        return refused

    return int(bool(asyncio.run(send())))


def _confirmed(count: int, context: str) -> bool:
    print(
        f"Change {count} workload{'s' * (count > 1)} of {context}? Their pods will be replaced. [y/N] ",
        end="",
    )
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}
