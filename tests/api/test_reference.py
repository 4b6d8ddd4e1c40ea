"""docs/reference/kinds.md says of every field what the code does.

To renew it: python tests/api/test_reference.py
"""

from pathlib import Path

from trimtab.api.reference import page

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "kinds.md"


def test_the_page_is_that_of_the_code() -> None:
    assert PAGE.read_text() == page(), "run: python tests/api/test_reference.py"


if __name__ == "__main__":
    PAGE.write_text(page())
