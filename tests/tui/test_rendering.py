"""Layout of a card in rows: names beside their values, the width of texts, and what is cut short."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import msgspec
import pytest
from rich.cells import cell_len
from rich.console import Console

from aileron.api.approvals import Question
from aileron.api.grants import GrantEntry
from aileron.api.sessions import Session
from aileron.cards.card import Card, Fact, Line, Section, Tone
from aileron.cards.decision_flow import as_told
from aileron.cards.headline import Span
from aileron.cards.row import Row
from aileron.model.json_value import JSONObject
from aileron.model.visible import FURTHER
from aileron.tui import rendering
from aileron.tui.rendering import body_rows
from aileron.tui.waiting import PendingEntry
from tests.cli.questions import grant, plan, question, session

_CONSOLE = Console()
WIDE = {
    "made a picture": "\u2601\ufe0f" * 100,
    "marks with room of their own": "a" + "\u0903" * 100,
    "wide marks": "a" + "\u302e" * 100,
    "parts of syllables": "\u1161" * 100,
    "marks without room": "\u0301" * 100,
    "new marks": "\u0897" * 100,
    "wide letters": "\u65e5" * 100,
    "flags": "\U0001f1e9" * 100,
}
"""A hundred characters of each kind: rich, Textual and terminals count their widths differently."""


def rows(width: int, *names: str) -> list[str]:
    """Return the rows of a section whose facts have these names."""
    section = Section("arguments", tuple(Fact(name, (Line("a value"),)) for name in names))
    return [row.plain.rstrip() for row in body_rows([section], width, is_whole=True)[0] if row.plain.strip()][1:]


@pytest.mark.parametrize(
    ("width", "names", "shown"),
    [
        (80, ("to", "subject"), ["to        a value", "subject   a value"]),
        (
            80,
            ("title", "Starts (start_time)"),
            ["title               a value", "Starts (start_time) a value"],
        ),
        (40, ("to", "Starts (start_time)"), ["to        a value", "Starts (start_time)", "          a value"]),
        (80, ("日本語日本語日", "to"), ["日本語日本語日 a value", "to             a value"]),
    ],
)
def test_the_names_column_of_a_card_leaves_room_for_the_values(
    width: int, names: tuple[str, ...], shown: list[str]
) -> None:
    """The column has a third of the width at most, in cells; a longer name has a row of its own."""
    assert rows(width, *names) == shown


def test_the_names_on_a_card_are_drawn_dim_and_the_values_are_not() -> None:
    """Values in the agent's box are not dim either."""
    facts = (Fact("to", (Line("a value"), Line("another", Tone.ALARM))),)
    sections = [Section("arguments", facts), Section("agent says", facts, is_said=True)]
    shown = body_rows(sections, 80, is_whole=True)[0]
    styles = {
        (row.plain[at:].split("  ")[0], str(style))
        for row in shown
        for at, style in (
            (row.plain.find(word), row.get_style_at_offset(_CONSOLE, row.plain.find(word)))
            for word in ("to", "a value", "another")
        )
        if at >= 0
    }

    dim = {text for text, style in styles if "dim" in style}
    assert dim == {"to"}, styles


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("plain", 5),
        ("e\u0301", 1),
        ("\u05d0\u05b8", 1),
        ("\u2601\ufe0f", 2),
        ("\u0915\u0903", 2),
        ("a\u302e", 3),
        ("\u65e5\u672c", 4),
        ("\u1161", 1),
    ],
)
def test_the_width_of_a_text_is_the_widest_that_any_terminal_draws(text: str, most: int) -> None:
    """Combining marks have no width; spacing marks have, and so do selectors that turn a character into an emoji."""
    assert rendering.cells(text) == most


@pytest.mark.parametrize("text", WIDE.values(), ids=WIDE.keys())
@pytest.mark.parametrize("width", [8, 29, 68])
def test_no_wrapped_row_is_wider_than_allowed(text: str, width: int) -> None:
    """This holds for every way to count cells; no text is lost, and no row starts with a combining mark."""
    rows = rendering.folded(text, width)

    assert "".join(rows) == text
    for row in rows:
        assert max(cell_len(row), rendering.cells(row)) <= width
        assert not row.startswith("\ufe0f")


