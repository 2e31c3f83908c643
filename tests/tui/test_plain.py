"""The console in lines, as a real command at a real terminal: what it prints, what it takes for a yes, and what it does not.

Its dialogues are golden files too (tests/support/screens.py), with the time that is left put as `later`.
"""

from __future__ import annotations

import datetime
import re
import signal
from typing import Any

import psutil
import pytest

from aileron import __version__
from aileron.model.manifest import ApprovalRule
from tests.cli.command import Command, Said
from tests.cli.person import APPROVER
from tests.cli.questions import (
    ONE,
    SUBJECTS,
    difference,
    grant,
    previewed,
    question,
    rehearsed,
    sealed_preview,
    session,
    subject_question,
)
from tests.support.fake_daemon import Seen, error
from tests.support.hostile_text import GROUPS, as_in_a_file, assert_harmless
from tests.support.screens import is_like
from tests.support.waiting import wait_signalled, wait_until
from tests.tui.consoles import World, named

pytestmark = pytest.mark.usefixtures("real_processes")  # some look for the processes that one is made of
QUIT = ("> ", "quit")
UNLOCK = [("> ", "unlock"), ("to decide for 15 minutes: ", APPROVER)]
WORD = "not decided): "


def dialogue(world: World, *answers: Any, **more: str) -> Said:
    """`aileron console --plain`, with these answers to what it asks; it ends well."""
    said = Command(world.home).at_terminal("console", "--plain", answers=[*answers, QUIT], **more)
    assert said.code == 0, said
    assert APPROVER not in said.out
    return said


def consoles() -> list[psutil.Process]:
    """The processes of the console that runs; among this process's children are some of other tests that nobody waited for."""
    children = psutil.Process().children(recursive=True)
    return [child for child in children if child.status() != psutil.STATUS_ZOMBIE and "--plain" in child.cmdline()]


def go_on(processes: list[psutil.Process]) -> None:
    """As after they were stopped; each has heard of it."""
    for process in processes:
        process.send_signal(signal.SIGCONT)
    wait_signalled(*(process.pid for process in processes))


def still(said: Said) -> str:
    """What was shown, without how much time is left."""
    return re.sub(r"expires in [0-9]+ d|[0-9]+:[0-9]{2} left", "expires later", said.out)


def contradicted(world: World) -> dict[str, Any]:
    """A run of which its preview says something else than its arguments."""
    approver = world.sign()
    changes = [{"where": "args.to (new)", "before": "a@b", "after": "mira@example.com"}]
    said = [{"question": "why?", "answer": "The user agreed."}]
    asked = question(
        previewed(),
        agent="claude",
        folder="/w",
        conversation=said,
        difference=difference(*changes),
    )
    fields = [{"label": "To", "value": "mallory@evil.example", "multiline": False}]
    world.fake.script("POST", f"{ONE}/preview", sealed_preview(approver, asked["digest"], fields))
    return asked


def test_a_dialogue_with_all_that_is_said(world: World) -> None:
    """What waits, all of one with its alarm, a word that is wrong, one that is right, what came of it."""
    world.ask(
        contradicted(world), subject_question(SUBJECTS["binding"], approval_id="act-20261121T040001-b", agent="codex")
    )
    said = dialogue(
        world,
        ("> ", "help"),
        *UNLOCK,
        ("> ", "approve 1"),
        (WORD, "send-mail"),
        ("> ", "approve 1"),
        (WORD, "yes"),
        ("> ", "show 2"),
        ("> ", "deny 2 not today"),
        ("> ", "list"),
    )

    assert [body["decision"] for body in world.sent()] == ["approve", "deny"]
    assert world.sent()[1]["reason"] == "not today"
    is_like("plain.txt", still(said))


def test_a_word_that_was_typed_before_it_was_asked_for_decides_nothing(world: World) -> None:
    """As a paste of command and word would have it; typed after the question it does."""
    world.ask(question())
    said = dialogue(world, ("> ", "approve 1\nyes"), (WORD, "no"), ("> ", "approve 1"), (WORD, "yes"))

    assert said.out.count("\nnot decided") == 1
    assert len(world.sent()) == 1


def test_lines_that_are_typed_ahead_are_commands_one_after_the_other(world: World) -> None:
    """None waits for another key."""
    world.ask(question())
    said = dialogue(world, ("> ", "list\nstatus"), (f"daemon      {__version__}", ""))

    assert said.out.count("1 ! UNDECLARED  Send mail: to") == 2


