"""The lines of an explanation, in the order in which they come up, and why anything is held."""

from __future__ import annotations

from sys import intern

from trimtab.sizing.case import Case, Hold
from trimtab.sizing.recommendation import Factor, amount_text


class Trail:
    """What the guards leave behind."""

    def __init__(self, facts: tuple[Factor, ...]) -> None:
        self.factors = list(facts)
        self.holds: list[str] = []

    def step(
        self, case: Case, name: str, before: int | None, after: int | None, *, why: str, source: str
    ) -> None:
        resource = case.resource
        moved = f"{amount_text(resource, before)} -> {amount_text(resource, after)}"
        self._tell(f"{resource} {name}", f"{moved}: {why}", source)

    def stay(self, case: Case, name: str, amount: int | None, *, why: str, source: str) -> None:
        """Note why an amount stays although the policy asks for another."""
        resource = case.resource
        self._tell(f"{resource} {name}", f"stays at {amount_text(resource, amount)}: {why}", source)

    def hold(self, case: Case, hold: Hold) -> None:
        kept = amount_text(case.resource, case.request)
        self._tell(f"{case.resource} held", f"stays at {kept}: {hold.why}", hold.source)
        self.holds.append(f"{case.resource}: {hold.why}")

    def _tell(self, name: str, detail: str, source: str) -> None:
        # There are few guards and sources, and many containers that are told of them.
        self.factors.append(Factor(intern(name), detail, intern(source)))
