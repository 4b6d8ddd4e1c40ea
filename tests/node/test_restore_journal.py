"""The restore journal: written before each knob, and readable after a crash at any moment."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from trimtab.node.arbiter import KnobRef, Value
from trimtab.node.arbiter.host_knobs import CACHE_SHARES
from trimtab.node.cgroups.knobs import CPU_QUOTA, CPUSET_CPUS, IO_READ_BPS
from trimtab.node.restore_journal import RestoreJournal

ORIGINALS: dict[KnobRef, Value | None] = {
    KnobRef("kubepods/besteffort", CPU_QUOTA): -1,
    KnobRef("kubepods/besteffort", CPUSET_CPUS): frozenset({0, 1, 5}),
    KnobRef("kubepods/besteffort", IO_READ_BPS): {"8:0": 100},
    KnobRef("BE", CACHE_SHARES): None,
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "journal"


def test_restore_journal_survives_a_restart(path: Path) -> None:
    RestoreJournal(path, boot="b").record_originals(ORIGINALS)
    assert RestoreJournal(path, boot="b").originals == ORIGINALS


def test_restore_journal_keeps_the_first_value_as_original(path: Path) -> None:
    journal, ref = RestoreJournal(path, boot="b"), KnobRef("pod", CPU_QUOTA)
    journal.record_originals({ref: 1000})
    journal.record_originals({ref: 2000})
    assert RestoreJournal(path, boot="b").originals == {ref: 1000}


def test_restore_journal_replaces_original_by_foreign_value(path: Path) -> None:
    journal, ref = RestoreJournal(path, boot="b"), KnobRef("pod", CPU_QUOTA)
    journal.record_originals({ref: 1000})
    journal.update_original(ref, 3000)
    assert RestoreJournal(path, boot="b").originals == {ref: 3000}


def test_restore_journal_forgets_dropped_knobs(path: Path) -> None:
    journal = RestoreJournal(path, boot="b")
    journal.record_originals(ORIGINALS)
    journal.drop(ORIGINALS)
    assert not RestoreJournal(path, boot="b").originals


def test_restore_journal_is_empty_after_a_reboot(path: Path) -> None:
    RestoreJournal(path, boot="b").record_originals(ORIGINALS)
    assert not RestoreJournal(path, boot="c").originals


def test_restore_journal_keeps_the_last_two_written_values(path: Path) -> None:
    journal, ref = RestoreJournal(path, boot="b"), KnobRef("pod", CPUSET_CPUS)
    journal.record_write(ref, frozenset({9}))  # of which no original is kept
    journal.record_originals({ref: frozenset({0, 1})})
    for number in range(1000):
        journal.record_write(ref, frozenset({number}))
    journal.record_write(ref, frozenset({0, 1}))  # which is known
    assert path.stat().st_size < 50_000
    assert RestoreJournal(path, boot="b").written == {ref: (frozenset({998}), frozenset({999}))}
    journal.drop([ref])
    assert not RestoreJournal(path, boot="b").written


def test_restore_journal_does_not_grow_with_churn(path: Path) -> None:
    journal = RestoreJournal(path, boot="b")
    journal.record_originals(ORIGINALS)
    for number in range(1000):
        journal.record_originals({KnobRef(f"pod{number}", CPU_QUOTA): 1000})
        journal.drop([KnobRef(f"pod{number}", CPU_QUOTA)])
    assert path.stat().st_size < 50_000
    assert RestoreJournal(path, boot="b").originals == ORIGINALS


def test_restore_journal_isolates_a_line_cut_by_a_full_disk(path: Path) -> None:
    journal = RestoreJournal(path, boot="b")
    journal.record_originals({KnobRef("pod1", CPU_QUOTA): 1000})
    with path.open("a") as file:
        file.write('\n["pod2", "cpu.qu')
    journal.record_originals({KnobRef("pod3", CPU_QUOTA): 3000})
    assert RestoreJournal(path, boot="b").originals == {
        KnobRef("pod1", CPU_QUOTA): 1000,
        KnobRef("pod3", CPU_QUOTA): 3000,
    }


@pytest.mark.parametrize("boot", ["b", "c"])
def test_restore_journal_opens_on_a_full_disk_and_writes_later(path: Path, boot: str) -> None:
    RestoreJournal(path, boot="b").record_originals({KnobRef("pod1", CPU_QUOTA): 1000})
    full = path.with_suffix(".part")
    full.mkdir()
    journal, ref = RestoreJournal(path, boot=boot), KnobRef("pod2", CPU_QUOTA)
    before = dict(journal.originals)
    with pytest.raises(OSError):
        journal.record_originals({ref: 2000})
    full.rmdir()
    journal.record_originals({ref: 2000})
    assert RestoreJournal(path, boot=boot).originals == {**before, ref: 2000}


def test_restore_journal_writes_missed_entries_with_the_next(path: Path) -> None:
    journal, pods = (
        RestoreJournal(path, boot="b"),
        [KnobRef(f"pod{number}", CPU_QUOTA) for number in range(4)],
    )
    journal.record_originals(dict.fromkeys(pods[:3], 1000))
    journal.record_write(pods[0], 500)
    path.unlink()
    path.mkdir()  # as little to be written to as a file on a full disk
    journal.record_write(pods[0], 400)
    journal.update_original(pods[1], 3000)
    journal.drop([pods[2]])
    with pytest.raises(OSError):
        journal.record_originals({pods[3]: 1000})
    path.rmdir()
    journal.record_write(pods[1], 600)
    again = RestoreJournal(path, boot="b")
    assert again.originals == {pods[0]: 1000, pods[1]: 3000}
    assert again.written == {pods[0]: (500, 400), pods[1]: (600,)}


def test_restore_journal_logs_a_full_disk_once(path: Path) -> None:
    first, second = pods = KnobRef("pod1", CPU_QUOTA), KnobRef("pod2", CPU_QUOTA)
    RestoreJournal(path, boot="b").record_originals(dict.fromkeys(pods, 1000))
    full = path.with_suffix(".part")
    full.mkdir()
    journal = RestoreJournal(path, boot="b")
    with capture_logs() as logs:
        journal.record_write(first, 500)
        journal.drop([second])
    assert [line["event"] for line in logs] == ["journal.write_failed"]


def test_restore_journal_loses_at_most_the_last_line(path: Path) -> None:
    journal = RestoreJournal(path, boot="b")
    journal.record_originals({KnobRef("pod1", CPU_QUOTA): 1000})
    whole = path.stat().st_size
    journal.record_originals({KnobRef("pod2", CPU_QUOTA): 2000})
    text = path.read_bytes()
    for end in range(whole, len(text)):
        path.write_bytes(text[:end])
        left = RestoreJournal(path, boot="b").originals
        assert left[KnobRef("pod1", CPU_QUOTA)] == 1000
        assert left.get(KnobRef("pod2", CPU_QUOTA)) in (None, 2000)
