"""The rules about the surroundings of a question that a key decides, with one or two tests for each.

In order: 7 without a daemon, expired · 8 the person's key · 9 colours · 10 small screens.
"""

from __future__ import annotations

import datetime
import threading
import time
from functools import partial
from types import SimpleNamespace
from typing import Self

import msgspec
import pytest

from aileron.model.consent import BindingConsent
from aileron.tui import waiting
from aileron.tui.app import Console
from aileron.tui.daemon_client import DaemonClient
from tests.cli.questions import (
    LASTING,
    ONE,
    SUBJECTS,
    VERDICTS,
    difference,
    previewed,
    question,
    sealed_preview,
    subject_question,
)
from tests.tui.consoles import Shown, World, named, reversible

pytestmark = pytest.mark.anyio


# 7 without a daemon, expired


async def test_the_console_shows_that_it_is_connecting_until_the_first_response(world: World) -> None:
    """The screen has neither a lost daemon nor an empty queue, and keys are ignored. A later loss is reported."""
    world.ask(reversible())
    answers = threading.Event()

    def check() -> None:
        assert answers.wait(20)

    world.check = check
    app = Console(DaemonClient(world.home), world.hooks(), who_else=lambda: None)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        shown = Shown(app, pilot)
        await shown.until("connecting …")
        await shown.pilot.resize_terminal(90, 24)
        await shown.until("waiting for the daemon: nothing can be decided")
        assert not [words for words in ("NO DAEMON", "does not answer", "nothing waiting") if words in shown.text]
        await shown.press("A", until_told="nothing is selected")
        answers.set()
        await shown.until("1 waiting", "daemon ok")
        world.lose_daemon()
        await shown.until("! NO DAEMON")


async def test_while_the_daemon_is_gone_a_banner_is_shown_and_keystrokes_are_ignored(world: World) -> None:
    """The screen offers no decision meanwhile, and does again once the daemon is back."""
    world.ask(reversible())
    async with world.console(until="mira@example.com") as shown:
        world.lose_daemon()
        await shown.until("! the daemon does not answer")
        assert "NO DAEMON" in shown.text
        assert "A approve" not in shown.text
        await shown.settled()
        for key in ("A", "d", "D"):
            await shown.press(key, until_told="nothing can be decided")
            assert "any other key" not in shown.text
            assert "Reason" not in shown.text

        world.get_daemon_back()
        await shown.until("daemon ok")
        await shown.until_not("! the daemon does not answer")
        await shown.approve(until=lambda: world.sent())


async def test_no_decision_is_sent_if_the_daemon_was_lost_during_the_second_step(world: World) -> None:
    """The banner appears once the second step is closed, and the `y` counts for nothing."""
    world.ask(reversible())
    async with world.console(until="mira@example.com") as shown:
        await shown.press_settled("exclamation_mark", "A", until="any other key")
        world.lose_daemon()
        await shown.until(lambda: shown.app.lost)
        await shown.press_settled("y", until="! the daemon does not answer")
        world.get_daemon_back()
        await shown.until("daemon ok", "mira@example.com")

    assert world.sent() == []


class _Now(datetime.datetime):
    """A clock that a test can advance."""

    passed = datetime.timedelta()

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Self:
        """Return the current time plus what the test added."""
        return super().now(tz) + cls.passed


