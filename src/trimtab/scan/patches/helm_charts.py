"""Find by rendering which containers of a Helm chart a path in its values sizes.

Each path gets a unique amount; the containers with that amount in the rendered chart are sized by the path. This works
whatever the templates of the chart do.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import yaml

from trimtab.errors import TrimtabError
from trimtab.yaml_documents import load_yaml, load_yaml_documents

_TIMEOUT_SECONDS = 60
_FIRST_MARKER = 700_001
"""The first marker: an amount in millicores and MiB that no chart uses by chance."""

KeyPath = tuple[str, ...]


class SizedContainer(NamedTuple):
    """A container, or whatever else has resources, in a rendered object."""

    kind: str
    namespace: str
    name: str
    container: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name} {self.container}".strip()


class Chart(Protocol):
    """A chart that can be rendered."""

    @property
    def defaults(self) -> Mapping[str, Any]:
        """The chart's own values."""
        ...

    def render(
        self, release: str, namespace: str, layers: Sequence[Mapping[str, Any]]
    ) -> list[dict[str, Any]]:
        """Render the objects of a release; later layers of values override earlier ones."""
        ...


class HelmChart:
    """A chart that the `helm` program renders."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._program = shutil.which("helm")

    @property
    def defaults(self) -> Mapping[str, Any]:
        try:
            found = load_yaml(Path(self._path, "values.yaml").read_bytes())
        except (OSError, yaml.YAMLError):  # the chart may have no values, or may be remote
            return {}
        return found if isinstance(found, dict) else {}

    def render(
        self, release: str, namespace: str, layers: Sequence[Mapping[str, Any]]
    ) -> list[dict[str, Any]]:
        if self._program is None:
            raise TrimtabError("--chart: helm is not on the PATH; install it, or give paths with --helm-path")
        with tempfile.TemporaryDirectory(prefix="trimtab-") as folder:
            options: list[str] = []
            for number, layer in enumerate(layers):
                file = Path(folder, f"{number}.yaml")
                file.write_text(yaml.safe_dump(layer))
                options += ["--values", str(file)]
            return self._run_helm("template", release, self._path, "--namespace", namespace, *options)

    def _run_helm(self, *arguments: str) -> list[dict[str, Any]]:
        assert self._program
        try:
            done = subprocess.run(  # noqa: S603 - the user's own helm, with the chart that they name
                [self._program, *arguments],
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise TrimtabError(f"{self._path}: helm template took more than {_TIMEOUT_SECONDS} s") from None
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["unknown error"]
            message = next((line for line in lines if line.startswith("Error: ")), lines[-1])
            raise TrimtabError(f"{self._path}: helm template: {message.removeprefix('Error: ')}")
        try:
            found = load_yaml_documents(done.stdout)
        except yaml.YAMLError as error:
            problem = " ".join(str(error).split())
            raise TrimtabError(f"{self._path}: helm template: the output is not YAML: {problem}") from None
        return [each for each in found if isinstance(each, dict)]


def find_sized_containers(
    chart: Chart,
    release: str,
    namespace: str,
    layers: Sequence[Mapping[str, Any]],
    places: Sequence[tuple[int, KeyPath]],
) -> list[set[SizedContainer]]:
    """Find the containers that each path sizes; a path is given by the number of its layer and its keys."""
    marked: list[Any] = [_copy_values(layer) for layer in layers]
    for number, (layer, keys) in enumerate(places):
        _set_marker(marked[layer], keys, _FIRST_MARKER + number)
    found: list[set[SizedContainer]] = [set() for _ in places]
    for each in chart.render(release, namespace, marked):
        metadata = each.get("metadata") or {}
        for container, mark in _find_markers(each, ""):
            if 0 <= mark - _FIRST_MARKER < len(found):
                found[mark - _FIRST_MARKER].add(
                    SizedContainer(
                        str(each.get("kind")),
                        metadata.get("namespace") or namespace,
                        str(metadata.get("name")),
                        container,
                    )
                )
    return found


def find_resources_paths(values: Any, path: KeyPath = ()) -> Iterator[KeyPath]:
    """Find the paths of mappings that are named resources or have requests or limits."""
    if not isinstance(values, dict):
        return
    for key, value in values.items():
        here = (*path, str(key))
        if is_resources_key(str(key), value if isinstance(value, dict) else {}):
            yield here
        else:
            yield from find_resources_paths(value, here)


def is_resources_key(key: str, keys: Mapping[str, Any]) -> bool:
    """Return whether a mapping with these keys may be a container's resources."""
    return key.lower().endswith("resources") or not {"requests", "limits"}.isdisjoint(keys)


def _set_marker(values: dict[str, Any], keys: KeyPath, mark: int) -> None:
    for key in keys[:-1]:
        below = values.get(key)
        if not isinstance(below, dict):
            below = values[key] = {}
        values = below
    amounts = {"cpu": f"{mark}m", "memory": f"{mark}Mi"}
    values[keys[-1]] = {"requests": dict(amounts), "limits": dict(amounts)}


def _find_markers(part: Any, name: str) -> Iterator[tuple[str, int]]:
    """Find the markers in a rendered object, each with the name of the container that has it."""
    if isinstance(part, list):
        for each in part:
            yield from _find_markers(each, name)
    elif isinstance(part, dict):
        for kind in ("requests", "limits"):
            for amount in (part.get(kind) or {}).values() if isinstance(part.get(kind), dict) else ():
                text = str(amount)
                number = text.removesuffix("Mi").removesuffix("m")
                if number.isdecimal():
                    yield name, int(number)
        own = part.get("name")
        for below in part.values():
            yield from _find_markers(below, own if isinstance(own, str) else name)


def _copy_values(values: Any) -> Any:
    """Copy values with string keys, as paths use them."""
    if isinstance(values, dict):
        return {str(key): _copy_values(value) for key, value in values.items()}
    return [_copy_values(each) for each in values] if isinstance(values, list) else values
