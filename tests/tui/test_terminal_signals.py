"""The terminal's title and notifications: who gets them, and that no name of somebody else's is obeyed."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.tui import news
from aileron.tui.terminal_signals import (
    MOST_NAME,
    Way,
    has_title,
    notification,
    notification_way,
    restore_title,
    save_title,
    title,
)
from tests.support.hostile_text import CORPUS
from tests.tui.consoles import Shown, World, named

pytestmark = pytest.mark.anyio

WAYS: tuple[Way, ...] = ("9", "777")
ONE_STRING = re.compile(r"\x1b\](?:9;aileron: |777;notify;aileron;)[ -:<-~]*\x1b\\")
"""One sequence that begins and ends as ours, and between them nothing that is an end, a separator or no letter."""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("text", CORPUS.values(), ids=list(CORPUS))
def test_no_hostile_name_leaves_the_notification(way: Way, text: str) -> None:
    """Neither as the agent's name nor as the action's."""
    assert ONE_STRING.fullmatch(notification(way, [(text, "send-mail")]))
    assert ONE_STRING.fullmatch(notification(way, [("claude", text), (text, text)]))


@given(agent=st.text(), action=st.text())
def test_whatever_the_names_are_it_is_one_string_of_bounded_length(agent: str, action: str) -> None:
    """Every character there is, and as many as anybody likes."""
    for way in WAYS:
        told = notification(way, [(agent, action)])
        assert ONE_STRING.fullmatch(told)
        assert len(told) < 2 * MOST_NAME + 60


@pytest.mark.parametrize(
    "name",
    ["a\x1b\\b", "a\x07b", "a\x9cb", "a\x1b]2;gone\x07", "a;b;c", "4;1;50", "a\nb\rc", "a\x90b", "\x18", "\x1a"],
)
def test_no_end_of_a_string_and_no_separator_gets_through(name: str) -> None:
    """ST of seven and eight bits, BEL, another OSC, a field of OSC 777, a command of ConEmu, CAN and SUB."""
    for way in WAYS:
        assert ONE_STRING.fullmatch(notification(way, [(name, name)]))


def test_a_harmless_name_is_as_it_is() -> None:
    """The positive control: and how many more there are."""
    assert notification("9", [("claude", "send-mail")]) == "\x1b]9;aileron: claude asks: send-mail\x1b\\"
    two = notification("777", [("claude", "send-mail"), ("codex", "delete-repo")])
    assert two == "\x1b]777;notify;aileron;claude asks: send-mail (and 1 more)\x1b\\"


@pytest.mark.parametrize(
    ("environment", "way"),
    [
        ({"TERM": "xterm-kitty"}, "9"),
        ({"TERM": "foot"}, "777"),
        ({"TERM": "foot-extra"}, "777"),
        ({"TERM": "rxvt-unicode-256color"}, "777"),
        ({"TERM": "xterm-ghostty"}, "777"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, "9"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, "777"),
        ({"TERM": "xterm-256color"}, None),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "vscode"}, None),
        ({"TERM": "foot", "TMUX": "/tmp/tmux-1/default,1,0"}, None),
        ({"TERM": "xterm-kitty", "ZELLIJ": "0"}, None),
        ({"TERM": "linux"}, None),
        ({"TERM": "dumb", "TERM_PROGRAM": "iTerm.app"}, None),
        ({}, None),
    ],
)
def test_a_notification_goes_to_terminals_that_are_known_to_show_it(
    environment: dict[str, str], way: str | None
) -> None:
    """By TERM, which goes along over ssh, or by TERM_PROGRAM; none from within tmux and the like."""
    assert notification_way(environment) == way


@pytest.mark.parametrize(
    ("term", "has"), [("xterm-256color", True), ("tmux-256color", True), ("linux", False), ("", False)]
)
def test_a_title_goes_to_terminals_that_have_one(term: str, has: bool) -> None:
    """Not to the kernel's console, which takes such strings for something else."""
    assert has_title({"TERM": term}) == has


# of a console


def written(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is told the terminal from now on, besides the screen."""
    told: list[str] = []
    monkeypatch.setattr(shown.app._driver, "write", told.append)
    return told


def signals(told: list[str]) -> list[str]:
    """Of that, titles and notifications."""
    return [one for one in told if one.startswith(("\x1b]2;", "\x1b]9;", "\x1b]777;"))]


@pytest.fixture
def in_foot(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that shows notifications."""
    for name in ("TMUX", "STY", "ZELLIJ", "TERM_PROGRAM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "foot")


@pytest.mark.usefixtures("in_foot")
async def test_what_is_new_is_told_with_agent_and_action_only(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the title counts; no argument, no folder, nothing of the card."""
    world.ask(named("one"))
    async with world.console(is_terminal=True) as shown:
        told = written(shown, monkeypatch)
        world.ask(named("two", agent="cla\x1b]0;x\x07ude", folder="/secret/folder", args={"to": "who@secret.example"}))
        await shown.until("2 waiting")
        await shown.until(lambda: len(signals(told)) >= 2)

    assert sorted(signals(told)[:2]) == [
        "\x1b]2;(2) aileron console\x1b\\",
        notification("777", [(r"cla\x1b]0;x\x07ude", "two")]),
    ]
    assert not any("secret" in one or "\x07" in one for one in signals(told))


@pytest.mark.usefixtures("in_foot")
async def test_a_muted_bell_mutes_notifications_and_the_title_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`z`: ten minutes of quiet."""
    async with world.console(is_terminal=True) as shown:
        told = written(shown, monkeypatch)
        await shown.press("z")
        world.ask(named("one"))
        await shown.until("1 waiting")
        await shown.until(lambda: signals(told))

    assert signals(told) == ["\x1b]2;(1) aileron console\x1b\\"]


@pytest.mark.usefixtures("in_foot")
async def test_an_agent_that_asks_all_the_time_makes_few_notifications(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One in NOTICE_S, with a count of what came since."""
    async with world.console(is_terminal=True) as shown:
        told = written(shown, monkeypatch)
        for number in range(4):
            world.ask(named(f"act-{number}", agent="claude"))
            await shown.until(f"{number + 1} waiting")
        assert [one for one in signals(told) if "777" in one] == [notification("777", [("claude", "act-0")])]
        monkeypatch.setattr(news, "NOTICE_S", 0.0)
        world.ask(named("act-4", agent="claude"))
        await shown.until("5 waiting")
        await shown.until(lambda: [one for one in signals(told) if "(and 3 more)" in one])


@pytest.mark.usefixtures("in_foot")
async def test_without_a_terminal_nothing_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in these tests: no terminal is there to obey it."""
    async with world.console() as shown:
        told = written(shown, monkeypatch)
        world.ask(named("one"))
        await shown.until("1 waiting")
        await shown.settled()

    assert signals(told) == []


def test_the_title_from_before_comes_back() -> None:
    """It is pushed and popped, and never read: what a terminal reports of it would be keys."""
    assert (save_title(), restore_title()) == ("\x1b[22;2t", "\x1b[23;2t")
    assert title(0) == "\x1b]2;aileron console\x1b\\"
