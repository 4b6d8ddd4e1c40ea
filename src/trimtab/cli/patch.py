"""`trimtab patch`: recommendations as commands, patches and edits of users' own files, or applied right away."""

import asyncio
import shutil
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from trimtab.actuation.resources import build_template_patch, list_removed
from trimtab.atomic_write import write_atomically as write_files
from trimtab.cli import ignore_closed_pipe, print_message
from trimtab.cli._common.scan_options import ScanOptions
from trimtab.cli._common.workload_selection import WorkloadSelection, print_diff
from trimtab.errors import TrimtabError
from trimtab.kube.auth import load_connection
from trimtab.kube.errors import ApiError, FieldManagerConflict, Status, describe
from trimtab.kube.rest.client import Client, PatchType
from trimtab.printable import escape_invisible
from trimtab.scan.patches.change import ResourceChange
from trimtab.scan.patches.documents import FileEdits
from trimtab.scan.patches.helm_charts import HelmChart
from trimtab.scan.patches.helm_releases import KINDS
from trimtab.scan.patches.helm_values import HelmPath, edit_values, parse_helm_path
from trimtab.scan.patches.kustomize import KUSTOMIZATIONS
from trimtab.scan.patches.manifests import edit_manifests
from trimtab.scan.patches.patch_folder import update_folder
from trimtab.scan.patches.render import render_command, render_edit
from trimtab.scan.patches.repository import (
    ENDINGS,
    Repositories,
    check_links,
    list_manifests_below,
    read_bytes,
    update_component,
)

_SKIPPED = ": skipped: "
_NAMED = 3
"""The number of skipped workloads that are named each."""

Format = Literal["kubectl", "strategic", "kustomize", "helm", "manifests"]


def patch(
    *workload: str,
    form: Annotated[Format, Parameter(name="--format")] = "kubectl",
    directory: Path | None = None,
    file: Annotated[tuple[Path, ...], Parameter(name=["--file", "-f"])] = (),
    helm_path: tuple[str, ...] = (),
    chart: str | None = None,
    write: bool = False,
    apply: bool = False,
    dry_run: Literal["none", "server"] = "none",
    yes: Annotated[bool, Parameter(name=["--yes", "-y"])] = False,
    force: bool = False,
    verbose: bool = False,
    selection: WorkloadSelection = WorkloadSelection(),  # noqa: B008 - it is frozen
    scan_options: ScanOptions = ScanOptions(),  # noqa: B008 - it is frozen
) -> int:
    """Write recommended resources as kubectl commands, patches or edits of your files, or apply them.

    Commands to review and run; a kustomize component; edits of your files that keep comments and order:

        trimtab patch --namespace shop
        trimtab patch --namespace shop --format kustomize --directory overlays/sized
        trimtab patch --namespace shop --format helm --file clusters/prod --write
        trimtab patch shop/deployment/web --format helm --file values.yaml --helm-path web=web.resources --write

    Validate on the API server, then apply:

        trimtab patch --namespace shop --apply --dry-run server
        trimtab patch --namespace shop --apply

    Exits with 1 if the server rejected a change, or if a change was skipped because its place in the files is
    uncertain; stderr has each reason.

    Parameters
    ----------
    workload
        Workloads as NAMESPACE/KIND/NAME; by default, all.
    form
        kubectl commands, strategic-merge patches, kustomize patches with their entries, or edits of helm values or
        manifests, shown as a diff or written in place.
    directory
        Write patches as files to this folder instead of printing. Existing files keep their containers; a
        kustomization.yaml gets the missing entries.
    file
        The file to edit, or a folder: manifests, or for helm values files and manifests of HelmReleases and Applications; may be given several times.
    helm_path
        The path of a container's resources in the values, as CONTAINER=web.resources or
        NAMESPACE/WORKLOAD/CONTAINER=FILE:web.resources; may be given several times.
    chart
        The chart of the values files, as helm takes it. `helm template` then shows which value sets which container's
        resources. A chart in the folder of a values file is found without this option.
    write
        Edit the files in place.
    apply
        Apply to the cluster after a confirmation. Pods are replaced, as after every change of a template.
    dry_run
        With --apply: server validates on the API server and changes nothing.
    yes
        With --apply: do not ask for confirmation.
    force
        Include workloads with less than an hour of usage. With --apply, also take over fields that another manager
        owns, such as a GitOps tool.
    verbose
        Name each workload that no file has, instead of their number and the first ones.
    """
    _reject_conflicts(form, directory, file, apply=apply, helm_path=bool(helm_path), chart=chart, write=write)
    if not apply and (dry_run != "none" or yes):
        raise TrimtabError("--dry-run and --yes belong to --apply; add it, or remove them")
    if apply and dry_run == "none" and not yes and not sys.stdin.isatty():
        raise TrimtabError(
            "--apply: there is no terminal for the confirmation; add --yes, or --dry-run server"
        )
    paths = [parse_helm_path(text) for text in helm_path]
    writing = next(
        (
            option
            for option, given in (("--apply", apply), ("--write", write), ("--directory", directory))
            if given
        ),
        "",
    )
    changes = asyncio.run(selection.find_changes(scan_options, workload, force=force, writing=writing))
    if apply:
        return _apply(changes, selection, scan_options, dry_run=dry_run == "server", yes=yes, force=force)
    if form == "helm":
        return _edit_helm(file, changes, paths, chart, write=write, verbose=verbose)
    if form == "manifests":
        return _edit_manifests(file, changes, write=write, verbose=verbose)
    return _write_patches(_filter_possible(changes), form, directory)


