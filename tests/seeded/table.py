"""The table of seeded faults: table.toml as values, and as the table of docs/development/seeded-faults.md.

    $ python -m tests.seeded.table               # writes the table of the page again

Not here: running them (`__main__.py`).
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["FOLDER", "PAGE", "ROOT", "Fault", "faults", "table_in", "table_of"]

FOLDER: Final = Path(__file__).resolve().parent
ROOT: Final = FOLDER.parents[1]
PAGE: Final = ROOT / "docs" / "development" / "seeded-faults.md"
_TABLE: Final = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)


class Fault(NamedTuple):
    """A row of the table: `id` is the patch's name, `broken` says what it breaks, `caught_by` are files or ids of tests."""

    id: str
    area: str
    broken: str
    caught_by: tuple[str, ...]


def faults(folder: Path = FOLDER) -> list[Fault]:
    """Return the faults in the table's order. ValueError unless each row has its patch, and each patch its row."""
    table = tomllib.loads((folder / "table.toml").read_text(encoding="utf-8"))
    found = [Fault(**{**row, "caught_by": tuple(row["caught_by"])}) for row in table["fault"]]
    patches, rows = sorted(path.stem for path in folder.glob("*.patch")), sorted(fault.id for fault in found)
    if patches != rows:
        raise ValueError(f"not both a patch and a row: {', '.join(sorted({*patches} ^ {*rows}))}")
    return found


def table_of(every: list[Fault]) -> str:
    """Return the faults as a table in Markdown."""
    lines = ["| fault | area | what is broken | caught by |", "|---|---|---|---|"]
    for fault in every:
        tests = ", ".join(f"`{test}`" for test in fault.caught_by)
        lines.append(f"| `{fault.id}` | {fault.area} | {fault.broken} | {tests} |")
    return "\n".join(lines) + "\n"


def table_in(page: str) -> str:
    """Return the page's own table."""
    found = _TABLE.search(page)
    assert found, f"{PAGE.name} has no table"
    return found[0]


def main() -> None:
    """Write the table into the page."""
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(page.replace(table_in(page), table_of(faults())), encoding="utf-8")


if __name__ == "__main__":
    main()
