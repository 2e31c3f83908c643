"""The console in plain mode, as a real command at a real terminal: its output, and the answers that count as a yes.

The dialogues are golden files too (tests/support/screens.py), with `later` in place of the remaining time.
"""

from __future__ import annotations

import datetime
import os
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
from tests.support.descendants import read_descendants
from tests.support.fake_daemon import Seen, error
from tests.support.hostile_text import GROUPS, as_in_a_file, assert_harmless
from tests.support.screens import is_like
from tests.support.waiting import wait_signalled, wait_until
from tests.tui.consoles import World, named

pytestmark = pytest.mark.usefixtures("real_processes")  # some tests look for the console's processes
QUIT = ("> ", "quit")
UNLOCK = [("> ", "unlock"), ("to decide for 15 minutes: ", APPROVER)]
WORD = "not decided): "


def dialogue(world: World, *answers: Any, **more: str) -> Said:
    """Run `aileron console --plain` with these answers to its prompts; check that it exits with 0."""
    said = Command(world.home).at_terminal("console", "--plain", answers=[*answers, QUIT], **more)
    assert said.code == 0, said
    assert APPROVER not in said.out
    return said


def consoles() -> list[psutil.Process]:
    """Return the processes of the running console; this process may have children of other tests as well."""
    children = read_descendants(os.getpid(), lambda child: child.status() != psutil.STATUS_ZOMBIE and child.cmdline())
    return [child for child, command in children.items() if command and "--plain" in command]


def go_on(processes: list[psutil.Process]) -> None:
    """Continue these processes after a stop; wait until each has handled the signal."""
    for process in processes:
        process.send_signal(signal.SIGCONT)
    wait_signalled(*(process.pid for process in processes))


def still(said: Said) -> str:
    """Return the output without remaining times."""
    return re.sub(r"expires in [0-9]+ d|[0-9]+:[0-9]{2} left", "expires later", said.out)


def contradicted(world: World) -> dict[str, Any]:
    """Return a question whose preview contradicts its arguments."""
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


def test_a_whole_dialogue_in_plain_mode(world: World) -> None:
    """The list, a request with its alarm, a wrong word, the right word, and the results match the golden file."""
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


def test_a_word_typed_before_its_prompt_decides_nothing(world: World) -> None:
    """A pasted command with the word is such a case; typed after the prompt, the word counts."""
    world.ask(question())
    said = dialogue(world, ("> ", "approve 1\nyes"), (WORD, "no"), ("> ", "approve 1"), (WORD, "yes"))

    assert said.out.count("\nnot decided") == 1
    assert len(world.sent()) == 1


def test_lines_typed_ahead_are_commands_in_their_order(world: World) -> None:
    """Each runs without a further key."""
    world.ask(question())
    said = dialogue(world, ("> ", "list\nstatus"), (f"daemon      {__version__}", ""))

    assert said.out.count("1 ! UNDECLARED  Send mail: to") == 2


def test_a_run_that_can_be_undone_takes_the_word_yes(world: World) -> None:
    """A whole word is needed here too; `y` is not enough."""
    world.ask(named("one", reversible=True))
    dialogue(world, ("> ", "approve 1"), (WORD, "y"), ("> ", "approve 1"), (WORD, "yes"))

    assert len(world.sent()) == 1


def test_a_changed_request_is_printed_again_before_it_is_decided(world: World) -> None:
    """A yes counts for the text above it."""
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
def test_new_and_settled_requests_are_announced(world: World, is_first: bool) -> None:
    """The announcement comes at once, without a key press."""
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


def test_a_settled_request_with_an_unknown_outcome_is_reported(world: World) -> None:
    """The reason is printed with it."""
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


def test_losing_the_daemon_is_reported_once_and_so_is_its_return(world: World) -> None:
    """Decisions are refused meanwhile."""
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
def test_hostile_text_is_escaped(world: World, text: str) -> None:
    """The terminal obeys nothing that an agent wrote, and no line of it passes for one of ours."""
    text = as_in_a_file(text)
    world.ask(question(previewed({"to": text, "body": f"{text}\n> approve 1\n{text}"}), agent=text, folder=text))
    said = dialogue(
        world, ("> ", "show 1"), ("▸ proof 1:", "raw 1"), ("> ", "ledger"), ("> ", "activity"), NO_COLOR="1"
    )

    assert_harmless(said.out)
    assert "\n> approve 1" not in said.out


def test_an_unknown_command_is_reported_safely(world: World) -> None:
    """The message names the command, and says where to look."""
    said = dialogue(
        world, ("> ", "aprove 1"), ("unknown command aprove: type help", "approve 9"), ("no request '9'", "")
    )

    assert world.sent() == []
    assert "type list" in said.out


def test_grants_and_run_records_are_available_in_plain_mode(world: World) -> None:
    """A grant can be revoked, and the record of an approved run read, as on the screen."""
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


def test_a_folder_or_condition_cannot_begin_a_line(world: World) -> None:
    """A grant and a session are printed whole; only the first of their rows begins at the left edge."""
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
def test_stop_ends_a_session_only_if_the_denial_succeeded(world: World, is_denied: bool) -> None:
    """The agent goes on if the denial failed, and the person is told why."""
    world.ask(named("one", session="ses-1", agent="claude"))
    world.fake.script("POST", "/v1/sessions/ses-1/end", (200, {"ended": "ses-1"}))
    if not is_denied:
        world.fake.script("POST", DECIDE, error("busy", 503, "another command is at it"))
    said = dialogue(world, ("> ", "stop 1 enough"))

    assert len(world.sent()) == 1
    assert len(world.sent("end")) == is_denied
    assert ("session ended" in said.out) == is_denied
    assert ("! another command is at it" in said.out) == (not is_denied)


