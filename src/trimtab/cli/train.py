"""`trimtab train`: let a recommender learn from generated workloads and from recordings."""

import asyncio
import json
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from trimtab.cli._common.seed import Seed
from trimtab.cli.backtest import Asked
from trimtab.errors import TrimtabError
from trimtab.lab.ray_engine import HERE
from trimtab.usage.files import read
from trimtab.usage.trace import Trace

UPDATES = {"forecaster": 100, "ppo": 250, "sac": 160}
WEIGHTS, CARD = "weights.npz", "weights.json"
USED_BY = {"forecaster": "forecaster", "ppo": "learned", "sac": "learned"}


def train(
    *paths: Path,
    learner: Literal["forecaster", "ppo", "sac"] = "forecaster",
    folder: Path = Path("trained"),
    updates: int | None = None,
    seed: Seed = 0,
    containers: int = 256,
    hours: int = 72,
    only_recorded: bool = False,
    every: int = 5,
    form: Annotated[str | None, Parameter(name="--format")] = None,
    engine: Literal["here", "ray"] = "here",
    ray_address: str = HERE,
    prometheus: str | None = None,
    found: bool = False,
    source_setting: tuple[str, ...] = (),
    days: float = 14.0,
    step: str | None = None,
    context: str | None = None,
    kubeconfig: str | None = None,
    namespace: Annotated[tuple[str, ...], Parameter(name=["--namespace", "-n"])] = (),
    output: Annotated[Literal["table", "json"], Parameter(name=["--output", "-o"])] = "table",
) -> int:
    """Let a recommender learn from generated workloads and recordings; go on where a former run was ended.

    A forecaster on generated workloads and your own recording, then compared with others on another one:

        trimtab train usage.parquet --learner forecaster --folder mine
        trimtab backtest other.parquet --strategy trimtab,forecaster --setting forecaster.weights=mine/weights.npz

    An agent, its episodes on a Ray cluster; and one that learns only what your own cluster did:

        trimtab train --learner ppo --folder agent --engine ray --ray-address auto
        trimtab train --learner sac --folder ours --found --only-recorded

    Parameters
    ----------
    paths
        Recordings to learn from beside the generators, as for `trimtab backtest`.
    learner
        forecaster learns the quantiles of the next hour; ppo and sac learn to size by reward alone.
    folder
        Where the run is kept: what it was begun with, checkpoint, figures, TensorBoard's logs, and in the end
        weights.npz with its card. A run that is already there is gone on with by the same command and data; by any
        others it is refused.
    updates
        How many updates it takes in all; by the learner when not given.
    seed
        What chance begins with: the same seed and data give the same weights, to the last bit, on the same kind of
        machine.
    containers
        Containers that are generated: of each family for a forecaster, of each shard for an agent.
    hours
        Hours of an agent's episodes.
    only_recorded
        Leave the generators out and learn from the recordings alone.
    every
        Updates from one checkpoint to the next.
    form
        The format of the recordings, where their columns do not tell.
    engine
        Where episodes are lived through and examples are gathered: in this process, or on a Ray cluster.
    ray_address
        The Ray cluster: auto, host:6379 or ray://host:10001; local starts a Ray on this machine.
    prometheus
        Learn from what the Prometheus, Thanos, Mimir or VictoriaMetrics at this address has of the cluster.
    found
        Learn from what the Prometheus that is found in the cluster has of it.
    source_setting
        A setting of that source, as name=value, like tenant=team-a or labels.cluster=prod; may be given several times.
    days
        How many days of usage to read from it.
    step
        The time from one sample to the next, like 5m; by the size of the cluster when not given.
    context
        The kubeconfig context of the cluster whose workloads the usage is of, instead of the current one.
    kubeconfig
        The kubeconfig file to use instead of $KUBECONFIG or ~/.kube/config.
    namespace
        Only workloads in this namespace; may be given several times.
    output
        A line for people, json for programs.
    """
    asked = Asked(prometheus, found, source_setting, days, step, context, kubeconfig, namespace)
    asked.refuse_idle()
    if only_recorded and not (paths or asked.anything):
        raise TrimtabError("--only-recorded: name recordings to learn from, or --prometheus or --found")
    lesson = Lesson(
        learner=learner,
        updates=UPDATES[learner] if updates is None else updates,
        seed=seed,
        containers=containers,
        hours=hours,
        generated=not only_recorded,
        recordings=tuple(path.name for path in paths),
    )
    if min(lesson.updates, containers, hours, every) < 1:
        raise TrimtabError("--updates, --containers, --hours and --every: must each be at least 1")
    _refuse_without_jax()
    console = Console(file=sys.stderr)
    with _shown(console) as progress, _workers(engine, ray_address) as workers:
        traces = {str(path): read(path, form=form) for path in paths}
        if asked.anything:
            traces |= asyncio.run(asked.read(progress))
        traces = _long_enough(lesson, traces, progress.console)
        _make(folder)  # before anything is learned that could not be kept
        made, figures = _learned(lesson, traces, folder, every, workers, progress)
    _keep(made, folder, figures)
    _tell(learner, folder, made, figures, output)
    return 0


