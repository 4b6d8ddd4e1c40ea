"""A configuration that follows its file, as an editor and as a mounted ConfigMap change it."""

import asyncio
import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from trimtab.operator.config.loader import ConfigurationError
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.config.reloader import ConfigReloader
from trimtab.operator.metrics import Metrics


class Mounted:
    """A ConfigMap as the kubelet mounts it: a file is a link through `..data`, which is swapped as a whole."""

    def __init__(self, folder: Path, text: str) -> None:
        self._folder = folder
        self._version = 0
        self.swap(text)
        self.path = folder / "config.yaml"
        self.path.symlink_to(Path("..data") / "config.yaml")

    def swap(self, text: str) -> None:
        self._version += 1
        fresh = self._folder / f"..{self._version}"
        fresh.mkdir()
        (fresh / "config.yaml").write_text(text)
        link = self._folder / "..data_tmp"
        link.symlink_to(fresh.name)
        link.rename(self._folder / "..data")


@pytest.fixture
def mounted_config(tmp_path: Path) -> Mounted:
    return Mounted(tmp_path, "dryRun: true\n")


def live_from(path: Path, metrics: Metrics | None = None) -> ConfigReloader:
    return ConfigReloader(path, environment={}, metrics=metrics)


async def test_reloader_notices_a_swapped_configmap(mounted_config: Mounted) -> None:
    live = live_from(mounted_config.path)
    reloads: asyncio.Queue[OperatorConfig] = asyncio.Queue()
    live.subscribe(reloads.put_nowait)
    following = asyncio.create_task(live.run(interval=0.01))
    try:
        assert live.current.dry_run
        mounted_config.swap("dryRun: false\n")
        async with asyncio.timeout(60):
            reloaded = await reloads.get()
    finally:
        following.cancel()
    assert not reloaded.dry_run
    assert live.current == reloaded


def test_reloader_notices_a_change_of_equal_length_and_time(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("disruptionLimits: {node: {maxConcurrent: 1}}")
    before = path.stat()
    live = live_from(path)
    with path.open("r+") as file:
        file.write("disruptionLimits: {node: {maxConcurrent: 2}}")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    live.reload()
    assert live.current.disruption_limits.node.max_concurrent == 2


@pytest.mark.parametrize(
    "bad", ["dryRun: [", "dryRun: maybe", "disruptionLimits: {node: {maxConcurrent: 0}}", "\udcff"]
)
def test_reloader_keeps_the_old_configuration_and_reports_a_bad_file_once(
    mounted_config: Mounted, bad: str
) -> None:
    metrics = Metrics()
    live = live_from(mounted_config.path, metrics)
    mounted_config.swap("")
    mounted_config.path.write_bytes(bad.encode(errors="surrogateescape"))
    with capture_logs() as logged:
        live.reload()
        live.reload()
    assert live.current.dry_run, "as it was"
    assert str(mounted_config.path) in live.problem
    (line,) = logged
    assert (line["event"], line["error"]) == ("config.rejected", live.problem)
    assert metrics.registry.get_sample_value("trimtab_config_reloads_total", {"result": "rejected"}) == 1


def test_reloader_keeps_the_old_configuration_while_the_file_is_missing(mounted_config: Mounted) -> None:
    live = live_from(mounted_config.path)
    mounted_config.path.unlink()
    live.reload()
    assert live.current.dry_run
    assert "cannot be read" in live.problem
    mounted_config.path.write_text("dryRun: true\n")  # the same as before it was gone
    live.reload()
    assert live.problem == ""


@pytest.mark.parametrize("empty", ["", "\n", "# all of it is gone\n", "---\n"])
def test_config_keeps_the_last_good_one_when_its_file_is_emptied(mounted_config: Mounted, empty: str) -> None:
    """All defaults would turn the dry run off."""
    live = live_from(mounted_config.path)
    mounted_config.swap(empty)
    live.reload()
    assert (live.current.dry_run, live.problem) == (
        True,
        f"{mounted_config.path}: the file is empty; write {{}} if you want all defaults",
    )
    mounted_config.swap("{}\n")
    live.reload()
    assert (live.current.dry_run, live.problem) == (False, "")


async def test_config_waits_until_its_file_has_stopped_changing(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("dryRun: true\nlimits: {excludedNamespaces: [payments]}\n")
    live = live_from(path)
    reloads: list[OperatorConfig] = []
    live.subscribe(reloads.append)
    path.write_text("dryRun: true\n")  # the first part of what is being written
    assert not live._is_stable()
    path.write_text("dryRun: true\nlimits: {excludedNamespaces: [payments, shop]}\n")
    following = asyncio.create_task(live.run(interval=0.01))
    async with asyncio.timeout(60):
        while not reloads:
            await asyncio.sleep(0.01)
    following.cancel()
    assert [each.limits.excluded_namespaces for each in reloads] == [("payments", "shop")]


def test_reloader_delays_only_fields_that_need_a_restart(mounted_config: Mounted) -> None:
    live = live_from(mounted_config.path)
    mounted_config.swap("dryRun: false\naddress: ':9999'\nstore: {url: other.db}\n")
    with capture_logs() as logged:
        live.reload()
    assert not live.current.dry_run
    assert live.current.address == OperatorConfig().address
    assert live.current.store == OperatorConfig().store
    assert {
        "event": "config.restart_required",
        "fields": ["store", "address"],
        "log_level": "warning",
    } in logged


def test_reloader_applies_new_prices_at_once(mounted_config: Mounted) -> None:
    live = live_from(mounted_config.path)
    mounted_config.swap("prices: {cpu: 0.5, currency: €}\n")
    with capture_logs() as logged:
        live.reload()
    assert live.current.prices.cpu == 0.5
    assert "config.restart_required" not in [each["event"] for each in logged]


def test_reloader_keeps_flags_and_environment_above_the_new_file(mounted_config: Mounted) -> None:
    live = ConfigReloader(
        mounted_config.path,
        environment={"TRIMTAB_DRY_RUN": "true"},
        flags=["disruptionLimits.node.maxConcurrent=7"],
    )
    mounted_config.swap("dryRun: false\npace: {node: {maxConcurrent: 1, maxPerMinute: 1}}\n")
    live.reload()
    assert live.current.dry_run
    assert (
        live.current.disruption_limits.node.max_concurrent,
        live.current.disruption_limits.node.max_per_minute,
    ) == (7, 1)


def test_reloader_requires_a_valid_first_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        live_from(tmp_path / "nowhere.yaml")
    (tmp_path / "config.yaml").write_text("dryRun: 1")
    with pytest.raises(ConfigurationError, match="dryRun: must be true or false"):
        live_from(tmp_path / "config.yaml")


def test_reloader_without_a_file_watches_nothing() -> None:
    live = ConfigReloader(None, environment={})
    live.reload()
    assert live.current == OperatorConfig()
