"""The console in use: many requests, selection, filters, groups, other screens, decisions other than a yes, and results."""

from __future__ import annotations

import itertools
import json
import re
import threading
import time
import webbrowser
from functools import partial
from typing import Any

import pytest
from textual.binding import Binding
from textual.events import Key

from aileron import __version__
from aileron.cards.question import state_words
from aileron.model.decision import DecisionStatement, check_signature
from aileron.model.outcome import RunStatus
from aileron.model.secret import Secret
from aileron.tui import activity, frame, input_guard, rendering
from aileron.tui.app import Console
from aileron.tui.daemon_client import DaemonClient
from aileron.tui.queue import Rows
from tests.cards.test_alarms import labelled
from tests.cli.questions import (
    ONE,
    SUBJECTS,
    grant,
    plan,
    previewed,
    question,
    rehearsed,
    sealed_preview,
    session,
    subject_question,
)
from tests.support.fake_daemon import Seen, error
from tests.tui.consoles import Shown, World, named

pytestmark = pytest.mark.anyio


# the queue


async def test_two_hundred_requests_are_listed_in_order_of_arrival(world: World) -> None:
    """They stand in order of arrival, take fewer than twenty requests to the daemon, and keys reach both ends."""
    world.ask(*(named(f"a{number:03}") for number in range(200)))
    async with world.console() as shown:
        await shown.until("200 waiting", "goes to")
        asked = len(world.fake.seen)
        await shown.press("end", until="a199 1.2.0")
        rows = [row.split()[2] for row in shown.rows[2:7]]
        await shown.press("N", until="a198 1.2.0")
        await shown.press("home", until="a000 1.2.0")

    assert rows == ["A195:", "A196:", "A197:", "A198:", "A199:"]
    assert asked < 20


async def test_a_decided_request_stays_in_its_row_of_the_list(world: World) -> None:
    """The row gets a sign and a word, and the next request is one key away."""
    asked = [named(name, reversible=True) for name in ("one", "two", "three")]
    world.ask(*asked)
    async with world.console(until="one 1.2.0") as shown:
        await shown.approve(until="✓ One")
        world.settle(asked[1], "denied")
        await shown.until("✗ Two", "1 waiting")
        assert [row.split()[0] for row in shown.rows[2:5]] == ["✓", "✗", "~"]

        await shown.press("n", until="three 1.2.0")


async def test_requests_of_every_kind_that_were_settled_elsewhere_leave_the_queue(world: World) -> None:
    """Each row shows the word for its final status."""
    asked = [subject_question(subject, approval_id=f"act-{kind}") for kind, subject in SUBJECTS.items()]
    asked.append(named("send-mail"))
    world.ask(*asked)
    ends = [status for status in RunStatus if status is not RunStatus.PENDING_APPROVAL]
    async with world.console(size=(100, 40), until=f"{len(asked)} waiting") as shown:
        for request, status in zip(asked, itertools.cycle(ends), strict=False):
            world.settle(request, status.value)

        def states() -> list[str]:
            return [shown.app.waiting[request["approval_id"]].state for request in asked]

        await shown.until("nothing waiting")
        # It is told at once that a question has gone, and a moment later how it ended.
        await shown.until(lambda: "no longer waits" not in states())
        words = states()

    assert {status.value for status in ends} <= {request["status"] for request in asked}
    assert words == [state_words(request["status"]).removeprefix("approved, ") for request in asked]


async def test_a_request_whose_outcome_cannot_be_read_is_reported_only_once(world: World) -> None:
    """The console asks the daemon again after each event, until it can read the outcome."""
    asked = subject_question(SUBJECTS["secret"], approval_id="act-secret")
    world.ask(asked, named("two"))
    async with world.console(until="2 waiting") as shown:
        world.fake.script("GET", "/v1/action-approvals/act-secret/result", error("internal_error", 500, "a bug"))
        world.settle(asked, "completed")
        await shown.until("1 waiting", "no longer waits")
        await shown.until(
            lambda: any("secret pw is no longer waiting" in notice and "a bug" in notice for notice in shown.told)
        )
        world.happen("binding.created")
        await shown.until(lambda: len(world.fake.asked("GET", "/v1/action-approvals/act-secret/result")) > 1)
        world.fake.script("GET", "/v1/action-approvals/act-secret/result", (200, dict(asked)))
        world.happen("binding.created")
        await shown.until("✓ Replace the value of the secret “pw”")

    assert sum("is no longer waiting" in notice for notice in shown.told) == 1


async def test_the_filter_of_the_list_is_visible_and_the_key_escape_ends_it(world: World) -> None:
    """A filter has words and fields; keys typed into it decide nothing."""
    world.ask(
        named("send-mail", agent="claude"), named("delete-repo", agent="codex"), named("send-file", agent="codex")
    )
    async with world.console(until="Send file") as shown:
        await shown.press("slash")
        await shown.enter("agent:codex send", until="! only agent:codex send")
        await shown.until_not("Delete repo")
        await shown.until("send-file 1.2.0")
        assert "Send mail" not in shown.text

        await shown.press("escape", until="Delete repo")
        assert "! only" not in shown.text

        await shown.press("slash")
        await shown.enter("nothing like it", until="nothing matches")
        await shown.press_settled("exclamation_mark", "A", until_told="nothing is selected")
    assert world.sent() == []


async def test_repeated_similar_requests_are_grouped_in_one_row(world: World) -> None:
    """The row has their number; pressing `g` again lists each request by itself."""
    same = [
        question(plan({"to": f"{number}@example.com"}), approval_id=f"act-{number}", agent="claude")
        for number in range(5)
    ]
    world.ask(*same, named("other"))
    async with world.console() as shown:
        await shown.until("6 waiting", "goes to")
        await shown.press("g", until="5 alike: send-mail, to differs")
        await shown.until("Other")
        assert not any("Send mail" in row for row in shown.rows[2:4])
        await shown.press("g", until_not="5 alike")


async def test_several_requests_that_are_not_alike_can_be_denied_together_but_not_approved(world: World) -> None:
    """Each request gets a decision of its own, with one reason; a request that is not selected stays pending."""
    asked = [named(name, reversible=True) for name in ("one", "two", "three")]
    world.ask(*asked)
    async with world.console(until="one 1.2.0") as shown:
        await shown.press("v", "j", "j", "v", until="● ~ undeclared Three")
        await shown.until("three 1.2.0")
        await shown.press_settled("exclamation_mark", "A", until_told="these are not alike")
        await shown.press("d", until="deny 2 requests")
        await shown.enter("no more", until="✗ Three")
        await shown.until("✗ One")

    assert world.sent_to() == [asked[0]["approval_id"], asked[2]["approval_id"]]
    assert {(body["decision"], body["reason"], body["digest"]) for body in world.sent()} == {
        ("deny", "no more", asked[0]["digest"]),
        ("deny", "no more", asked[2]["digest"]),
    }


