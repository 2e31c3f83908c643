"""The tables of the pages of keys, made from the schemas: `python -m tests.support.schema_pages`, which is `make pages`.

Each table stands between two comments, below the heading that names its TOML table. The rest of a page is written by hand.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from aileron.actions.manifest import SCHEMA as ACTION
from aileron.connector_tests.cases import SCHEMA as CASES
from aileron.model.described import page_tables
from aileron.model.document import Schema
from aileron.registry.manifest import SCHEMA as CONNECTOR
from aileron.registry.suite import SCHEMA as SUITE

__all__ = ["COMMAND", "PAGES", "with_tables"]

COMMAND: Final = "make pages"
REFERENCE: Final = Path(__file__).parents[2] / "docs" / "reference"
PAGES: Final[dict[Path, Schema]] = {
    REFERENCE / "action-file.md": ACTION,
    REFERENCE / "connector-manifest.md": CONNECTOR,
    REFERENCE / "suite.md": SUITE,
    REFERENCE / "connector-cases.md": CASES,
}
_BEGIN: Final = f"<!-- made from the schema in aileron/ by `{COMMAND}` -->\n"
_END: Final = "<!-- end of what is made -->\n"
_SECTION: Final = re.compile(r"^### (?P<heading>.+)\n(?P<body>(?:(?!^##).*\n)*)", re.MULTILINE)


def with_tables(page: str, schema: Schema) -> str:
    """Return the page with its tables made from the schema. ValueError if a table has no place, or a place no table."""
    tables = page_tables(schema)

    def made(section: re.Match[str]) -> str:
        before, begin, rest = section["body"].partition(_BEGIN)
        if not begin:
            return section[0]
        _, end, after = rest.partition(_END)
        header = section["heading"].strip("`") if "`" in section["heading"] else ""
        if not end or header not in tables:
            raise ValueError(f"{section['heading']}: no end of its table, or no such table, or a second one")
        return f"### {section['heading']}\n{before}{_BEGIN}{tables.pop(header)}\n{_END}{after}"

    found = _SECTION.sub(made, page)
    if tables:
        raise ValueError(f"no place for the tables of {', '.join(map(repr, tables))}")
    return found


def main() -> None:
    """Write the pages."""
    for path, schema in PAGES.items():
        path.write_text(with_tables(path.read_text(encoding="utf-8"), schema), encoding="utf-8")


if __name__ == "__main__":
    main()
