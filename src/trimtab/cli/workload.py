"""`trimtab workload`: make workloads by settings and a seed, keep them, look at them, hand them on."""

import json
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.console import Console
from rich.table import Table

from trimtab.api.quantity import ResourceName, format_short
from trimtab.cli import print_message
from trimtab.cli._common.scan_options import parse_key_values, render_text, write_output
from trimtab.cli._common.seed import Seed
from trimtab.docstrings import read_field_descriptions
from trimtab.errors import TrimtabError
from trimtab.lab.workloads import GENERATORS, GeneratedWorkload, WorkloadLibrary, generate
from trimtab.lab.workloads.export import export
from trimtab.lab.workloads.plot import render_page, write_png
from trimtab.scan.render.text_chart import draw_chart
from trimtab.usage.trace import Floats

Action = Literal["generate", "list", "plot", "types", "export"]


def workload(
    action: Action,
    id: str | None = None,  # noqa: A002 - what the command line calls it
    *,
    workload_type: Annotated[str | None, Parameter(name=["--workload-type", "-t"])] = None,
    setting: Annotated[tuple[str, ...], Parameter(name=["--setting", "-s"])] = (),
    count: int = 1,
    seed: Seed = 0,
    series: int = 0,
    folder: Path | None = None,
    output_file: Path | None = None,
    output: Annotated[Literal["table", "json"], Parameter(name=["--output", "-o"])] = "table",
) -> None:
    """Generate workloads from settings and a seed; store, plot and export them.

    List the types, and the settings of one:

        trimtab workload types
        trimtab workload types --workload-type diurnal_web

    A hundred web services, stored as `shop`, plotted in the terminal and as a page, and back-tested:

        trimtab workload generate --workload-type diurnal_web --setting rate=50 --count 100 --seed 7 --id shop
        trimtab workload plot shop
        trimtab workload plot shop --output-file shop.html
        trimtab workload export shop --output-file shop.parquet
        trimtab backtest shop.parquet

    Parameters
    ----------
    action
        generate creates and stores a workload, list shows the stored ones, plot draws one, types lists the types,
        export writes a recording.
    id
        The id of the workload; by default it is derived from the type, settings and seed.
    workload_type
        The type to generate: step, sinusoidal, low_high, arabesque, azure, alibaba, borg, diurnal_web, batch, memory_leak,
        jvm, flash_crowd, imported, or one of your own.
    setting
        A setting of the type, as name=value, like rate=50; may be given several times.
    count
        The number of series.
    seed
        The random seed: the same settings, count and seed give the same workload, bit for bit.
    series
        The series to draw in the terminal, from 0.
    folder
        The folder of stored workloads, instead of $XDG_DATA_HOME/trimtab/workloads.
    output_file
        The file to write: .png or .html with plot, .parquet or .csv with export.
    output
        A table for people, or json for programs.
    """
    kept = WorkloadLibrary(folder)
    if action == "generate":
        _generate(kept, id, workload_type, setting, count, seed, output)
    elif action == "list":
        _list(kept, output)
    elif action == "types":
        _types(workload_type, output)
    else:
        if id is None:
            raise TrimtabError(f"ID: give the workload to {action}; `trimtab workload list` shows all")
        found = kept.load(id)
        if action == "plot":
            _plot(found, id, series, output_file)
        elif output_file is None:
            raise TrimtabError("--output-file: name the .parquet or .csv to write")
        else:
            export(found, output_file)


def _generate(
    kept: WorkloadLibrary,
    id: str | None,  # noqa: A002
    workload_type: str | None,
    setting: tuple[str, ...],
    count: int,
    seed: int,
    output: str,
) -> None:
    if workload_type is None:
        raise TrimtabError(f"--workload-type: give one of {', '.join(GENERATORS.names())}")
    settings: dict[str, Any] = parse_key_values("--setting", setting)
    made = generate(workload_type, count=count, seed=seed, **settings)
    name = kept.save(made, id=id)
    if output == "json":
        print(
            json.dumps(
                {"id": name, "folder": str(kept.path / name), "series": made.series, "steps": made.steps}
            )
        )
        return
    print(name)
    print_message(f"{_describe(made)}; in {kept.path / name}")


def _list(kept: WorkloadLibrary, output: str) -> None:
    found = kept.list_saved()
    if output == "json":
        keys = ("id", "type", "series", "steps", "step", "seed")
        print(json.dumps([{key: getattr(saved, key) for key in keys} for saved in found], indent=2))
        return
    if not found:
        print_message(f"there are no workloads in {kept.path}")
        return
    table = Table("ID", "TYPE", "SERIES", "STEPS", "STEP", "SEED", box=None, pad_edge=False)
    for saved in found:
        table.add_row(
            saved.id, saved.type, str(saved.series), str(saved.steps), f"{saved.step:g}s", str(saved.seed)
        )
    Console().print(table)


def _types(workload_type: str | None, output: str) -> None:
    names = GENERATORS.names() if workload_type is None else (workload_type,)
    if output == "json":
        known = {name: GENERATORS.load_type(name).settings_type.model_json_schema() for name in names}
        print(json.dumps(known, indent=2))
    elif workload_type is None:
        table = Table("TYPE", "DESCRIPTION", box=None, pad_edge=False)
        for name in names:
            table.add_row(name, _read_summary(name))
        Console().print(table)
    else:
        print(_read_summary(workload_type) + "\n")
        table = Table("SETTING", "DEFAULT", "MEANING", box=None, pad_edge=False)
        kind = GENERATORS.load_type(workload_type).settings_type
        said = read_field_descriptions(kind)
        for name, field in kind.model_fields.items():
            default = "(needed)" if field.is_required() else _format_default(field.default)
            table.add_row(name, default, said.get(name, ""))
        Console().print(table)


def _read_summary(name: str) -> str:
    """Return the first paragraph of a type's description."""
    return " ".join(GENERATORS.describe(name).split("\n\n")[0].split())


def _format_default(default: object) -> str:
    if isinstance(default, tuple):
        return ",".join(f"{number:g}" for number in default)
    return "" if default is None else f"{default:g}" if isinstance(default, float) else str(default)


def _plot(found: GeneratedWorkload, name: str, series: int, path: Path | None) -> None:
    title = f"{name}: {found.type}"
    if path is None:
        if not 0 <= series < found.series:
            raise TrimtabError(f"--series {series}: {name} has {found.series}, from 0")
        print(render_text(lambda width: _render_lines(found, series, width), to_file=False), end="")
    elif path.suffix == ".html":
        write_output(render_page(found, title), path)
    elif path.suffix == ".png":
        write_png(found, title, path)
    else:
        raise TrimtabError(f"--output-file {path}: must end in .png or .html")


def _render_lines(found: GeneratedWorkload, series: int, width: int) -> Iterable[str]:
    yield f"{found.names[series]}: {_describe(found)}"
    rows: dict[ResourceName, Floats] = {"cpu": found.cpu[series] * 1000, "memory": found.memory[series]}
    for resource, row in rows.items():
        yield "CPU" if resource == "cpu" else resource
        yield from draw_chart(row, _compute_lines(row), text=partial(format_short, resource), width=width)


def _compute_lines(row: Floats) -> dict[str, float | None]:
    return {"mean": float(row.mean()), "peak": float(row.max())}


def _describe(made: GeneratedWorkload) -> str:
    mean = f"{format_short('cpu', float(made.cpu.mean()) * 1000)} and {format_short('memory', float(made.memory.mean()))} on average"
    return f"{made.series} series of {made.steps} samples, {made.step:g} s apart, {mean}"
