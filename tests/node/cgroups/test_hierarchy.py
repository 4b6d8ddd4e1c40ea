"""The cgroup tree of either version, as folders and files."""

from pathlib import Path
from typing import Any

import pytest

from trimtab.node.cgroups import CgroupNotFound, CgroupVersion, Hierarchy, Knob
from trimtab.node.cgroups.knobs import CPU_PRESSURE, MEMORY_STAT, THREADS

POD = "kubepods/web"


@pytest.fixture(params=list(CgroupVersion), ids=["v1", "v2"])
def hierarchy(tmp_path: Path, request: pytest.FixtureRequest) -> Hierarchy:
    if request.param is CgroupVersion.V1:
        for controller in ("cpu", "memory"):
            (tmp_path / controller).mkdir()
    else:
        (tmp_path / "cgroup.controllers").touch()
    return Hierarchy.detect(tmp_path)


def make(hierarchy: Hierarchy, path: str, *threads: int) -> None:
    """Make a cgroup with these threads."""
    folder = hierarchy.folder(path, "cpu")
    folder.mkdir(parents=True)
    name = "tasks" if hierarchy.version is CgroupVersion.V1 else "cgroup.threads"
    (folder / name).write_text("".join(f"{thread}\n" for thread in threads))


def test_hierarchy_of_mixed_versions_is_v1_if_v2_is_elsewhere(tmp_path: Path) -> None:
    for folder in ("cpu", "memory", "unified"):
        (tmp_path / folder).mkdir()
    (tmp_path / "unified/cgroup.controllers").touch()
    assert Hierarchy.detect(tmp_path).version is CgroupVersion.V1


def test_walk_yields_a_cgroup_before_its_descendants(hierarchy: Hierarchy) -> None:
    for path in (POD, f"{POD}/a", f"{POD}/a/inner", f"{POD}/b"):
        make(hierarchy, path)
    found = list(hierarchy.walk(POD))
    assert found[0] == POD
    assert sorted(found) == [POD, f"{POD}/a", f"{POD}/a/inner", f"{POD}/b"]
    assert found.index(f"{POD}/a") < found.index(f"{POD}/a/inner")


def test_children_are_folders_alone(hierarchy: Hierarchy) -> None:
    make(hierarchy, f"{POD}/a")
    (hierarchy.folder(POD, "cpu") / "cpu.max").touch()
    assert list(hierarchy.children(POD)) == ["a"]


def test_children_of_a_removed_cgroup_are_none(hierarchy: Hierarchy) -> None:
    assert list(hierarchy.children("kubepods/gone")) == []
    assert list(hierarchy.walk("kubepods/gone")) == ["kubepods/gone"]


def test_threads_are_those_of_all_descendants(hierarchy: Hierarchy) -> None:
    """A container of crun has its processes in a child."""
    make(hierarchy, POD, 0)
    make(hierarchy, f"{POD}/container", 7, 8)
    make(hierarchy, f"{POD}/container/unit", 9)
    assert sorted(hierarchy.threads(POD)) == [7, 8, 9]


def test_threads_skip_a_cgroup_that_ended(hierarchy: Hierarchy) -> None:
    make(hierarchy, POD, 7)
    hierarchy.folder(f"{POD}/ended", "cpu").mkdir()
    assert hierarchy.threads(POD) == (7,)
    assert hierarchy.threads("kubepods/gone") == ()


def test_cgroup_reads_a_knob_in_the_file_of_its_controller(hierarchy: Hierarchy) -> None:
    folder = hierarchy.folder(POD, "memory")
    folder.mkdir(parents=True)
    (folder / "memory.stat").write_text("anon 4096\nfile 8192\n")
    cgroup = hierarchy.cgroup(f"/{POD}/")
    assert cgroup.has(MEMORY_STAT)
    assert cgroup.read(MEMORY_STAT) == {"anon": 4096, "file": 8192}
    assert str(cgroup) == f"/{POD}"


def test_cgroup_without_a_file_is_not_found(hierarchy: Hierarchy) -> None:
    make(hierarchy, POD)
    cgroup = hierarchy.cgroup(POD)
    assert cgroup.exists
    assert not cgroup.has(MEMORY_STAT)
    knobs: tuple[Knob[Any], ...] = (MEMORY_STAT, CPU_PRESSURE)
    for knob in knobs:
        with pytest.raises(CgroupNotFound, match=knob.name):
            cgroup.read_text(knob)
    assert not hierarchy.cgroup("kubepods/gone").exists
    with pytest.raises(CgroupNotFound):
        hierarchy.cgroup("kubepods/gone").read(THREADS)