def test_what_can_be_undone_takes_yes(world: World) -> None:
    """A whole word here too, after all of it was printed."""
    world.ask(named("one", reversible=True))
    dialogue(world, ("> ", "approve 1"), (WORD, "y"), ("> ", "approve 1"), (WORD, "yes"))

    assert len(world.sent()) == 1


def test_a_question_that_changed_is_printed_again_before_it_is_decided(world: World) -> None:
    """A yes counts for what stands above it."""
    asked = named("one", reversible=True)
    other = named("one", reversible=True, args={"to": "mallory@evil.example"})
    world.ask(asked)

    def change() -> str:
        world.replace(asked, plan=other["plan"], digest=other["digest"])
        return "approve 1"

    said = dialogue(world, ("> ", "show 1"), ("> ", change), (WORD, "yes"))

    assert said.out.rindex("mallory@evil.example") < said.out.rindex(WORD)
    assert world.sent()[0]["digest"] == other["digest"]


@pytest.mark.parametrize("is_first", [True, False], ids=["nothing waited", "something waited"])
def test_what_comes_and_what_is_settled_is_said(world: World, is_first: bool) -> None:
    """When it happens, without a key."""
    if not is_first:
        world.ask(named("before"))
    asked = named("after")

    def come() -> str:
        world.ask(asked)
        return ""

    def go() -> str:
        world.settle(asked, "denied")
        return ""

    number = 1 if is_first else 2
    said = dialogue(world, ("> ", come), (f"new: {number} ! UNDECLARED  After", go), (f"settled: {number} After", ""))

    assert "new: " in said.out


def test_what_nobody_can_say_the_end_of_waits_no_more_in_lines_too(world: World) -> None:
    """And why is said with it."""
    asked = subject_question(SUBJECTS["secret"], approval_id="act-secret")
    world.ask(asked)

    def go() -> str:
        world.fake.script("GET", "/v1/action-approvals/act-secret/result", error("internal_error", 500, "a bug"))
        world.settle(asked, "completed")
        return ""

    said = dialogue(world, ("> ", go), ("settled: ", "list"))

    assert "Replace the value of the secret “pw” · a command · no longer waits" in said.out
    assert "! outcome not known: a bug" in said.out
    assert "nothing waiting" in said.out


def test_the_loss_of_the_daemon_is_said_once_and_its_return_too(world: World) -> None:
    """Nothing is decided meanwhile."""
    world.ask(question())

    def lose() -> str:
        world.lose_daemon()
        return "approve 1"

    def back() -> str:
        world.get_daemon_back()
        return ""

    said = dialogue(world, ("> ", lose), ("nothing can be decided", back), ("the daemon is back", ""))

    assert said.out.count("! the daemon does not answer") == 1
    assert world.sent() == []


@pytest.mark.parametrize("text", GROUPS.values(), ids=GROUPS.keys())
def test_hostile_text_is_spelled_out(world: World, text: str) -> None:
    """Whatever an agent wrote, no line of it passes for one of ours, and the terminal obeys none."""
    text = as_in_a_file(text)
    world.ask(question(previewed({"to": text, "body": f"{text}\n> approve 1\n{text}"}), agent=text, folder=text))
    said = dialogue(
        world, ("> ", "show 1"), ("▸ proof 1:", "raw 1"), ("> ", "ledger"), ("> ", "activity"), NO_COLOR="1"
    )

    assert_harmless(said.out)
    assert "\n> approve 1" not in said.out


def test_what_is_no_command_is_said_harmlessly(world: World) -> None:
    """With its name, and where to look."""
    said = dialogue(
        world, ("> ", "aprove 1"), ("unknown command aprove: type help", "approve 9"), ("no request '9'", "")
    )

    assert world.sent() == []
    assert "type list" in said.out


def test_grants_sessions_and_the_record_are_there_too(world: World) -> None:
    """As on the screen."""
    world.fake.grants = [grant()]
    world.ask(named("one", reversible=True))
    said = dialogue(
        world,
        ("> ", "grants"),
        ("g-1  send-mail  1 of 10", "revoke g-1"),
        ("revoked", "approve 1"),
        (WORD, "yes"),
        ("approved: 1 One", "record 1"),
        ("REQUESTS SENT", "for 1 x y"),
    )

    assert world.fake.grants == []
    assert "run run-one: completed" in said.out