def _reject_conflicts(
    form: Format,
    directory: Path | None,
    files: Sequence[Path],
    *,
    apply: bool,
    helm_path: bool,
    chart: str | None,
    write: bool,
) -> None:
    """Reject conflicting options and missing files before the long scan."""
    if apply and (directory or files or write):
        raise TrimtabError("--apply: changes the cluster, not files; remove --directory, --file and --write")
    if (form in {"helm", "manifests"}) != bool(files):
        raise TrimtabError(f"--file: name the files to edit with --format helm or manifests; this is {form}")
    if write and not files:
        raise TrimtabError("--write: edits the files of --file; add --file, and --format helm or manifests")
    if helm_path and form != "helm":
        raise TrimtabError(f"--helm-path: only for --format helm; this is {form}")
    if chart is not None and form != "helm":
        raise TrimtabError(f"--chart: only for --format helm; this is {form}")
    if chart is not None and shutil.which("helm") is None:
        raise TrimtabError("--chart: helm is not on the PATH; install it, or give paths with --helm-path")
    if directory and form not in {"strategic", "kustomize"}:
        raise TrimtabError(
            f"--directory: only for patches; this is {form}, so take --format strategic or kustomize, or leave it out"
        )
    for path in files:
        try:
            path.stat()
        except OSError as error:
            raise TrimtabError(f"--file {path}: {error.strerror}") from None


# Files and commands


def _write_patches(changes: Sequence[ResourceChange], form: Format, directory: Path | None) -> int:
    if form == "kubectl":
        print("".join(f"{render_command(change)}\n" for change in changes), end="")
        return 0
    existing = _read_folder(directory) if directory else {}
    is_kustomize = form == "kustomize"
    edits = (
        update_component(changes, existing, directory)
        if is_kustomize and directory
        else update_folder(changes, existing, is_kustomize=is_kustomize)
    )
    if directory is None:
        print(
            "---\n".join(f"# {escape_invisible(name)}\n{text}" for name, text in edits.files.items()), end=""
        )
        return 0
    check_links((directory / name for name in edits.files), directory)
    write_files({directory / name: text for name, text in edits.files.items()})
    with ignore_closed_pipe():
        print("".join(f"{directory / name}\n" for name in edits.files), end="")
    return _report(edits)


def _read_folder(directory: Path) -> dict[str, str]:
    """Read the YAML files of a folder; a file that is not text counts as empty, so that it is not overwritten."""
    found = {}
    for path in sorted(directory.iterdir()) if directory.is_dir() else ():
        if path.is_file() and (path.suffix in ENDINGS or path.name in KUSTOMIZATIONS):
            try:
                found[path.name] = _read(path)
            except TrimtabError:
                found[path.name] = ""
    return found


