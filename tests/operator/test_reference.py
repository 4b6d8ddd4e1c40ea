"""docs/how-to/install.md says of settings and metrics what the code does.

To renew it: python tests/operator/test_reference.py
"""

import re
from pathlib import Path

from trimtab.operator.reference import metrics_table, settings_table

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "install.md"
TABLES = {"settings": settings_table, "metrics": metrics_table}


def renewed(text: str) -> str:
    def block(found: re.Match[str]) -> str:
        return f"<!-- {found[1]} -->\n\n{TABLES[found[1]]()}\n\n<!-- end -->"

    return re.sub(r"<!-- (settings|metrics) -->\n.*?<!-- end -->", block, text, flags=re.DOTALL)


def test_the_tables_are_those_of_the_code() -> None:
    assert PAGE.read_text() == renewed(PAGE.read_text()), "run: python tests/operator/test_reference.py"


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text()))
