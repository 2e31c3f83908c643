"""Selectors: three forms, and which actions each selects."""

from __future__ import annotations

import pytest

from aileron.actions.manifest import parse_action
from aileron.model.selecting import MAX_SELECTORS, Selection, is_selected, parse_selector, parse_selectors
from tests.mcp.peers import action_text

TAGGED = parse_action(
    action_text("list-events").replace("\n[match]", '\ntags = ["calendar", "work"]\n[match]'), file="a"
)
PROBE = "github://aileron-tests/probe"


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("tag:calendar", True),
        ("tag:work", True),
        ("tag:cal", False),
        ("tag:list-events", False),
        (f"connector:{PROBE}", True),
        ("connector:github://aileron-tests/prob", False),
        ("connector:gitlab://aileron-tests/probe", False),
        ("list-events", True),
        ("list-event", False),
        ("calendar", False),
        ("list-*", True),
        ("*-events", True),
        ("*", True),
        ("l*t*e*s", True),
        ("delete-*", False),
    ],
)
def test_a_selector_selects_actions_by_tag_connector_or_name(text: str, means: bool) -> None:
    """A selector is a whole tag, a connector's full name, or a name in which `*` stands for anything."""
    selector = parse_selector(text)

    assert is_selected([selector], TAGGED) is means
    assert str(selector) == text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is not a selector: use tag:NAME, connector:FULL_NAME or an action's name"),
        ("tag:", "is not a selector"),
        ("tag:Work", "is not a selector"),
        ("tag:a*", "is not a selector"),
        ("tags:a", "is not a selector"),
        ("List", "is not a selector"),
        ("a b", "is not a selector"),
        ("a?", "is not a selector"),
        ("[ab]", "is not a selector"),
        ("a" * 65, "is not a selector"),
        ("list-events\n", "is not a selector"),
        ("connector:acme/x", "has no known scheme"),
        (f"connector:{PROBE}@1.0.0", "is not letters, digits"),
    ],
)
def test_an_invalid_selector_is_refused(text: str, problem: str) -> None:
    """The refusal says what a selector can be."""
    with pytest.raises(ValueError, match=problem):
        parse_selector(text)


def test_a_list_of_selectors_is_bounded_and_has_no_duplicates() -> None:
    """An empty list is refused, because it could mean no action or every action."""
    assert [str(selector) for selector in parse_selectors(["b", "a", "b"])] == ["b", "a"]
    with pytest.raises(ValueError, match="0 selectors"):
        parse_selectors([])
    with pytest.raises(ValueError, match=f"{MAX_SELECTORS + 1} selectors"):
        parse_selectors([f"a{number}" for number in range(MAX_SELECTORS + 1)])


def test_an_action_is_selected_only_if_every_list_of_selectors_selects_it() -> None:
    """The launch has one list and the folder's settings another. Without lists, every action is selected."""
    calendar, reads = parse_selectors(["tag:calendar", "tag:mail"]), parse_selectors(["list-*"])

    assert Selection().admits(TAGGED)
    assert not Selection()
    assert Selection((calendar, reads)).admits(TAGGED)
    assert not Selection((calendar, parse_selectors(["tag:mail"]))).admits(TAGGED)
    assert str(Selection((calendar, reads))) == "tag:calendar, tag:mail and list-*"


def test_a_broken_action_file_is_selected_by_its_name_alone() -> None:
    """The tags and connectors of a broken file are unknown."""
    assert Selection((parse_selectors(["list-*"]),)).admits_facts("list-x", (), ())
    assert not Selection((parse_selectors(["tag:x"]),)).admits_facts("list-x", (), ())
