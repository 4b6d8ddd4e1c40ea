"""Load the configuration from a file, overridden by the environment, overridden by flags.

The file is YAML in the spelling of the model (`disruptionLimits.cluster.maxConcurrent`). A variable is `TRIMTAB_` and the path with two
underscores between its steps: `TRIMTAB_DISRUPTION_LIMITS__CLUSTER__MAX_CONCURRENT=3`. A flag is `disruptionLimits.cluster.maxConcurrent=3`. Every problem is
reported in one line that names the place. Unknown variables are rejected: a misspelt dry run would otherwise be none.
`reloader` reads the file again when it changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import structlog
import yaml
from pydantic import ValidationError
from pydantic.alias_generators import to_snake

from trimtab.api import format_problems
from trimtab.api.model import ApiModel, nested_model, upgrade_fields
from trimtab.errors import TrimtabError
from trimtab.operator.config.aliases import AliasConflictError, expand_aliases
from trimtab.operator.config.model import OperatorConfig
from trimtab.yaml_documents import load_yaml

log = structlog.get_logger(__name__)

ENV_PREFIX = "TRIMTAB_"

FieldPath = tuple[str, ...]

# Kubernetes sets these variables for every Service whose name starts with trimtab.
_SERVICE_LINK = re.compile(r"_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP)(_[A-Z]+)?)?)$")


class ConfigurationError(TrimtabError):
    """Raised for a configuration that cannot be used."""


@dataclass(frozen=True, slots=True)
class ConfigOverride:
    """One overriding value, its path in the configuration, and the variable or flag that sets it."""

    path: FieldPath
    value: Any
    origin: str


def load_configuration(
    *,
    text: str = "",
    origin: str = "",
    environment: Mapping[str, str],
    flags: Sequence[str] = (),
    ignored: Sequence[FieldPath] = (),
) -> OperatorConfig:
    """Return the configuration from a file's text, the environment and flags; `ignored` settings of the file have no effect."""
    overrides = [*_read_environment(environment), *_parse_flags(flags)]
    try:
        in_file = expand_aliases(_parse_file(text, origin))
    except AliasConflictError as error:
        raise ConfigurationError(f"{origin}: {error}") from None
    values, renamed = upgrade_fields(OperatorConfig, in_file)
    for field in renamed:
        _warn_of_old_name(origin, field.old, field.new)
    for path in ignored:
        _drop_setting(values, path)
    for override in overrides:
        _apply_override(values, override)
    try:
        return OperatorConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigurationError(
            "; ".join(_locate_problem(line, overrides, origin) for line in format_problems(error))
        ) from None


def _parse_file(text: str, origin: str) -> dict[str, Any]:
    try:
        values = load_yaml(text)
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise ConfigurationError(f"{origin}: this is not valid YAML: {reason}") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigurationError(f"{origin}: must be a map of settings, such as dryRun: true")
    return values


def _read_environment(environment: Mapping[str, str]) -> Iterator[ConfigOverride]:
    for variable, text in sorted(environment.items()):
        if variable.startswith(ENV_PREFIX) and not _SERVICE_LINK.search(variable):
            steps = variable.removeprefix(ENV_PREFIX).lower().split("__")
            yield ConfigOverride(_resolve_variable(variable, steps), _parse_value(text), variable)


def _parse_flags(flags: Sequence[str]) -> Iterator[ConfigOverride]:
    for flag in flags:
        path, equals, text = flag.partition("=")
        if not equals or not path:
            raise ConfigurationError(f"{flag!r}: write a setting and its value, like dryRun=true")
        present = _rename_path(path.split("."))
        if ".".join(present) != path:
            _warn_of_old_name("--set", path, ".".join(present))
        yield ConfigOverride(present, _parse_value(text), path)


def _parse_value(text: str) -> Any:
    try:
        return load_yaml(text)
    except yaml.YAMLError:
        return text


def _resolve_variable(variable: str, steps: Sequence[str]) -> FieldPath:
    """Return the path in the file's spelling; keys of a free-form map stay as they are."""
    model: type[ApiModel] | None = OperatorConfig
    path: list[str] = []
    is_renamed = False
    for step in steps:
        old_names = {to_snake(old): to_snake(new) for old, new in model.renamed.items()} if model else {}
        is_renamed |= step in old_names
        field = model.model_fields.get(old_names.get(step, step)) if model is not None else None
        if model is not None and field is None:
            near = get_close_matches(step, model.model_fields, n=1)
            meant = "__".join((*map(to_snake, path), *near)).upper()
            hint = f"; did you mean {ENV_PREFIX}{meant}?" if near else "; remove it"
            raise ConfigurationError(f"{variable}: the operator has no such setting{hint}")
        path.append((field.alias if field else None) or step)
        model = nested_model(field.annotation) if field else None
    if is_renamed:
        _warn_of_old_name("environment", variable, ENV_PREFIX + "__".join(map(to_snake, path)).upper())
    return tuple(path)


def _rename_path(steps: Sequence[str]) -> FieldPath:
    """Return the path of a setting with present names."""
    model: type[ApiModel] | None = OperatorConfig
    path: list[str] = []
    for step in steps:
        path.append(model.renamed.get(step, step) if model else step)
        fields = model.model_fields.values() if model else ()
        field = next((each for each in fields if each.alias == path[-1]), None)
        model = nested_model(field.annotation) if field else None
    return tuple(path)


def _warn_of_old_name(origin: str, old: str, new: str) -> None:
    log.warning(
        "config.setting_renamed",
        origin=origin,
        setting=old,
        use=new,
        removal="the next version reads only the new name",
    )


def _apply_override(values: dict[str, Any], override: ConfigOverride) -> None:
    for step in override.path[:-1]:
        below = values.get(step)
        values[step] = values = dict(below) if isinstance(below, dict) else {}
    values[override.path[-1]] = override.value


def _drop_setting(values: dict[str, Any], path: FieldPath) -> None:
    *parents, name = path
    below: object = values
    for step in parents:
        below = below.get(step) if isinstance(below, dict) else None
    if isinstance(below, dict):
        below.pop(name, None)


def _locate_problem(line: str, overrides: Sequence[ConfigOverride], origin: str) -> str:
    """Return the problem with the place where the user can fix it."""
    path = tuple(re.findall(r"[^.\[\]]+", line.partition(":")[0]))
    for override in reversed(overrides):
        shared = min(len(path), len(override.path))
        if path[:shared] == override.path[:shared]:
            return line if override.origin == ".".join(path) else f"{override.origin}: {line}"
    return f"{origin}: {line}" if origin else line
