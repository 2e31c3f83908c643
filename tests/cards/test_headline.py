"""The sentence at the top of a card and of a row in a list: the origin of each value, and that none passes for our words."""

from __future__ import annotations

import os
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.cards.headline import Origin, headline_of, rows_of, source_of, spelled_out
from aileron.model.preview import Preview, PreviewField
from tests.cli.questions import plan, previewed
from tests.support.hostile_text import EVERYTHING, assert_harmless

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text(max_size=400),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4),
    max_leaves=12,
)
FILE = """+++
name = "send-mail"
version = "1.2.0"
%s
[[requires.connectors]]
name = "github://example/connector-mail"
version = "1.4.0"
hash = "sha256:{}"
capabilities = ["send_mail", "get_draft"]
[match]
intent = "send a mail"
[[inputs]]
name = "title"
type = "string"
description = "What"
label = "Subject"
[[inputs]]
name = "at"
type = "string"
description = "When"
required = false
[[execute]]
id = "one"
connector = "github://example/connector-mail"
op = "send_mail"
[approval]
required = true
[approval.preview]
op = "get_draft"
[approval.preview.render]
Subject = "a"
"In calendar" = "b"
+++
""".format("cd" * 32)


@pytest.fixture(autouse=True)
def _in_berlin(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Set the zone in which moments are shown: the machine's."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    os.environ.get("TZ")
    time.tzset()


def found(**fields: str | None) -> Preview:
    """Return a preview with these fields."""
    listed = [PreviewField(name.replace("_", " "), value, multiline=False) for name, value in fields.items()]
    return Preview(listed, None, "2026-11-21T04:00:01Z", "sha256:1")


def told(summary: str, args: dict[str, Any], preview: Preview | None = None) -> tuple[str, str]:
    """Return the headline, and the origin of its values."""
    spans = headline_of(previewed(args, action_text=FILE % f"summary = '{summary}'"), preview)
    return spelled_out(spans), source_of(spans)


WHO = "from the agent, not checked"


@pytest.mark.parametrize(
    ("args", "preview", "sentence", "source"),
    [
        ({"title": "Lunch"}, None, "Delete “Lunch”", WHO),
        ({"title": "Lunch", "at": "2026-11-24T09:00:00Z"}, None, "Delete “Lunch”, Tue 24 Nov 2026, 10:00 CET", WHO),
        ({"title": "Lunch", "at": "2026-11-24"}, None, "Delete “Lunch”, Tue 24 Nov 2026", WHO),
        (
            {"title": "Lunch", "at": "2026-11-24T09:00:00"},
            None,
            "Delete “Lunch”, Tue 24 Nov 2026, 09:00, no time zone",
            WHO,
        ),
        ({"title": "Lunch", "at": "tomorrow"}, None, "Delete “Lunch”, “tomorrow”", WHO),
        ({"title": "Lunch"}, found(Subject="Dentist"), "Delete “Dentist”", "from the service"),
        ({"title": "Lunch"}, found(Subject=None), "Delete (nothing)", "not loaded: title"),
        (
            {"title": "Lunch", "at": "noon"},
            found(Subject="Dentist", In_calendar="Work"),
            "Delete “Dentist”, “noon”, from “Work”",
            "from the service: title, in_calendar · the rest from the agent",
        ),
    ],
)
def test_a_headline_prefers_the_services_value_to_the_agents_argument(
    args: dict[str, Any], preview: Preview | None, sentence: str, source: str
) -> None:
    """The argument's label links the two; a part in brackets is left out if its value is unknown."""
    assert told("Delete {title}[, {at}][, from {in_calendar}]", args, preview) == (sentence, source)


def test_a_headline_marks_a_value_as_missing_until_its_preview_is_loaded() -> None:
    """The part is not left out, because the sentence would then be about less."""
    assert told("Empty {in calendar}", {"title": "x"}) == ("Empty (in calendar not loaded)", "not loaded: in calendar")
    failed = Preview(None, "it timed out", None, None)
    assert told("Empty {in calendar}", {"title": "x"}, failed)[0] == "Empty (in calendar not loaded)"
    assert told("Empty {in calendar}", {"title": "x"}, found(In_calendar="Work"))[0] == "Empty “Work”"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("x” and nothing else. “", "“x' and nothing else. '”"),
        ('He said "no"', "“He said 'no'”"),
        ("«»„‟〝〞＂❝❞", "“'''''''''”"),
        ("two\nlines", "“two lines”"),
        ("far" + " " * 40 + "away", "“far (40 blanks) away”"),
        ("pay 1 EUR" + " " * 250 + "and 9999 more", "“pay 1 EUR (250 blanks) and 9999 more”"),
        ("pay 1 EUR" + "\n \t\u3000" * 500 + "and 9999 more", "“pay 1 EUR (2,000 blanks) and 9999 more”"),
        ("pay 1 EUR" + " " * 20_000 + "and 9999 more", "“pay 1 EUR…”"),
        ("pay 1 EUR" + " " * 20_000, "“pay 1 EUR”"),
        ("pay 1 EUR" + "\u3164" * 60 + "and 9999 more", "“pay 1 EUR" + r"\u3164" * 8 + r"\u…”"),
        ({"memo": "pay" + " " * 250 + "9999"}, '{"memo":"pay (250 blanks) 9999"}'),
        ("\u202eevil\x1b[2K", "“\\u202eevil\\x1b[2K”"),
        ("x" * 200, f"“{'x' * 59}…”"),
        ("{title}[", "“{title}[”"),
        ("", "“”"),
        (7, "7"),
        (True, "true"),
        (10_000_000.0, "10,000,000"),
        (1249.5, "1,249.5"),
        (1e30, "1e+30"),
        ({"sum": 10_000_000.0}, '{"sum":10000000}'),
        ("p\u0430ypal.com", "“p<U+0430>ypal.com”"),
        ("Привет, Мира", "“Привет, Мира”"),
        (["a", "b", "c"], "“a” and 2 more"),
        ("ann@example.com, Bob <bob@example.com>", "“ann@example.com” and 1 more"),
    ],
)
def test_no_value_can_look_like_the_headlines_own_words(value: Any, shown: str) -> None:
    """A value cannot end its quotes, add a placeholder or start a line."""
    assert told("Send {title} now", {"title": value})[0] == f"Send {shown} now"