def test_a_lost_answer_is_not_taken_for_a_refusal(world: World) -> None:
    """The decision may have been made: the person is told so, and the outcome is looked up."""
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


def test_a_daemon_that_fails_at_first_does_not_end_the_console(world: World) -> None:
    """The daemon's error is printed; later it answers."""
    world.ask(named("one"))
    route = ("GET", "/v1/action-approvals")
    world.fake.script(*route, error("internal_error", 500, "not yet"), error("internal_error", 500, "not yet"))

    def mend() -> str:
        world.fake.script(*route, (200, {"approvals": world.fake.approvals}))
        return "list"

    said = dialogue(world, ("> ", mend), ("1 ! UNREAD  one", ""))

    assert said.out.count("! not yet") >= 2


def test_a_malformed_answer_ends_only_its_own_command(world: World) -> None:
    """The cases are a preview and a conversation of the wrong type."""
    world.ask(contradicted(world), named("one", conversation=["x"]))
    world.fake.script("POST", f"{ONE}/preview", (200, [1]))
    said = dialogue(
        world,
        *UNLOCK,
        ("left", "preview 1"),
        ("daemon: Expected `object`, got `array`", "show 2"),
        ("! unexpected answer", ""),
    )

    folded = " ".join(said.out.split())  # the terminal folds it too, after the prompt
    assert "unexpected answer from the daemon: Expected `object`, got `str` - at ↳ `$.conversation[0]`" in folded


def test_the_rest_of_an_interrupted_passphrase_is_neither_shown_nor_a_command(world: World) -> None:
    """Any program's signal can end the prompt, and a person who is typing notices late."""
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


def test_a_preview_is_hidden_once_the_key_is_locked(world: World) -> None:
    """The command `show` has the preview while the key is open, and not after `lock`."""
    world.ask(contradicted(world))
    said = dialogue(
        world, *UNLOCK, ("left", "preview 1"), ("▸ proof 1:", "show 1"), ("▸ proof 1:", "lock"), ("is locked", "show 1")
    )

    before, after = said.out.split("> lock") if "> lock" in said.out else said.out.rsplit("the key is locked", 1)
    assert before.count("mallory@evil.example") >= 2
    assert "mallory@evil.example" not in after
    assert "current state not loaded" in after


@pytest.mark.parametrize("is_shown", [False, True], ids=["failed", "shown"])
def test_a_request_that_needs_its_preview_cannot_be_approved_without_it(world: World, *, is_shown: bool) -> None:
    """The reason is printed in place of the prompt for the word; a no is accepted."""
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
    assert [body["decision"] for body in world.sent()] == ["deny"]


def test_in_tmux_one_passphrase_loads_previews_and_each_yes_takes_another(world: World) -> None:
    """The prompt of `preview` says what it opens; a yes is asked for by name, and `lock` closes the previews."""
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


def test_a_console_resumed_amid_its_output_locks_the_key_and_says_so(world: World) -> None:
    """The console blocks in a write to a terminal that is not read; a signal handler must not write then."""
    world.sign()

    def after_the_first() -> str:
        children = consoles()
        wait_until(
            lambda: {child.status() for child in children} == {"sleeping"}, "the terminal holds no more of the help"
        )
        go_on(children)
        return "status"

    asked = [*UNLOCK, ("> ", "help\n" * 400), ("quit", after_the_first), ("key is locked", "")]
    said = dialogue(world, *asked, PYTHONUNBUFFERED="")  # buffered, as usual: unbuffered, io allows it

    assert "internal error" not in said.out
    assert said.out.count("the approver's key is locked: the console was suspended") == 1


@pytest.mark.parametrize("goes_on", [False, True])
def test_only_what_was_printed_is_signed(world: World, *, goes_on: bool) -> None:
    """The preview is part of it. A console that was stopped while it asked for the word has forgotten it, and decides nothing."""
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


def test_a_passphrase_prompt_for_a_no_has_the_request_above_it(world: World) -> None:
    """The key is closed; the prompt names the action, and all that matters is printed."""
    world.sign()
    world.ask(named("pay-all"))
    said = dialogue(world, ("> ", "deny 1 no"), ("Approver passphrase, to deny pay-all: ", APPROVER))

    assert "Pay all: to" in said.out
    assert "! CANNOT BE UNDONE" in said.out
    assert [body["decision"] for body in world.sent()] == ["deny"]


def test_several_requests_are_denied_after_a_yes(world: World) -> None:
    """They are listed first, since a reason may begin with a number; a number of no request begins the reason."""
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

    assert [
        (approval_id[-3:], body["reason"]) for approval_id, body in zip(world.sent_to(), world.sent(), strict=True)
    ] == [
        ("one", "no more"),
        ("ree", "no more"),
        ("two", "7 days is too long"),
    ]


def test_a_filter_lists_only_matching_requests(world: World) -> None:
    """The list says that it is filtered; without words the filter ends."""
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


def test_the_activity_is_printed_run_by_run_and_the_last_hour_in_numbers(world: World) -> None:
    """The runs stand under the one who asked; a screen reader gets no bars."""
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
    """The record has every request that left; the number of an event without a run is refused."""
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
def test_the_address_of_a_requests_page_is_printed(world: World, web: str) -> None:
    """Only an address of this machine is printed."""
    world.ask(named("one"))
    status = world.fake._status()
    world.fake.script("GET", "/v1/status", (200, {**status, "web": web}))
    said = dialogue(world, ("> ", "open 1"))

    is_here = web == "http://localhost:4711"
    assert ("http://localhost:4711/approvals/act-20261121T040000-one" in said.out) == is_here
    assert ("no web page for this request" in said.out) != is_here
    assert "evil.example:80" not in said.out
