"""The environment on a real pod takes the same states and actions as the simulated one, and answers from the kernel."""

import numpy as np
from gymnasium import spaces

from harness.cluster import Cluster
from trimtab.kube.auth import load_connection
from trimtab.lab.emulator import Place
from trimtab.lab.emulator.environment import EmulatedSizing, worthwhile
from trimtab.lab.environments.reward import Weights
from trimtab.lab.environments.sizing import Sizing, wanted
from trimtab.lab.workloads import Workload

MIB = 2.0**20


def test_what_a_recommender_cannot_tell_or_hardly_changes_is_left_as_it_is() -> None:
    """As in the simulated one: a strategy that has not seen enough says NaN, and a tenth is the least change."""
    had = (1.0, 100 * MIB)
    unknown, near = np.full(4, np.nan), np.array([90, 95, 99, 95]) * MIB
    assert worthwhile(had, wanted(np.array([unknown, near]), had)) == [*had]
    assert worthwhile(had, wanted(np.array([[0.1, 0.5, 0.9, 0.5], near]), had)) == [0.5, 100 * MIB]


def test_an_agent_sizes_a_real_pod_as_it_would_a_simulated_one(node_cluster: Cluster, namespace: str) -> None:
    cpu, memory = np.full((1, 6), 0.05), np.full((1, 6), 24 * MIB)
    cpu[0, -1], memory[0, -1] = 0.3, 80 * MIB
    made = Workload(type="step", step=1800.0, cpu=cpu, memory=memory)
    direct = {"reach": "direct", "address": "Hostname"}
    place = Place(
        namespace=namespace, run="gym", period=2.0, cpu_limit=2.0, memory_limit=1.5, source_settings=direct
    )
    env = EmulatedSizing(
        connection=load_connection(kubeconfig=node_cluster.kubeconfig), place=place, workload=made, hours=3
    )
    assert env.observation_space == Sizing().observation_space
    assert env.action_space == Sizing().action_space
    assert isinstance(env.observation_space, spaces.Box)
    try:
        seen, _ = env.reset(seed=1)
        assert env.observation_space.contains(seen)
        assert seen[2] == 0.3
        smaller = np.array([0.05, 0.1, 0.2, 0.1, 30 * MIB, 40 * MIB, 50 * MIB, 40 * MIB])
        seen, reward, ended, truncated, told = env.step(smaller)
        assert env.observation_space.contains(seen)
        assert reward < 0
        assert told["change"] == 2
        assert set(Weights._fields) < told.keys()
        assert (ended, truncated) == (False, False)
        seen, _, _, truncated, told = env.step(smaller)
        assert truncated
        assert told["change"] == 0
        assert (seen[2], seen[3]) == (0.1, 40 * MIB)
    finally:
        env.close()
    env.close()  # as wrappers do that were closed already
    deployments = node_cluster.call("GET", f"/apis/apps/v1/namespaces/{namespace}/deployments")
    assert deployments["items"] == []
