"""Files are all written or none is."""

import os
from pathlib import Path

import pytest

from trimtab.atomic_write import check_writable, replace_atomically, write_atomically
from trimtab.errors import TrimtabError


def test_files_are_written_with_the_folders_that_they_need_and_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_atomically({tmp_path / "a/b.yaml": "one\r\n", tmp_path / "link": "two"})
    assert (tmp_path / "a/b.yaml").read_bytes() == b"one\r\n"
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "two"


def test_atomic_write_leaves_everything_unchanged_after_a_failure(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("old")
    with pytest.raises(TrimtabError, match=r"a\.yaml/below\.yaml: "):
        write_atomically({tmp_path / "a.yaml": "new", tmp_path / "a.yaml/below.yaml": "cannot be"})
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("a.yaml", "old")]


def test_atomic_write_replaces_the_file_only_when_it_is_complete(
    tmp_path: Path,
) -> None:
    path = tmp_path / "weights"
    path.write_text("old")
    path.chmod(0o640)
    with pytest.raises(KeyboardInterrupt), replace_atomically(path) as place:
        place.write_text("ne")
        raise KeyboardInterrupt
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("weights", "old")]
    with replace_atomically(path) as place:
        place.write_text("new")
        assert path.read_text() == "old"
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("weights", "new")]
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    ("path", "says"),
    [("", "is a folder"), ("no/where/report", "there is no folder"), ("x" * 300, "File name too long")],
)
def test_atomic_write_reports_an_unwritable_file_before_the_work(
    tmp_path: Path, path: str, says: str
) -> None:
    with pytest.raises(TrimtabError, match=says):
        check_writable(tmp_path / path)


def test_atomic_write_writes_to_what_is_no_regular_file_in_place(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    check_writable(pipe)
    write_atomically({pipe: "text"})
    assert os.read(reader, 100) == b"text"
    os.close(reader)
    assert pipe.is_fifo()
    assert [each.name for each in tmp_path.iterdir()] == ["pipe"]
