"""The contract of a workload generator: documented settings and a seed become a `GeneratedWorkload`.

Generators come in by the entry point group `trimtab.workloads`, ours and others' alike. One is a file with a settings
model and one method, `drawn`, which draws all series at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from pydantic import Field

from trimtab.errors import TrimtabError
from trimtab.lab.workloads.sampling import DAY, MAX_CELLS, WEEK, Sampler
from trimtab.lab.workloads.workload import GeneratedWorkload
from trimtab.plugins import Family, Settings
from trimtab.usage.trace import Floats

CENTURY = 36525 * DAY


class GeneratorSettings(Settings):
    """Settings that every random generator shares."""

    step: float = Field(default=300.0, gt=0)
    """Seconds from one sample to the next."""
    duration: float = Field(default=WEEK, gt=0, le=CENTURY)
    """Seconds from the first sample to the end."""


class NoisyGeneratorSettings(GeneratorSettings):
    """Settings that most generators share: the noise of samples and the differences between series."""

    noise: float = Field(default=0.05, ge=0, le=3)
    """The standard deviation of a sample around the shape, as a share of it."""
    spread: float = Field(default=0.3, ge=0, le=3)
    """The variation in size between series: the width of a log-normal factor; 0 makes them equal."""


S = TypeVar("S", bound=Settings)
D = TypeVar("D", bound=GeneratorSettings)


@dataclass(frozen=True, slots=True)
class Curves:
    """The drawn values, of any shape that broadcasts to [series, steps]."""

    cpu: Floats
    """Cores."""
    memory: Floats
    """Bytes."""
    requests: Floats | None = None
    """A second."""


class Generator(ABC, Generic[S]):
    """Makes workloads of one type."""

    name: ClassVar[str]
    settings_type: ClassVar[type[Any]]

    def __init__(self, settings: S) -> None:
        self.settings = settings

    @abstractmethod
    def generate(self, count: int = 1, *, seed: int = 0) -> GeneratedWorkload:
        """Generate this many series; the same settings, count and seed give the same series, bit for bit."""


class SampledGenerator(Generator[D]):
    """A generator whose curves are drawn at random."""

    def generate(self, count: int = 1, *, seed: int = 0) -> GeneratedWorkload:
        steps = round(self.settings.duration / self.settings.step)
        check_size(self.name, count=count, steps=steps)
        draw = Sampler(series=count, steps=steps, step=self.settings.step, seed=seed)
        try:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                curves = self.draw_curves(draw)
        except MemoryError as error:
            raise TrimtabError(
                f"workload type {self.name}: {error}; use a longer step, a shorter duration or fewer series"
            ) from None
        if not (np.isfinite(curves.cpu).all() and np.isfinite(curves.memory).all()):
            raise TrimtabError(
                f"workload type {self.name}: the usage is larger than a number can represent; choose smaller settings"
            )
        return GeneratedWorkload(
            type=self.name,
            step=self.settings.step,
            cpu=_expand(curves.cpu, draw),
            memory=_expand(curves.memory, draw),
            requests=None if curves.requests is None else _expand(curves.requests, draw),
            settings=self.settings.model_dump(mode="json"),
            seed=seed,
        )

    @abstractmethod
    def draw_curves(self, sampler: Sampler) -> Curves:
        """Draw the curves of all series."""


def _expand(curve: Floats, sampler: Sampler) -> Floats:
    return np.ascontiguousarray(np.broadcast_to(np.maximum(curve, 0.0), sampler.shape))


def check_size(name: str, *, count: int, steps: int) -> None:
    """Reject a workload without a sample, or one that does not fit into memory."""
    if count < 1:
        raise TrimtabError(f"workload type {name}: count {count}: must be at least 1")
    if steps < 1:
        raise TrimtabError(f"workload type {name}: duration is shorter than a step; make it longer")
    if count * steps > MAX_CELLS:
        raise TrimtabError(
            f"workload type {name}: {count:,} series of {steps:,} steps do not fit into memory; use fewer"
        )


GENERATORS: Family[Generator[Any]] = Family(noun="workload type", group="trimtab.workloads")


def build_generator(name: str, **settings: Any) -> Generator[Any]:
    """Build a generator of this type; settings not given have their defaults."""
    return GENERATORS.load_type(name)(GENERATORS.parse_settings(name, settings))


def generate(name: str, *, count: int = 1, seed: int = 0, **settings: Any) -> GeneratedWorkload:
    """A workload of this type."""
    return build_generator(name, **settings).generate(count, seed=seed)
