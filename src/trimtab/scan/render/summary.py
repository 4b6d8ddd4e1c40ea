"""What matters of a survey in a few lines of text, the same in every form that people read."""

from __future__ import annotations

from collections.abc import Iterable

from trimtab.plural import counted, lasting
from trimtab.scan.model import Survey, Surveyed, SurveyedContainer
from trimtab.scan.render.units import cpu_text, memory_text, money_text, share_text

SHORT_KINDS = {
    "Deployment": "deploy",
    "StatefulSet": "sts",
    "DaemonSet": "ds",
    "ReplicaSet": "rs",
    "CronJob": "cron",
    "Job": "job",
}
TOTALS_HEAD = ("", "REQUESTED", "USED", "WASTED", "WASTE A MONTH")


def title(survey: Survey) -> str:
    """Which cluster, and how well it is known."""
    many = counted(len(survey.workloads), "workload")
    return f"{survey.context}: {many}, {lasting(survey.window)}, strategy {survey.strategy}"


def totals(survey: Survey) -> list[tuple[str, str, str, str, str]]:
    """CPU, memory, and both as money."""
    cpu, memory, prices = survey.cpu, survey.memory, survey.prices
    used = prices.of_cpu(cpu.used) + prices.of_memory(memory.used)
    return [
        (
            "CPU",
            cpu_text(cpu.requested),
            f"{cpu_text(cpu.used)} ({share_text(cpu.used, cpu.requested)})",
            f"{cpu_text(cpu.wasted)} ({share_text(cpu.wasted, cpu.requested)})",
            money_text(prices.of_cpu(cpu.wasted), prices.currency),
        ),
        (
            "memory",
            memory_text(memory.requested),
            f"{memory_text(memory.used)} ({share_text(memory.used, memory.requested)})",
            f"{memory_text(memory.wasted)} ({share_text(memory.wasted, memory.requested)})",
            money_text(prices.of_memory(memory.wasted), prices.currency),
        ),
        (
            "a month",
            money_text(survey.cost, prices.currency),
            f"{money_text(used, prices.currency)} ({share_text(used, survey.cost)})",
            f"{money_text(survey.wasted, prices.currency)} ({share_text(survey.wasted, survey.cost)})",
            money_text(survey.wasted, prices.currency),
        ),
    ]


def dangers(survey: Survey) -> str:
    """How many containers are at risk, and what more should be requested for them."""
    said = [
        f"{count} {words}"
        for count, words in (
            (survey.at_risk("OOM"), "of OOM"),
            (survey.at_risk("throttling"), "of throttling"),
        )
        if count
    ]
    parts = [f"Containers at risk: {', '.join(said) if said else 'none'}"]
    if survey.without_requests:
        parts.append(f"without requests: {survey.without_requests}")
    if survey.missing > 0:
        parts.append(
            f"worth asking for besides: {money_text(survey.missing, survey.prices.currency)} a month"
        )
    return "; ".join(parts) + "."


def gaps(survey: Survey) -> list[str]:
    """What is not in this survey, and why: a partial result never passes for a whole one."""
    lines = []
    if survey.refused:
        names = ", ".join(sorted(survey.refused))
        lines.append(f"Not seen, for lack of rights: namespaces {names}.")
    lines += [f"Not seen: {resource}: {why}" for resource, why in sorted(survey.troubles.items())]
    return lines


def worth_showing(survey: Survey) -> list[tuple[Surveyed, SurveyedContainer]]:
    """The containers that should change or are at risk, in the order of their workloads."""
    return [
        (found, each)
        for found in survey.workloads
        for each in found.containers
        if each.changes or each.risks or each.lacks_requests
    ]


def short_name(found: Surveyed, container: SurveyedContainer) -> str:
    """`shop/deploy/web`, with the container where there are several."""
    key = found.key
    kind = SHORT_KINDS.get(key.kind, key.kind.partition(".")[0].lower())
    more = f":{container.name}" if len(found.containers) > 1 else ""
    return f"{key.namespace}/{kind}/{key.name}{more}"


def change(before: str, after: str) -> str:
    return before if before == after else f"{before}→{after}"


def together(surveys: Iterable[Survey]) -> str:
    """What several clusters come to; they are priced alike."""
    known = list(surveys)
    currency = known[0].prices.currency
    wasted, cost = sum(each.wasted for each in known), sum(each.cost for each in known)
    return (
        f"All {len(known)} clusters: {money_text(wasted, currency)} of {money_text(cost, currency)} a month "
        f"wasted ({share_text(wasted, cost)}); at risk of OOM {sum(each.at_risk('OOM') for each in known)}, "
        f"of throttling {sum(each.at_risk('throttling') for each in known)}."
    )