async def test_a_mark_has_no_effect_once_its_request_is_settled_or_filtered_away(world: World) -> None:
    """A marked request that is not in the list neither blocks an approval nor is denied with others."""
    asked = [named(name, reversible=True, agent=f"of-{name}") for name in ("one", "two", "three")]
    world.ask(*asked)
    async with world.console(until="one 1.2.0") as shown:
        await shown.press("v", "j", "v", "j", until="● ~ undeclared Two")
        await shown.until("three 1.2.0")
        world.settle(asked[0], "expired")
        await shown.until("expired")
        await shown.press("slash")
        await shown.enter("three", until="! only three")
        await shown.until("three 1.2.0")
        await shown.approve(until=lambda: world.sent())

    assert world.sent_to() == [asked[2]["approval_id"]]


async def test_a_request_that_could_not_be_denied_stays_marked(world: World) -> None:
    """The other marked request is denied, and loses its mark."""
    asked = [named(name, reversible=True) for name in ("one", "two")]
    world.ask(*asked)
    world.fake.script("POST", f"/v1/action-approvals/{asked[0]['approval_id']}/decide", error("busy", 503, "later"))
    async with world.console(until="one 1.2.0") as shown:
        await shown.press("v", "j", "v", until="two 1.2.0")
        await shown.press_settled("d", until="deny 2 requests")
        await shown.press("enter", until="✗ Two")
        await shown.until("● ~ undeclared One")