@dataclass(frozen=True, slots=True)
class Lesson:
    """What is learned, from what and for how long."""

    learner: str
    updates: int
    seed: int
    containers: int
    hours: int
    generated: bool
    """Whether from generated workloads too."""
    recordings: tuple[str, ...]
    """The names of files."""

    @property
    def command(self) -> str:
        """What one would type to have it anew, beside what was read from a cluster: that is of its time."""
        numbers = ("updates", "seed", "containers", "hours")
        words = ["trimtab", "train", *self.recordings, "--learner", self.learner]
        words += [word for name in numbers for word in (f"--{name}", str(getattr(self, name)))]
        return shlex.join(words if self.generated else [*words, "--only-recorded"])

    def data(self, traces: Iterable[str]) -> list[str]:
        """Name what is learned from."""
        from trimtab.lab.training.sources import TRAINED

        generators = ["generators: " + ", ".join(TRAINED)] if self.generated else []
        return [*generators, *(Path(name).name for name in traces)]


def _learned(
    lesson: Lesson, traces: Mapping[str, Trace], folder: Path, every: int, workers: Any, progress: Progress
) -> tuple[Any, list[dict[str, float]]]:
    """The learner when it is done, and the figures of all its updates."""
    from trimtab.lab.training import loop  # after Ray: see `workers`

    task = progress.add_task(f"{lesson.learner}: gathering", total=lesson.updates)
    made = _learner(lesson, list(traces.values()), workers)

    def told(done: int, figures: dict[str, float]) -> None:
        worth = f"{lesson.learner}: {made.objective} {figures[made.objective]:.4f}"
        progress.update(task, completed=done, description=worth)

    return made, loop.train(
        made,
        folder,
        updates=lesson.updates,
        every=every,
        told=told,
        command=lesson.command,
        data=lesson.data(traces),
    )


def _keep(made: Any, folder: Path, figures: Sequence[dict[str, float]]) -> None:
    """Write the weights, and the card beside them."""
    from trimtab.lab.training import loop, model_card

    loop.ship(made, folder / WEIGHTS)
    model_card.write(folder, folder / CARD, made, figures=figures)


def _long_enough(lesson: Lesson, traces: Mapping[str, Trace], console: Console) -> dict[str, Trace]:
    """Without the recordings that are too short to learn from, each of which is told of: the card must not name them."""
    from trimtab.lab.training import sources

    hours = sources.SHORTEST if lesson.learner == "forecaster" else _episode(lesson)
    for name, trace in traces.items():
        if not sources.lasts(trace, hours):
            line = f"trimtab: {name}: left out, for {hours} hours are the least"
            console.print(line, soft_wrap=True, markup=False, highlight=False)
    return {name: trace for name, trace in traces.items() if sources.lasts(trace, hours)}


def _episode(lesson: Lesson) -> int:
    """The hours of an agent's longest episode, with those that it watches first."""
    from trimtab.lab.training.base_agent import Stage

    return lesson.hours + max(Stage().warm_ups)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TrimtabError(f"--folder {folder}: cannot be made: {error.strerror}") from None


def _refuse_without_jax() -> None:
    if not all(map(find_spec, ("jax", "optax", "tensorboardX"))):
        raise TrimtabError("train: JAX is not installed: pip install 'trimtab[train]'")


@contextmanager
def _shown(console: Console) -> Iterator[Progress]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield progress


@contextmanager
def _workers(engine: str, address: str) -> Iterator[Any]:
    from trimtab.lab.training.workers import here, on_ray

    if engine == "here":
        yield here
        return
    with on_ray(address) as workers:
        yield workers


def _learner(lesson: Lesson, traces: list[Trace], workers: Any) -> Any:
    from trimtab.lab.environments import Course
    from trimtab.lab.training import sources
    from trimtab.lab.training.base_agent import Stage

    seed, updates, generated = lesson.seed, lesson.updates, lesson.generated
    if lesson.learner == "forecaster":
        from trimtab.lab.training.forecaster import ForecasterLearner, ForecasterPlan

        made = sources.recordings(traces, seed=seed, containers=lesson.containers, generated=generated)
        return ForecasterLearner(made, seed=seed, plan=ForecasterPlan(updates=updates), workers=workers)
    demand = sources.demand(traces, hours=_episode(lesson), generated=generated)
    stage = Stage(course=Course(demand=demand, hours=lesson.hours), containers=lesson.containers)
    if lesson.learner == "ppo":
        from trimtab.lab.training.ppo import PpoLearner, PpoPlan

        return PpoLearner(seed=seed, plan=PpoPlan(stage=stage, updates=updates), workers=workers)
    from trimtab.lab.training.sac import SacLearner, SacPlan

    return SacLearner(seed=seed, plan=SacPlan(stage=stage), workers=workers)


def _tell(learner: str, folder: Path, made: Any, figures: Sequence[dict[str, float]], output: str) -> None:
    weights, objective = folder / WEIGHTS, made.objective
    first, last = figures[0][objective], figures[-1][objective]
    if output == "json":
        told = {
            "learner": learner,
            "updates": made.done,
            "objective": objective,
            "first": first,
            "last": last,
        }
        print(json.dumps({**told, "weights": str(weights)}, indent=2))
        return
    print(
        f"{learner}: {made.done} updates, {objective} {first:.4f} at first, {last:.4f} now; written to {weights}"
    )
    name = USED_BY[learner]
    print(f"try it: trimtab backtest --demo --strategy trimtab,{name} --setting {name}.weights={weights}")
