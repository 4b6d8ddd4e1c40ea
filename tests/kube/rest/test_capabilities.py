"""Capabilities of a Kubernetes version."""

import pytest

from trimtab.kube.rest.capabilities import KubeVersion, can_lower_memory_limits


@pytest.mark.parametrize(
    ("versions", "lowers"),
    [
        (["v1.34.0"], True),
        (["v1.33.5"], False),
        (["v1.36.3", "v1.33.1-gke.100"], False),
        (["v1.35.0", "v1.34.2+k3s1"], True),
        (["unknown", "v1.34.0"], True),
        (["unknown"], True),
    ],
)
def test_lowers_memory_limits_where_every_server_and_kubelet_does(
    versions: list[str], *, lowers: bool
) -> None:
    assert can_lower_memory_limits(*map(KubeVersion.parse, versions)) is lowers
