"""The settings of a run: written before training starts, and compared when the run is resumed.

Weights are worth what is known of how they were made. So a run's folder has `run.json` from its beginning: the command, the
names of the data, and every setting that a learner has, recordings by a digest of their samples. A run is gone on with only
by what it was begun with, and the card beside its weights is made of that file, not of what was asked for last.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import jax
import msgspec
import numpy as np

from trimtab import __version__, atomic_write
from trimtab.errors import TrimtabError
from trimtab.usage.trace import Trace

RUN_FILE = "run.json"
MAX_SHOWN_DIFFERENCES = 3
"""The number of differences that an error message lists."""


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """The settings with which a run was started."""

    learner: str
    seed: int
    command: str = ""
    """The command that started the run; empty if there was none."""
    data: tuple[str, ...] = ()
    """The training data in words."""
    settings: Any = None
    """All that shapes what is learned, as `describe` has it."""
    made_with: tuple[dict[str, str], ...] = ()
    """Versions and device, of the beginning and then of each time that they were others."""


def record_start(folder: Path, now: Provenance, *, resumes: bool) -> Provenance:
    """Record the settings of a new run, or check that a resumed run has the same settings."""
    path, made_with = folder / RUN_FILE, (collect_versions(),)
    now = msgspec.structs.replace(now, made_with=made_with)
    if resumes:
        before = read_provenance(folder)
        _require_same_settings(path, before, now)
        if before.made_with[-1:] == made_with:
            return before
        now = msgspec.structs.replace(before, made_with=(*before.made_with, *made_with))
    atomic_write.write_atomically({path: json.dumps(msgspec.to_builtins(now), indent=1) + "\n"})
    return now


def read_provenance(folder: Path) -> Provenance:
    """Return the settings with which the run of a folder was started."""
    path = folder / RUN_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Provenance)
    except FileNotFoundError:
        raise TrimtabError(
            f"{path}: the file is missing, so the run's settings are unknown; name another folder"
        ) from None
    except (OSError, msgspec.DecodeError) as error:
        raise TrimtabError(f"{path}: cannot be read: {error}; name another folder") from None


def collect_versions() -> dict[str, str]:
    """Return the versions of the libraries that compute."""
    return {
        "trimtab": __version__,
        "jax": jax.__version__,
        "python": platform.python_version(),
        "device": jax.devices()[0].device_kind,
    }


def describe_settings(value: Any) -> Any:
    """Return settings as plain JSON: data classes by their fields, recordings and arrays by a digest."""
    if isinstance(value, Trace):
        shape = {"containers": value.container_count, "steps": value.steps, "step": value.step}
        return shape | {"digest": _digest(repr((value.names, value.start)).encode(), value.cpu, value.memory)}
    if isinstance(value, np.ndarray):
        return {"shape": list(value.shape), "digest": _digest(b"", value)}
    if is_dataclass(value) and not isinstance(value, type):
        own = {each.name: getattr(value, each.name) for each in fields(value) if each.init}
        return {"kind": type(value).__name__, **_describe_mapping(own)}
    if isinstance(value, Mapping) or hasattr(value, "_asdict"):
        return _describe_mapping(value if isinstance(value, Mapping) else value._asdict())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [describe_settings(each) for each in value]
    return _describe_one(value)


def _describe_mapping(values: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(key): describe_settings(each) for key, each in values.items()}


def _describe_one(value: Any) -> Any:
    if isinstance(value, float | np.generic):
        value = float(value)
        return value if np.isfinite(value) else str(value)  # JSON knows no infinity
    if value is None or isinstance(value, str | int):
        return value
    return {"kind": type(value).__qualname__, **_describe_mapping(getattr(value, "__dict__", {}))}


def _digest(start: bytes, *arrays: Any) -> str:
    found = hashlib.sha256(start)
    for array in arrays:
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:16]


def _require_same_settings(path: Path, before: Provenance, now: Provenance) -> None:
    """Reject a run with other settings than it was started with, and name them."""
    then, wanted = dict(_flatten_run(before)), dict(_flatten_run(now))
    names = [name for name in {**then, **wanted} if then.get(name) != wanted.get(name)]
    names = [name for name in names if name != "command"] or names  # which says it all once more
    if names:
        differences = "; ".join(
            f"{name}: {then.get(name)} then, {wanted.get(name)} now" for name in names[:MAX_SHOWN_DIFFERENCES]
        )
        more = f" and {len(names) - MAX_SHOWN_DIFFERENCES} more" if len(names) > MAX_SHOWN_DIFFERENCES else ""
        raise TrimtabError(
            f"{path.parent}: this run was started with other data or settings ({differences}{more}); use the same ones, or name"
            " another folder"
        )


FORMER_KINDS = {
    "Stage": "RolloutConfig",
    "Course": "EnvironmentConfig",
    "PpoPlan": "PpoConfig",
    "SacPlan": "SacConfig",
    "ForecasterPlan": "ForecasterConfig",
    "Generated": "GeneratedDemand",
    "Recorded": "RecordedDemand",
    "AnyOf": "MixedDemand",
}
"""Class names that earlier versions wrote into `run.json`, with their names of today: such runs can still be resumed."""


def _flatten_run(run: Provenance) -> Iterator[tuple[str, Any]]:
    for name in ("learner", "seed", "settings", "data", "command"):
        yield from _flatten(name, msgspec.to_builtins(getattr(run, name)))


def _flatten(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _flatten(f"{name}.{key}", each)
    elif isinstance(value, list | tuple):
        for at, each in enumerate(value):
            yield from _flatten(f"{name}.{at}", each)
    else:
        yield name, FORMER_KINDS.get(value, value) if name.endswith(".kind") else value