async def test_only_a_new_request_rings_the_bell(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that were pending when the console started are silent; `z` mutes new ones for ten minutes."""
    rung: list[int] = []
    monkeypatch.setattr(Console, "bell", lambda _: rung.append(1))
    async with world.console(until="nothing waiting") as shown:
        assert rung == []
        world.ask(named("first"))
        await shown.until("first 1.2.0")
        assert rung == [1]
        await shown.press("z")
        world.ask(named("second"))
        await shown.until("2 waiting")
    assert rung == [1]


async def test_the_consoles_keys_work_while_the_daemon_is_slow(world: World) -> None:
    """The daemon takes long for a preview, the vault or the grants."""
    approver = world.sign()
    asked = question(previewed())
    world.ask(asked)
    gate = threading.Event()

    def slow(_: Seen) -> Any:
        gate.wait(20)
        return 200, {}

    def is_asked(end: str) -> bool:
        return any(seen.path.endswith(end) for seen in world.fake.seen)

    world.fake.script("POST", f"{ONE}/preview", slow)
    world.fake.script("POST", "/v1/vault/lock", slow)
    world.fake.script("GET", "/v1/grants", slow)
    assert approver.public_key
    try:
        async with world.console(until="CANNOT BE UNDONE") as shown:
            for key, path in (("p", "preview"), ("V", "lock"), ("3", "grants")):
                await shown.press(key, until=partial(is_asked, path))
                await shown.press("question_mark", until="!   needs attention")
                await shown.press("escape", until_not="!   needs attention")
            gate.set()
    finally:
        gate.set()


async def test_two_requests_for_one_action_are_distinguishable_in_the_list(world: World) -> None:
    """The row has the beginning of the arguments, escaped; it leaves room for the rest, and the filter finds it."""
    world.ask(
        named("send", args={"to": "mira@example.com", "body": "x" * 400}),
        named("send-b", action="send", args={"to": "mallory@evil.example"}),
        named("send-c", action="send", args={"to": "\x1b[2J\u202e done"}),
        named("n" * 60, args={"to": "c@example.com"}),
    )
    async with world.console(until="Send: to “mira@example.com”, body “xxx") as shown:
        rows = shown.rows[2:6]
        assert "Send b: to “mallory@evil.example”  " in rows[1]
        assert "Send c: to “\\x1b[2J\\u202e done”" in rows[2]
        assert "…" in rows[3]
        assert [re.search(r" +[0-9]+ d$", row.rstrip()) is None for row in rows] == [False] * 4
        await shown.press("slash")
        await shown.enter("evil", until="! only evil")
        assert "mira" not in shown.rows[2]


async def test_the_request_that_expires_first_is_listed_first(world: World) -> None:
    """The order of arrival does not matter; a sign and a word mark a request that expires soon."""
    soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 50))
    late = named("asked-late", created_at="2026-11-21T05:00:00Z", expires_at=soon)
    early = named("asked-early", created_at="2026-11-21T03:00:00Z")
    world.ask(late, early)
    async with world.console(until="Asked late") as shown:
        rows = shown.rows[2:4]

    assert ["Asked late" in row for row in rows] == [True, False]
    assert rows[0].startswith("! ! UNDECLARED Asked late")
    assert rows[0].endswith(" soon")


async def test_a_marked_request_is_denied_wherever_the_cursor_is(world: World) -> None:
    """The prompt names the marked request; the one under the cursor stays pending."""
    asked = [named("marked-one"), named("under-cursor")]
    world.ask(*asked)
    async with world.console(until="marked-one 1.2.0") as shown:
        await shown.press("v", "j", until="under-cursor 1.2.0")
        await shown.press_settled("d", until="deny Marked one")
        await shown.press("enter", until="✗ Marked one")

    assert world.sent_to() == [asked[0]["approval_id"]]


# decisions other than a yes


@pytest.mark.parametrize("way", ["a key each time", "a locked vault"])
async def test_denying_without_a_reason_withdraws_the_request_if_the_approvers_key_is_closed(
    world: World, way: str
) -> None:
    """A signed denial would need the passphrase; a withdrawal says nothing in the person's name."""
    world.sign()
    asked = named("one")
    world.ask(asked)
    if way == "a locked vault":
        world.fake.passphrase = "the vault's"
    async with world.console(not_kept="this is a terminal of tmux" if way == "a key each time" else None) as shown:
        await shown.until("passphrase each time" if way == "a key each time" else "! vault locked", "CANNOT BE UNDONE")
        await shown.press_settled("d", until="or Enter to withdraw without one")
        await shown.press("enter", until="withdrawn")

    assert (world.sent(), world.asked_for) == ([], [])
    assert world.sent_to("cancel") == [asked["approval_id"]]


async def test_denying_without_a_reason_is_signed_while_the_approvers_key_is_open(world: World) -> None:
    """A signed denial is worth more to later readers, and takes no more keystrokes."""
    world.sign()
    world.ask(named("one"))
    async with world.console() as shown:
        await shown.unlock()
        await shown.press_settled("d", until="(optional)")
        await shown.press("enter", until=lambda: world.sent())

    assert world.sent()[0]["signature"]
    assert world.sent("cancel") == []


async def test_a_denial_is_signed_with_its_reason(world: World) -> None:
    """The signature covers the reason."""
    approver = world.sign()
    asked = question()
    world.ask(asked)
    async with world.console(until="CANNOT BE UNDONE") as shown:
        await shown.press_settled("d", until="deny Send mail")
        await shown.enter("ask Mira first", until=lambda: world.sent())

    (body,) = world.sent()
    statement = DecisionStatement(
        approval_id=asked["approval_id"],
        digest=asked["digest"],
        decision="deny",
        reason="ask Mira first",
        at=body["at"],
        key_id=body["key_id"],
    )
    check_signature(approver.public_key, statement, body["signature"])
    assert body["reason"] == "ask Mira first"


@pytest.mark.parametrize("marked", [False, True], ids=["one", "several"])
async def test_deny_and_stop_also_ends_the_requests_session(world: World, marked: bool) -> None:
    """The session ends after the denial; with several requests, each of their sessions does."""
    asked = [named("one", session="ses-1", agent="claude"), named("two", session="ses-2", agent="codex")]
    world.ask(*asked)
    for name in ("ses-1", "ses-2"):
        world.fake.script("POST", f"/v1/sessions/{name}/end", (200, {"ended": name}))
    async with world.console(until="one 1.2.0") as shown:
        await shown.settled()
        if marked:
            await shown.press("v", "j", "v", until="two 1.2.0")
            await shown.settled()
        await shown.press("D", until="end the session that asked")
        await shown.press("enter", until=lambda: len(world.sent("end")) == (2 if marked else 1))

    ended = [seen.path.split("/")[3] for seen in world.fake.asked("POST") if seen.path.endswith("/end")]
    assert ended == (["ses-1", "ses-2"] if marked else ["ses-1"])
    assert len(world.sent()) == len(ended)


async def test_edited_arguments_are_approved_by_their_own_digest(world: World) -> None:
    """The arguments from the editor are what the daemon froze, what is shown, and what is signed."""
    world.sign()
    asked = named("send-mail", reversible=True)
    world.ask(asked)
    wanted = {"to": "mira@example.org", "body": "shorter"}
    other, before = named("send-mail", reversible=True, args=wanted), asked["digest"]

    def edited(seen: Seen) -> Any:
        asked["edits"] = [{"digest": other["digest"], "plan": other["plan"], "made_at": "2026-11-21T04:00:02Z"}]
        return 200, {"digest": other["digest"], "plan": other["plan"], "changes": []}

    world.fake.script("POST", f"/v1/action-approvals/{asked['approval_id']}/edit", edited)
    world.edit = lambda _: json.dumps(wanted)
    async with world.console((80, 45), until="mira@example.com") as shown:
        await shown.press_settled("e", until="to        mira@example.org")
        await shown.until("edited    ")
        await shown.approve(until=lambda: world.sent())

    assert world.sent("edit") == [{"args": wanted}]
    assert world.sent()[0]["digest"] == other["digest"] != before


@pytest.mark.parametrize("is_made", [True, False])
async def test_a_request_cannot_be_decided_while_its_edit_is_being_sent(world: World, is_made: bool) -> None:
    """The daemon may announce the edit before it responds; the person then sees the edit, or that it failed."""
    asked = named("pay", reversible=True)
    world.ask(asked)
    wanted = {"to": "mira@example.org", "body": "shorter"}
    other = named("pay", reversible=True, args=wanted)
    is_told, may_answer = threading.Event(), threading.Event()

    def edited(seen: Seen) -> Any:
        if is_made:
            made_at = "2026-11-21T04:00:02Z"
            world.replace(asked, edits=[{"digest": other["digest"], "plan": other["plan"], "made_at": made_at}])
        else:
            world.happen("approval.edited", approval=asked["approval_id"])
        is_told.set()
        may_answer.wait(10)
        made = 200, {"digest": other["digest"], "plan": other["plan"], "changes": []}
        return made if is_made else error("invalid_request", 400, "it is not what the action takes")

    world.fake.script("POST", f"/v1/action-approvals/{asked['approval_id']}/edit", edited)
    world.edit = lambda _: json.dumps(wanted)
    async with world.console((80, 45), until="to        mira@example.com") as shown:
        await shown.press_settled("e", until=is_told.is_set)
        await shown.settled()
        assert "to        mira@example.com" not in shown.text
        await shown.press("exclamation_mark", "A", until_told="your edit is being sent")
        may_answer.set()
        await shown.until(f"to        mira@example.{'org' if is_made else 'com'}")
        if not is_made:
            await shown.until_told("your edit was not applied")
        await shown.approve(until=lambda: world.sent())

    assert [body["digest"] for body in world.sent()] == [(other if is_made else asked)["digest"]]


async def test_an_edit_of_a_request_that_left_the_screen_is_discarded(world: World) -> None:
    """A person who went on to another request is told so; the edited request keeps its arguments."""
    asked = named("pay", reversible=True)
    world.ask(asked, named("other"))
    wanted = {"to": "mira@example.org"}
    may_answer = threading.Event()

    def edited(_: Seen) -> Any:
        may_answer.wait(10)
        return 200, {"digest": "sha256:1", "plan": {"args": wanted}, "changes": []}

    world.fake.script("POST", f"/v1/action-approvals/{asked['approval_id']}/edit", edited)
    world.edit = lambda _: json.dumps(wanted)
    async with world.console((80, 45), until="pay 1.2.0") as shown:
        await shown.press_settled("e", "j", until="other 1.2.0")
        may_answer.set()
        await shown.until_told("your edit of act-20261121T040000-pay was discarded")
        await shown.press("k", until="to        mira@example.com")


@pytest.mark.parametrize("left", ["no JSON", "[]", None], ids=["no JSON", "no object", "nothing came of it"])
async def test_a_failed_edit_leaves_the_request_unchanged_and_is_reported(world: World, left: str | None) -> None:
    """The person is told about the failure, and nothing is sent."""

    def edit(_: str) -> str:
        if left is None:
            raise ValueError("the editor ended with 1")
        return left

    world.edit = edit
    world.ask(question())
    async with world.console(until="CANNOT BE UNDONE") as shown:
        await shown.press_settled("e", until_told="not changed: ")
    assert world.sent("edit") == []


async def test_the_agents_answer_to_a_question_is_shown_in_a_box(world: World) -> None:
    """The box marks the answer as the agent's own words."""
    asked = question()
    world.ask(asked)

    def put(seen: Seen) -> Any:
        asked["conversation"] = [{"question": seen.body["question"]}]
        return 200, {}

    world.fake.script("POST", f"/v1/action-approvals/{asked['approval_id']}/ask", put)
    async with world.console((100, 45), until="CANNOT BE UNDONE") as shown:
        await shown.press_settled("m", until="ask the agent")
        await shown.enter("who is it for", until="you asked: who is it for")
        await shown.until("has not answered yet")
        world.replace(asked, conversation=[{"question": "who is it for", "answer": "for my boss"}])
        await shown.until("the agent: for my boss")


async def test_the_key_u_withdraws_a_request_only_on_the_screen_that_shows_the_request(world: World) -> None:
    """The keys `u` and `y` withdraw the request under the cursor; on other screens `u` does nothing."""
    asked = named("one")
    world.ask(asked)
    async with world.console(until="one 1.2.0") as shown:
        await shown.press("3", until="no grants: every gated action")
        await shown.press("u", "d", "e", "m", "A")
        await shown.pilot.pause()
        assert world.sent("cancel") == world.sent() == []

        await shown.press("1", until="one 1.2.0")
        await shown.settled()
        for key in ("n", "enter", "u"):
            await shown.press("u", until="withdraw: One")
            await shown.press_settled(key, until_not="withdraw: ")
            await shown.settled()
        assert world.sent("cancel") == []

        await shown.press("u", until="withdraw: One")
        await shown.press_settled("y", until="withdrawn")

    assert len(world.sent("cancel")) == 1


async def asked_for_a_grant(shown: Shown) -> None:
    """Ask for a grant for exactly these arguments, ten times."""
    await shown.press_settled("t", until="10 times, within an hour")
    await shown.press("2", until_told="added at the end of the list")


async def test_a_standing_grant_from_the_console_covers_exactly_the_requests_arguments(world: World) -> None:
    """An argument that the call left out must stay absent: a blind copy would add a recipient."""
    world.ask(named("undoable", reversible=True, args={"to": "ann@example.com"}, text=labelled(extra="Blind copy")))
    world.fake.script("POST", "/v1/grants", (202, {"approval_id": "act-9", "status": "pending_approval"}))
    async with world.console(until="undoable 1.2.0") as shown:
        await asked_for_a_grant(shown)

    (body,) = world.sent("grants")
    assert body["constraints"] == [
        {"argument": "to", "operator": "equals", "value": "ann@example.com"},
        {"argument": "extra", "operator": "absent", "value": None},
    ]


async def test_a_standing_grant_is_offered_only_for_a_run_that_can_be_undone(world: World) -> None:
    """The grant has exactly these arguments; for any other run, `t` says why there is none."""
    world.ask(named("for-good"), named("undoable", reversible=True))
    world.fake.script("POST", "/v1/grants", (202, {"approval_id": "act-9", "status": "pending_approval"}))
    async with world.console(until="for-good 1.2.0") as shown:
        await shown.press_settled("t", until_told="not available: this cannot be undone")
        await shown.press("n", until="undoable 1.2.0")
        await asked_for_a_grant(shown)

    (body,) = world.sent("grants")
    assert (body["action"], body["uses"], body["for_s"]) == ("undoable", 10, 3600)
    assert {
        constraint["argument"]: (constraint["operator"], constraint["value"]) for constraint in body["constraints"]
    } == {
        "to": ("equals", "mira@example.com"),
        "body": ("equals", "Dear Mira\nthe invoice is paid."),
    }


# the results


async def test_the_record_of_a_run_shows_every_request_that_its_connector_sent(world: World) -> None:
    """Host, status, bytes and time of each are shown on the question and from the activity."""
    sending = {"step": "one", "connector": "mail", "request": 1, "attempt": 1}
    asked = named("one", reversible=True, result="it is sent")
    world.records["run-one"] = {
        "audit_id": "run-one",
        "status": "completed",
        "events": [
            {
                "type": "egress.sending",
                "at": "2026-11-21T04:00:01Z",
                "method": "POST",
                "host": "mail.example",
                "port": 443,
                "path": "/send",
                "credential": "basic/mail/home",
                **sending,
            },
            {
                "type": "egress.finished",
                "at": "2026-11-21T04:00:02Z",
                "status": 201,
                "bytes_up": 1834,
                "bytes_down": 412,
                "ms": 312,
                **sending,
            },
            {
                "type": "egress.denied",
                "at": "2026-11-21T04:00:03Z",
                "method": "GET",
                "destination": "evil.example:443",
                "reason": "not granted",
            },
            {"type": "run.finished", "at": "2026-11-21T04:00:04Z", "status": "completed"},
        ],
    }
    world.ask(asked)
    async with world.console((100, 45), until="one 1.2.0") as shown:
        await shown.approve(until="REQUESTS SENT")
        for fact in (
            "POST mail.example:443/send  201",
            "1,834 B up  412 B down  312 ms",
            "as basic/mail/home",
            "GET evil.example:443  NOT LET OUT: not granted",
            "RESULT",
            "│ it is sent",
        ):
            assert fact in shown.text

        world.happen("run.finished", run="run-one", status="completed", action="one")
        await shown.press("2", until="✓ one")
        await shown.press("enter", until="run run-one: completed")
        assert "POST mail.example:443/send  201" in shown.text


async def test_an_approved_run_that_fails_is_reported(world: World) -> None:
    """The person is told that the approval counted and that the run could not be carried out."""
    asked = named("one", reversible=True)
    world.ask(asked)
    of = {"class": "network_error", "boundary": "external", "retriable": False, "audit_id": None, "details": {}}
    failed = {
        "status": "failed",
        "approval_id": asked["approval_id"],
        "audit_id": None,
        "error": {**of, "message": "it is full\x1b[2J"},
    }
    world.fake.script("POST", f"/v1/action-approvals/{asked['approval_id']}/decide", (200, failed))
    async with world.console(until="one 1.2.0") as shown:
        await shown.approve(until_told=r"approved, but it failed: it is full\x1b[2J")


async def test_the_console_reports_a_decision_that_was_made_elsewhere(world: World) -> None:
    """The decision is shown, but not who made it."""
    asked = named("one", reversible=True)
    world.ask(asked)
    async with world.console(until="one 1.2.0") as shown:
        await shown.press_settled("exclamation_mark", "A", until="any other key")
        asked["status"] = "denied"
        await shown.press_settled("y", until_told="already decided elsewhere: denied")


# the other screens


async def test_standing_grants_and_sessions_are_listed_and_can_be_ended(world: World) -> None:
    """Ending a grant or session needs a `y`; any other key keeps it."""
    world.fake.grants = [grant()]
    world.fake.script("GET", "/v1/sessions", (200, {"sessions": [session("/w")]}))
    world.fake.script("POST", "/v1/sessions/ses-1/end", (200, {}))
    async with world.console() as shown:
        await shown.press("3", until="send-mail  1 of 10,")
        assert "any arguments" in shown.text
        await shown.press("x", until="end this grant")
        await shown.press_settled("enter", until_not="end this grant")
        assert world.fake.grants == [grant()]
        await shown.press("x", until="end this grant")
        await shown.press_settled("y", until="no grants: every gated action")
        await shown.press("4", until="claude")
        await shown.press("x", until="end this session")
        await shown.press_settled("y", until=lambda: world.sent("end"))

    assert world.fake.grants == []


async def test_a_hostile_folder_name_cannot_fake_a_row_of_the_session_list(world: World) -> None:
    """A session has one row at any width, and the whole name is shown before the session is ended."""
    folder = "/tmp/" + " " * 60 + "codex        open     2026-11-21 04:00  7 runs  /home/you and then some more of it"
    world.fake.script("GET", "/v1/sessions", (200, {"sessions": [session(folder)]}))
    async with world.console() as shown:
        await shown.press("4", until="3 runs")
        for width in (80, 60, 120):
            await shown.pilot.resize_terminal(width, 24)
            await shown.until("3 runs")
            (row,) = [row for row in shown.rows if "runs" in row]
            assert row.startswith("claude ")
        await shown.until("…")
        await shown.press("x", until="end this session")
        for fact in ("session     ses-1", "agent       claude", "and then some more of it"):
            assert fact in shown.text


async def test_a_standing_grant_is_shown_in_full_before_it_is_ended(world: World) -> None:
    """Conditions that are too long for the list's row are shown too."""
    conditions = [{"argument": name, "operator": "equals", "value": "x" * 70} for name in ("to", "subject")]
    world.fake.grants = [grant(*conditions)]
    async with world.console() as shown:
        await shown.press("3", until="send-mail  1 of 10,")
        assert sum("xxx" in row for row in shown.rows) == 1
        await shown.press("x", until="end this grant")
        for fact in ("grant       g-1", "action      send-mail", "used        1 of 10", "to is", "subject is"):
            assert fact in shown.text


async def test_a_new_event_adds_one_row_to_the_event_list_and_the_cursor_stays(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the newest MOST_EVENTS are kept, in order; the selected row keeps its place on the screen."""
    monkeypatch.setattr(activity, "MOST_EVENTS", 40)
    for number in range(1, 36):
        world.happen("vault.locked", reason=f"number-{number}.")
    made: list[int] = []
    event_row = rendering.event_row

    def counted(event: dict[str, Any], width: int) -> Any:
        made.append(event["seq"])
        return event_row(event, width)

    monkeypatch.setattr(rendering, "event_row", counted)
    async with world.console() as shown:
        await shown.press("2", "l", until="number-35.")
        await shown.press(*["k"] * 6)
        rows = shown.app.query_one("#ledger", Rows)
        assert rows.chosen() == "e29"
        made.clear()
        for number in range(36, 46):
            stood = next(row for row, text in enumerate(shown.rows) if "number-29." in text)
            world.happen("vault.locked", reason=f"number-{number}.")
            await shown.until(lambda number=number: rows.get_option_at_index(-1).id == f"e{number}")  # type: ignore[misc]
            assert made == [number]
            assert rows.chosen() == "e29"
            assert "number-29." in shown.rows[stood]
            made.clear()
        assert [option.id for option in rows.options] == [f"e{number}" for number in range(6, 46)]

        await shown.press("end")
        world.happen("vault.locked", reason="the last.")
        await shown.until("the last.")
        assert rows.chosen() == "e46"


async def test_the_consoles_notifications_are_short_and_do_not_cover_a_dialog(world: World) -> None:
    """A notification may have a service's words, which must not look like a preview or hide its alarm."""
    approver = world.sign()
    asked = question(previewed())
    world.ask(asked)
    fields = [{"label": "To", "value": "mallory@evil.example", "multiline": False}]
    said = "To: mira@example.com, as the agent says. Nothing differs. " * 12
    world.fake.script(
        "POST",
        f"{ONE}/preview",
        sealed_preview(approver, asked["digest"], fields),
        error("internal_error", 500, said),
    )
    async with world.console() as shown:
        await shown.unlock(until="! To: the agent said")
        (alarm,) = [row for row in shown.rows if "! To: the agent said" in row]
        await shown.press("p", until="Nothing differs")
        assert [len(notice) for notice in shown.told] == [len("! ") + 160]
        assert shown.told[0].endswith("…")
        assert alarm in shown.rows
        await shown.press_settled("A", until="To approve, type")
        await shown.until_not("Nothing differs")
        assert any(alarm.strip() in row for row in shown.rows)


async def test_the_request_under_the_cursor_is_not_pushed_out_of_the_list_by_newer_requests(world: World) -> None:
    """Many settled requests push out the oldest settled ones, but not the one under the cursor."""
    first, second = (named(name, reversible=True) for name in ("first", "second"))
    others = [named(f"other-{number}", reversible=True) for number in range(60)]
    world.ask(first, second, *others)
    async with world.console(until="first 1.2.0") as shown:
        await shown.press("j", until="second 1.2.0")
        for request in (first, second, *others):
            world.settle(request, "cancelled")
        await shown.until(lambda: not shown.app.waiting.open)
        await shown.until(lambda: [entry.title for entry in shown.app.waiting.entries][:2] == ["second", "other-10"])
        await shown.until("second 1.2.0")
        assert shown.app.queue.chosen() == second["approval_id"]


async def test_the_consoles_system_screen_shows_the_settings_in_force(world: World) -> None:
    """The screen shows daemon, vault, approver and jail, and settings that wait for approval."""
    world.fake.settings_waiting = ["egress.private"]
    async with world.console() as shown:
        await shown.press("5", until="! waiting for approval: egress.private")
        for fact in (
            f"{__version__}, process 4242",
            "none: aileron vault init",
            "user-ns, seccomp:python",
            "aileron doctor",
        ):
            assert fact in shown.text


async def test_a_click_on_the_name_of_a_screen_opens_that_screen(world: World) -> None:
    """A click on a request selects it; neither click decides anything."""
    world.ask(named("one"), named("two"))
    async with world.console(until="one 1.2.0") as shown:
        await shown.pilot.click(offset=(5, 3))
        await shown.until("two 1.2.0")
        await shown.pilot.click(offset=(shown.rows[1].index("activity"), 1))
        await shown.until("[2 activity]")
        assert world.sent() == []


async def test_the_consoles_help_fits_a_screen_of_24_rows(world: World) -> None:
    """The whole help is there at 80 columns without scrolling, every key is listed, and Escape leads back."""
    async with world.console((80, 24)) as shown:
        await shown.press("question_mark", until="Ctrl-P  all commands   q  quit")
        box = [row.strip("│╭╮╰╯ ─") for row in shown.rows]
        for row in frame.HELP.strip().split("\n"):
            assert row.strip() in "\n".join(box), row
        assert "…" not in shown.text.replace("“…”", "")
        assert shown.app.screen.query_one("#pages").max_scroll_y == 0
        await shown.press("escape", until="[1 queue]")

    keys = [binding.key for binding in frame.KEYS if isinstance(binding, Binding)]
    for key in keys:
        name = {"1": "1–5", "2": "1–5", "3": "1–5", "4": "1–5", "5": "1–5", "question_mark": "?"}.get(key, key)
        assert re.search(rf"(?:^|\s){re.escape(frame.NAMES.get(name, name))}\s", frame.HELP + " ? "), key


@pytest.mark.parametrize(
    ("word", "command"),
    [
        ("reject", "Deny (reject, refuse) this request  (d)"),
        ("cancel", "Withdraw (cancel) this request  (u)"),
        ("search", "Filter (search, find) requests  (/)"),
        ("history", "Show activity: history of runs  (2)"),
        ("log", "Show every event (ledger, log) or runs  (l)"),
        ("select", "Select (mark) this request  (v)"),
        ("exit", "Quit (exit)  (q)"),
        ("colors", "Change theme (colours, colors, contrast)"),
    ],
)
async def test_the_command_palette_knows_common_synonyms(world: World, word: str, command: str) -> None:
    """Ctrl-P finds a command by the word of other programs. No command may save the screen to a file."""
    async with world.console((100, 45)) as shown:
        await shown.press("ctrl+p")
        await shown.type(word)
        await shown.until(command)
        assert "creenshot" not in shown.text


async def test_approved_runs_in_progress_are_counted(world: World) -> None:
    """The count stands in the first line until the run has ended."""
    held, waits = named("one"), named("two")
    world.ask(held, waits)
    async with world.console(until="2 waiting") as shown:
        assert "in progress" not in shown.rows[0]
        held["status"] = "approved"
        world.happen("approval.decided", approval=held["approval_id"])
        await shown.until("1 waiting · 1 in progress")
        held["status"] = "completed"
        world.happen("run.finished", approval=held["approval_id"])
        await shown.until_not("in progress")


async def test_a_resize_keeps_the_selected_request(world: World) -> None:
    """The size goes from wide to narrow and back, with and without a dialog above."""
    world.ask(named("one"), named("two", args={"to": "only@in.two"}))
    async with world.console((140, 45), until="one 1.2.0") as shown:
        await shown.press("j", until="only@in.two")
        assert "only@in.two" in shown.rows[4][:40]
        await shown.press_settled("exclamation_mark", "A", until="and press Enter")
        await shown.pilot.resize_terminal(60, 20)
        await shown.press("escape", until_not="and press Enter")
        await shown.until("Two")
        assert "ARGUMENTS FROM" not in shown.text
        await shown.press("enter", until="two 1.2.0")
        await shown.pilot.resize_terminal(140, 45)
        await shown.until("only@in.two", "One")


async def test_a_resize_updates_the_layout_of_an_approvals_second_step(world: World) -> None:
    """Wrapped rows of a long value stay indented below its beginning, at every width."""
    folder = "/home/me/" + " ".join(f"folder{number}" for number in range(20))
    world.ask(named("one", agent="claude", folder=folder))
    async with world.console((140, 45), until="one 1.2.0") as shown:
        await shown.press_settled("A")
        for columns in (100, 60, 140):
            await shown.pilot.resize_terminal(columns, 40)
            await shown.pilot.pause()
            box = [row.split("│")[-2] for row in shown.rows if row.count("│") >= 2 and "folder" in row.split("│")[-2]]
            assert any("│ to        mira@example.com" in row for row in shown.rows), shown.text
            more = [row for row in box if not row.startswith(" asked by  claude")]
            assert len(more) < len(box), shown.text
            assert all(row.startswith(" " * len(" asked by  ")) for row in more), shown.text
            assert more


async def test_after_several_resizes_the_console_uses_the_current_size(world: World) -> None:
    """The rows reach the edge of the new size after each of several resizes, and the right panes are shown."""
    world.ask(named("one"), named("two"))
    async with world.console((80, 24), until="one 1.2.0") as shown:
        for columns, rows in ((100, 30), (70, 20), (80, 24), (140, 45), (100, 30)):
            await shown.pilot.resize_terminal(columns, rows)
            await shown.pilot.pause()
            listed = shown.rows[2].rstrip().partition("  │")[0].rstrip()
            room = columns * 9 // 20 if columns >= frame.WIDE else columns
            assert len(listed.rstrip("│").rstrip()) == room - 2, shown.text
            assert ("one 1.2.0" in shown.text) == (columns >= frame.NARROW), shown.text


async def test_without_colours_bold_marks_alarms_and_reverse_video_marks_the_cursor(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The terminal's own colours are used: alarms are bold, the selected row is reversed, and no text is grey."""
    monkeypatch.setenv("NO_COLOR", "1")
    world.ask(named("one"), named("two"))
    async with world.console(until="! CANNOT BE UNDONE") as shown:
        drawn = [
            segment for row in shown.drawn for segment in row if segment.text.strip() and segment.style is not None
        ]
        styles = {
            text: [segment.style for segment in drawn if text in segment.text]
            for text in ("! CANNOT BE UNDONE", "One", "Two")
        }

    colours = {
        colour
        for segment in drawn
        if segment.style
        for colour in (segment.style.color, segment.style.bgcolor)
        if colour
    }
    assert {colour.is_default for colour in colours} <= {True}, colours
    assert [(style.bold, style.dim) for style in styles["! CANNOT BE UNDONE"] if style] == [(True, None)]
    assert next(bool(style.reverse) for style in styles["One"] if style)
    assert not any(style.reverse for style in styles["Two"] if style)


async def test_an_unsuitable_terminal_ends_the_console_before_any_request_to_the_daemon(world: World) -> None:
    """The person is told the reason after the console ended; the daemon got no request."""

    def check() -> None:
        raise PermissionError("this is a terminal of claude")

    world.check = check
    app = Console(DaemonClient(world.home), world.hooks(), who_else=lambda: None)
    async with app.run_test() as pilot:
        while app.refused is None:
            await pilot.pause(0.01)

    assert str(app.refused) == "this is a terminal of claude"
    assert world.fake.seen == []


async def test_quitting_the_console_wipes_the_approvers_key_and_releases_the_terminal(world: World) -> None:
    """The key `q` does both."""
    world.sign()
    async with world.console() as shown:
        await shown.unlock()
        key_session = shown.app.key_session
        await shown.press("q", until=lambda: not shown.app.is_running)

    assert not key_session.is_open
    assert not world.is_held


async def test_the_remaining_time_of_a_request_counts_down_on_the_screen(world: World) -> None:
    """The console must not show the time from when the question was loaded."""
    soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 300))
    world.ask(named("one", expires_at=soon))
    async with world.console(until="expires in 4:") as shown:
        first = shown.text.split("expires in ")[1][:4]
        await shown.until(lambda: shown.text.split("expires in ")[1][:4] != first)


@pytest.mark.parametrize(
    ("begins", "typed", "keys", "sent"),
    [
        ("A", "", ("y", "y"), ["approve"]),
        ("A", "", ("y", "x"), ["approve"]),
        ("A", "", ("n", "n"), []),
        ("A", "yes", ("enter", "enter"), ["approve"]),
        ("d", "", ("enter", "enter"), ["deny"]),
        ("d", "", ("escape", "escape"), []),
        ("u", "", ("n", "y"), []),
        ("t", "", ("1", "1"), []),
        ("question_mark", "", ("q", "escape"), []),
        ("r", "", ("r", "escape"), []),
        ("ctrl+p", "", ("escape", "escape"), []),
    ],
)
async def test_of_two_keys_pressed_together_only_the_first_answers_a_dialog(
    world: World, begins: str, typed: str, keys: tuple[str, ...], sent: list[str]
) -> None:
    """Two keys arrive together: the first is the answer, the second does nothing, and the console keeps running."""
    world.fake.script("POST", "/v1/grants", error("invalid_request", 400, "not here"))
    world.ask(named("pay", reversible=not typed))
    async with world.console(until="pay 1.2.0") as shown:
        await shown.press_settled(
            "exclamation_mark", begins, until=lambda: shown.app.screen is not shown.app.default_screen
        )
        await shown.settled()
        await shown.type(typed)
        await shown.press_at_once(*keys)
        await shown.until(lambda: shown.app.screen is shown.app.default_screen)
        await shown.until(lambda: len(world.sent()) == len(sent))
        await shown.pilot.pause(0.2)
        assert shown.app.is_running

    assert [body["decision"] for body in world.sent()] == sent


async def test_the_message_of_a_console_crash_claims_no_decision_and_no_prompt_follows(world: World) -> None:
    """The message says to check, because a decision may have been sent. No prompt may follow the console's end."""
    world.sign()
    world.ask(named("pay", reversible=True))
    app = Console(DaemonClient(world.home), world.hooks(), who_else=lambda: None)

    said: list[str] = []

    async def broken() -> None:
        async with app.run_test() as pilot:
            await pilot.pause()
            app._handle_exception(ZeroDivisionError())
            said.extend(str(renderable) for renderable in app._exit_renderables)
            with pytest.raises(KeyboardInterrupt, match="the console ends"):
                app.ask_away("Approver passphrase, to approve pay")

    with pytest.raises(ZeroDivisionError):
        await broken()

    assert [message.partition("; ")[2] for message in said] == [
        "check whether a decision was made: aileron approval list"
    ]
    assert world.asked_for == []


async def test_the_decision_that_is_to_be_signed_is_printed_above_the_passphrase_prompt(world: World) -> None:
    """The prompt replaces the console's screen, so each request's name and deciding facts are printed there."""
    world.sign()
    world.ask(named("read-mail", reversible=True), named("pay-all"), named("other", reversible=True))
    async with world.console(not_kept="this is a terminal of tmux", until="read-mail 1.2.0") as shown:
        await shown.press("j", until="pay-all 1.2.0")
        await shown.approve("yes", until=lambda: world.sent())
        await shown.press("g", "home", "v", "end", "v", until="● ~ undeclared Other")
        await shown.press_settled("d", until="deny 2 requests")
        await shown.enter("no", until=lambda: len(world.sent()) == 3)

    assert world.asked_for == [
        "Approver passphrase, to approve pay-all",
        "Approver passphrase, to deny read-mail",
        "Approver passphrase, to deny other",
    ]
    first, second, third = world.said_above
    assert "\nPay all: to" in first
    assert "\n! CANNOT BE UNDONE" in first
    assert "goes to   mail.example:443" in first
    assert "\nRead mail: to" in second
    assert "\n~ effect not declared · can be undone" in second
    assert "\nOther: to" in third


async def test_no_second_prompt_follows_an_interrupted_passphrase_prompt(world: World) -> None:
    """A program that sends keys must not put another prompt under the hands of a person who is typing."""
    world.sign()
    world.ask(named("read-mail", reversible=True), named("pay-all", reversible=True))
    ask, asked = world.ask_passphrase, []

    def interrupted(question: str) -> Secret:
        asked.append(question)
        raise KeyboardInterrupt

    world.ask_passphrase = interrupted
    async with world.console(
        not_kept="this is a terminal of tmux", clock=lambda: 0.0, until="read-mail 1.2.0"
    ) as shown:
        await shown.approve(until=lambda: asked)
        world.ask_passphrase = ask
        shown.rested()  # as for a person who selects with the mouse and types nothing
        await shown.press("n", until="pay-all 1.2.0")
        await shown.approve(until_told="another passphrase prompt was open just now: wait 3 s")
        assert world.asked_for == []
        world.fake.passphrase, world.fake.is_locked = "the vault's", True
        world.happen("vault.locked")
        await shown.until("! vault locked")
        await shown.press("V", until_told="wait 3 s")
        assert world.asked_for == []
        world.fake.is_locked = False
        world.happen("vault.unlocked")
        await shown.until_not("! vault locked")
        await shown.press("N", until="read-mail 1.2.0")
        await shown.approve(until=lambda: world.sent())

    assert asked == world.asked_for == ["Approver passphrase, to approve read-mail"]
    assert [name.rpartition("0000-")[2] for name in world.sent_to()] == ["read-mail"]


async def test_a_request_that_needs_its_preview_is_not_approved_without_it(world: World) -> None:
    """The key `A` shows the reason; once the preview was loaded and shown, an approval counts."""
    approver, asked = world.sign(), question(rehearsed())
    world.ask(asked)
    fields = [{"label": "To", "value": "mira@example.com", "multiline": False}]
    failed = sealed_preview(approver, asked["digest"], None, "no such table")
    world.fake.script("POST", f"{ONE}/preview", failed, sealed_preview(approver, asked["digest"], fields))
    async with world.console((80, 45), until="current state not loaded") as shown:
        await shown.press_settled("A", until_told="current state not loaded: press p")
        await shown.press("p", until="could not be tried, so it cannot be approved")
        await shown.press_settled("A", until_told="this one failed: no such table; load it again, or deny it")
        assert world.sent() == []
        await shown.press("p", until="WHAT IT WOULD DO")
        await shown.approve("yes", until=lambda: world.sent())

    assert [body["decision"] for body in world.sent()] == ["approve"]


async def test_a_run_approved_with_its_preview_shows_its_result(world: World) -> None:
    """The digest is then that of the plan with the preview, which only the approver can compute."""
    approver = world.sign()
    asked = question(previewed())
    fields = [{"label": "Path", "value": "is read", "multiline": False}]
    world.fake.script("POST", f"{ONE}/preview", sealed_preview(approver, asked["digest"], fields))
    world.ask(asked)
    async with world.console() as shown:
        await shown.unlock(until="is read")
        await shown.approve("yes", until="✓ done")
        await shown.until("REQUESTS SENT")

    assert world.sent()[0]["digest"] != asked["digest"]


@pytest.mark.parametrize("how", ["broken off", "wrong"])
async def test_keystrokes_after_a_failed_passphrase_prompt_are_ignored(
    world: World, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The rest of a passphrase must not become commands, or text for an agent that stands in clear on the screen."""
    world.sign()
    world.ask(named("one", reversible=True))
    for name in ("REST_S", "DEAF_S"):
        monkeypatch.setattr(input_guard, name, 3600.0)  # longer than any busy machine takes
    asked: list[str] = []

    def broken(question: str) -> Secret:
        asked.append(question)
        if how == "broken off":
            raise KeyboardInterrupt
        return Secret(b"a guess")

    ask, world.ask_passphrase = world.ask_passphrase, broken
    async with world.console(not_kept="this is a terminal of tmux", until="one 1.2.0") as shown:
        await shown.approve(until=lambda: len(asked) == (1 if how == "broken off" else 3))
        await shown.pilot.pause()
        for key in ("m", "i", "l", "d", "slash", "D", "e", "2", "q", "enter"):
            await shown.press(key)
        assert len(shown.app.screen_stack) == 1
        assert "[1 queue]" in shown.text
        assert sum("keys work again after" in notice for notice in shown.told) == 1
        shown.rested()
        world.ask_passphrase = ask
        await shown.approve(until=lambda: world.sent())

    assert world.sent("ask") == []


async def test_keystrokes_between_two_passphrase_tries_are_ignored(world: World) -> None:
    """A person who pressed Enter too early types on while the guess is checked; the next guess is right."""
    world.sign()
    world.ask(named("one", reversible=True))
    tries = [b"a guess", world.passphrase.encode()]
    async with world.console() as shown:

        def typing(_: str) -> Secret:
            for key in "mil":
                shown.app.post_message(Key(key, key))
            return Secret(tries.pop(0))

        world.ask_passphrase = typing
        await shown.until("one 1.2.0")
        await shown.unlock()
        await shown.pilot.pause()
        assert (tries, len(shown.app.screen_stack)) == ([], 1)
        await shown.press("question_mark", until="!   needs attention")


async def test_keystrokes_after_an_editor_was_killed_are_ignored(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The person may still be typing in the editor; after an editor that ended normally, keys count at once."""
    world.ask(named("one", reversible=True))
    for name in ("REST_S", "DEAF_S"):
        monkeypatch.setattr(input_guard, name, 3600.0)

    def killed(_: str) -> str:
        raise ValueError("the editor was killed")

    async with world.console(until="one 1.2.0") as shown:
        await shown.press_settled("e", "question_mark", until="!   needs attention")
        await shown.press("escape")
        world.edit = killed
        await shown.press_settled("e", until_told="the editor was killed")
        await shown.press("question_mark", until_told="keys work again after 3 s without a key press")
        assert "!   needs attention" not in shown.text


async def test_two_keystrokes_lock_the_vault_and_its_passphrase_unlocks_it(world: World) -> None:
    """Locking asks first and says which runs will fail; Escape then leaves the vault open."""
    world.fake.passphrase, world.fake.is_locked = "the vault's", False
    async with world.console(until="vault open") as shown:
        for key, is_locked in (("escape", False), ("y", True)):
            await shown.press("V", until="runs that need a credential fail")
            await shown.press_settled(key, until_not="runs that need a credential fail")
            await shown.until("! vault locked" if is_locked else "vault open")
            assert world.fake.is_locked is is_locked
        world.passphrase = "the vault's"
        await shown.press("V", until="vault open")

    assert world.asked_for == ["Vault passphrase"]


async def test_the_key_space_scrolls_the_question_while_the_cursor_is_in_the_list(world: World) -> None:
    """The person reads the whole question without leaving its row; End would go to another question."""
    world.ask(named("one", reversible=True, args={"body": "\n".join(f"line {n}" for n in range(40))}), named("two"))
    async with world.console(until="↓ more (Space)") as shown:
        for _ in range(6):
            await shown.press("space")
        await shown.until("▸ proof", " A approve · d deny")
        assert shown.app.selected == "act-20261121T040000-one"


async def test_without_a_browser_the_review_address_is_copied_to_the_clipboard(world: World) -> None:
    """The address also stands in one row of the screen."""
    status = world.fake._status()
    world.fake.script("GET", "/v1/status", (200, {**status, "web": "http://localhost:20480"}))
    world.ask(named("one"))
    async with world.console(until="one 1.2.0") as shown:
        await shown.press("o", until_told="no browser here; copied http://localhost:")
        assert shown.app.clipboard.endswith("/approvals/act-20261121T040000-one")
        assert any(shown.app.clipboard in row for row in shown.rows)


@pytest.mark.parametrize(
    ("opens", "told"), [(None, "(IndexError)"), (False, "could not open a browser for http://localhost:")]
)
async def test_a_browser_that_does_not_open_is_reported(
    world: World, monkeypatch: pytest.MonkeyPatch, opens: bool | None, told: str
) -> None:
    """The console keeps running: Python's webbrowser raises IndexError if BROWSER is blank."""

    def open_page(address: str) -> bool:
        if opens is None:
            raise IndexError
        return opens

    monkeypatch.setattr(webbrowser, "open", open_page)
    status = world.fake._status()
    world.fake.script("GET", "/v1/status", (200, {**status, "web": "http://localhost:20480"}))
    monkeypatch.setenv("DISPLAY", ":0")
    world.ask(named("one"))
    async with world.console(until="one 1.2.0") as shown:
        await shown.press("o", until_told=told)
        await shown.press("2", until="[2 activity]")


async def test_a_locked_vault_is_reported_before_the_passphrase_prompt(world: World) -> None:
    """A passphrase would be typed in vain: the vault holds who may decide, so no decision counts."""
    world.sign()
    world.fake.passphrase = "the vault's"
    world.ask(named("one", reversible=True))
    async with world.console() as shown:
        await shown.until("! vault locked", "one 1.2.0")
        await shown.press_settled("A", until_told="the vault is locked, and holds who may decide: V unlocks it")

    assert world.sent() == []
