"""Stories of runs and sessions, and the last hour, made from events as the daemon writes them."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from aileron.api.sessions import Session
from aileron.model.visible import visible
from aileron.tui.story import BINS, MOST_KEPT, History, result_words, told_by_session
from aileron.tui.story_rows import hour_rows, spark, story_text, told_row
from tests.support.hostile_text import CORPUS

NOW = datetime.datetime(2026, 11, 21, 10, 2, 30, tzinfo=datetime.UTC)
CLAUDE = Session(
    id="ses-1",
    agent="claude",
    folder="/home/you/invoices",
    status="open",
    started_at="2026-11-21T09:00:00Z",
    expires_at="2026-11-21T19:00:00Z",
    ended_at=None,
    reason=None,
    exit_code=None,
    runs=3,
    pid=None,
)
SESSIONS = {"ses-1": CLAUDE}
STEPS = [{"id": "one", "op": "send_mail"}]


class Ledger:
    """A history that is given numbered events."""

    def __init__(self) -> None:
        self.history = History()
        self._seq = 1  # the first row is `genesis`

    def add(self, *events: dict[str, Any], minutes_ago: float = 0) -> None:
        """Add these events, as of so long ago."""
        at = (NOW - datetime.timedelta(minutes=minutes_ago)).isoformat()
        for event in events:
            self._seq += 1
            self.history.take([{"seq": self._seq, "at": at, **event}])

    def steps(self, titles: dict[str, str] | None = None) -> list[tuple[str, str]]:
        """Return the title and the steps of each story, the newest first."""
        return [(story.title, " · ".join(story.steps)) for story in self.history.stories(titles or {})]


def requested(run: str = "run-1", session: str = "ses-1", **more: Any) -> dict[str, Any]:
    """Return the event that an agent requested a run."""
    args = {"to": "mira@example.com", "body": "hello"}
    of = {"run": run, "session": session, "action": "send-mail", "args": args, "steps": STEPS}
    return {"type": "run.requested", **of, **more}


def asked(run: str | None = "run-1", approval: str = "act-1") -> dict[str, Any]:
    """Return the event that a person was asked."""
    return {"type": "approval.requested", "approval": approval, "kind": "action", "name": "send-mail", "run": run}


def decided(
    decision: str = "approve", run: str | None = "run-1", approval: str = "act-1", **more: Any
) -> dict[str, Any]:
    """Return the event that a person decided."""
    return {"type": "approval.decided", "approval": approval, "decision": decision, "run": run, **more}


def sent(run: str = "run-1", request: int = 1) -> dict[str, Any]:
    """Return the event that a request was sent."""
    return {"type": "egress.sending", "run": run, "step": "one", "request": request, "method": "POST"}


def finished(status: str = "completed", run: str = "run-1", **more: Any) -> dict[str, Any]:
    """Return the event that a run ended."""
    return {"type": "run.finished", "run": run, "session": "ses-1", "action": "send-mail", "status": status, **more}


def test_the_story_of_a_run_leads_from_the_request_to_its_result() -> None:
    """The steps are asked, shown, approved, the requests sent, and done; the result follows once it is known."""
    ledger = Ledger()
    ledger.add(requested(), asked(), decided(), *(sent(request=number) for number in (1, 2, 3)), finished())
    assert ledger.history.without_result(5) == ["run-1"]
    assert ledger.steps() == [
        ("Send mail: to “mira@example.com”, body “hello”", "asked · shown · approved · 3 requests · ✓ done")
    ]

    ledger.history.came_back("run-1", result_words({"id": "m-1", "accepted": ["mira"], "note": None}))

    assert ledger.steps()[0][1] == "asked · shown · approved · 3 requests · ✓ done: id “m-1”, accepted 1 item"
    assert ledger.history.without_result(5) == []


def test_a_runs_story_has_the_title_of_its_question() -> None:
    """The title is the action's own sentence, which no event contains."""
    ledger = Ledger()
    ledger.add(requested(), asked())

    assert ledger.steps({"act-1": "Mail Mira"}) == [("Mail Mira", "asked · waiting for you")]


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ([requested(), finished()], "asked · ✓ done"),
        ([requested()], "asked · running"),
        ([requested(), {"type": "run.started", "run": "run-1"}, sent()], "asked · 1 request · running"),
        ([requested(), finished("failed", message="no route")], "asked · failed: “no route”"),
        (
            [requested(), asked(), decided(), sent(), finished("failed", message="it is full")],
            "asked · shown · 1 request · Approved, but it failed: “it is full”",
        ),
        (
            [requested(), asked(), decided("deny", reason="not today"), finished("denied")],
            "asked · shown · denied: “not today”",
        ),
        ([requested(), asked(), finished("expired")], "asked · expired"),
        ([requested(), asked(), finished("cancelled")], "asked · withdrawn"),
        ([requested(), asked(), decided(until="2026-11-21T10:40:00Z")], "asked · shown · approved · held until "),
        (
            [requested(), {"type": "run.unknown", "run": "run-1"}],
            "asked · outcome unknown: check before you run it again",
        ),
        (
            [requested(), {"type": "grant.used", "run": "run-1", "use": 2, "of": 10}, finished()],
            "asked · allowed by a grant (2 of 10) · ✓ done",
        ),
        (
            [requested(), {"type": "egress.denied", "run": "run-1"}, finished("failed", message="no")],
            "asked · 1 blocked request · failed: “no”",
        ),
        (
            [
                requested(),
                asked(),
                {"type": "approval.asked", "approval": "act-1", "run": "run-1"},
                {"type": "approval.answered", "approval": "act-1", "run": "run-1"},
                {"type": "approval.edited", "approval": "act-1", "run": "run-1"},
                decided(),
                finished(),
            ],
            "asked · shown · you asked the agent · answered · edited · approved · ✓ done",
        ),
        (
            [{"type": "run.refused", "run": "run-1", "action": "x", "message": "no such action"}],
            "asked · refused: “no such",
        ),
        ([finished()], "✓ done"),
    ],
)
def test_the_story_of_a_run_describes_each_final_status_in_words(events: list[dict[str, Any]], told: str) -> None:
    """Steps appear only if an event proves them: a run that no person decided is not called approved."""
    ledger = Ledger()
    ledger.add(*events)

    assert [steps.startswith(told) for _, steps in ledger.steps()] == [True], ledger.steps()


