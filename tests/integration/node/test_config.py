"""The agent's configuration at its start."""

from pathlib import Path

import pytest

from harness.cluster.kubepods import Kubepods
from trimtab.errors import TrimtabError
from trimtab.node.agent import NodeAgent
from trimtab.node.config import AgentSettings


def test_agent_rejects_a_state_directory_in_use(kubepods: Kubepods, tmp_path: Path) -> None:
    settings = AgentSettings(node="n", cgroup_parent=kubepods.layout.parent, state=tmp_path)
    NodeAgent(settings, None)
    with pytest.raises(TrimtabError, match="another agent uses this directory"):
        NodeAgent(settings, None)