def _filter_possible(changes: Sequence[ResourceChange]) -> list[ResourceChange]:
    for change in changes:
        if change.blocked_reason:
            print_message(f"{change.workload.key}: skipped: {change.blocked_reason}")
    return [change for change in changes if not change.blocked_reason]


@dataclass
class _SourceFiles:
    """The files that users name, and those below the folders that they name."""

    files: dict[Path, str] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)
    unreadable: list[str] = field(default_factory=list)

    @property
    def texts(self) -> dict[str, str]:
        return {str(path): text for path, text in self.files.items()}

    def add(self, path: Path) -> None:
        try:
            self.files[path] = _read(path)
        except TrimtabError as error:
            self.unreadable.append(str(error))

    def finish(self, edits: FileEdits, *, write: bool, verbose: bool) -> int:
        """Show or write what changed, and report the rest; 1 if something was not certain."""
        edits.ambiguous = [*self.unreadable, *edits.ambiguous]
        with ignore_closed_pipe():
            _write_edits(self.files, {Path(path): text for path, text in edits.files.items()}, write=write)
        return _report(edits, verbose=verbose)


def _read_sources(
    given: Sequence[Path], is_relevant: Callable[[bytes], bool], *, write: bool
) -> _SourceFiles:
    """Read the given files, and of the given folders the files that are relevant."""
    if write:
        for path in given:
            check_links([path], path if path.is_dir() else path.parent)
    found = _SourceFiles()
    known: set[Path] = set()  # a file that is spelled in two ways, or also in a folder, is one file
    for path in given:
        if not path.is_dir() and path.resolve() not in known:
            known.add(path.resolve())
            found.named.add(str(path))
            found.add(path)
    for folder in (path for path in given if path.is_dir()):
        for path in list_manifests_below(folder):
            if path.resolve() not in known and is_relevant(read_bytes(path)):
                known.add(path.resolve())
                found.add(path)
    return found


def _edit_helm(
    given: Sequence[Path],
    changes: Sequence[ResourceChange],
    paths: Sequence[HelmPath],
    chart: str | None,
    *,
    write: bool,
    verbose: bool = False,
) -> int:
    kinds = [kind.encode() for kind in KINDS]
    sources = _read_sources(given, lambda content: any(kind in content for kind in kinds), write=write)
    charts = {}
    for name in sources.named:
        beside = Path(name).parent / "Chart.yaml"
        if chart is not None:
            charts[name] = HelmChart(chart)
        elif beside.is_file() and shutil.which("helm"):
            charts[name] = HelmChart(str(beside.parent))
    repositories = Repositories(given)
    edits = edit_values(
        sources.texts,
        changes,
        paths=paths,
        charts=charts,
        builds=repositories.find_builds,
        named=sources.named,
    )
    return sources.finish(edits, write=write, verbose=verbose)


def _edit_manifests(
    given: Sequence[Path], changes: Sequence[ResourceChange], *, write: bool, verbose: bool = False
) -> int:
    # A kustomization may put a prefix before a name, or a suffix behind it, but never changes a container's.
    names = {name.encode() for change in changes for name in change.after}
    sources = _read_sources(
        given,
        lambda content: b"containers" in content and any(name in content for name in names),
        write=write,
    )
    repositories = Repositories(given)
    edit = partial(edit_manifests, sources.texts, builds=repositories.find_builds, named=sources.named)
    edits = edit(changes)
    effective = repositories.drop_changes_without_effect(edits, changes)
    if len(effective) < len(changes):
        again = edit(effective)
        again.ambiguous, again.notices = edits.ambiguous, edits.notices
        edits = again
    return sources.finish(edits, write=write, verbose=verbose)


def _report(edits: FileEdits, *, verbose: bool = False) -> int:
    not_found = edits.not_found if verbose else _group_skipped(edits.not_found)
    for line in [*edits.notices, *not_found, *edits.ambiguous]:
        print_message(line)
    return int(bool(edits.ambiguous))


