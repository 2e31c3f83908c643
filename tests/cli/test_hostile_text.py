"""Text from agents, connectors, services and files at a terminal that obeys it, before a person who cannot see all of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aileron.model.text import hidden_at
from aileron.model.visible import as_fact, visible, visible_json, visible_lines
from tests.cli.command import Command
from tests.cli.test_hostile_questions import run_question
from tests.support.fake_daemon import FakeDaemon, error
from tests.support.hostile_text import (
    CORPUS,
    EVERYTHING,
    as_in_a_file,
    assert_harmless,
    assert_no_line_begins,
    hostile,
)

pytestmark = pytest.mark.abuse_case("T1")

# The functions


@given(st.text(st.characters(exclude_categories=["Cn"])))
def test_the_function_visible_makes_one_line_without_hidden_characters(text: str) -> None:
    """This holds for any text, and every visible character is kept."""
    shown = visible(text)

    assert hidden_at(shown) is None
    assert [letter for letter in text if hidden_at(letter) is None] == [
        letter for letter in _without_escapes(text, shown) if hidden_at(letter) is None
    ]


def _without_escapes(text: str, shown: str) -> list[str]:
    """Return the characters of `shown` that stand for themselves, found by walking along the original."""
    kept, at = [], 0
    for letter in text:
        if hidden_at(letter) is None:
            kept.append(shown[at])
            at += 1
        else:
            at += len(visible(letter))
    assert at == len(shown)
    return kept


@given(st.text())
def test_the_function_visible_lines_keeps_the_number_of_lines(text: str) -> None:
    """Only line ends separate lines, and no line contains hidden characters."""
    lines = visible_lines(text)

    assert all(hidden_at(line) is None for line in lines)
    assert len(lines) == text.replace("\r\n", "\n").count("\n") + 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(JSON)
def test_the_function_visible_json_keeps_the_value(value: object) -> None:
    """Hidden characters become JSON's own escapes."""
    shown = visible_json(json.dumps(value, indent=2, ensure_ascii=False))

    assert hidden_at(shown.replace("\n", "")) is None
    assert json.loads(shown) == value


@given(st.text())
def test_the_value_of_an_events_fact_is_shown_as_a_single_word_or_in_quotes(text: str) -> None:
    """Spaces in a value cannot start the next fact, and nothing of it is lost."""
    shown = as_fact(text)

    if shown.startswith('"'):
        assert json.loads(shown) == text
    else:
        assert shown == visible(text)
        assert not set(shown) & set(" ='\"\u3000")


@pytest.mark.parametrize("text", CORPUS.values(), ids=CORPUS.keys())
def test_every_text_of_the_hostile_corpus_is_escaped(text: str) -> None:
    """Each text is shown as one line, as several lines, and as JSON that keeps its value."""
    assert_harmless(visible(text))
    assert_harmless("\n".join(visible_lines(text)))
    assert_harmless(as_fact(text))
    assert_harmless(as_fact({text: [text]}, 1000))
    document = visible_json(json.dumps({text: text}, ensure_ascii=False))

    assert_harmless(document)
    assert json.loads(document) == {text: text}


def test_combining_marks_beyond_eight_are_escaped() -> None:
    """A letter keeps as many as any script uses; the rest is escaped, in JSON as escapes of JSON."""
    flood = "a" + "\u0301" * 100

    assert visible(flood) == "a" + "\u0301" * 8 + "\\u0301" * 92
    assert (
        visible("a" + "\u0903" * 100) == "a" + "\u0903" * 8 + "\\u0903" * 92
    )  # this mark takes a column in some terminals
    assert visible_lines(f"{flood}\nb") == [visible(flood), "b"]
    assert json.loads(visible_json(json.dumps(flood, ensure_ascii=False))) == flood


def test_unassigned_unicode_characters_are_escaped() -> None:
    """Their width is unknown."""
    assert visible("a\u0378b\U0001faff") == "a\\u0378b\\U0001faff"


def test_ordinary_text_is_not_escaped() -> None:
    """The examples are letters of several scripts with their marks, and emoji."""
    for text in ("Grüße, 日本語, العربية, हिन्दी", "✓ 👍 🇩🇪", "naïve — “quoted” 5 € · ½", "שָׁלוֹם, Việt, o\u0302\u0323"):
        assert visible(text) == text


# The commands


@hostile
def test_a_hostile_result_is_escaped_at_a_terminal(fake: FakeDaemon, aileron: Command, text: str) -> None:
    """The text is a plain result, and a value and a name in JSON."""
    fake.add_action("act")
    for result in (text, {"value": text, text: 1}):
        fake.script("POST", "/v1/actions/act/run", (200, {"audit_id": "r", "result": result}))

        assert_harmless(aileron.at_terminal("run", "act").out)


