"""The emulator: real pods on a real cluster that follow a workload, and what the recommender under test makes of them.

    async with Client(load_connection()) as client:
        journal = await stress(client, {"web": Course.of(workload)}, Place(namespace="lab"), recommender=Recommender(name="vpa"))

`trimtab.lab.emulator.environment` has the same as a Gymnasium environment; it is imported by who learns.
"""

from trimtab.lab.emulator.emulation import Emulation, EmulationConfig
from trimtab.lab.emulator.load_profile import LoadProfile, PodDemand
from trimtab.lab.emulator.run_log import PeriodRecord, RunLog
from trimtab.lab.emulator.runner import StressStrategy, run_stress

__all__ = [
    "Emulation",
    "EmulationConfig",
    "LoadProfile",
    "PeriodRecord",
    "PodDemand",
    "RunLog",
    "StressStrategy",
    "run_stress",
]
