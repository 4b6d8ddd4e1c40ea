"""The emulator: real pods on a real cluster that follow a workload, and what the recommender under test makes of them."""

from trimtab.lab.emulator.course import Course, Demand
from trimtab.lab.emulator.journal import Entry, Journal
from trimtab.lab.emulator.stress import Plan, StressRun

__all__ = ["Course", "Demand", "Entry", "Journal", "Plan", "StressRun"]
