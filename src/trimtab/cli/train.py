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
from trimtab.cli.backtest import ClusterUsageOptions
from trimtab.errors import TrimtabError
from trimtab.lab.ray_engine import LOCAL
from trimtab.usage.files import read_trace
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
    ray_address: str = LOCAL,
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
    """Train a strategy on generated workloads and recordings; continue an interrupted run.

    A forecaster from generated workloads and your recording, then a comparison on another recording:

        trimtab train usage.parquet --learner forecaster --folder mine
        trimtab backtest other.parquet --strategy trimtab,forecaster --setting forecaster.weights=mine/weights.npz

    An agent with episodes on a Ray cluster, and one that learns only from your cluster:

        trimtab train --learner ppo --folder agent --engine ray --ray-address auto
        trimtab train --learner sac --folder ours --found --only-recorded

    Parameters
    ----------
    paths
        Recordings as training data, in addition to the generators, as for `trimtab backtest`.
    learner
        forecaster learns the quantiles of the next hour; ppo and sac learn to size by reward alone.
    folder
        The folder of the run: its settings, checkpoint, figures, TensorBoard logs and, at the end, weights.npz with
        its card. The same command and data continue a run that is there; other ones are rejected.
    updates
        The number of updates; the default depends on the learner.
    seed
        The random seed: the same seed and data give the same weights, to the last bit, on the same kind of machine.
    containers
        The generated containers: of each family for a forecaster, of each shard for an agent.
    hours
        Hours of an agent's episodes.
    only_recorded
        Learn only from recordings, without generated workloads.
    every
        Updates from one checkpoint to the next.
    form
        The format of the recordings, if their columns do not show it.
    engine
        The engine of episodes and examples: this process, or a Ray cluster.
    ray_address
        The Ray cluster: auto, host:6379 or ray://host:10001; local starts Ray on this machine.
    prometheus
        Learn from the cluster's usage in the Prometheus, Thanos, Mimir or VictoriaMetrics at this address.
    found
        Learn from the cluster's usage in the Prometheus that is found in it.
    source_setting
        A setting of that source, as name=value, like tenant=team-a or labels.cluster=prod; may be given several times.
    days
        The days of usage to read from it.
    step
        The time between two samples, like 5m; the default depends on the size of the cluster.
    context
        The kubeconfig context of the cluster that runs the workloads, instead of the current one.
    kubeconfig
        The kubeconfig file to use instead of $KUBECONFIG or ~/.kube/config.
    namespace
        Only workloads in this namespace; may be given several times.
    output
        A line for people, json for programs.
    """
    asked = ClusterUsageOptions(prometheus, found, source_setting, days, step, context, kubeconfig, namespace)
    asked.reject_unused()
    if only_recorded and not (paths or asked.is_given):
        raise TrimtabError("--only-recorded: give recordings, --prometheus or --found")
    lesson = TrainingJob(
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
    _require_jax()
    console = Console(file=sys.stderr)
    with _show_progress(console) as progress, _open_workers(engine, ray_address) as workers:
        traces = {str(path): read_trace(path, format_name=form) for path in paths}
        if asked.is_given:
            traces |= asyncio.run(asked.read(progress))
        traces = _drop_short_recordings(lesson, traces, progress.console)
        _make_folder(folder)  # before anything is learned that could not be kept
        made, figures = _run_training(lesson, traces, folder, every, workers, progress)
    _save_weights(made, folder, figures)
    _print_result(learner, folder, made, figures, output)
    return 0


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """One training: the learner, its data and its length."""

    learner: str
    updates: int
    seed: int
    containers: int
    hours: int
    generated: bool
    """True if generated workloads are training data too."""
    recordings: tuple[str, ...]
    """The files of the recordings."""

    @property
    def command(self) -> str:
        """The command that repeats the run, apart from data that was read from a cluster."""
        numbers = ("updates", "seed", "containers", "hours")
        words = ["trimtab", "train", *self.recordings, "--learner", self.learner]
        words += [word for name in numbers for word in (f"--{name}", str(getattr(self, name)))]
        return shlex.join(words if self.generated else [*words, "--only-recorded"])

    def list_data(self, traces: Iterable[str]) -> list[str]:
        """Name what is learned from."""
        from trimtab.lab.training.sources import TRAINED_FAMILIES

        generators = ["generators: " + ", ".join(TRAINED_FAMILIES)] if self.generated else []
        return [*generators, *(Path(name).name for name in traces)]


def _run_training(
    job: TrainingJob, traces: Mapping[str, Trace], folder: Path, every: int, workers: Any, progress: Progress
) -> tuple[Any, list[dict[str, float]]]:
    """Train the learner, and return it with the figures of all updates."""
    from trimtab.lab.training import loop  # after Ray: see `ray_engine`

    task = progress.add_task(f"{job.learner}: gathering", total=job.updates)
    made = _build_learner(job, list(traces.values()), workers)

    def report(done: int, figures: dict[str, float]) -> None:
        worth = f"{job.learner}: {made.objective} {figures[made.objective]:.4f}"
        progress.update(task, completed=done, description=worth)

    return made, loop.train(
        made,
        folder,
        updates=job.updates,
        checkpoint_every=every,
        on_update=report,
        command=job.command,
        data=job.list_data(traces),
    )


def _save_weights(made: Any, folder: Path, figures: Sequence[dict[str, float]]) -> None:
    """Write the weights, and the card beside them."""
    from trimtab.lab.training import loop, model_card

    loop.write_weights(made, folder / WEIGHTS)
    model_card.write_model_card(folder, folder / CARD, made, figures=figures)


def _drop_short_recordings(
    job: TrainingJob, traces: Mapping[str, Trace], console: Console
) -> dict[str, Trace]:
    """Drop and report the recordings that are too short, so that the model card does not name them."""
    from trimtab.lab.training import sources

    hours = sources.MIN_HOURS if job.learner == "forecaster" else _compute_episode_hours(job)
    for name, trace in traces.items():
        if not sources.covers_hours(trace, hours):
            line = f"trimtab: {name}: skipped: shorter than {hours} hours"
            console.print(line, soft_wrap=True, markup=False, highlight=False)
    return {name: trace for name, trace in traces.items() if sources.covers_hours(trace, hours)}


def _compute_episode_hours(job: TrainingJob) -> int:
    """Return the hours of an agent's longest episode, warm-up included."""
    from trimtab.lab.training.base_agent import RolloutConfig

    return job.hours + max(RolloutConfig().warm_ups)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TrimtabError(f"--folder {folder}: cannot be created: {error.strerror}") from None


def _require_jax() -> None:
    if not all(map(find_spec, ("jax", "optax", "tensorboardX"))):
        raise TrimtabError("train: JAX is not installed: pip install 'trimtab[train]'")


@contextmanager
def _show_progress(console: Console) -> Iterator[Progress]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield progress


@contextmanager
def _open_workers(engine: str, address: str) -> Iterator[Any]:
    from trimtab.lab.ray_engine import connect_ray_workers, run_locally

    if engine == "here":
        yield run_locally
        return
    with connect_ray_workers(address) as workers:
        yield workers


def _build_learner(job: TrainingJob, traces: list[Trace], workers: Any) -> Any:
    from trimtab.lab.environments import EnvironmentConfig
    from trimtab.lab.training import sources
    from trimtab.lab.training.base_agent import RolloutConfig

    seed, updates, generated = job.seed, job.updates, job.generated
    if job.learner == "forecaster":
        from trimtab.lab.training.forecaster import ForecasterConfig, ForecasterLearner

        made = sources.build_training_traces(
            traces, seed=seed, containers=job.containers, generated=generated
        )
        return ForecasterLearner(made, seed=seed, config=ForecasterConfig(updates=updates), workers=workers)
    demand = sources.build_training_demand(traces, hours=_compute_episode_hours(job), generated=generated)
    stage = RolloutConfig(course=EnvironmentConfig(demand=demand, hours=job.hours), containers=job.containers)
    if job.learner == "ppo":
        from trimtab.lab.training.ppo import PpoConfig, PpoLearner

        return PpoLearner(seed=seed, config=PpoConfig(stage=stage, updates=updates), workers=workers)
    from trimtab.lab.training.sac import SacConfig, SacLearner

    return SacLearner(seed=seed, config=SacConfig(stage=stage), workers=workers)


def _print_result(
    learner: str, folder: Path, made: Any, figures: Sequence[dict[str, float]], output: str
) -> None:
    weights, objective = folder / WEIGHTS, made.objective
    first, last = figures[0][objective], figures[-1][objective]
    if output == "json":
        summary = {
            "learner": learner,
            "updates": made.updates_done,
            "objective": objective,
            "first": first,
            "last": last,
        }
        print(json.dumps({**summary, "weights": str(weights)}, indent=2))
        return
    print(
        f"{learner}: {made.updates_done} updates, {objective} {first:.4f} at first, {last:.4f} now; written to {weights}"
    )
    name = USED_BY[learner]
    print(f"try it: trimtab backtest --demo --strategy trimtab,{name} --setting {name}.weights={weights}")
