"""The emulator: real pods on a real cluster that follow a workload, and what the recommender under test makes of them.

    async with Client(load_connection()) as client:
        journal = await stress(client, {"web": Course.of(workload)}, Place(namespace="lab"), recommender=Recommender(name="vpa"))

`trimtab.lab.emulator.environment` has the same as a Gymnasium environment; it is imported by who learns.
"""

from trimtab.lab.emulator.emulation import Emulation, Place
from trimtab.lab.emulator.load_profile import Course, Demand
from trimtab.lab.emulator.run_log import Entry, Journal
from trimtab.lab.emulator.runner import Recommender, stress

__all__ = ["Course", "Demand", "Emulation", "Entry", "Journal", "Place", "Recommender", "stress"]
