"""Knobs and their spelling in both versions, and where the kubelet's two drivers put pods."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.errors import TrimtabError
from trimtab.node.cgroups import (
    UNLIMITED,
    CgroupDriver,
    CgroupLayout,
    CgroupNotFound,
    CgroupVersion,
    Hierarchy,
    QosClass,
    parse_container_id,
)
from trimtab.node.cgroups import knobs as known
from trimtab.node.cgroups.values import format_cpus, parse_cpus, shares_to_weight, weight_to_shares

UID = "0a1b2c3d-0000-1111-2222-333344445555"
UNDERSCORED = UID.replace("-", "_")


def test_unlimited_value_is_encoded_per_cgroup_version() -> None:
    assert known.CPU_QUOTA.encode(UNLIMITED, CgroupVersion.V1) == ("-1",)
    assert known.CPU_QUOTA.encode(UNLIMITED, CgroupVersion.V2) == ("max",)
    assert known.MEMORY_MAX.encode(UNLIMITED, CgroupVersion.V2) == ("max",)
    assert known.CPU_QUOTA.v2 is not None
    assert known.CPU_QUOTA.v2.decode("max 100000\n") == UNLIMITED
    assert known.MEMORY_MAX.v1 is not None
    assert known.MEMORY_MAX.v1.decode("9223372036854771712\n") == UNLIMITED


@given(st.integers(1, 10000))
def test_weight_converts_to_the_fewest_shares(weight: int) -> None:
    shares = weight_to_shares(weight)
    assert shares_to_weight(shares) == weight
    assert weight == 1 or shares_to_weight(shares - 1) == weight - 1


@pytest.mark.parametrize(("shares", "weight"), [(2, 1), (1024, 39), (262144, 10000)])
def test_shares_convert_to_the_kubelets_weights(shares: int, weight: int) -> None:
    assert known.CPU_SHARES.encode(shares, CgroupVersion.V2) == (str(weight),)


@given(st.frozensets(st.integers(0, 300)))
def test_cpuset_round_trips(wanted: frozenset[int]) -> None:
    assert parse_cpus(format_cpus(wanted)) == wanted


def test_cpuset_uses_the_kernels_list_format() -> None:
    assert format_cpus({4, 0, 2, 1}) == "0-2,4"


def test_thread_ids_of_other_pid_namespaces_are_ignored() -> None:
    """To write their 0 into a class of resctrl would put the agent itself there."""
    assert known.THREADS.v2 is not None
    assert known.THREADS.v2.decode("0\n17\n0\n") == (17,)


def test_memory_knob_rounds_to_whole_pages() -> None:
    assert known.MEMORY_HIGH.encode(10_000, CgroupVersion.V2) == ("8192",)


def test_io_throttle_is_a_key_in_v2_and_a_file_in_v1() -> None:
    wanted = {"8:0": 1000, "8:16": UNLIMITED}
    assert known.IO_READ_BPS.encode(wanted, CgroupVersion.V2) == ("8:0 rbps=1000", "8:16 rbps=max")
    assert known.IO_READ_BPS.encode(wanted, CgroupVersion.V1) == ("8:0 1000", "8:16 0")
    assert known.IO_READ_BPS.v2 is not None
    assert known.IO_READ_BPS.v2.decode("8:0 rbps=1000 wbps=max riops=max wiops=7\n") == {"8:0": 1000}


@pytest.mark.parametrize(
    ("knob", "value"),
    [(known.CPU_QUOTA, 999), (known.CPU_SHARES, 1), (known.MEMORY_MIN, -2), (known.CPU_IDLE, 2)],
    ids=lambda one: getattr(one, "name", str(one)),
)
def test_knob_rejects_values_outside_the_kernels_range(knob: known.Knob[int], value: int) -> None:
    with pytest.raises(ValueError, match=knob.name):
        knob.encode(value, CgroupVersion.V2)


def test_knob_rejects_cgroup_versions_without_its_file() -> None:
    with pytest.raises(ValueError, match="cgroup v1"):
        known.MEMORY_HIGH.encode(4096, CgroupVersion.V1)


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        (CgroupLayout(CgroupDriver.CGROUPFS), f"kubepods/burstable/pod{UID}"),
        (CgroupLayout(CgroupDriver.CGROUPFS, "kubelet"), f"kubelet/kubepods/burstable/pod{UID}"),
        (
            CgroupLayout(CgroupDriver.SYSTEMD),
            f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDERSCORED}.slice",
        ),
        (
            CgroupLayout(CgroupDriver.SYSTEMD, "kubelet.slice"),
            (
                "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
                f"kubelet-kubepods-burstable-pod{UNDERSCORED}.slice"
            ),
        ),
    ],
    ids=["cgroupfs", "cgroupfs-nested", "systemd", "systemd-nested"],
)
def test_layout_finds_pods_of_both_cgroup_drivers(
    tmp_path: Path, layout: CgroupLayout, expected: str
) -> None:
    assert layout.pod_path(UID, QosClass.BURSTABLE) == expected
    (tmp_path / expected).mkdir(parents=True)
    (tmp_path / "cgroup.controllers").touch()
    hierarchy = Hierarchy.detect(tmp_path)
    for parent in (layout.parent, f"/{layout.parent}/"):  # as a kubelet reports it
        assert CgroupLayout.detect(hierarchy, parent=parent) == layout
    [found] = layout.find_pods(hierarchy)
    assert found == (UID, QosClass.BURSTABLE, expected)


def test_layout_parses_container_ids_of_all_runtimes() -> None:
    plain = "0123456789abcdef" * 4
    for name in (plain, f"cri-containerd-{plain}.scope", f"crio-{plain}.scope"):
        assert parse_container_id(name) == plain
    assert parse_container_id("system.slice") is None
    assert (
        CgroupLayout(CgroupDriver.SYSTEMD).container_path("p", f"containerd://{plain}")
        == f"p/cri-containerd-{plain}.scope"
    )
    assert CgroupLayout(CgroupDriver.CGROUPFS).container_path("p", f"containerd://{plain}") == f"p/{plain}"
    assert (
        CgroupLayout(CgroupDriver.SYSTEMD).container_path("p", f"cri-o://{plain}") == f"p/crio-{plain}.scope"
    )
    assert CgroupLayout(CgroupDriver.CGROUPFS).container_path("p", f"cri-o://{plain}") == f"p/crio-{plain}"


def test_hierarchy_reports_a_removed_cgroup(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").touch()
    gone = Hierarchy.detect(tmp_path).cgroup("/kubepods/pod-x")
    assert not gone.exists
    with pytest.raises(CgroupNotFound):
        gone.read(known.CPU_QUOTA)
    with pytest.raises(CgroupNotFound):
        Hierarchy(tmp_path, CgroupVersion.V1).cgroup("a").read(known.MEMORY_HIGH)


def test_hierarchy_rejects_a_folder_without_cgroups(tmp_path: Path) -> None:
    with pytest.raises(TrimtabError, match="mount the node's"):
        Hierarchy.detect(tmp_path)


def test_knobs_have_unique_names_and_files() -> None:
    for name, knob in known.KNOBS.items():
        assert knob.name == name
        assert knob.v1 or knob.v2