def test_consents_have_a_story_on_the_activity_screen_but_the_runs_of_previews_do_not() -> None:
    """A consent has no run; the run that reads a preview has an id of its own, and no agent asked for it."""
    ledger = Ledger()
    ledger.add(requested(), asked(), sent("run-of-the-reading"))
    ledger.add({"type": "approval.previewed", "approval": "act-1", "run": "run-of-the-reading"})
    ledger.add({"type": "approval.requested", "approval": "act-2", "kind": "connector", "name": "mail"})
    ledger.add(decided(run=None, approval="act-2"))

    assert ledger.steps() == [
        ("connector mail", "shown · approved · ✓ in force"),
        ("Send mail: to “mira@example.com”, body “hello”", "asked · waiting for you"),
    ]


def test_stories_of_runs_are_grouped_by_session_with_the_newest_first() -> None:
    """The heading has agent and folder; local commands and consents have headings of their own."""
    ledger = Ledger()
    ledger.add(requested("run-1"), requested("run-2", session="local"), requested("run-3"))
    ledger.add({"type": "approval.requested", "approval": "act-2", "kind": "connector", "name": "mail"})
    told = told_by_session(ledger.history.stories({}), SESSIONS)

    assert [(each.who, [story.id for story in each.stories]) for each in told] == [
        ("Consents", ["act-2"]),
        ("claude in /home/you/invoices", ["run-3", "run-1"]),
        ("Local commands, no agent", ["run-2"]),
    ]
    assert told_row(told[1], 60).plain == "claude in /home/you/invoices · 2 runs"


def test_repeated_events_are_ignored_and_the_oldest_stories_of_runs_are_dropped() -> None:
    """A page of events that is read twice changes nothing; memory is bounded."""
    ledger = Ledger()
    ledger.add(requested(), sent(), finished())
    ledger.history.take([{"seq": 3, "type": "egress.sending", "run": "run-1"}])
    assert ledger.steps()[0][1] == "asked · 1 request · ✓ done"

    ledger.history.take({"seq": 100 + number, "type": "vault.locked"} for number in range(MOST_KEPT))
    assert ledger.steps() == []
    assert ledger.history.oldest_seq == 100


@pytest.mark.parametrize("text", CORPUS.values(), ids=list(CORPUS))
def test_hostile_text_in_an_event_is_escaped_and_cannot_look_like_a_step_of_the_story(text: str) -> None:
    """Arguments, messages, reasons and names stay on their row, in quotes that they cannot close."""
    ledger = Ledger()
    words = f"{text}” · ✓ done · approved"
    ledger.add(requested(args={"to": words}, action=words), asked(), decided("deny", reason=words), finished("denied"))
    ledger.add(requested("run-2"), finished("failed", "run-2", message=words))
    ledger.add({"type": "run.refused", "run": "run-3", "action": words, "message": words, "session": words})
    ledger.history.came_back("run-1", result_words({words: words}))
    told = told_by_session(ledger.history.stories({}), {"ses-1": CLAUDE})
    rows = [told_row(each, 80).plain for each in told]
    rows += [story_text(story, 80).plain for each in told for story in each.stories]

    for line in "\n".join(rows).split("\n"):
        assert visible(line) == line
    for story in ledger.history.stories({}):
        assert all(step.count("”") <= 1 for step in story.steps), story.steps