@pytest.mark.parametrize("text", WIDE.values(), ids=WIDE.keys())
def test_a_card_of_wide_texts_has_no_row_that_is_too_wide(text: str) -> None:
    """Wide characters are in names, titles, boxes, alarms and shortened facts."""
    line = Line(text, Tone.QUOTED)
    facts = (Fact("to", (line,)), Fact(text, (line,)))
    alarms = (Line(f"! {text}", Tone.ALARM),)
    whole = msgspec.structs.replace(a_card(), headline=(Span(text),), essentials=facts, alarms=alarms)
    sections = [Section(text, facts), Section(text, facts, is_said=True), *rendering.cut_short(whole, 60, 8)]
    drawn = [
        *body_rows(sections, 60, is_whole=True)[0],
        *rendering.essential_rows(whole, 60, 8, note="expires in 4:41"),
    ]

    assert len(drawn) > 10
    assert [row.plain for row in drawn if rendering.cells(row.plain) > 60] == []


@pytest.mark.parametrize("text", WIDE.values(), ids=WIDE.keys())
@pytest.mark.parametrize("width", [0, 1, 2, 29, 200])
def test_a_truncated_text_fits_its_width_and_is_marked(text: str, width: int) -> None:
    """The result fits in every terminal; a text that fits is not truncated."""
    for shown in (rendering.cut(text, width), rendering.shown(text, width)):
        assert rendering.cells(shown) <= width
        assert shown == text or shown.endswith("…") or width == 0
    assert rendering.cut(text, 300) == text


@pytest.mark.parametrize("text", [*WIDE.values(), "a" * 100, "to a " * 40], ids=[*WIDE, "one word", "words"])
@pytest.mark.parametrize("width", [30, 44, 52, 76, 98])
@pytest.mark.parametrize("alarm", ["", "! look-alike host"], ids=["", "alarm"])
def test_a_questions_title_in_the_list_has_at_most_two_lines(text: str, width: int, alarm: str) -> None:
    """Each line fits the list and cannot look like another question; a truncated title is marked."""
    listed = Row("act-1", text, "! DELETES", "heavy", alarm, "", "", "", ())
    entry = PendingEntry("act-1", "", "", "", "", "pending_approval", "", listed)
    for waiting in (entry, dataclasses.replace(entry, status="denied")):
        first, *more = rendering.entry_row(waiting, width).plain.split("\n")

        assert len(more) <= (2 if waiting.is_open and alarm and width < 78 else 1)
        assert all(rendering.cells(row) <= width for row in (first, *more))
        assert all(row.lstrip(" ").startswith(FURTHER) or row == f"    {alarm}" for row in more)
        shown = "".join((first, *more)).replace("denied", "").replace(FURTHER, "").replace(" ", "")
        assert text.replace(" ", "") in shown or "…" in shown


def test_a_title_is_wrapped_between_words_if_it_fits() -> None:
    """A name at the end of a line is not split."""
    listed = Row("act-1", "Change the action “caldav-create-event”", "! LASTING", "heavy", "", "", "", "", ())
    entry = PendingEntry("act-1", "", "", "", "", "pending_approval", "", listed)

    assert rendering.entry_row(entry, 58, has_asker=False).plain.split("\n") == [
        f"  ! LASTING Change the action{' ' * 29}",
        "          ↳ “caldav-create-event”",
    ]


class Counted(str):
    """A text that counts how many of its characters are read."""

    looked_at = 0

    def __getitem__(self, key: Any) -> str:
        piece = super().__getitem__(key)
        Counted.looked_at += len(piece)
        return piece

    def translate(self, table: Any) -> str:
        raise AssertionError("all of it was made harmless")

    def __iter__(self) -> Any:
        raise AssertionError("all of it was walked")


def test_only_the_shown_part_of_a_long_text_is_processed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent may often write a million characters: in an event's row, in the list and in notifications."""
    text = Counted("\u65e5" * 10**6)
    monkeypatch.setattr(Counted, "looked_at", 0)
    row = rendering.event_row({"seq": 1, "at": "2026-11-21T04:00:00Z", "type": "approval.answered", "text": text}, 140)

    assert row.plain.endswith(" text=" + "\u65e5" * 29 + "…")
    assert rendering.shown(text, 11) == rendering.cut(text, 11) == "\u65e5" * 5 + "…"
    assert Counted.looked_at < 3000


def test_a_text_in_an_event_cannot_look_like_its_next_fact() -> None:
    """An agent's answer stands in quotes, even where it is cut."""
    event = {"type": "approval.answered", "text": "because decision=approve surface=operator", "approval": "act-1"}
    row = rendering.event_row(event, 140).plain

    assert row.endswith('text="because decision=approve surface=operator" approval=act-1')
    assert (
        ' text="because decision' in rendering.event_row({**event, "text": "because decision=approve " * 99}, 140).plain
    )


