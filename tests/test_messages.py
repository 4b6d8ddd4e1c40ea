"""Messages that protoc makes are those of the .proto files beside them."""

from pathlib import Path

import grpc_tools
import pytest
from grpc_tools import protoc

import trimtab

SOURCE = Path(trimtab.__file__).parents[1]
WELL_KNOWN = Path(grpc_tools.__file__).parent / "_proto"
FILES = sorted(SOURCE.rglob("*.proto"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_protobuf_messages_are_what_the_compiler_generates(file: Path, tmp_path: Path) -> None:
    where = [f"-I{SOURCE}", f"-I{WELL_KNOWN}", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}"]
    assert protoc.main(["protoc", *where, str(file)]) == 0
    for ending in ("_pb2.py", "_pb2.pyi"):
        made = file.relative_to(SOURCE).with_name(file.stem + ending)
        assert (tmp_path / made).read_text() == (SOURCE / made).read_text(), (
            f"generate {made} again: see its __init__.py"
        )