def _group_skipped(lines: Sequence[str]) -> list[str]:
    """Combine the lines of many skipped workloads with the same reason into one, with their number and the first names."""
    by_reason: defaultdict[str, list[str]] = defaultdict(list)
    for line in lines:
        by_reason[line.partition(_SKIPPED)[2]].append(line)
    # One folder of a monorepo has few of a cluster's workloads: a line for each would hide what was edited.
    grouped: list[str] = []
    for reason, skipped in by_reason.items():
        if not reason or len(skipped) <= _NAMED:
            grouped += skipped
            continue
        names = ", ".join(line.partition(_SKIPPED)[0] for line in skipped[:_NAMED])
        more = f"{names} and {len(skipped) - _NAMED:,} more; --verbose names all"
        grouped.append(f"{len(skipped):,} skipped: {reason}: {more}")
    return grouped


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except OSError as error:
        raise TrimtabError(f"--file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TrimtabError(f"--file {path}: the file is not text; name a YAML file") from None


def _write_edits(before: Mapping[Path, str], after: Mapping[Path, str], *, write: bool) -> None:
    changed = {path: text for path, text in after.items() if text != before[path]}
    if write:
        write_files(changed)
        print("".join(f"{path}\n" for path in changed), end="")
        return
    for path, text in changed.items():  # as it is in the file, whatever the terminal can show
        sys.stdout.buffer.write(render_edit(str(path), before[path], text).encode())


# The cluster


def _apply(
    changes: Sequence[ResourceChange],
    selection: WorkloadSelection,
    scan_options: ScanOptions,
    *,
    dry_run: bool,
    yes: bool,
    force: bool,
) -> int:
    possible = _filter_possible(changes)
    if not possible:
        print_message("there is nothing to change")
        return 0
    connection = load_connection(kubeconfig=scan_options.kubeconfig, context=selection.context)
    with ignore_closed_pipe():
        print_diff(possible)
    if not (dry_run or yes) and not _confirm(len(possible), connection.context):
        print_message("nothing was changed")
        return 0

    async def send() -> int:
        refused = 0
        async with Client(connection) as client:
            for change in possible:
                try:
                    await _apply_change(client, change, force=force, dry_run=dry_run)
                except ApiError as error:
                    advice = (
                        "; --force takes them over"
                        if isinstance(error, FieldManagerConflict) and not force
                        else ""
                    )
                    print_message(f"{change.workload.key}: refused: {describe(error)}{advice}")
                    refused += 1
                else:
                    print_message(f"{change.workload.key}: {'would be changed' if dry_run else 'changed'}")
        return refused

    return int(bool(asyncio.run(send())))


async def _apply_change(client: Client, change: ResourceChange, *, force: bool, dry_run: bool) -> None:
    """Apply a change with server-side apply, or validate it with a dry run; raises `ApiError` if the API server rejects it.

    With `force`, take over fields of other managers and remove amounts that are no longer recommended.
    """
    workload = change.workload
    if any(list_removed(change.before[name], after) for name, after in change.after.items()):
        if not force:
            message = "another field manager set an amount that is to be removed"
            raise FieldManagerConflict(
                Status(message=message, reason="Conflict", code=FieldManagerConflict.code)
            )
        # Server-side apply only removes fields without another owner, and whoever set a limit co-owns it.
        await client.patch(
            workload.resource,
            workload.name,
            build_template_patch(workload, change.after, removing_from=change.before),
            type=PatchType.STRATEGIC,
            namespace=workload.namespace,
            dry_run=dry_run,
        )
    # The uid prevents the apply from creating the workload again if it was deleted.
    named = {"name": workload.name, "namespace": workload.namespace, "uid": workload.uid}
    body = {"metadata": named, **build_template_patch(workload, change.after)}
    await client.apply(workload.resource, body, force=force, dry_run=dry_run)


def _confirm(count: int, context: str) -> bool:
    print(
        f"Change {count} workload{'s' * (count > 1)} of {context}? Their pods will be replaced. [y/N] ",
        end="",
    )
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}