@pytest.mark.parametrize(
    "bad", [{"run": {}}, {"type": []}, {"at": 7, "session": [1]}, {"steps": [7, {"op": []}], "args": {}}]
)
def test_malformed_events_are_shown_as_far_as_possible(bad: dict[str, Any]) -> None:
    """A program that answers in the daemon's place may send anything."""
    ledger = Ledger()
    ledger.add({**requested(), **bad}, asked(), finished())

    for story in ledger.history.stories({}):
        assert story_text(story, 80).plain
    ledger.history.hour({}, NOW)


@pytest.mark.parametrize("width", [60, 80, 140])
def test_no_row_of_a_runs_story_is_wider_than_the_screen(width: int) -> None:
    """A service's message of failure may be long."""
    ledger = Ledger()
    ledger.add(requested(args={"to": "ö" * 300}), asked(), decided(), finished("failed", message="word " * 200))
    rows = story_text(ledger.history.stories({})[0], width).plain.split("\n")

    assert 2 <= len(rows) <= 3
    assert all(len(row) <= width for row in rows)


# the last hour


def hour_of(ledger: Ledger) -> dict[str, tuple[int, int, int]]:
    """Return the numbers of runs, waits and denials of each agent."""
    return {
        agent.agent: (sum(agent.runs), sum(agent.waits), sum(agent.denials))
        for agent in ledger.history.hour(SESSIONS, NOW).agents
    }


def test_runs_questions_and_denials_of_the_last_hour_are_counted_for_each_agent() -> None:
    """A question or denial counts for the agent of its run; events older than an hour do not count."""
    ledger = Ledger()
    ledger.add(requested("old"), minutes_ago=70)
    ledger.add({"type": "session.started", "session": "ses-2", "agent": "codex", "folder": "/w"}, minutes_ago=50)
    ledger.add(requested("run-1"), asked(), minutes_ago=40)
    ledger.add(requested("run-2", session="ses-2"), {"type": "egress.denied", "run": "run-2"}, minutes_ago=21)
    ledger.add(decided("deny"), requested("run-3", session="local"), minutes_ago=1)

    assert hour_of(ledger) == {"claude": (1, 1, 1), "codex": (1, 0, 1), "local command": (1, 0, 0)}
    claude = next(agent for agent in ledger.history.hour(SESSIONS, NOW).agents if agent.agent == "claude")
    assert [at for at, count in enumerate(claude.waits) if count] == [3]
    assert [at for at, count in enumerate(claude.denials) if count] == [BINS - 1]


def test_the_heading_of_an_incompletely_loaded_hour_says_when_its_count_begins() -> None:
    """The heading must not call it an hour."""
    ledger = Ledger()
    ledger.history.take([{"seq": 9, "at": "2026-11-21T09:50:00Z", **requested()}])
    hour = ledger.history.hour(SESSIONS, NOW)

    assert not hour.is_whole
    assert hour_rows(hour, 80)[0].plain.startswith("SINCE ")
    ledger.add(requested("first"), minutes_ago=90)
    assert hour_rows(ledger.history.hour(SESSIONS, NOW), 80)[0].plain.startswith("LAST HOUR")


def test_bars_of_the_activity_chart_are_proportional_and_zero_is_a_dot() -> None:
    """A value of one is visible beside a hundred."""
    assert spark((0, 1, 50, 100), 100) == "·▁▄█"
    assert spark((0, 1), 1) == "·█"


@pytest.mark.parametrize("width", [58, 78, 138])
def test_the_activity_chart_has_a_row_for_each_of_four_agents_and_counts_the_rest(width: int) -> None:
    """The chart has at most six rows, and no bars where there is no room."""
    ledger = Ledger()
    for number in range(7):
        session = f"ses-{number + 10}"
        ledger.add({"type": "session.started", "session": session, "agent": f"agent-{number}", "folder": "/w"})
        ledger.add(*(requested(f"run-{number}-{each}", session=session) for each in range(number + 1)))
    rows = [row.plain for row in hour_rows(ledger.history.hour(SESSIONS, NOW), width)]

    assert [row.split()[0] for row in rows[1:5]] == ["agent-3", "agent-4", "agent-5", "agent-6"]
    assert rows[5] == "  … 3 more agents"
    assert all(len(row) <= width for row in rows)
    assert ("█" in rows[4]) == (width >= 78)
    words = [word for word in rows[4].split() if "█" not in word and "·" not in word]
    assert words == ["agent-6", "runs", "7", "waits", "0", "denied", "0"]
