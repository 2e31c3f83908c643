"""The terminal's title and notifications: which terminals get them, and that no name of other people is obeyed."""

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
"""A whole sequence of ours, with no terminator, separator or control character inside."""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("text", CORPUS.values(), ids=list(CORPUS))
def test_a_hostile_name_cannot_end_the_escape_sequence_of_a_terminal_notification(way: Way, text: str) -> None:
    """The text is tried as the agent's name and as the action's."""
    assert ONE_STRING.fullmatch(notification(way, [(text, "send-mail")]))
    assert ONE_STRING.fullmatch(notification(way, [("claude", text), (text, text)]))


@given(agent=st.text(), action=st.text())
def test_a_terminal_notification_is_one_escape_sequence_of_bounded_length(agent: str, action: str) -> None:
    """This holds for names of any characters and any length."""
    for way in WAYS:
        told = notification(way, [(agent, action)])
        assert ONE_STRING.fullmatch(told)
        assert len(told) < 2 * MOST_NAME + 60


@pytest.mark.parametrize(
    "name",
    ["a\x1b\\b", "a\x07b", "a\x9cb", "a\x1b]2;gone\x07", "a;b;c", "4;1;50", "a\nb\rc", "a\x90b", "\x18", "\x1a"],
)
def test_terminators_and_separators_in_names_are_removed_from_notifications(name: str) -> None:
    """The cases are ST of seven and eight bits, BEL, another OSC, a field of OSC 777, a command of ConEmu, CAN and SUB."""
    for way in WAYS:
        assert ONE_STRING.fullmatch(notification(way, [(name, name)]))


def test_a_harmless_name_is_unchanged_in_a_terminal_notification() -> None:
    """Positive control of the tests above; the number of further requests is shown too."""
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
def test_notifications_go_only_to_terminals_that_show_them(environment: dict[str, str], way: str | None) -> None:
    """The terminal is known by TERM, which ssh passes on, or TERM_PROGRAM; within tmux and the like there are none."""
    assert notification_way(environment) == way


@pytest.mark.parametrize(
    ("term", "has"), [("xterm-256color", True), ("tmux-256color", True), ("linux", False), ("", False)]
)
def test_a_window_title_is_sent_only_to_terminals_that_support_titles(term: str, has: bool) -> None:
    """The kernel's console has no title, and would take the sequence for something else."""
    assert has_title({"TERM": term}) == has


# In the console


def written(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list of what is written to the terminal from now on, besides the screen."""
    told: list[str] = []
    monkeypatch.setattr(shown.app._driver, "write", told.append)
    return told


def signals(told: list[str]) -> list[str]:
    """Return the titles and notifications among these."""
    return [text for text in told if text.startswith(("\x1b]2;", "\x1b]9;", "\x1b]777;"))]


@pytest.fixture
def in_foot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a terminal that shows notifications."""
    for name in ("TMUX", "STY", "ZELLIJ", "TERM_PROGRAM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "foot")


@pytest.mark.usefixtures("in_foot")
async def test_a_terminal_notification_contains_only_agent_and_action(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The title counts requests; no argument, folder or other part of the card is sent."""
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
    assert not any("secret" in signal or "\x07" in signal for signal in signals(told))


@pytest.mark.usefixtures("in_foot")
async def test_muting_the_bell_mutes_terminal_notifications_but_not_the_title(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key `z` mutes for ten minutes."""
    async with world.console(is_terminal=True) as shown:
        told = written(shown, monkeypatch)
        await shown.press("z")
        world.ask(named("one"))
        await shown.until("1 waiting")
        await shown.until(lambda: signals(told))

    assert signals(told) == ["\x1b]2;(1) aileron console\x1b\\"]


@pytest.mark.usefixtures("in_foot")
async def test_an_agent_that_asks_continually_causes_few_notifications(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Further requests within NOTICE_S are only counted, and the next notification has their number."""
    async with world.console(is_terminal=True) as shown:
        told = written(shown, monkeypatch)
        for number in range(4):
            world.ask(named(f"act-{number}", agent="claude"))
            await shown.until(f"{number + 1} waiting")
        assert [signal for signal in signals(told) if "777" in signal] == [notification("777", [("claude", "act-0")])]
        monkeypatch.setattr(news, "NOTICE_S", 0.0)
        world.ask(named("act-4", agent="claude"))
        await shown.until("5 waiting")
        await shown.until(lambda: [signal for signal in signals(told) if "(and 3 more)" in signal])


@pytest.mark.usefixtures("in_foot")
async def test_without_a_terminal_no_title_or_notification_is_sent(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The console of this test writes to no terminal, which could interpret the sequences."""
    async with world.console() as shown:
        told = written(shown, monkeypatch)
        world.ask(named("one"))
        await shown.until("1 waiting")
        await shown.settled()

    assert signals(told) == []


def test_the_terminals_previous_title_is_restored() -> None:
    """The title is pushed and popped, never read: a terminal would report it as key presses."""
    assert (save_title(), restore_title()) == ("\x1b[22;2t", "\x1b[23;2t")
    assert title(0) == "\x1b]2;aileron console\x1b\\"
