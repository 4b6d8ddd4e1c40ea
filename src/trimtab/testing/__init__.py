"""Fakes for tests of plugins and controllers: no process, no network beyond loopback, no root, simulated time.

Each fake passes the same contract tests as the part that it stands for.
"""

from trimtab.lab.simulator.cgroup_tree import FakeCgroupTree
from trimtab.testing.cluster import FakeCluster
from trimtab.testing.informers import FakeInformerSet
from trimtab.testing.usage import FakePromql, Script, ScriptedSource, steady

__all__ = [
    "FakeCgroupTree",
    "FakeCluster",
    "FakeInformerSet",
    "FakePromql",
    "Script",
    "ScriptedSource",
    "steady",
]