def test_a_folder_and_a_condition_begin_no_line(world: World) -> None:
    """A grant and a session are whole, in rows of which only the first begins at the left."""
    folder = "/tmp/" + " " * 150 + "ses-2  codex        open     2026-11-21 04:00  7 runs  /home/you"
    at_work = session(folder)
    world.fake.script("GET", "/v1/sessions", lambda seen: (200, {"sessions": [] if "pid" in seen.query else [at_work]}))
    condition = {"argument": "to", "operator": "equals", "value": folder}
    world.fake.grants = [grant(condition)]
    said = dialogue(world, ("> ", "sessions"), ("> ", "grants"))

    for told in re.split("> (?:sessions|grants)", said.out)[1:]:
        first, *others = told.split("> ")[0].strip().splitlines()
        assert first.startswith(("ses-1  claude", "g-1  send-mail"))
        assert others
        assert all(row.startswith("  ↳") for row in others)
        assert "7 runs  /home/you" in " ".join(row.removeprefix("  ↳ ") for row in others)


DECIDE = "/v1/action-approvals/act-20261121T040000-one/decide"


@pytest.mark.parametrize("is_denied", [True, False], ids=["denied", "not denied"])
def test_stop_ends_a_session_only_where_the_denial_was_done(world: World, is_denied: bool) -> None:
    """Where it failed the agent goes on, and the person is told why."""
    world.ask(named("one", session="ses-1", agent="claude"))
    world.fake.script("POST", "/v1/sessions/ses-1/end", (200, {"ended": "ses-1"}))
    if not is_denied:
        world.fake.script("POST", DECIDE, error("busy", 503, "another command is at it"))
    said = dialogue(world, ("> ", "stop 1 enough"))

    assert len(world.sent()) == 1
    assert len(world.sent("end")) == is_denied
    assert ("session ended" in said.out) == is_denied
    assert ("! another command is at it" in said.out) == (not is_denied)


def test_an_answer_that_is_lost_is_not_taken_for_a_no(world: World) -> None:
    """It may have been decided: that is said, and looked up."""
    asked = named("one", reversible=True)
    world.ask(asked)

    def lost(_: Seen) -> Any:
        world.settle(asked, "completed")
        raise ConnectionResetError

    world.fake.script("POST", DECIDE, lost)
    said = dialogue(world, ("> ", "approve 1"), (WORD, "yes"))

    assert "it is not known whether this was decided" in said.out
    assert "· a command, now: done" in said.out
    assert "nothing can be decided" not in said.out


def test_a_daemon_that_refuses_at_first_ends_no_console(world: World) -> None:
    """What it said is said; later it answers."""
    world.ask(named("one"))
    route = ("GET", "/v1/action-approvals")
    world.fake.script(*route, error("internal_error", 500, "not yet"), error("internal_error", 500, "not yet"))

    def mend() -> str:
        world.fake.script(*route, (200, {"approvals": world.fake.approvals}))
        return "list"

    said = dialogue(world, ("> ", mend), ("1 ! UNREAD  one", ""))

    assert said.out.count("! not yet") >= 2


def test_an_answer_that_is_none_ends_no_command_but_its_own(world: World) -> None:
    """A preview, a question, a record that is something else."""
    world.ask(contradicted(world), named("one", conversation=["x"]))
    world.fake.script("POST", f"{ONE}/preview", (200, [1]))
    said = dialogue(
        world,
        *UNLOCK,
        ("left", "preview 1"),
        ("daemon: Expected `object`, got `array`", "show 2"),
        ("! unexpected answer", ""),
    )

    folded = " ".join(said.out.split())  # by the terminal too, where the prompt stood before it
    assert "unexpected answer from the daemon: Expected `object`, got `str` - at ↳ `$.conversation[0]`" in folded


def test_the_rest_of_a_passphrase_is_neither_shown_nor_a_command(world: World) -> None:
    """A signal of anybody's ends the question, and who types does not see it so soon."""
    world.sign()
    world.ask(named("one", reversible=True))

    def break_off() -> str:
        for child in consoles():
            if not child.children():
                child.send_signal(signal.SIGINT)
                wait_signalled(child.pid)
        return "the rest of it"

    asked = ("Approver passphrase, to deny one:", break_off)
    said = dialogue(
        world, ("> ", "deny 1 no"), asked, ("> ", "deny 1 no"), ("to deny one:", APPROVER), ("denied: 1", "")
    )

    assert "the rest of it" not in said.out
    assert "unknown command" not in said.out
    assert [body["decision"] for body in world.sent()] == ["deny"]


