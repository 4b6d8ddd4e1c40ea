"""Workload generators: demand of CPU and memory over time, of many kinds, by settings and a seed.

`generate("diurnal_web", count=1000, seed=7, rate=50.0)` gives a `Workload`; `Folder().save(workload)` keeps it under
an id and `Folder().load(id)` has it back. One file a type.
"""

from trimtab.lab.workloads.generator import GENERATORS, Generator, build_generator, generate
from trimtab.lab.workloads.library import SavedWorkload, WorkloadLibrary
from trimtab.lab.workloads.workload import GeneratedWorkload

__all__ = [
    "GENERATORS",
    "GeneratedWorkload",
    "Generator",
    "SavedWorkload",
    "WorkloadLibrary",
    "build_generator",
    "generate",
]
