"""Pods that came after a change was done: replacements and new replicas get the size that is in effect, and boosts end.

A pod is brought along only from the size that its template gave it. One of any other size was resized by somebody
else, and is left to them; and once the template's own sizes are changed, the old change has no say any more.
"""

from __future__ import annotations

from collections.abc import Collection

from trimtab.actuation.boost import boost, is_boosted
from trimtab.actuation.deeds import Deed, ResizePod, Urgency, Wait
from trimtab.actuation.marks import Applied, Marks
from trimtab.actuation.obstacles import falls
from trimtab.actuation.situation import Situation
from trimtab.actuation.sizes import Sizes, grows, has_size, is_as_made, same_fields, sizes_of
from trimtab.actuation.ways import restarts_nothing
from trimtab.kube.pods import Pod, Resources
from trimtab.sizing.surroundings import as_counted


def tend(situation: Situation, marks: Marks) -> list[Deed]:
    """Bring each pod to the size that it should have while no change is under way."""
    if not (situation.wish.resizes_in_place and situation.strategy.allow_in_place_resize):
        return []
    deeds: list[Deed] = []
    looks: list[int] = []
    for pod in situation.live:
        wished, look_again = _wished(situation, marks, pod)
        if look_again is not None:
            looks.append(look_again)
        current = sizes_of(pod.containers)
        if wished is None or has_size(pod, wished) or falls(pod) or situation.refusal(pod.uid, wished):
            continue
        if restarts_nothing(pod.containers, current, wished):
            deeds.append(ResizePod(pod, wished, Urgency.UP if grows(current, wished) else Urgency.DOWN))
    if deeds or not looks or situation.wish.urgent:
        return deeds  # pods that are killed for lack of memory do not wait for one that starts
    # While a pod starts, no change begins: a boosted size is nobody's size from before.
    return [Wait(min(looks), "pods are starting")]


def size_in_effect(applied: Applied | None, template: Sizes, *, alone: Collection[str]) -> Sizes:
    """What a workload says of its pods: the size that was applied, unless its template was changed since; and nothing of
    containers that are left alone.
    """
    sizes = applied.sizes if applied and applied.template == template else template
    return {name: as_counted(each) for name, each in sizes.items() if name not in alone}


def own_size(pod: Pod, in_effect: Sizes) -> Sizes:
    """The size that a pod should have when it has started; what admission has filled in is its own, too."""
    current = sizes_of(pod.containers)
    return {name: same_fields(now, in_effect.get(name, now)) for name, now in current.items()}


def is_behind(pod: Pod, own: Sizes, template: Sizes) -> bool:
    """Whether a pod still has the size of its template, and that is not its own."""
    return not has_size(pod, own) and is_as_made(pod, template)


def _wished(situation: Situation, marks: Marks, pod: Pod) -> tuple[Sizes | None, int | None]:
    now = situation.now
    in_effect = size_in_effect(marks.applied, situation.template, alone=situation.wish.alone)
    own = own_size(pod, in_effect)
    boostable = {name: each for name, each in own.items() if _states_cpu(in_effect.get(name), each)}
    rule = situation.strategy.startup_boost if boostable else None
    if is_behind(pod, own, situation.template) and not (rule and is_boosted(pod, boostable, rule, now=now)):
        return own, None
    if rule is None:
        return None, None
    boosted = boost(pod, boostable, rule, now=now)
    return boosted.sizes, boosted.look_again


def _states_cpu(said: Resources | None, own: Resources) -> bool:
    """Whether a workload itself gives a container its CPU: what admission adds could not be told from a boost afterwards."""
    return said is not None and (said.cpu_request, said.cpu_limit) == (own.cpu_request, own.cpu_limit)