async def test_a_request_that_expires_while_its_confirmation_word_is_typed_is_not_decided(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even the right word then sends nothing; the question stays, and says that it expired."""
    monkeypatch.setattr(waiting, "datetime", SimpleNamespace(datetime=_Now, UTC=datetime.UTC))
    soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 600))
    asked = named("soon", expires_at=soon)
    other = named("later")
    world.ask(asked, other)
    async with world.console(until="CANNOT BE UNDONE") as shown:
        await shown.press_settled("exclamation_mark", "A", until="and press Enter")
        await shown.settled()
        await shown.type("ye")
        monkeypatch.setattr(_Now, "passed", datetime.timedelta(seconds=601))
        await shown.until(lambda: (shown.app.guard.refusal(now=float("inf")) or "").startswith("expired"))
        await shown.enter("s", until_told="expired: nothing ran, and it can no longer be decided: not decided")
        assert world.sent() == []
        assert "A approve" not in shown.text
        assert "Soon" in shown.rows[2]

        await shown.press("n", until="expires in")
        await shown.approve("yes", until=lambda: world.sent())

    assert world.sent_to() == [other["approval_id"]]


async def test_a_request_that_the_daemon_reports_as_expired_stays_in_the_list(world: World) -> None:
    """The row says so, and no key decides the request."""
    asked = named("old")
    world.ask(asked, named("other"))
    async with world.console(until="CANNOT BE UNDONE") as shown:
        world.settle(asked, "expired")
        await shown.until("! expired")
        await shown.press_settled("exclamation_mark", "A", "d")
        await shown.settled()

        assert shown.rows[2].split()[:2] == ["⌛", "Old:"]
        assert world.sent() == []


# 8 the person's key


async def test_a_decision_with_a_closed_approvers_key_prompts_for_the_passphrase(world: World) -> None:
    """The prompt is at the terminal itself; three wrong passphrases sign nothing."""
    world.sign()
    world.ask(reversible())
    world.passphrase = "a guess"
    async with world.console(until="key locked (L)") as shown:
        await shown.approve(until=lambda: len(world.asked_for) == 3)
        await shown.pilot.pause()
        assert world.sent() == []

        world.passphrase = "not the vault's passphrase"
        shown.rested()
        await shown.approve(until=lambda: world.sent())

    assert world.sent()[0]["signature"]
    assert all("to approve" in question for question in world.asked_for)


async def test_an_open_approvers_key_shows_its_remaining_time_and_is_wiped_at_its_end(world: World) -> None:
    """The 15 minutes end however often the key is used; loaded previews disappear with it."""
    now = [1000.0]
    approver = world.sign()
    asked = question(previewed())
    world.ask(asked)
    fields = [{"label": "To", "value": "only-for-the-approver", "multiline": False}]
    world.fake.script("POST", f"{ONE}/preview", sealed_preview(approver, asked["digest"], fields))
    async with world.console((80, 45), clock=lambda: now[0]) as shown:
        await shown.unlock(until="key open 15:00")
        await shown.until("only-for-the-approver")
        now[0] += 841
        await shown.until("key open 0:59")
        await shown.press("p", until=lambda: len(world.sent("preview")) == 2)
        now[0] += 60
        await shown.until_told("its time was over")
        await shown.until("key locked (L)")
        await shown.until_not("only-for-the-approver")
        assert not shown.app.key_session.may_read

    assert len(world.asked_for) == 1


async def test_each_decision_needs_the_passphrase_where_other_programs_can_type(world: World) -> None:
    """The key `L`, which opens the approver's key for a while, does nothing there."""
    world.sign()
    world.ask(named("one", reversible=True), named("two", reversible=True))
    async with world.console(not_kept="this is a terminal of tmux", until="passphrase each time") as shown:
        await shown.press("L", until_told="the passphrase is asked for each time: this is a terminal of tmux")
        assert world.asked_for == []
        for count in (1, 2):
            await shown.until("expires in")
            await shown.approve(until=partial(world.has_sent, count))
            await shown.until("✓")
            await shown.press("n")

    assert len(world.asked_for) == 2


async def test_in_tmux_one_passphrase_loads_previews_but_each_approval_needs_another(world: World) -> None:
    """Further previews load where the cursor rests; `L` ends that, and removes the loaded ones from the screen."""
    approver = world.sign()
    secrets = {name: f"of-{name}-for-the-approver" for name in ("one", "two", "three")}
    for name, secret in secrets.items():
        asked = question(previewed({"name": name}), approval_id=f"act-20261121T040000-{name}")
        fields = [{"label": "Found", "value": secret, "multiline": False}]
        sealed = sealed_preview(approver, asked["digest"], fields)
        world.fake.script("POST", f"/v1/action-approvals/{asked['approval_id']}/preview", sealed)
        world.ask(asked)
    async with world.console(
        (80, 45), not_kept="this is a terminal of tmux", until="current state not loaded"
    ) as shown:
        await shown.press("p", until=secrets["one"])
        await shown.until("previews open 1")
        for count, name in enumerate(("one", "two"), start=1):
            await shown.until(secrets[name])
            await shown.approve("yes", until=partial(world.has_sent, count))
            await shown.until("✓")
            await shown.press("n")
        await shown.until(secrets["three"])
        await shown.press("L", until_not=secrets["three"])
        await shown.until("passphrase each time")

    assert world.asked_for == [
        "Approver passphrase, to load previews for 15 minutes",
        *["Approver passphrase, to approve send-mail"] * 2,
    ]


async def test_the_console_keeps_exclusive_use_of_its_terminal(world: World) -> None:
    """The console gives it up for an editor and at its end; no key is open while an editor runs."""
    held = []
    world.sign()
    world.ask(reversible())

    async with world.console() as shown:

        def edit(text: str) -> str:
            held.append((world.is_held, shown.app.key_session.is_open))
            return text

        world.edit = edit
        await shown.until("mira@example.com")
        assert world.is_held
        await shown.unlock()
        await shown.press_settled("e", until_told="no changes")
        await shown.until("key locked (L)")
        assert (held, world.is_held) == ([(False, False)], True)

    assert not world.is_held


# 9 colours


@pytest.mark.parametrize("theme", [None, "textual-light", "ansi-dark", "ansi-light", "high-contrast", "NO_COLOR"])
async def test_every_coloured_text_has_the_same_words_and_signs_without_colour(
    world: World, monkeypatch: pytest.MonkeyPatch, theme: str | None
) -> None:
    """Every theme shows the same words and signs; with NO_COLOR, no colour is drawn."""
    if theme == "NO_COLOR":
        monkeypatch.setenv("NO_COLOR", "1")
    gone = named("gone")
    changed = difference({"where": "args.to (new)", "before": "a", "after": "b"})
    world.ask(gone, named("one", difference=changed))
    async with world.console(theme=theme if theme != "NO_COLOR" else None, until="CANNOT BE UNDONE") as shown:
        world.settle(gone, "denied")
        await shown.until("✗")
        await shown.press("n", until="≠ in the approved call: a")
        text = shown.text
        colours = {
            segment.style.color
            for row in shown.app.screen._compositor.render_strips()
            for segment in row
            if segment.style
        }

    for sign in (
        "! CANNOT BE UNDONE",
        "≠ to: differs from the most similar call, approved",
        "✗ Gone",
        "denied",
        "[1 queue]",
        "│ Dear Mira",
    ):
        assert sign in text
    if theme == "NO_COLOR":
        assert {max(c.get_truecolor()) - min(c.get_truecolor()) for c in colours if c is not None} <= {0}


async def test_the_consoles_animations_are_switched_off(world: World) -> None:
    """Animations are off, whatever the terminal can do."""
    async with world.console() as shown:
        assert shown.app.animation_level == "none"


# 10 small screens


def _of(shown: Shown) -> list[str]:
    return [row.split("  ")[0] for row in shown.rows]


async def test_at_80_by_24_all_deciding_facts_of_a_run_are_visible_without_scrolling(world: World) -> None:
    """The facts are effect, undo, destination, account, asker, difference, and what the preview contradicts."""
    approver = world.sign()
    changes = [{"where": "args.to (new)", "before": "a@b", "after": "mira@example.com"}]
    asked = question(
        previewed(),
        agent="claude",
        folder="/home/x/w",
        difference=difference(*changes),
    )
    world.ask(asked)
    fields = [{"label": "To", "value": "mallory@evil.example", "multiline": False}]
    world.fake.script("POST", f"{ONE}/preview", sealed_preview(approver, asked["digest"], fields))
    async with world.console() as shown:
        await shown.unlock(until="CURRENT STATE")
        await shown.settled()
        text = shown.text

        for fact in (
            "Send mail: to “mallory@evil.example”, body “Dear Mira the invoice is paid.”",
            "from the service: to · the rest from the agent",
            "! CANNOT BE UNDONE · effect not declared",
            "goes to   mail.example:443",
            "account   basic/mail/home: a mail account",
            "asked by  claude in /home/x/w",
            "compared  ≠ to: differs from the most similar call, approved 2026-11-20 09:12",
            "! To: the agent said “mira@example.com”, the service has\n↳ “mallory@evil.example”",
            "To        mallory@evil.example",
            "to        mira@example.com",
            "≠ in the approved call: a@b",
        ):
            assert fact in text

        await shown.press("exclamation_mark", "A", until="type  yes  and press Enter")
        assert "! To: the agent said" in shown.text
        assert "goes to   mail.example:443" in shown.text


@pytest.mark.parametrize("kind", SUBJECTS)
async def test_at_80_by_24_all_deciding_facts_of_a_consent_are_visible_without_scrolling(
    world: World, kind: str
) -> None:
    """The facts are kind and duration, destination and account, undo, asker, and what the consent widens."""
    subject = SUBJECTS[kind]
    world.ask(subject_question(subject))
    async with world.console(until=VERDICTS.get(kind, LASTING)) as shown:
        text = shown.text

    built = msgspec.to_builtins(subject)
    for name in ("undo", "asked by"):
        assert f"\n{name}  " in text
    assert "WHAT YOU WOULD ALLOW" in text
    for host in built.get("reaches") or ():
        assert host in text
    if built.get("reaches") or "host" in built:
        assert "\ngoes to  " in text
    if isinstance(subject, BindingConsent):
        assert "basic/mail/home" in text
    if any(change.get("widens", True) for change in built.get("changes") or ()):
        assert "≠ 1 of" in text or "≠ the change allows more" in text


async def test_a_long_folder_and_many_alarms_push_no_deciding_fact_off_the_screen(world: World) -> None:
    """Each fact keeps a row, says how much of it is left out, and is complete below."""
    approver = world.sign()
    args = {f"a{number}": "good" for number in range(20)}
    asked = question(previewed(args), agent="claude", folder="/x" * 600)
    world.ask(asked)
    fields = [{"label": name, "value": "evil", "multiline": False} for name in args]
    world.fake.script("POST", f"{ONE}/preview", sealed_preview(approver, asked["digest"], fields))
    async with world.console() as shown:
        await shown.unlock(until="! a0: the agent said")
        text = shown.text
        assert "more rows below" in text
        for name in ("goes to ", "account ", "asked by ", "compared "):
            assert f"\n{name}" in text
        assert "SHORTENED ABOVE, IN FULL" in text


async def test_below_80_columns_the_list_and_the_question_are_separate_screens(world: World) -> None:
    """Enter opens the question, and Escape goes back; a question that is not shown cannot be decided."""
    world.ask(reversible())
    async with world.console((60, 20), until="Send mail: ") as shown:
        assert "goes to" not in shown.text
        await shown.press_settled("exclamation_mark", "A", until_told="not on screen: press Enter to show it")
        await shown.press("enter", until="goes to   mail.example:443")
        await shown.press("escape", until_not="goes to")
        await shown.press("enter", until="goes to")
        await shown.press("exclamation_mark")
        await shown.approve(until=lambda: world.sent())