def test_what_the_key_has_opened_is_not_shown_after_it_is_locked(world: World) -> None:
    """`show` has the preview while the key is open, and not after `lock`."""
    world.ask(contradicted(world))
    said = dialogue(
        world, *UNLOCK, ("left", "preview 1"), ("▸ proof 1:", "show 1"), ("▸ proof 1:", "lock"), ("is locked", "show 1")
    )

    before, after = said.out.split("> lock") if "> lock" in said.out else said.out.rsplit("the key is locked", 1)
    assert before.count("mallory@evil.example") >= 2
    assert "mallory@evil.example" not in after
    assert "current state not loaded" in after


@pytest.mark.parametrize("is_shown", [False, True], ids=["failed", "shown"])
def test_what_only_its_preview_may_change_takes_no_yes_without_it(world: World, *, is_shown: bool) -> None:
    """The reason is in place of the word that would be asked for; a no is taken."""
    rule = ApprovalRule(required=True, irreversible=False)
    approver, asked = world.sign(), question(rehearsed(approval=rule))
    world.ask(asked)
    fields = [{"label": "To", "value": "mira@example.com", "multiline": False}] if is_shown else None
    problem = None if is_shown else "no such table"
    world.fake.script("POST", f"{ONE}/preview", sealed_preview(approver, asked["digest"], fields, problem))
    answers = [(WORD, "no"), ("not decided", "deny 1")] if is_shown else [("tells the agent", "deny 1")]
    said = dialogue(
        world,
        *UNLOCK,
        ("left", "for 1 2 5"),
        ("only what a preview showed is changed", "approve 1"),
        *answers,
    )

    assert ("this one failed: no such table; load it" in re.sub(r"\s+(↳ )?", " ", said.out)) is not is_shown
    assert (WORD in said.out) is is_shown
    assert [one["decision"] for one in world.sent()] == ["deny"]


def test_in_tmux_one_passphrase_loads_previews_and_a_yes_takes_another(world: World) -> None:
    """`preview` says what it opens; `show` has it after that, a yes is asked for by name, and `lock` ends it."""
    world.ask(contradicted(world))
    said = dialogue(
        world,
        ("> ", "preview 1"),
        ("Approver passphrase, to load previews for 15 minutes", APPROVER),
        ("▸ proof 1:", "status"),
        ("previews are open, 1", "approve 1"),
        (WORD, "yes"),
        ("Approver passphrase, to approve send-mail", APPROVER),
        ("settled: 1", "lock"),
        ("the passphrase is asked for each time: this is a terminal of tmux", "list"),
        TMUX="/tmp/tmux-0/default,1,0",
    )

    assert said.out.count("Approver passphrase") == 2
    assert len(world.sent()) == 1


def test_a_console_that_goes_on_amid_what_it_says_locks_the_key_and_says_so(world: World) -> None:
    """It waits for a terminal that is not read, in the middle of a write; the handler of the signal may not write then."""
    world.sign()

    def after_the_first() -> str:
        children = consoles()
        wait_until(
            lambda: {child.status() for child in children} == {"sleeping"}, "the terminal holds no more of the help"
        )
        go_on(children)
        return "status"

    asked = [*UNLOCK, ("> ", "help\n" * 400), ("quit", after_the_first), ("key is locked", "")]
    said = dialogue(world, *asked, PYTHONUNBUFFERED="")  # as people have it: unbuffered, io allows it

    assert "internal error" not in said.out
    assert said.out.count("the approver's key is locked: the console was suspended") == 1


@pytest.mark.parametrize("goes_on", [False, True])
def test_what_was_printed_is_signed_or_nothing_is(world: World, *, goes_on: bool) -> None:
    """With its preview. A console that was stopped while the word is asked for has forgotten that, and decides nothing."""
    asked = contradicted(world)
    world.ask(asked)

    def word() -> str:
        if goes_on:
            go_on(consoles())
        return "yes"

    said = dialogue(world, *UNLOCK, ("> ", "approve 1"), (WORD, word))

    assert ("the key was locked since" in said.out) is goes_on
    assert len(world.sent()) == (0 if goes_on else 1)
    assert all(body["digest"] != asked["digest"] for body in world.sent())


