"""The locks: the image installs what the tests ran with, each file by its hash, and nothing else."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

ROOT = Path(__file__).parents[1]
RUNTIME, BUILD = "requirements-runtime.lock", "requirements-build.lock"


def read_lock(name: str) -> dict[str, dict[str, int]]:
    """Return the versions of each package in a lock, of which each Python takes one, with the number of their hashes."""
    found: dict[str, dict[str, int]] = {}
    blocks = re.findall(
        r"^([a-z0-9-]+)(?:\[[a-z,]+\])?==(\S+).*\n((?:    --hash=sha256:[0-9a-f]{64}.*\n)*)",
        (ROOT / name).read_text(),
        re.MULTILINE,
    )
    for package, version, hashes in blocks:
        found.setdefault(canonicalize_name(package), {})[version] = hashes.count("--hash")
    return found


@pytest.mark.parametrize("name", [RUNTIME, BUILD])
def test_lock_has_the_versions_and_hashes_that_the_tests_ran_with(name: str) -> None:
    whole, found = read_lock("requirements.lock"), read_lock(name)
    assert found
    assert found == {package: whole.get(package) for package in found}
    assert all(hashes for versions in found.values() for hashes in versions.values())
    assert sum(map(len, found.values())) == len(
        re.findall(r"^[a-z0-9]", (ROOT / name).read_text(), re.MULTILINE)
    )


def test_runtime_lock_has_every_dependency_and_no_extra_but_postgres() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]

    def names(requirements: list[str]) -> set[NormalizedName]:
        return {canonicalize_name(Requirement(each).name) for each in requirements} - {"trimtab"}

    wanted = names(project["dependencies"]) | names(extras["postgres"])
    found = read_lock(RUNTIME)
    assert wanted <= found.keys()
    others = {each for extra, found in extras.items() if extra != "postgres" for each in names(found)}
    assert not (others - wanted) & found.keys()
    versions = {Requirement(each).name: Requirement(each).specifier for each in project["dependencies"]}
    for package, specifier in versions.items():
        assert all(specifier.contains(version) for version in found[canonicalize_name(package)]), package


def test_image_installs_only_by_hash() -> None:
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    installs = [
        line.strip() for line in re.split(r"&&|\n", text) if "pip install" in line or " install " in line
    ]
    assert len(installs) == 3
    assert all("--require-hashes" in each or "--no-index" in each for each in installs)
    assert re.findall(r"^FROM (\S+)", text, re.MULTILINE) == ["${BUILD}", "${BASE}"]