@pytest.mark.parametrize("width", [40, 80, 200])
def test_standing_grants_and_sessions_are_one_row_in_lists_and_complete_in_details(width: int) -> None:
    """A long folder or condition is truncated in the list, and complete in the details."""
    folder = "/tmp/" + "w" * 10 + " " * 70 + "codex        open     19:04:11  7 runs  /home" * 5
    at_work = msgspec.convert(session(folder), Session)
    condition = {"argument": "to", "operator": "equals", "value": folder}
    standing = msgspec.convert(grant(condition), GrantEntry)
    for row, facts in (
        (rendering.session_row(at_work, width), rendering.session_facts(at_work, width)),
        (rendering.grant_row(standing, width), rendering.grant_facts(standing, width)),
    ):
        assert rendering.cells(row.plain) <= width
        assert row.plain.endswith("…")
        assert _without_blanks(folder) in _without_blanks(facts.plain)


def _without_blanks(text: str) -> str:
    return "".join(text.replace(FURTHER, "").split())


def a_card(**more: object) -> Card:
    """Return the card of a run that can reach nine hosts."""
    hosts = tuple(f"h{number}.example:443" for number in range(9))
    asked = question(plan({"to": "mira@example.com"}, hosts=hosts, **more))
    return as_told(msgspec.convert(asked, Question)).card(str)


@pytest.mark.parametrize("most", range(1, 12))
def test_every_deciding_fact_is_complete_in_the_fixed_or_the_scrolling_part_of_a_card(most: int) -> None:
    """The verdict is always above, within the given number of rows; a fact that is not whole above stands below."""
    card = a_card()
    above = [row.plain for row in rendering.essential_rows(card, 80, most)]
    below = {fact.name for section in rendering.cut_short(card, 80, most) for fact in section.facts}

    assert len(above) <= max(most, 2)
    assert card.verdict.text in above
    for fact in card.essentials:
        is_above = any(row.startswith(f"{fact.name} ") and "more rows below" not in row for row in above)
        assert fact.name in below or is_above
    if most < 2 + len(card.essentials):
        assert below == {fact.name for fact in card.essentials}


@pytest.mark.parametrize("most", range(8, 12))
def test_the_first_row_of_each_alarm_comes_before_the_rest_of_a_long_alarm(most: int) -> None:
    """The first row of each alarm comes before the rest of any; rows that are left out are counted."""
    texts = ("! one " + "x" * 400, "! two " + "y" * 400, "! three")
    card = msgspec.structs.replace(a_card(), alarms=tuple(Line(text, Tone.ALARM) for text in texts))
    above = [row.plain for row in rendering.essential_rows(card, 80, most)]
    alarms = above[next(number for number, row in enumerate(above) if row.startswith("! one")) :]
    alarms = list(itertools.takewhile(lambda row: not row.startswith("goes to"), alarms))

    begun = [alarm.split()[1] for alarm in alarms if alarm.startswith("! ")]
    assert begun == ["one", "two", "three"][: len(alarms)]
    assert alarms[-1].endswith("more rows below")


def test_an_events_destination_and_status_come_before_its_remaining_facts() -> None:
    """Destination and status come first, the others in the order of their names."""
    event: JSONObject = {
        "at": "2026-11-20T09:12:00Z",
        "type": "egress.finished",
        "bytes_up": 1,
        "connector": "c" * 60,
        "status": 207,
    }

    assert "  status=207 bytes_up=1 connector=c" in rendering.event_row(event, 80).plain.replace(
        "finished ", "finished  "
    )


def test_a_long_headline_has_two_rows_in_the_fixed_part_and_is_complete_below() -> None:
    """The second row counts what is left out; with all rows, the sentence is whole."""
    card = a_card(action="send-" + "x" * 600)
    above = [row.plain for row in rendering.essential_rows(card, 80, 11)]

    assert above[0].startswith("Send xxx")
    assert above[1].endswith(" more rows below")
    assert above[3] == card.verdict.text
    assert len(above) <= 11
    (cut,) = rendering.cut_short(card, 80, 11)
    assert (cut.facts[0].name, cut.facts[0].lines[0].text) == ("headline", card.sentence)
    whole = "".join(row.plain for row in rendering.essential_rows(card, 80))
    assert _without_blanks(whole).startswith(_without_blanks(card.sentence))