@hostile
def test_json_output_is_ascii(fake: FakeDaemon, aileron: Command, text: str) -> None:
    """This holds in a pipe and at a terminal, and the value is unchanged."""
    fake.add_action("act")
    fake.script("POST", "/v1/actions/act/run", (200, {"audit_id": "r", "result": text}))
    piped, shown = aileron("run", "act", "--json"), aileron.at_terminal("run", "act", "--json")

    assert piped.out.isascii()
    assert shown.out.isascii()
    assert_harmless(shown.out)
    assert piped.json["result"] == json.loads(shown.out)["result"] == text


@pytest.mark.abuse_case("T5")
@hostile
def test_a_hostile_failure_is_escaped_and_cannot_look_like_ailerons_own_output(
    fake: FakeDaemon, aileron: Command, text: str
) -> None:
    """The text is in its message, reason and log, at a terminal and in a pipe."""
    fake.add_action("act")
    details = {"step": "one", "log": text, "connector_class": text}
    fake.script("POST", "/v1/actions/act/run", error("connector_runtime_error", 502, text, details=details))
    piped, shown = aileron("run", "act").err, aileron.at_terminal("run", "act").out

    for told in (piped, shown):
        assert_harmless(told)
        assert_no_line_begins(told, "  fix: curl")
    assert piped.count("\n  why: ") == 1


@pytest.mark.abuse_case("T5")
@pytest.mark.parametrize(
    "message", ["x; run `aileron vault lock`", "x: aileron approver reset", "it ended; `aileron daemon stop` helps"]
)
def test_a_connectors_message_never_becomes_a_suggested_fix(fake: FakeDaemon, aileron: Command, message: str) -> None:
    """A jail could recommend a harmful command. The same words in the daemon's own message become the fix."""
    fake.add_action("act")
    path = "/v1/actions/act/run"
    fake.script("POST", path, error("bad_input", 422, message, details={"step": "one", "setup": "x", "choices": ["x"]}))
    jailed = aileron("run", "act", "--json")
    fake.script("POST", path, error("bad_input", 422, message))
    ours = aileron("run", "act", "--json")

    assert jailed.json["error"]["fix"] == "aileron action show act"
    assert ours.json["error"]["fix"] in message


@pytest.mark.parametrize(
    "message",
    [
        "no credential is bound as 'x; run `aileron vault lock`'",
        "no credential is bound as 'x; run `aileron vault lock` to mend it'",
        "x; run `aileron vault lock; reboot`",
        "x; run `aileron vault lock $(reboot)`",
        "x; run `aileron vault lock\nreboot`",
        "x; run `aileron vault lock > /tmp/x`",
        "x: aileron config get > /tmp/x",
        "x: aileron config get <in>/tmp/x",
    ],
    ids=["quoted", "quoted-more", "semicolon", "substitution", "line", "redirection", "bare", "placeholder"],
)
def test_only_a_plain_aileron_command_becomes_a_suggested_fix(fake: FakeDaemon, aileron: Command, message: str) -> None:
    """The daemon's message may quote an agent or a publisher: quoted commands and shell syntax are ignored, its own are not."""
    fake.add_action("act")
    path = "/v1/actions/act/run"
    fake.script("POST", path, error("bad_input", 422, message))
    told = aileron("run", "act", "--json")
    fake.script("POST", path, error("bad_input", 422, "no credential is bound as 'x'; run `aileron vault lock`"))
    ours = aileron("run", "act", "--json")

    assert told.json["error"]["fix"] == "aileron action show act"
    assert ours.json["error"]["fix"] == "aileron vault lock"


def test_hostile_text_in_lists_is_escaped(fake: FakeDaemon, aileron: Command) -> None:
    """Tables at a terminal, and tab-separated lines that a value cannot break, contain the text."""
    text = EVERYTHING
    fake.add_action("act", intent=text, source=text)
    fake.actions["bad"] = {"name": "bad", "enabled": True, "problem": text}
    fake.connectors = [{"name": text, "version": text, "hash": "sha256:ab", "hosts": [text], "problem": text}]
    never = {"account": text, "expires_at": None, "refreshed_at": None}
    named = {"name": text, "connector": text, "username": text, "secret": text, "created_at": text}
    fake.bindings["b"] = {**named, **never, "kind": text, "state": "suspended"}
    asked = {"approval_id": text, "action": text, "session": text, "expires_at": text, "created_at": text}
    fake.approvals = [{**asked, "kind": text, "digest": text, "status": "pending_approval"}]
    fake.events = [
        {"seq": 1, "at": text, "type": text, "run": text, "action": text, "message": text, "fields": {text: 1}}
    ]
    for noun, columns, rows in (
        ("action", 5, 2),
        ("connector", 5, 1),
        ("binding", 4, 1),
        ("approval", 9, 1),
        ("audit", 5, 1),
    ):
        piped = aileron(noun, "list")

        assert_harmless(aileron.at_terminal(noun, "list").out)
        assert_harmless(piped.out.replace("\t", ""))
        assert [line.count("\t") + 1 for line in piped.out.splitlines()] == [columns] * rows