def test_a_passphrase_for_a_no_is_asked_for_with_what_it_denies_above_it(world: World) -> None:
    """By name, with all that matters, where the key is not open."""
    world.sign()
    world.ask(named("pay-all"))
    said = dialogue(world, ("> ", "deny 1 no"), ("Approver passphrase, to deny pay-all: ", APPROVER))

    assert "Pay all: to" in said.out
    assert "! CANNOT BE UNDONE" in said.out
    assert [body["decision"] for body in world.sent()] == ["deny"]


def test_several_are_denied_after_a_yes(world: World) -> None:
    """Named again first, since a reason may begin with a number; what is no number of a question is the reason."""
    world.ask(*(named(name) for name in ("one", "two", "three")))
    several = "To deny all of these"
    dialogue(
        world,
        ("> ", "deny 1 3 no more"),
        (several, "no"),
        ("> ", "deny 1 3 no more"),
        (several, "yes"),
        ("> ", "deny 2 7 days is too long"),
        ("denied: 2", ""),
    )

    assert [(one[-3:], body["reason"]) for one, body in zip(world.sent_to(), world.sent(), strict=True)] == [
        ("one", "no more"),
        ("ree", "no more"),
        ("two", "7 days is too long"),
    ]


def test_a_filter_lists_only_what_has_its_words(world: World) -> None:
    """It says so; without words it is gone."""
    world.ask(named("one", agent="claude"), named("two", agent="codex"))
    said = dialogue(
        world,
        ("> ", "filter agent:codex"),
        ("! filtered: agent:codex", "filter nothing like it"),
        ("nothing matches", "filter"),
        ("2 ! UNDECLARED  Two: to", ""),
    )

    only = said.out.split("filter agent:codex")[-1].split("! filtered")[0]
    assert "UNDECLARED  Two" in only
    assert "UNDECLARED  One" not in only


def test_what_happened_is_told_run_by_run_and_the_hour_in_numbers(world: World) -> None:
    """Under who asked; a screen reader gets no bars."""
    at = datetime.datetime.now(datetime.UTC).isoformat()
    state = {"status": "completed", "audit_id": "run-9", "action": "send-mail", "result": {"id": "m-1"}}
    world.fake.script("GET", "/v1/runs/run-9", (200, state))
    world.fake.script("GET", "/v1/audit/run-9", (200, {"audit_id": "run-9", "status": "completed", "events": []}))
    steps = [{"id": "one", "op": "send_mail"}]
    world.happen(
        "run.requested", run="run-9", session="local", action="send-mail", args={"to": "a@b.test"}, steps=steps, at=at
    )
    world.happen("run.finished", run="run-9", session="local", action="send-mail", status="completed", at=at)
    said = dialogue(world, ("> ", "activity"), ("last hour", "run 1"), ("run run-9: completed", ""))

    for row in ("Local commands, no agent · 1 run", "1 ✓ Send mail: to “a@b.test”", "asked · ✓ done: id “m-1”"):
        assert row in said.out
    assert "local command: 1 run, 0 waits, 0 denied" in said.out
    assert "█" not in said.out


def test_a_run_is_read_from_the_ledger_by_its_number(world: World) -> None:
    """With every request that left; an event of none says so."""
    denied = {"type": "egress.denied", "method": "GET", "destination": "evil.example:443", "reason": "not granted"}
    record = {"audit_id": "run-9", "status": "failed", "events": [{"at": "2026-11-21T04:00:00Z", **denied}]}
    world.fake.script("GET", "/v1/audit/run-9", (200, record))
    world.happen("vault.unlocked")
    world.happen("run.finished", run="run-9")
    said = dialogue(
        world,
        ("> ", "run 2"),
        ("type activity or ledger", "ledger"),
        ("run.finished", "run 1"),
        ("no run '1'", "run 2"),
        ("EVENTS", ""),
    )

    assert "run run-9: failed" in said.out
    assert "NOT LET OUT: not granted" in said.out


@pytest.mark.parametrize("web", ["http://localhost:4711", "http://evil.example:80", ""])
def test_the_page_of_a_question_is_printed(world: World, web: str) -> None:
    """Where it is one of this machine's."""
    world.ask(named("one"))
    status = world.fake._status()
    world.fake.script("GET", "/v1/status", (200, {**status, "web": web}))
    said = dialogue(world, ("> ", "open 1"))

    is_here = web == "http://localhost:4711"
    assert ("http://localhost:4711/approvals/act-20261121T040000-one" in said.out) == is_here
    assert ("no web page for this request" in said.out) != is_here
    assert "evil.example:80" not in said.out
