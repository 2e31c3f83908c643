"""The reference page of names says what the grammars say."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from aileron.model.names import (
    ACTION_NAME,
    INPUT_NAME,
    OP_NAME,
    SCHEMES,
    BindingName,
    Fqn,
    HostPort,
    check_semver,
    tool_name,
)

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "names.md").read_text(encoding="utf-8")


def cells(name: str) -> list[str]:
    """Return the three cells of one line of the table."""
    (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| {name} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def whole(pattern: re.Pattern[str], text: str) -> str:
    """Return the text, all of which must match the pattern."""
    found = pattern.fullmatch(text)
    assert found is not None, text
    return found[0]


@pytest.mark.parametrize(
    ("name", "parse"),
    [
        ("full name (FQN)", Fqn.parse),
        ("version", check_semver),
        ("host", HostPort.parse),
        ("binding", BindingName.parse),
        ("action", partial(whole, ACTION_NAME)),
        ("input, operation", partial(whole, INPUT_NAME)),
    ],
)
def test_every_example_on_the_names_page_can_be_parsed(name: str, parse: Callable[[str], object]) -> None:
    """Each example is spelled back unchanged."""
    for example in re.findall("`([^`]+)`", cells(name)[2]):
        assert str(parse(example)) == example


def test_the_grammars_on_the_names_page_are_the_patterns_in_the_code() -> None:
    """The patterns on the page are the patterns in the code."""
    assert f"`{ACTION_NAME.pattern}`" == cells("action")[1]
    assert INPUT_NAME.pattern == OP_NAME.pattern == cells("input, operation")[1].strip("`")
    assert cells("tool")[2] == f"`{tool_name('send-email')}`"
    assert re.findall("`([a-z]+)`", PAGE[PAGE.index("The schemes are") :].split(";")[0]) == list(SCHEMES)


@pytest.mark.parametrize("host", ["0x7f.1:1", "127.1:1", "010.0.0.1:1", "Example.com:1", "a.:1", "*.a:1", "[::1]:1"])
def test_the_spellings_that_the_names_page_excludes_are_refused(host: str) -> None:
    """Programs read these spellings differently."""
    with pytest.raises(ValueError, match=re.escape(host[:2])):
        HostPort.parse(host)