def test_hostile_text_in_the_output_of_show_commands_is_escaped(fake: FakeDaemon, aileron: Command) -> None:
    """The output has facts, prose, plans and records."""
    text = EVERYTHING
    fake.add_action("act", "key:string", intent=text, connectors=[text])
    fake.actions["act"] |= {"body": f"# {text}\n{text}", "hosts": [text]}
    plan = run_question(text)["plan"]
    asked = {
        "approval_id": text,
        "kind": "action",
        "status": "failed",
        "digest": text,
        "created_at": text,
        "head": text,
    }
    fake.script("GET", "/v1/action-approvals/a", (200, {**asked, "expires_at": text, "plan": plan, "session": text}))
    event = {"seq": 1, "at": text, "type": text, "message": text, "fields": {text: text}, "words": [text]}
    fake.script("GET", "/v1/audit/r", (200, {"audit_id": text, "status": "failed", "events": [event]}))
    fake.script("GET", "/v1/runs/r", (200, {"status": "completed", "result": text}))
    for group, name in (("action", "act"), ("approval", "a"), ("audit", "r")):
        shown = aileron.at_terminal(group, "show", name).exits(0)
        assert_harmless(shown.out)
        if group != "audit":  # which ends with the result, as `run` prints it
            assert_no_line_begins(shown.out, "  fix: ", "  why: ")


def test_hostile_text_in_questions_and_their_results_is_escaped(fake: FakeDaemon, aileron: Command) -> None:
    """A person reads them before an approval, a denial and during a run."""
    text = EVERYTHING
    plan = run_question(text)["plan"]
    asked = {"approval_id": "a", "status": "pending_approval", "digest": "d", "action": text, "session": text}
    asked |= {"kind": "action", "created_at": text, "expires_at": text, "head": text}
    fake.script("GET", "/v1/action-approvals/a", (200, {**asked, "plan": plan}))
    settled = {"status": "approved", "approval_id": text, "audit_id": text, "held_until": text}
    fake.script("POST", "/v1/action-approvals/a/decide", (200, settled))
    fake.script("GET", "/v1/action-approvals/a/result", (200, {"status": "running", "audit_id": text}))
    pending = {
        "status": "pending_approval",
        "approval_id": "a",
        "message": text,
        "review_url": text,
        "expires_at": text,
    }
    fake.script("POST", "/v1/actions/act/run", (202, pending))
    for words, answers in (
        (("approve", "a", "--wait", "0"), [("to approve: ", "yes")]),
        (("approve", "a"), [("to approve: ", "n")]),
        (("deny", "a"), [("sent to the agent): ", "no")]),
        (("run", "act", "--wait", "0"), [("leave it waiting: ", "y")]),
        (("run", "act"), [("leave it waiting: ", "")]),
    ):
        shown = aileron.at_terminal(*words, answers=answers)

        assert shown.code in (0, 75), shown
        assert_harmless(shown.out)
        assert_no_line_begins(shown.out, "  fix: curl", "Approve? [y/N] yes")
    assert_harmless(aileron("run", "act").err)


def test_hostile_command_line_arguments_are_escaped_in_errors(fake: FakeDaemon, aileron: Command) -> None:
    """A script may pass on text from another party."""
    word = as_in_a_file(EVERYTHING).replace("\x00", "")
    for words in (
        ("run", word),
        ("run", "act", word),
        ("run", f"--{word}"),
        ("action", "remove", word),
        (word,),
        ("deny", word),
    ):
        assert_harmless(aileron.at_terminal(*words).out)


def test_hostile_text_in_the_daemons_log_is_escaped(aileron: Command, home: Path) -> None:
    """The log repeats text of other parties."""
    (home / "logs").mkdir(parents=True)
    (home / "logs" / "daemon.log").write_text(f"before\n{as_in_a_file(EVERYTHING)}\nafter\n", encoding="utf-8")

    assert_harmless(aileron.at_terminal("daemon", "logs").out)
    assert_harmless(aileron("daemon", "logs").out)


