"""The page about consents against the code: kinds, what each holds, and the bounds of a grant."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from aileron.approvals import grants
from aileron.model.consent import MAX_CHANGE_CHARACTERS, Change, ConsentKind, Operator, Subject

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "consents.md").read_text(encoding="utf-8")


def rows(heading: str, number: int = 0) -> list[list[str]]:
    """The cells of a table below a heading, its own head left out."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    tables = re.findall(r"(?:^\|.*\n?)+", section, re.MULTILINE)
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in tables[number].splitlines()[2:]]


def test_every_kind_has_its_row() -> None:
    """In the order of the code."""
    assert [row[0].strip("`") for row in rows("Kinds")] == [kind.value for kind in ConsentKind]


@pytest.mark.parametrize("subject", get_args(Subject), ids=lambda subject: subject.__struct_config__.tag)
def test_what_each_kind_holds_is_on_the_page(subject: type) -> None:
    """All its fields, in order; what a person agrees to is no secret."""
    config, fields = subject.__struct_config__, subject.__struct_fields__  # type: ignore[attr-defined]
    told = {row[0].strip("`"): row[1] for row in rows("Subjects")}

    assert re.findall(r"`(\w+)`", told[config.tag]) == list(fields)
    assert all(f"`{field}`" in PAGE for field in Change.__struct_fields__)


def test_the_bounds_of_a_grant_are_those_of_the_code() -> None:
    """Numbers that people plan with."""
    told = dict(rows("Grants"))

    assert told["constraints"] == f"at most {grants.MAX_CONSTRAINTS}"
    assert told["uses"] == f"1 to {grants.MAX_USES}"
    assert (grants.MIN_FOR_S, grants.MAX_FOR_S) == (60, 30 * 86400)
    assert told["time"] == "1 minute to 30 days"
    assert [row[0].strip("`") for row in rows("Grants", 1)] == list(get_args(Operator))
    assert f"{grants.MAX_CHOICES} values" in PAGE
    assert f"{MAX_CHANGE_CHARACTERS:,} characters" in PAGE
