"""docs/reference/strategies.md says of every strategy and setting what the code does.

To renew it: python tests/sizing/test_reference.py
"""

from pathlib import Path

from trimtab.sizing.reference import page

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "strategies.md"


def test_the_page_is_that_of_the_code() -> None:
    assert PAGE.read_text() == page(), "run: python tests/sizing/test_reference.py"


if __name__ == "__main__":
    PAGE.write_text(page())