def test_each_value_of_a_headline_has_its_origin() -> None:
    """Surfaces show the origin: the page as a class, the console as a sentence."""
    spans = headline_of(previewed({"title": "x"}, action_text=FILE % "summary = 'Delete {title}'"), found(Subject="y"))

    assert [(span.text, span.origin, span.name) for span in spans] == [
        ("Delete ", Origin.WORDS, ""),
        ("“y”", Origin.FOUND, "title"),
    ]


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ({}, "Send mail"),
        ({"to": "mira@example.com"}, "Send mail: to “mira@example.com”"),
        ({"id": "7", "body": "Hi", "subject": "News"}, "Send mail: subject “News”, body “Hi”, id “7”"),
        (
            {"start": "2026-11-24", "event_id": "e7", "a": 1, "title": "Lunch"},
            "Send mail: title “Lunch”, a 1, event_id “e7”",
        ),
        ({"body": "x" * 100, "note": "short"}, f"Send mail: note “short”, body “{'x' * 59}…”"),
        ({"x": None, "y": 2}, "Send mail: y 2"),
    ],
)
def test_without_a_summary_the_headline_has_operation_and_main_arguments(args: dict[str, Any], sentence: str) -> None:
    """Three arguments are shown at most: titles first, short values before long ones, ids and dates last."""
    assert spelled_out(headline_of(plan(args), None)) == sentence


def lines_of(*each: dict[str, Any], text: str = "") -> dict[str, str]:
    """Return the rows, by number, of plans of one action with these arguments."""
    step = {"op": "send_mail"}
    plans = [msgspec.json.encode({"args": args, "steps": [step], "action_text": text}) for args in each]
    return rows_of((str(number), "send-mail", plan) for number, plan in enumerate(plans))


def test_identical_list_rows_get_the_argument_that_tells_them_apart() -> None:
    """Rows of one list are compared; of a long value, the part that differs is shown."""
    text = FILE % "summary = 'Answer {title}'"
    earlier, other = {"title": "Lunch", "at": "12:00"}, {"title": "Lunch", "at": "13:00"}

    assert list(lines_of(earlier, text=text).values()) == ["Answer “Lunch”"]
    assert list(lines_of(earlier, other, text=text).values()) == [
        "Answer “Lunch” · at “12:00”",
        "Answer “Lunch” · at “13:00”",
    ]
    assert list(lines_of(earlier, earlier, text=text).values()) == ["Answer “Lunch”"] * 2
    mine, theirs = ({"to": f"mira.johansson.andersson@mail.example.{end}"} for end in ("com", "evil"))
    assert [row.partition(" · ")[2] for row in lines_of(mine, theirs).values()] == [
        "to “…ample.com”",
        "to “…ample.evil”",
    ]
    here, there = ({"at": at, "title": "Lunch", "a": 1, "b": 2, "c": 3} for at in ("12:00", "13:00"))
    assert ["at “12:00”" in row for row in lines_of(here, there).values()] == [True, False]


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,40}", fullmatch=True), JSON, max_size=12))
def test_a_list_row_is_a_single_line_of_at_most_160_characters(args: dict[str, Any]) -> None:
    """The bound holds for all arguments."""
    for row in lines_of(args, {}, args).values():
        assert len(row) <= 160
        assert_harmless(row)


@pytest.mark.parametrize("text", ["", FILE % "summary = 'Send {title}[ at {at}]'"], ids=["none", "summary"])
def test_hostile_text_is_escaped_in_a_headline(text: str) -> None:
    """The whole corpus is used as an argument and as the service's value."""
    args = {"title": EVERYTHING, "at": EVERYTHING, EVERYTHING[:50]: EVERYTHING}
    for preview in (None, found(Subject=EVERYTHING)):
        sentence = spelled_out(headline_of(previewed(args, action_text=text), preview))
        assert_harmless(sentence)
        assert "\n" not in sentence
    stored = {"title": EVERYTHING.encode(errors="replace").decode()}  # what is stored is Unicode
    assert_harmless("".join(lines_of(stored, {"title": "x"}, text=text).values()))


@pytest.mark.parametrize("stored", [None, b"", b"{", b"[]", b'{"args": 7}'])
def test_an_invalid_plan_has_no_headline(stored: bytes | None) -> None:
    """The question itself says what is wrong with the plan."""
    assert rows_of([("one", "send-mail", stored)]) == {}
