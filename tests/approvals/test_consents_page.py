"""The page about consents compared with the code: kinds, fields of each, and the bounds of a grant."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from aileron.approvals import grants
from aileron.model.consent import MAX_CHANGE_CHARACTERS, Change, ConsentKind, Operator, Subject

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "consents.md").read_text(encoding="utf-8")


def rows(heading: str, number: int = 0) -> list[list[str]]:
    """Return the cells of a table below a heading, without the table's own head."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    tables = re.findall(r"(?:^\|.*\n?)+", section, re.MULTILINE)
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in tables[number].splitlines()[2:]]


def test_every_kind_of_consent_has_its_row_on_the_consents_page() -> None:
    """The rows are in the order of the code."""
    assert [row[0].strip("`") for row in rows("Kinds")] == [kind.value for kind in ConsentKind]


@pytest.mark.parametrize("subject", get_args(Subject), ids=lambda subject: subject.__struct_config__.tag)
def test_the_consents_page_lists_the_fields_of_each_kind(subject: type) -> None:
    """All fields are there in order: the page hides nothing that a person consents to."""
    config, fields = subject.__struct_config__, subject.__struct_fields__  # type: ignore[attr-defined]
    told = {row[0].strip("`"): row[1] for row in rows("Subjects")}

    assert re.findall(r"`(\w+)`", told[config.tag]) == list(fields)
    assert all(f"`{field}`" in PAGE for field in Change.__struct_fields__)


def test_the_bounds_for_standing_grants_on_the_consents_page_are_those_of_the_code() -> None:
    """People plan with these numbers."""
    told = dict(rows("Grants"))

    assert told["constraints"] == f"at most {grants.MAX_CONSTRAINTS}"
    assert told["uses"] == f"1 to {grants.MAX_USES}"
    assert (grants.MIN_FOR_S, grants.MAX_FOR_S) == (60, 30 * 86400)
    assert told["time"] == "1 minute to 30 days"
    assert [row[0].strip("`") for row in rows("Grants", 1)] == list(get_args(Operator))
    assert f"{grants.MAX_CHOICES} values" in PAGE
    assert f"{MAX_CHANGE_CHARACTERS:,} characters" in PAGE
