"""The survey itself: look at the cluster, read its past, judge each workload.

Whatever the cluster or the source refuses as a whole is a `TrimtabError`; what only some of it refuses is told in the
answer beside what was found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from trimtab.api.optimizationpolicy import OptimizationPolicySpec, StrategyChoice
from trimtab.errors import TrimtabError
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.kube.rest.client import Client
from trimtab.recommender.cohort import Sizing
from trimtab.recommender.workload import AS_A_WHOLE, sizing_of
from trimtab.scan.assessor import DAY, Judge
from trimtab.scan.cluster_snapshot import Picture, look
from trimtab.scan.lister import selected
from trimtab.scan.model import Skipped, Survey, Surveyed
from trimtab.scan.pricing import Prices
from trimtab.scan.render.summary import SHORT_KINDS
from trimtab.scan.usage_model import Lessons
from trimtab.scan.usage_reader import Progress, Reading, plan, read
from trimtab.sizing.strategy import STRATEGIES
from trimtab.usage.pod_ownership import Owners
from trimtab.usage.prometheus import Prometheus
from trimtab.usage.source import Source
from trimtab.usage.usage import Usage

WINDOW = 14 * DAY

Heard = Callable[[Usage, Owners], None]
"""Told of each part of the past that was read."""


async def survey(
    client: Client,
    source: Source[Any],
    *,
    namespaces: Sequence[str] | None = None,
    labels: str = "",
    kinds: Sequence[str] = (),
    names: Sequence[str] = (),
    strategy: str = "trimtab",
    settings: Mapping[str, Any] | None = None,
    compare: Sequence[str] = (),
    window: float = WINDOW,
    step: float | None = None,
    now: float,
    prices: Prices | None = None,
    described: str = "",
    progress: Progress = lambda _text, _share: None,
    planned: Callable[[Reading], None] = lambda _reading: None,
    heard: Heard = lambda _usage, _owners: None,
    on_chosen: Callable[[Sequence[Workload]], None] = lambda _workloads: None,
) -> Survey:
    """Look at a cluster; `described` is what people are told of the source, `planned` hears what its read will cost.

    With `names`, a workload that another owns stands for its owner. `on_chosen` is called with the chosen workloads
    before their usage is read.

    Whatever the source or the cluster refuses as a whole is a `TrimtabError`; what only some of it refuses is in the
    answer.
    """
    others = [name for name in dict.fromkeys(compare) if name != strategy]
    sizings = {strategy: _sizing(strategy, settings or {}), **{name: _sizing(name, {}) for name in others}}
    # What is wrong with a strategy or its settings is refused before anything long is begun.
    known = [STRATEGIES.settings_of(each.strategy, each.given()) for each in sizings.values()]
    progress("looking at workloads", 0.0)
    picture = await look(client, namespaces=namespaces)
    chosen = await _chosen(client, picture, labels=labels, kinds=kinds, names=names)
    on_chosen(chosen)
    sized, skipped = _sized(picture, chosen)
    if not (labels or kinds or names):
        skipped += _without_workload(picture)
    spaces = {workload.namespace for workload in sized}
    # A strategy may learn of one from all, so that one that is asked for alone gets the size that it has among them.
    everyone, _ = _sized(picture, (each for each in picture.workloads() if each.namespace in spaces))
    lessons = Lessons(picture, everyone, sizings.values(), now=now)
    width = step or 0.0
    if sized:
        reading = await plan(source, window=window, step=step, now=now, namespaces=sorted(spaces))
        planned(reading)
        width = reading.ask.step
        rests = not all(workload.runs_on for workload in sized)
        if rests and isinstance(source, Prometheus) and await source.has_usage(at=reading.ask.start):
            lessons.consumption.begin()

        def take_in(usage: Usage) -> None:
            lessons.take_in(usage, until=reading.ask.end)
            heard(usage, lessons.owners)

        await read(source, reading, take_in, progress=progress)
    judge = Judge(picture, lessons, sizings, prices or Prices(), source.name, now)
    found = []
    for workload in sized:
        surveyed = judge.surveyed(workload)
        if isinstance(surveyed, Skipped):
            skipped.append(surveyed)
        else:
            found.append(surveyed)
    return Survey(
        context=client.connection.context,
        server=client.connection.server,
        source=described or source.name,
        at=now,
        window=window,
        step=width,
        strategy=strategy,
        settings=known[0].model_dump(),
        prices=prices or Prices(),
        workloads=tuple(sorted(found, key=_impact)),
        skipped=tuple(skipped),
        refused=picture.refused,
        troubles=picture.troubles,
        compared=tuple(others),
    )


def _sizing(strategy: str, settings: Mapping[str, Any]) -> Sizing:
    """As under a policy that says nothing else; whether there is such a strategy is for its registry to say."""
    choice = StrategyChoice.model_construct(name=strategy, settings=dict(settings))
    return sizing_of(OptimizationPolicySpec(strategy=choice))


def _impact(found: Surveyed) -> tuple[float, ...]:
    """The worst first; of equals what moves most money, then what has most replicas."""
    return (-found.severity, -abs(found.saving), -found.replicas)


async def _chosen(
    client: Client, picture: Picture, *, labels: str, kinds: Sequence[str], names: Sequence[str]
) -> list[Workload]:
    wanted = {_known_kind(kind, picture.kinds()) for kind in kinds}

    def is_meant(workload: Workload) -> bool:
        return (not wanted or workload.key.kind in wanted) and (not names or workload.name in names)

    found = list(filter(is_meant, picture.workloads()))
    if (
        names
    ):  # a StatefulSet of an operator's own kind is sized as that, and users may know it by its own name
        above = {each.uid: each for each in map(picture.top_of, filter(is_meant, picture.owned()))}
        found += [each for uid, each in above.items() if uid not in {known.uid for known in found}]
    if labels:
        kinds_found = {workload.resource for workload in found}
        uids = await selected(client, kinds_found, picture.scopes, labels=labels)
        found = [workload for workload in found if workload.uid in uids]
    return found


def _known_kind(given: str, known: Sequence[str]) -> str:
    """As users write it: deployment, Deployment, deploy, rollout.argoproj.io or rollout alone."""
    spelled = {kind.lower().partition(".")[0]: kind for kind in known}
    spelled |= {short: kind for kind, short in SHORT_KINDS.items()} | {kind.lower(): kind for kind in known}
    found = spelled.get(given.lower())
    if found is None:
        raise TrimtabError(f"kind {given}: the cluster has no such workloads; there are: {', '.join(known)}")
    return found


def _sized(picture: Picture, chosen: Iterable[Workload]) -> tuple[list[Workload], list[Skipped]]:
    sized, skipped = [], []
    for workload in chosen:
        reason = _not_worth_a_look(workload, picture)
        if reason:
            skipped.append(Skipped(workload.key, reason, picture.makes(workload)))
        else:
            sized.append(workload)
    return sized, skipped


def _without_workload(picture: Picture) -> list[Skipped]:
    """Pods that there is no template of, and who made them."""
    found = {}
    for pod in picture.unowned():
        if pod.owner is None:
            key, reason = (
                WorkloadKey("Pod", pod.namespace, pod.name),
                "is a pod by itself, without a template",
            )
        elif pod.owner.kind == "Node":
            key, reason = WorkloadKey("Pod", pod.namespace, pod.name), "is made by its node, from a file"
        else:
            key = WorkloadKey(pod.owner.kind, pod.namespace, pod.owner.name)
            reason = "makes pods, and is of a kind that we do not size or may not read"
        found[key] = Skipped(key, reason)
    return list(found.values())


def _not_worth_a_look(workload: Workload, picture: Picture) -> str:
    if workload.deleting:
        return "is being deleted"
    if workload.finished:
        return "has run to its end"
    if not workload.containers and not picture.pods_of(workload):
        return "has no pod template that we can read"
    if workload.as_a_whole:
        return AS_A_WHOLE
    if workload.runs_on and not workload.replicas:
        return "runs on no node" if workload.kind == "DaemonSet" else "is scaled to zero"
    return ""
