from hypothesis import given
from hypothesis import strategies as st

from trimtab.printable import escape_invisible


@given(st.text())
def test_escape_invisible_leaves_one_line_without_control_characters(text: str) -> None:
    escaped = escape_invisible(text)
    assert len(escaped.splitlines()) <= 1
    assert not any(char < " " or "\x7f" <= char <= "\x9f" for char in escaped)


def test_escape_invisible_keeps_text_that_people_read() -> None:
    assert escape_invisible("größe → 100 %, 日本") == "größe → 100 %, 日本"
    assert escape_invisible("a\nb\x1b[2J\u202e") == r"a\nb\x1b[2J\u202e"
