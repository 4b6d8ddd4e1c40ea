"""`trimtab crds`: what the cluster has to know of our kinds, made from the models that we run on."""

import json
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from trimtab.atomic_write import write_atomically
from trimtab.errors import TrimtabError


def crds(
    *,
    directory: Path | None = None,
    check: bool = False,
    output: Annotated[Literal["yaml", "json", "table"], Parameter(name=["--output", "-o"])] = "yaml",
) -> int:
    """Print the CustomResourceDefinitions of Trimtab's kinds, or write them to files.

    Install them into the current cluster:

        trimtab crds | kubectl apply --server-side -f -

    Parameters
    ----------
    directory
        Write one file for each kind to this folder instead of printing.
    check
        Write nothing: list the files of the directory that are missing or differ, and exit with 1 if there are any.
    output
        The definitions as yaml or json, or a table of the kinds.
    """
    if directory is not None:
        return _check(directory) if check else _write(directory)
    if check:
        raise TrimtabError("--check: needs --directory, the folder to check")
    _print(output)
    return 0


def _render_files() -> dict[str, str]:
    from trimtab.api import KINDS, render_crd

    return {f"{kind.names.plural}.yaml": render_crd(kind) for kind in KINDS}


def _write(directory: Path) -> int:
    files = {directory / name: text for name, text in _render_files().items()}
    write_atomically(files)
    for path in files:
        print(path)
    return 0


def _check(directory: Path) -> int:
    wanted = {name: text.encode() for name, text in _render_files().items()}
    found = {path.name: path.read_bytes() for path in directory.glob("*.yaml") if path.is_file()}
    for name in sorted(wanted.keys() | found.keys()):
        if name not in found:
            print(f"{directory / name}: is missing")
        elif name not in wanted:
            print(f"{directory / name}: defines none of Trimtab's kinds")
        elif found[name] != wanted[name]:
            print(f"{directory / name}: differs from this version's definitions")
    return 0 if found == wanted else 1


def _print(output: Literal["yaml", "json", "table"]) -> None:
    from trimtab.api import KINDS, build_crd

    if output == "yaml":
        print("---\n".join(_render_files().values()), end="")
    elif output == "json":
        print(
            json.dumps(
                {"apiVersion": "v1", "kind": "List", "items": [build_crd(kind) for kind in KINDS]}, indent=2
            )
        )
    else:
        from rich.console import Console
        from rich.table import Table

        table = Table("KIND", "NAME", "SHORT", "SCOPE", box=None)
        for kind in KINDS:
            definition = build_crd(kind)
            table.add_row(
                kind.__name__,
                definition["metadata"]["name"],
                ", ".join(kind.names.short),
                definition["spec"]["scope"],
            )
        Console().print(table)