@hostile
def test_hostile_text_of_an_invalid_action_file_is_escaped_in_its_errors(
    aileron: Command, tmp_path: Path, text: str
) -> None:
    """The errors quote the file."""
    file, text = tmp_path / "a.md", as_in_a_file(text)
    file.write_text(f'+++\nname = "{text}"\n{text} = 1\n+++\n', encoding="utf-8")
    shown = aileron.at_terminal("action", "validate", str(file)).exits(2)
    assert_harmless(shown.out)
    assert_no_line_begins(shown.out, "  fix: curl")


def test_hostile_text_in_a_traceback_is_escaped(fake: FakeDaemon, aileron: Command) -> None:
    """A bug report repeats the data that was being processed."""
    fake.add_action("act", "key:string", input_schema={"properties": "\x1b[2J\u202e"})
    shown = aileron.at_terminal("action", "show", "act").exits(1)
    assert "error: this is a bug in aileron" in shown.out
    assert_harmless(shown.out)


def test_a_response_of_another_api_version_is_not_reported_as_a_bug(fake: FakeDaemon, aileron: Command) -> None:
    """The response has an unknown word or lacks a key: the fix is a restart, and the hostile word is escaped."""
    for session in ({"status": EVERYTHING}, {}):
        fake.script("GET", "/v1/sessions", (200, {"sessions": [{"id": "s", "agent": "a", "folder": "/", **session}]}))
        shown = aileron.at_terminal("sessions", "list").exits(1)
        assert "the daemon's answer does not match this version" in " ".join(shown.out.split())
        assert "fix: aileron daemon restart" in shown.out
        assert "bug" not in shown.out
        assert_harmless(shown.out)


def test_a_long_error_message_is_truncated_and_says_so(fake: FakeDaemon, aileron: Command) -> None:
    """A person gets about one screen; --json has the whole message."""
    fake.add_action("act")
    fake.script("POST", "/v1/actions/act/run", error("external_api_error", 502, "x" * 100_000, details={"step": "one"}))
    said = aileron("run", "act", "--json")

    assert len(said.err) < 3000
    assert "98000 more characters" in said.err
    assert len(said.json["error"]["message"]) == 100_000


@pytest.mark.parametrize("variable", ["NO_COLOR", "TERM"])
def test_coloured_output_can_be_switched_off(fake: FakeDaemon, aileron: Command, variable: str) -> None:
    """Positive control: the same output has colour by default."""
    environment = {"NO_COLOR": {"NO_COLOR": "1"}, "TERM": {"TERM": "dumb"}}[variable]

    assert "\x1b" not in aileron.at_terminal("run", "nope", variables=environment).out
    assert "\x1b" in aileron.at_terminal("run", "nope").out


@hostile
def test_hostile_text_from_a_forge_is_escaped(fake: FakeDaemon, aileron: Command, text: str) -> None:
    """The text is in an install, an update, a difference, a suite and a list of versions, at a terminal where a no is typed."""
    job = {
        "fetch": "fch-1",
        "what": "update",
        "name": text,
        "status": "ready",
        "progress": [{"name": text, "bytes": 1, "total": None}],
        "consents": [
            {"kind": "connector", "subject": {"name": text, "version": text, "hash": text, "signature": text}}
        ],
        "from": text,
        "to": text,
        "action": text,
        "versions": [text],
        "difference": f"-{text}\n+{text}",
        "conflicts": 0,
        "edited": True,
        "unmerged": text,
        "text": text,
    }
    updates = {"kind": "action", "name": text, "version": text, "newest": text, "prerelease": None, "problem": None}
    suite = {"name": text, "description": text, "ref": text, "actions": []}
    fake.script("POST", "/v1/fetches", (200, job))
    fake.script("GET", "/v1/fetches/fch-1", (200, job))
    fake.script("DELETE", "/v1/fetches/fch-1", (200, job))
    fake.script("GET", "/v1/approver", (200, {"status": "none"}))
    fake.script("GET", "/v1/connectors/updates", (200, {"updates": [updates, {**updates, "problem": text}]}))
    fake.script("POST", "/v1/suites", (200, suite))
    no = [("Install? [y/N] ", "")]
    for words, answers in (
        (("connector", "install", "github://acme/mail@1.0.0"), no),
        (("action", "update", "mail"), no),
        (("action", "diff", "mail"), []),
        (("connector", "check"), []),
        (("action", "add-suite", "github://acme/mail/suite.toml@v1.0.0"), []),
    ):
        told = aileron.at_terminal(*words, answers=answers).out

        assert_harmless(told)
        assert_no_line_begins(told, "  fix: curl")
