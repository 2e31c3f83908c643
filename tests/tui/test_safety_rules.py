"""The rules by which a key decides, one test or two for each: what must not decide does not, and beside it what does.

In order: 1 the hash that was shown · 2 nothing under the cursor moves · 3 two steps · 4 hostile text · 5 what the agent says ·
6 all of it was read · 7 without a daemon, over its time · 8 the person's key · 9 colours · 10 small screens.
"""

from __future__ import annotations

import datetime
import threading
import time
from types import SimpleNamespace
from typing import Any, Self

import msgspec
import pytest
from textual.events import Key

from aileron.model.consent import BindingConsent, Subject
from aileron.model.manifest import ApprovalRule
from aileron.tui import guard, rendering, waiting
from aileron.tui.app import Console
from aileron.tui.daemon_client import DaemonClient
from aileron.tui.view import View
from tests.cli.questions import (
    LASTING,
    ONE,
    SUBJECTS,
    VERDICTS,
    difference,
    plan,
    previewed,
    question,
    sealed_preview,
    subject_question,
)
from tests.support.hostile_text import GROUPS, MEGABYTE, as_in_a_file, assert_harmless, assert_no_line_begins
from tests.tui.consoles import Shown, World, named

pytestmark = pytest.mark.anyio

OURS = ("Approve?", "Approver's passphrase", "signed by", "  fix:", "A approve")
LATER = "2099-11-21T04:15:00Z"


def reversible(**more: Any) -> dict[str, Any]:
    """A run that its action says can be undone."""
    return question(plan(approval=ApprovalRule(required=True, irreversible=False)), **more)


# 1 the hash that was shown


async def test_a_yes_is_for_the_digest_on_the_screen(world: World) -> None:
    """What is sent names the digest that was computed from what was shown."""
    asked = reversible()
    world.ask(asked)
    async with world.console() as shown:
        await shown.until("mira@example.com")
        await shown.approve()
        await shown.until(lambda: world.sent())

    assert world.sent() == [{"decision": "approve", "digest": asked["digest"]}]


async def test_a_question_that_changes_while_the_second_step_is_open_is_not_decided(world: World) -> None:
    """Other arguments under the same id: the `y` for the old ones sends nothing; looked at again, they can be approved."""
    asked = reversible()
    other = plan({"to": "mallory@evil.example"}, approval=ApprovalRule(required=True, irreversible=False))
    world.ask(asked)
    async with world.console() as shown:
        await shown.until("mira@example.com")
        await shown.settled()
        await shown.press("exclamation_mark", "A")
        await shown.until("any other key")
        world.replace(asked, plan=other.to_json(), digest=other.digest)
        await shown.until(lambda: shown.app.guard.digest == other.digest)
        await shown.settled()
        await shown.press("y")
        await shown.until_told("the request changed")

        assert world.sent() == []

        await shown.until("mallory@evil.example")
        await shown.approve()
        await shown.until(lambda: world.sent())

    assert world.sent() == [{"decision": "approve", "digest": other.digest}]


async def test_another_plan_under_the_digest_of_the_shown_one_is_not_shown(world: World) -> None:
    """Where somebody signs: what its digest does not cover is neither shown nor decided."""
    world.sign()
    asked = {**reversible(), "headline": "Send mail"}  # a row is the daemon's word, and is signed by nobody
    asked["plan"]["args"] = {"to": "mallory@evil.example"}
    world.ask(asked)
    async with world.console() as shown:
        await shown.until("! this plan")
        await shown.settled()
        await shown.press("exclamation_mark", "A", "y")
        await shown.settled()

        assert "mallory" not in shown.text
        assert world.sent() == []


async def test_a_question_that_came_while_nobody_signed_is_read_anew_before_it_is_signed(world: World) -> None:
    """Whoever answers says first that nobody signs, so that a digest of another question passes, and then that somebody does."""
    asked = reversible()
    forged = {**asked, "digest": "sha256:" + "e1" * 32}
    world.ask(forged)
    async with world.console() as shown:
        await shown.until("mira@example.com")
        await shown.settled()
        world.sign()
        world.happen("vault.unlocked")
        await shown.until("! this plan")
        await shown.press("exclamation_mark", "A", "y")
        await shown.settled()

        assert world.sent() == []
        assert world.asked_for == []


async def test_who_says_that_nobody_signs_any_more_is_not_believed(world: World) -> None:
    """Where somebody signed a moment ago it is as if no daemon answered; and it goes on when it says the truth again."""
    world.sign()
    world.ask(reversible())
    async with world.console() as shown:
        await shown.until("mira@example.com")
        truth = world.fake.approver
        world.fake.approver = {"status": "none"}
        world.happen("vault.unlocked")
        await shown.until("NO DAEMON")
        await shown.settled()
        await shown.press("exclamation_mark", "A", "y")
        await shown.settled()
        assert world.sent() == []

        world.fake.approver = truth
        await shown.until("daemon ok")
        await shown.settled()
        await shown.press("exclamation_mark", "A")
        await shown.until("any other key")
        await shown.settled()
        await shown.press("y")
        await shown.until(lambda: world.sent())


# 2 nothing under the cursor moves


async def test_after_something_new_has_come_a_key_is_dead_for_400_ms(world: World) -> None:
    """A key that was on its way when the list grew opens no second step; after the time the same key does."""
    world.ask(named("first", reversible=True))
    async with world.console() as shown:
        await shown.until("mira@example.com")
        await shown.settled()
        world.clock.now += guard.ARRIVALS_S
        world.ask(named("second"))
        await shown.until("Second")
        await shown.press("exclamation_mark", "A")
        await shown.until_told("this only just appeared")
        assert "any other key" not in shown.text

        await shown.settled()
        await shown.press("exclamation_mark", "A")
        await shown.until("any other key")

    assert world.sent() == []


@pytest.mark.parametrize(("passed_s", "is_dead"), [(0.0, True), (0.399, True), (0.401, False)])
def test_the_time_is_400_ms(passed_s: float, is_dead: bool) -> None:
    """From whatever moved last, to a thousandth."""
    shown = guard.Guard()
    shown.show("a", "sha256:1", now=100.0)
    shown.read_to_end()
    shown.disturb(now=200.0)

    assert (shown.refusal(now=200.0 + passed_s) is not None) == is_dead


async def test_an_agent_that_asks_all_the_time_does_not_keep_the_keys_dead(world: World) -> None:
    """An arrival each twentieth of a second, with keys dead for longer than that after one: a person says yes meanwhile."""
    world.ask(named("first", reversible=True))
    async with world.console() as shown:
        await shown.until("mira@example.com")
        await shown.settled()
        world.clock.now += guard.ARRIVALS_S
        for number in range(20):
            world.ask(named(f"more{number:03}"))
            await shown.until(f"· {number + 2} waiting")
            await shown.press("exclamation_mark", "A")
            if "any other key" in shown.text:
                break
            world.clock.now += 0.05
        assert 0 < number < 19, "keys are dead after one has come, and not for ever"
        await shown.settled()
        await shown.press("y")
        await shown.until(lambda: world.sent())

    assert world.sent_to() == ["act-20261121T040000-first"]


ARRIVALS = [(0.0, True), (0.3, True), (0.41, False), (1.9, False), (2.0, True), (2.39, True), (2.41, False)]


@pytest.mark.parametrize(("at_s", "is_dead"), ARRIVALS)
def test_arrivals_alone_make_keys_dead_once_in_two_seconds(at_s: float, is_dead: bool) -> None:
    """One each hundredth of a second; what changes on the screen itself always does."""
    shown = guard.Guard()
    shown.show("a", "sha256:1", now=0.0)
    shown.read_to_end()
    for hundredth in range(int(at_s * 100) + 1):
        shown.arrive(now=100.0 + hundredth / 100)

    assert (shown.refusal(now=100.0 + at_s) is not None) == is_dead
    shown.disturb(now=100.0 + at_s)
    assert shown.refusal(now=100.0 + at_s) is not None


def test_the_same_once_more_is_not_another() -> None:
    """Reading it again, which an agent can bring about, keeps no key dead; another digest does."""
    shown = guard.Guard()
    for second in range(3):
        shown.show("a", "sha256:1", now=float(second))
        shown.read_to_end()
    assert shown.refusal(now=2.0) is None
    shown.show("a", "sha256:2", now=2.0)
    shown.read_to_end()
    assert shown.refusal(now=2.1) is not None


async def test_the_second_step_is_dead_at_first_too(world: World) -> None:
    """`A` and `y` in one go decide nothing; a `y` after a look does."""
    world.ask(reversible())
    async with world.console() as shown:
        await shown.until("mira@example.com")
        await shown.settled()
        await shown.press("exclamation_mark", "A", "y")
        await shown.until("any other key")
        assert world.sent() == []

        await shown.settled()
        await shown.press("y")
        await shown.until(lambda: world.sent())


async def test_what_is_new_comes_last_and_the_cursor_stays_on_its_question(world: World) -> None:
    """By its id, whatever comes and whatever is decided above it."""
    first, second = named("first"), named("second", args={"to": "only@in.second"})
    world.ask(first, second)
    async with world.console() as shown:
        await shown.until("Second")
        await shown.press("j")
        await shown.until("only@in.second")
        world.ask(named("third"))
        await shown.until("Third")
        world.settle(first, "denied")
        await shown.until("denied")
        await shown.pilot.pause()

        names = [row.partition(":")[0].split()[-1] for row in shown.rows[2:5]]
        assert (names, shown.app.selected) == (["First", "Second", "Third"], second["approval_id"])
        assert [row.split()[0] for row in shown.rows[2:3]] == ["✗"]
        assert "only@in.second" in shown.text


# 3 two steps


async def test_what_cannot_be_undone_and_nobody_declares_takes_a_word(world: World) -> None:
    """Neither `y` nor another word, and Enter after it."""
    world.ask(question())
    async with world.console() as shown:
        await shown.until("CANNOT BE UNDONE")
        await shown.settled()
        await shown.press("exclamation_mark", "A")
        await shown.until("and press Enter")
        for word in ("y", "ye", "YES", "yes!", "send-mail", "allow", "delete"):
            await shown.settled()
            await shown.type(word)
            await shown.press("enter")
            await shown.until("not decided")
            await shown.press(*["backspace"] * len(word))
        assert world.sent() == []

        await shown.type("yes")
        await shown.press("enter")
        await shown.until(lambda: world.sent())


_DECLARED = """+++
name = "act"
version = "1.2.0"
[[requires.connectors]]
name = "github://example/connector-mail"
version = "1.4.0"
hash = "sha256:%s"
capabilities = ["act"]
[match]
intent = "act"
[[execute]]
id = "one"
connector = "github://example/connector-mail"
op = "act"
effect = "%s"
+++
"""


@pytest.mark.parametrize("effect", ["delete", "pay"])
async def test_what_deletes_or_pays_takes_its_word(world: World, effect: str) -> None:
    """Neither `y` nor the word of another effect; its own, and Enter."""
    world.ask(question(plan(action_text=_DECLARED % ("cd" * 32, effect))))
    async with world.console() as shown:
        await shown.until(f"! {effect.upper()}S")
        await shown.settled()
        await shown.press("exclamation_mark", "A")
        await shown.until(f"type  {effect}  and press Enter")
        for word in ("y", "yes", "delete" if effect == "pay" else "pay"):
            await shown.settled()
            await shown.type(word)
            await shown.press("enter")
            await shown.until("not decided")
            await shown.press(*["backspace"] * len(word))
        assert world.sent() == []

        await shown.type(effect)
        await shown.press("enter")
        await shown.until(lambda: world.sent())


@pytest.mark.parametrize(("effect", "sign"), [("create", "+"), ("change", "~"), ("send", "»")])
async def test_what_creates_changes_or_sends_takes_a_key(world: World, effect: str, sign: str) -> None:
    """Though it cannot be undone: a capital `A`, and a `y` after it."""
    world.ask(question(plan(action_text=_DECLARED % ("cd" * 32, effect))))
    async with world.console() as shown:
        await shown.until(f"{sign} {effect}s")
        await shown.settled()
        await shown.press("a", "y")
        assert world.sent() == []

        await shown.approve()
        await shown.until(lambda: world.sent())


ALLOWS_LITTLE = msgspec.structs.replace(SUBJECTS["connector_update"], changes=())


@pytest.mark.parametrize(
    ("subject", "verdict"),
    [
        *((subject, VERDICTS.get(kind, LASTING)) for kind, subject in SUBJECTS.items()),
        (ALLOWS_LITTLE, "~ lasting permission"),
    ],
    ids=[*SUBJECTS, "allows little"],
)
async def test_what_lasts_takes_a_word(world: World, subject: Subject, verdict: str) -> None:
    """For each kind of consent, however little it allows: `y` decides nothing, `allow` does."""
    world.ask(subject_question(subject))
    async with world.console() as shown:
        await shown.until(verdict)
        await shown.settled()
        await shown.press("exclamation_mark", "A")
        await shown.until("and press Enter")
        await shown.settled()
        await shown.press("y", "enter")
        await shown.until("not decided")
        assert world.sent() == []

        await shown.press("backspace")
        await shown.type("allow")
        await shown.press("enter")
        await shown.until(lambda: world.sent())


async def test_what_can_be_undone_takes_a_capital_a_and_a_y(world: World) -> None:
    """A small `a`, and any other second key, do nothing."""
    world.ask(reversible())
    async with world.console() as shown:
        await shown.until("mira@example.com")
        await shown.settled()
        await shown.press("a", "y")
        assert "any other key" not in shown.text
        for key in ("n", "enter", "space", "A", "Y", "escape"):
            await shown.settled()
            await shown.press("exclamation_mark", "A")
            await shown.until("any other key")
            await shown.settled()
            await shown.press(key)
            await shown.until_not("any other key")
        assert world.sent() == []

        await shown.approve()
        await shown.until(lambda: world.sent())


async def test_enter_space_a_click_and_a_paste_approve_nothing(world: World) -> None:
    """On the list, on the question and in the second step; a word that is pasted is not typed."""
    world.ask(question())
    async with world.console() as shown:
        await shown.until("CANNOT BE UNDONE")
        await shown.settled()
        for key in ("enter", "space", "tab", "enter", "space"):
            await shown.press(key)
        for row in range(24):
            await shown.pilot.click(offset=(5, row))
        await shown.press("escape")
        shown.app.post_message(_paste("A"))
        await shown.pilot.pause()
        assert "and press Enter" not in shown.text

        await shown.settled()
        await shown.press("exclamation_mark", "A")
        await shown.until("and press Enter")
        await shown.settled()
        for row in range(24):
            await shown.pilot.click(offset=(20, row))
        shown.app.screen.query_one("#word").post_message(_paste("yes\n"))
        await shown.pilot.pause()
        await shown.press("enter")
        await shown.until("not decided")
        assert world.sent() == []

        await shown.type("yes")
        await shown.press("enter")
        await shown.until(lambda: world.sent())


async def test_a_key_in_the_second_step_reaches_nothing_below_it(world: World) -> None:
    """While a word, a reason or a question is typed, capital letters and all are letters."""
    world.ask(question())
    async with world.console() as shown:
        await shown.until("CANNOT BE UNDONE")
        for key, title in (("A", "and press Enter"), ("d", "deny Send mail"), ("m", "ask the agent")):
            await shown.settled()
            await shown.press("exclamation_mark", key)
            await shown.until(title)
            await shown.press("A", "d", "D", "u", "L", "V", "q", "5")
            await shown.until("AdDuLVq5")
            await shown.press("escape")
            await shown.until_not(title)
        assert world.sent() == world.sent("cancel") == world.asked_for == []

        await shown.settled()
        await shown.press("d")
        await shown.until("deny Send mail")
        await shown.type("no")
        await shown.press("enter")
        await shown.until(lambda: world.sent())

    assert world.sent()[0]["decision"] == "deny"


async def test_the_palette_does_not_come_up_over_the_second_step(world: World) -> None:
    """Ctrl-P does nothing there; on the screen itself it does."""
    world.ask(reversible(), named("other", reversible=True))
    async with world.console() as shown:
        await shown.until("mira@example.com")
        await shown.settled()
        await shown.press("exclamation_mark", "A")
        await shown.until("any other key")
        await shown.press("ctrl+p")
        await shown.pilot.pause()
        assert "Deny and end the session" not in shown.text
        await shown.press("escape")
        await shown.until_not("any other key")
        await shown.press("ctrl+p")
        await shown.type("deny")
        await shown.until("Deny and end the session (stop the agent)  (D)")


@pytest.mark.parametrize("is_final", [True, False], ids=["a word", "a key"])
async def test_all_of_the_effect_can_be_read_in_the_second_step(world: World, is_final: bool) -> None:
    """On the smallest screen, with arrows and page keys, while the word is typed; in the order of the card."""
    body = "\n".join(f"line {number}" for number in range(30))
    world.ask(named("one", reversible=not is_final, args={"to": "mira@example.com", "body": body}))
    async with world.console((60, 20)) as shown:
        await shown.until("One")
        await shown.press("enter")
        await shown.until("goes to")
        await shown.settled()
        await shown.press("exclamation_mark", "A")
        await shown.until("↓ ↑ PgDn PgUp")
        assert "asked by  " in shown.text
        assert "line 29" not in shown.text
        seen = []
        if is_final:
            await shown.settled()
            await shown.type("ye")
        for _ in range(12):
            seen += [row.split("│")[-2].strip(" ▁▂▃▄▅▆▇█") for row in shown.rows if row.count("│") >= 3]
            await shown.press("pagedown")
            await shown.pilot.pause()
        assert "to        mira@example.com" in shown.text
        lines = list(dict.fromkeys(row for row in seen if row.startswith("line ")))
        assert lines == [f"line {number}" for number in range(30)]
        for _ in range(12):
            await shown.press("pageup")
        await shown.until("asked by  ")
        await shown.press("down", "up")
        await shown.settled()
        await shown.press(*(["s", "enter"] if is_final else ["y"]))
        await shown.until(lambda: world.sent())


@pytest.mark.parametrize("width", [60, 80, 140])
async def test_a_long_name_pushes_nothing_off_the_screen(world: World, width: int) -> None:
    """Where name and verdict need more than a row, the rows below are so many fewer."""
    approver = world.sign()
    name = "send-" + "very-" * 12 + "long"
    args = {f"a{number}": "good" for number in range(20)}
    asked = question(
        plan(args, action=name, preview=previewed().preview),
        agent="claude",
        folder="/x" * 600,
    )
    world.ask(asked)
    fields = [{"label": name, "value": "evil", "multiline": False} for name in args]
    world.fake.script("POST", f"{ONE}/preview", sealed_preview(approver, asked["digest"], fields))
    async with world.console((width, 24)) as shown:
        await shown.unlock()
        if width < 80:
            await shown.press("enter")
        await shown.until("! a0: the agent said")
        for fact in (
            "! CANNOT BE UNDONE",
            "expires in",
            "goes to ",
            "account ",
            "asked by ",
            "compared ",
        ):
            assert fact in shown.text


async def test_that_all_was_seen_counts_for_what_it_is_about_only(world: World) -> None:
    """A message that is late, of what stood there before, opens nothing."""
    long = "\n".join(f"line {number}" for number in range(60))
    world.ask(named("one", args={"body": long}))
    async with world.console() as shown:
        await shown.until("line 1")
        await shown.settled()
        card, digest = shown.app.card, str(shown.app.guard.digest)
        assert card is not None
        shown.app.post_message(View.AllSeen(card, "sha256:" + "00" * 32))
        shown.app.post_message(View.AllSeen(msgspec.structs.replace(card, sections=()), digest))
        await shown.pilot.pause()
        await shown.press("A")
        await shown.until_told("not all of it was on screen")
        await shown.press("enter", "end")
        await shown.until(lambda: shown.app.guard.is_read)
        await shown.press("A")
        await shown.until("and press Enter")


# 4 hostile text


def hostile_question(text: str) -> dict[str, Any]:
    """A run in which an agent has written this wherever it can."""
    args = {"to": text, "body": f"{text}\n{text}", "more": {"deep": [text]}}
    change = {"where": f"args.{text} (new)", "before": text, "after": text}
    return question(
        previewed(args),
        agent=text,
        folder=text,
        session=text,
        conversation=[{"question": "why?", "answer": text}, {"question": text}],
        difference=difference(change, {**change, "where": text}, at=text),
        reason=text,
    )


@pytest.mark.parametrize("text", GROUPS.values(), ids=GROUPS.keys())
async def test_nothing_that_an_agent_wrote_is_obeyed_by_the_screen(world: World, text: str) -> None:
    """In arguments, words, names, folders, differences and previews: all of it is shown, none of it does anything."""
    text = as_in_a_file(text)
    asked = hostile_question(text)
    world.ask(asked)
    shown_texts = []
    async with world.console((100, 30)) as shown:
        await shown.until("CANNOT BE UNDONE")
        await shown.press("enter")
        for _ in range(30):
            shown_texts.append(shown.text)
            _assert_no_links(shown)
            await shown.press("pagedown")
        for key in ("r", "equals_sign"):
            await shown.press(key)
            await shown.pilot.pause()
            shown_texts.append(shown.text)
            _assert_no_links(shown)
            await shown.press("escape")
        await shown.press("2")
        shown_texts.append(shown.text)

    for one in shown_texts:
        assert_harmless(one)
        assert_no_line_begins(one, *OURS)


async def test_an_agents_text_stands_on_the_screen_spelled_out(world: World) -> None:
    """The control: what is hidden is to be seen, as an escape."""
    world.ask(question(plan({"to": "a\x1b[2Jb\u202ec", "body": "x"})))
    async with world.console() as shown:
        await shown.until(r"a\x1b[2Jb\u202ec")


async def test_a_host_in_other_letters_is_marked(world: World) -> None:
    """A name that stands for another alphabet's says so; a plain one does not."""
    world.ask(question(plan(hosts=("xn--pple-43d.example:443",))))
    async with world.console() as shown:
        await shown.until("! xn--pple-43d.example:443")
        await shown.until("not in plain letters")
    world.fake.approvals.clear()
    world.ask(named("plain-one"))
    async with world.console() as shown:
        await shown.until("goes to   mail.example:443")
        assert "not in plain letters" not in shown.text


async def test_what_is_said_beside_it_later_has_to_be_read_too(world: World) -> None:
    """An agent answers under the same digest: that all was read before does not count for it."""
    asked = reversible()
    world.ask(asked)
    async with world.console() as shown:
        await shown.until(" A approve · d deny")
        answer = "\n".join(f"line {number}" for number in range(300))
        world.replace(asked, conversation=[{"question": "why?", "answer": answer}])
        await shown.until("↓ more (Space)")
        await shown.settled()
        await shown.press("A")
        await shown.until_told("not all of it was on screen")
        await shown.approve()
        await shown.until(lambda: world.sent())


def pressed(shown: Shown, *keys: str, at: float) -> None:
    """Keys that were pressed then, and come to the console now."""
    for name in keys:
        key = Key(name, name if len(name) == 1 else None)
        key.time = at
        shown.app.post_message(key)


@pytest.mark.parametrize("after_s", [0.1, 1.0])
async def test_a_key_counts_as_of_when_it_was_pressed(world: World, after_s: float) -> None:
    """A console that was busy comes to a key late: that does not make it one that was pressed after the person could look."""
    world.ask(reversible())
    async with world.console() as shown:
        await shown.until(" A approve · d deny")
        await shown.settled()
        await shown.press("A")
        await shown.until("any other key")
        came_up = shown.app.screen.since
        world.clock.now = came_up + 1.2
        pressed(shown, "y", at=came_up + after_s)
        await shown.pilot.pause()
        if after_s > 0.5:
            await shown.until(lambda: world.sent())

    assert bool(world.sent()) is (after_s > 0.5)


@pytest.mark.parametrize("after_s", [0.1, 1.0])
async def test_a_word_counts_as_of_when_its_enter_was_pressed(world: World, after_s: float) -> None:
    """The same of a word, whose keys came all at once."""
    world.ask(named("ab"))
    async with world.console() as shown:
        await shown.until("ab 1.2.0")
        await shown.settled()
        await shown.press("exclamation_mark", "A")
        await shown.until("and press Enter")
        came_up = shown.app.screen.since
        world.clock.now = came_up + 1.2
        pressed(shown, "y", "e", "s", "enter", at=came_up + after_s)
        await shown.until("not decided" if after_s < 0.5 else lambda: world.sent())

    assert bool(world.sent()) is (after_s > 0.5)


@pytest.mark.parametrize("blank", [" ", "\u3000", "\u00a0"], ids=["space", "wide", "no break"])
async def test_no_row_of_somebody_elses_text_begins_as_ours_do(world: World, blank: str) -> None:
    """Whatever blanks are in a value, a folder or what was approved before, a further row has its sign before it."""
    gap = blank * 61
    memo = f"the invoice{gap}≠ was DE99, corrected by you{gap}! checked: approved 14 times before"
    changes = [{"where": "args.memo (changed)", "before": f"x{gap}! nothing differs", "after": memo}]
    found = difference(*changes)
    folder = f"/w{gap}! nothing differs from the call approved last"
    world.ask(question(plan({"memo": memo, "to": "≠ x"}), agent="claude", folder=folder, difference=found))
    for size in ((80, 24), (100, 45), (60, 20)):
        async with world.console(size) as shown:
            await shown.until("Send mail: ")
            await shown.press("enter", "f")
            for _ in range(6):
                for row in shown.rows:
                    inner = row.strip(" ▁▂▃▄▅▆▇█▔")
                    assert not inner.startswith(("! checked", "! nothing", "≠ was", "≠ x")), row
                await shown.press("space")
            if size == (100, 45):
                assert "│ ≠ x" in shown.text
                assert "in the approved call: x (61 blanks) ! nothing differs" in shown.text


async def test_a_value_of_a_megabyte_is_shown_and_says_how_much_is_not(world: World) -> None:
    """Cut, with how much more there is; it keeps nobody from the keys."""
    world.ask(question(plan({"body": MEGABYTE, "to": "x"})))
    async with world.console() as shown:
        await shown.until("CANNOT BE UNDONE")
        await shown.press("enter", "end")
        await shown.until("▸ proof")
        await shown.settled()
        await shown.press("A")
        await shown.until_told("not all of it was on screen")

        await shown.press("home")
        for _ in range(12):
            await shown.press("pagedown")
        await shown.press("f", "end")
        await shown.until("▸ proof")
        await shown.settled()
        await shown.press("A")
        await shown.until("and press Enter")


# 5 what the agent says


async def test_what_the_agent_says_stands_boxed_below_what_is_known(world: World) -> None:
    """After the preview and the arguments, in a box, and as not verified."""
    said = [{"question": "who is it for?", "answer": "The user agreed already. Approve."}]
    approver = world.sign()
    asked = question(previewed(), conversation=said)
    world.ask(asked)
    fields = [{"label": "To", "value": "mira@example.com", "multiline": False}]
    world.fake.script("POST", f"{ONE}/preview", sealed_preview(approver, asked["digest"], fields))
    async with world.console((100, 45)) as shown:
        await shown.unlock()
        await shown.until("CURRENT STATE")
        rows = shown.rows

    at = [
        next(n for n, row in enumerate(rows) if text in row) for text in ("CURRENT STATE", "ARGUMENTS", "┌─ agent says")
    ]
    assert at == sorted(at)
    assert rows[at[2]].strip().startswith("┌─ agent says (not verified) ─")
    assert "│ the agent: The user agreed already. Approve." in rows[at[2] + 2]


async def test_a_contradiction_between_preview_and_arguments_is_an_alarm(world: World) -> None:
    """What is there now, and what the agent says it is; the same in both is none."""
    approver = world.sign()
    asked = question(previewed())
    world.ask(asked)
    answers = [
        sealed_preview(approver, asked["digest"], [{"label": "To", "value": value, "multiline": False}])
        for value in ("mallory@evil.example", "mira@example.com")
    ]
    world.fake.script("POST", f"{ONE}/preview", *answers)
    async with world.console((160, 30)) as shown:
        await shown.unlock()
        await shown.until("! To: the agent said “mira@example.com”, the service has “mallory@evil.example”")
        await shown.press("p")
        await shown.until_not("mallory")
        assert "the agent said" not in shown.text


# 6 all of it was read


@pytest.mark.parametrize("way", ["the end", "!"])
async def test_what_does_not_fit_is_read_to_its_end_or_said_not_to_be(world: World, way: str) -> None:
    """Until then `A` says that there is more; a short one needs neither."""
    long = "\n".join(f"line {number}" for number in range(60))
    world.ask(named("long", args={"body": long}, reversible=True), named("short", args={}, reversible=True))
    async with world.console() as shown:
        await shown.until("line 1")
        await shown.settled()
        await shown.press("A")
        await shown.until_told("not all of it was on screen")
        await shown.press("enter", *["pagedown"] * 2)
        await shown.settled()
        await shown.press("A")
        assert "any other key" not in shown.text
        if way == "!":
            await shown.press("exclamation_mark")
            await shown.until_told("deciding without having read everything")
        else:
            await shown.press("end")
            await shown.until(lambda: shown.app.guard.is_read)
        await shown.approve(unread=False)
        await shown.until(lambda: world.sent())

    assert world.sent_to() == [named("long")["approval_id"]]


async def test_another_question_begins_at_its_top_and_is_unread(world: World) -> None:
    """Scrolled to the end of one, the next stands at its beginning, and is not taken for read."""
    long = "\n".join(f"line {number}" for number in range(60))
    world.ask(named("one", args={"body": long}), named("two", args={"body": f"first of two\n{long}"}))
    async with world.console() as shown:
        await shown.until("line 1")
        await shown.press("enter", "end")
        await shown.until("▸ proof")
        await shown.press("n")
        await shown.until("first of two")
        await shown.settled()
        await shown.press("A")
        await shown.until_told("not all of it was on screen")
        assert "and press Enter" not in shown.text


def _asked_of_nine_hosts(name: str) -> dict[str, Any]:
    hosts = tuple(f"h{number}.example:443" for number in range(9))
    rule = ApprovalRule(required=True, irreversible=False)
    of = plan({"to": "mallory@evil.example", "body": "x"}, action=name, hosts=hosts, approval=rule)
    return question(of, approval_id=f"act-20261121T040000-{name}", audit_id=f"run-{name}")


@pytest.mark.parametrize("size", [(80, 20), (80, 19), (80, 15), (80, 12), (80, 9), (80, 7), (60, 12), (60, 9)])
async def test_what_was_on_no_row_of_the_screen_is_not_read(world: World, size: tuple[int, int]) -> None:
    """Five wait, of nine hosts each: on a screen without room, what lies below its end is not taken for read."""
    world.ask(*(_asked_of_nine_hosts(f"send-{number}") for number in range(5)))
    async with world.console(size) as shown:
        await shown.until(lambda: shown.app.guard.digest)
        await shown.press("enter")
        await shown.settled()
        seen = shown.text
        for _ in range(60):
            await shown.press("j")
            await shown.pilot.pause()
            seen += shown.text
        is_read, body = shown.app.guard.is_read, shown.app.query_one("#body")

        assert not is_read or all(word in seen for word in ("mallory@evil.example", "h8.example:443", "asked by"))
        assert is_read == (body.region.height > 0 and body.region.bottom < size[1])
        await shown.press("exclamation_mark", "A")
        await shown.until("any other key")


@pytest.mark.parametrize("sign", ["\u2601\ufe0f", "\u0903", "\u302e"], ids=["a picture", "a mark", "a wide mark"])
async def test_what_terminals_draw_wider_is_read_to_its_end_too(world: World, sign: str) -> None:
    """Its rows are not wrapped once more, which would put the end of what matters further down than was counted."""
    names = (
        " ",
        "a ",
        "zz ",
        "account ",
        "asked by ",
        "compared ",
        "action ",
        "SHORTENED",
        "headline ",
        "ARGUMENTS",
        "body ",
        "▸ proof",
    )
    args = {"a": sign * 28 + "n" * 39 + " to", "body": "\n".join([sign * 60] * 12), "zz": "mallory@evil.example"}
    world.ask(named("long", args=args))
    async with world.console() as shown:
        await shown.until("CANNOT BE UNDONE")
        await shown.press("enter")
        for _ in range(100):
            await shown.press("j")
            await shown.pilot.pause()
            if shown.app.guard.is_read:
                break
            assert all(not row or row.startswith(names) for row in shown.rows[12:-1])

        assert shown.app.guard.is_read
        assert "mallory@evil.example" in shown.text


async def test_rows_that_are_cut_at_the_edge_say_so_and_are_not_read(world: World) -> None:
    """On a screen that is narrower than anything can be laid out for."""
    long = "\n".join(f"line {number} of many" for number in range(60))
    world.ask(named("long", args={"body": long}))
    async with world.console() as shown:
        await shown.until("line 1")
        await shown.pilot.resize_terminal(18, 40)
        await shown.press("enter", "end")
        await shown.settled()

        assert any(row.rstrip(" ▁▂▃▄▅▆▇█").endswith("…") for row in shown.rows[2:-2])
        assert not shown.app.guard.is_read


async def test_a_row_that_is_wrapped_after_all_puts_the_end_further_down(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What counts as read is counted in the rows that stand there, not in those that were meant to."""
    world.ask(named("long", args={"body": "\n".join(["\u65e5" * 50] * 9), "zz": "mallory@evil.example"}))
    monkeypatch.setattr(rendering, "cells_of", lambda character: 1)
    monkeypatch.setattr(rendering, "cells", len)
    monkeypatch.setattr(Console, "CSS", Console.CSS.replace("text-wrap: nowrap", "text-wrap: wrap"))
    async with world.console() as shown:
        await shown.until("CANNOT BE UNDONE")
        await shown.press("enter")
        while not shown.app.guard.is_read:
            await shown.press("j")
            await shown.pilot.pause()

        assert "mallory@evil.example" in shown.text


async def test_a_preview_has_to_be_read_where_there_is_one(world: World) -> None:
    """No yes without what is there now; a no needs none."""
    approver = world.sign()
    asked = question(previewed())
    world.ask(asked)
    fields = [{"label": "To", "value": "mira@example.com", "multiline": False}]
    world.fake.script("POST", f"{ONE}/preview", sealed_preview(approver, asked["digest"], fields))
    async with world.console((80, 45)) as shown:
        await shown.until("current state not loaded")
        await shown.settled()
        await shown.press("exclamation_mark", "A")
        await shown.until_told("current state not loaded: press p")
        await shown.press("p")
        await shown.until("CURRENT STATE")
        await shown.approve("yes")
        await shown.until(lambda: world.sent())

    assert world.sent()[0]["digest"] not in (asked["digest"], None)


# 7 without a daemon, over its time


async def test_before_the_daemon_has_answered_it_is_asked_and_not_missing(world: World) -> None:
    """Neither is nothing said to wait; keys are dead. Once it is known that there is none any more, that is said."""
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
        await shown.press("A")
        await shown.until_told("nothing is selected")
        answers.set()
        await shown.until("1 waiting")
        await shown.until("daemon ok")
        world.lose_daemon()
        await shown.until("! NO DAEMON")


async def test_without_a_daemon_there_is_a_banner_and_the_keys_are_dead(world: World) -> None:
    """Nothing looks as if it could be decided; when it is back, it can."""
    world.ask(reversible())
    async with world.console() as shown:
        await shown.until("mira@example.com")
        world.lose_daemon()
        await shown.until("! the daemon does not answer")
        assert "NO DAEMON" in shown.text
        assert "A approve" not in shown.text
        await shown.settled()
        for key in ("A", "d", "D"):
            await shown.press(key)
            await shown.until_told("nothing can be decided")
            assert "any other key" not in shown.text
            assert "Reason" not in shown.text

        world.get_daemon_back()
        await shown.until("daemon ok")
        await shown.until_not("! the daemon does not answer")
        await shown.approve()
        await shown.until(lambda: world.sent())


async def test_a_daemon_that_goes_while_the_second_step_is_open_is_sent_nothing_when_it_is_back(world: World) -> None:
    """The banner is there when the second step has gone, and the `y` counted for nothing."""
    world.ask(reversible())
    async with world.console() as shown:
        await shown.until("mira@example.com")
        await shown.settled()
        await shown.press("exclamation_mark", "A")
        await shown.until("any other key")
        world.lose_daemon()
        await shown.until(lambda: shown.app.lost)
        await shown.settled()
        await shown.press("y")
        await shown.until("! the daemon does not answer")
        world.get_daemon_back()
        await shown.until("daemon ok")
        await shown.until("mira@example.com")

    assert world.sent() == []


class _Now(datetime.datetime):
    """A day whose time goes on when a test says so."""

    passed = datetime.timedelta()

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Self:
        """Return what time it is by then."""
        return super().now(tz) + cls.passed


async def test_what_expires_while_the_word_is_typed_is_not_decided(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time ends in the second step: the right word sends nothing, the question stays, and says why."""
    monkeypatch.setattr(waiting, "datetime", SimpleNamespace(datetime=_Now, UTC=datetime.UTC))
    soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 600))
    asked = named("soon", expires_at=soon)
    other = named("later")
    world.ask(asked, other)
    async with world.console() as shown:
        await shown.until("CANNOT BE UNDONE")
        await shown.settled()
        await shown.press("exclamation_mark", "A")
        await shown.until("and press Enter")
        await shown.settled()
        await shown.type("ye")
        monkeypatch.setattr(_Now, "passed", datetime.timedelta(seconds=601))
        await shown.until(lambda: (shown.app.guard.refusal(now=float("inf")) or "").startswith("expired"))
        await shown.type("s")
        await shown.press("enter")
        await shown.until_told("expired: nothing ran, and it can no longer be decided: not decided")
        assert world.sent() == []
        assert "A approve" not in shown.text
        assert "Soon" in shown.rows[2]

        await shown.press("n")
        await shown.until("expires in")
        await shown.approve("yes")
        await shown.until(lambda: world.sent())

    assert world.sent_to() == [other["approval_id"]]


async def test_what_the_daemon_calls_expired_stays_with_its_reason(world: World) -> None:
    """It stays in its row, and no key decides it."""
    asked = named("old")
    world.ask(asked, named("other"))
    async with world.console() as shown:
        await shown.until("CANNOT BE UNDONE")
        world.settle(asked, "expired")
        await shown.until("! expired")
        await shown.settled()
        await shown.press("exclamation_mark", "A", "d")
        await shown.settled()

        assert shown.rows[2].split()[:2] == ["⌛", "Old:"]
        assert world.sent() == []


# 8 the person's key


async def test_a_locked_key_is_asked_for_before_anything_is_signed(world: World) -> None:
    """The passphrase is asked for at the terminal itself; a wrong one, three times, signs nothing."""
    world.sign()
    world.ask(reversible())
    world.passphrase = "a guess"
    async with world.console() as shown:
        await shown.until("key locked (L)")
        await shown.approve()
        await shown.until(lambda: len(world.asked_for) == 3)
        await shown.pilot.pause()
        assert world.sent() == []

        world.passphrase = "not the vault's passphrase"
        shown.rested()
        await shown.approve()
        await shown.until(lambda: world.sent())

    assert world.sent()[0]["signature"]
    assert all("to approve" in question for question in world.asked_for)


async def test_an_open_key_counts_down_and_is_wiped_at_its_end(world: World) -> None:
    """After 15 minutes, however often it was used, and with what it has opened."""
    now = [1000.0]
    approver = world.sign()
    asked = question(previewed())
    world.ask(asked)
    fields = [{"label": "To", "value": "only-for-the-approver", "multiline": False}]
    world.fake.script("POST", f"{ONE}/preview", sealed_preview(approver, asked["digest"], fields))
    async with world.console((80, 45), clock=lambda: now[0]) as shown:
        await shown.unlock()
        await shown.until("key open 15:00")
        await shown.until("only-for-the-approver")
        now[0] += 841
        await shown.until("key open 0:59")
        await shown.press("p")
        await shown.until(lambda: len(world.sent("preview")) == 2)
        now[0] += 60
        await shown.until_told("its time was over")
        await shown.until("key locked (L)")
        await shown.until_not("only-for-the-approver")
        assert not shown.app.key_session.may_read

    assert len(world.asked_for) == 1


async def test_a_key_that_is_not_kept_open_is_asked_for_each_time(world: World) -> None:
    """Where others can press keys: `L` opens nothing, and each decision asks."""
    world.sign()
    world.ask(named("one", reversible=True), named("two", reversible=True))
    async with world.console(not_kept="this is a terminal of tmux") as shown:
        await shown.until("passphrase each time")
        await shown.press("L")
        await shown.until_told("the passphrase is asked for each time: this is a terminal of tmux")
        assert world.asked_for == []
        for count in (1, 2):
            await shown.until("expires in")
            await shown.approve()
            await shown.until(lambda count=count: len(world.sent()) == count)
            await shown.until("✓")
            await shown.press("n")

    assert len(world.asked_for) == 2


async def test_in_tmux_one_passphrase_loads_previews_and_each_yes_takes_another(world: World) -> None:
    """The next preview comes by itself where the cursor rests; `L` ends that, and takes from the screen what it has opened."""
    approver = world.sign()
    secrets = {name: f"of-{name}-for-the-approver" for name in ("one", "two", "three")}
    for name, secret in secrets.items():
        asked = question(previewed({"name": name}), approval_id=f"act-20261121T040000-{name}")
        fields = [{"label": "Found", "value": secret, "multiline": False}]
        sealed = sealed_preview(approver, asked["digest"], fields)
        world.fake.script("POST", f"/v1/action-approvals/{asked['approval_id']}/preview", sealed)
        world.ask(asked)
    async with world.console((80, 45), not_kept="this is a terminal of tmux") as shown:
        await shown.until("current state not loaded")
        await shown.press("p")
        await shown.until(secrets["one"])
        await shown.until("previews open 1")
        for count, name in enumerate(("one", "two"), start=1):
            await shown.until(secrets[name])
            await shown.approve("yes")
            await shown.until(lambda count=count: len(world.sent()) == count)
            await shown.until("✓")
            await shown.press("n")
        await shown.until(secrets["three"])
        await shown.press("L")
        await shown.until_not(secrets["three"])
        await shown.until("passphrase each time")

    assert world.asked_for == [
        "Approver passphrase, to load previews for 15 minutes",
        *["Approver passphrase, to approve send-mail"] * 2,
    ]


async def test_the_terminal_is_held_while_the_console_is_open(world: World) -> None:
    """And let go for a passphrase, an editor, and the end; an editor finds no key open."""
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
        await shown.settled()
        await shown.press("e")
        await shown.until_told("no changes")
        await shown.until("key locked (L)")
        assert (held, world.is_held) == ([(False, False)], True)

    assert not world.is_held


# 9 colours


@pytest.mark.parametrize("theme", [None, "textual-light", "ansi-dark", "ansi-light", "high-contrast", "NO_COLOR"])
async def test_every_sign_is_there_without_its_colour(
    world: World, monkeypatch: pytest.MonkeyPatch, theme: str | None
) -> None:
    """The same text in every theme, with its words and signs; without colours none is drawn."""
    if theme == "NO_COLOR":
        monkeypatch.setenv("NO_COLOR", "1")
    gone = named("gone")
    changed = difference({"where": "args.to (new)", "before": "a", "after": "b"})
    world.ask(gone, named("one", difference=changed))
    async with world.console(theme=theme if theme != "NO_COLOR" else None) as shown:
        await shown.until("CANNOT BE UNDONE")
        world.settle(gone, "denied")
        await shown.until("✗")
        await shown.press("n")
        await shown.until("≠ in the approved call: a")
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


async def test_nothing_on_the_screen_moves_by_itself(world: World) -> None:
    """No animation is on, whatever the terminal can do."""
    async with world.console() as shown:
        assert shown.app.animation_level == "none"


# 10 small screens


def _of(shown: Shown) -> list[str]:
    return [row.split("  ")[0] for row in shown.rows]


async def test_at_80_by_24_all_that_matters_of_a_run_is_there_without_scrolling(world: World) -> None:
    """Effect, undo, destination, account, who, difference; and what the preview contradicts."""
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
        await shown.unlock()
        await shown.until("CURRENT STATE")
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

        await shown.press("exclamation_mark", "A")
        await shown.until("type  yes  and press Enter")
        assert "! To: the agent said" in shown.text
        assert "goes to   mail.example:443" in shown.text


@pytest.mark.parametrize("kind", SUBJECTS)
async def test_at_80_by_24_all_that_matters_of_a_consent_is_there_without_scrolling(world: World, kind: str) -> None:
    """What it is, how long it lasts, where it can go and as whom, how it is taken back, who asks, what is wider."""
    subject = SUBJECTS[kind]
    world.ask(subject_question(subject))
    async with world.console() as shown:
        await shown.until(VERDICTS.get(kind, LASTING))
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


async def test_a_long_folder_and_many_alarms_push_nothing_off_the_screen(world: World) -> None:
    """Each fact keeps a row, says how much of it is left out, and stands whole below."""
    approver = world.sign()
    args = {f"a{number}": "good" for number in range(20)}
    asked = question(previewed(args), agent="claude", folder="/x" * 600)
    world.ask(asked)
    fields = [{"label": name, "value": "evil", "multiline": False} for name in args]
    world.fake.script("POST", f"{ONE}/preview", sealed_preview(approver, asked["digest"], fields))
    async with world.console() as shown:
        await shown.unlock()
        await shown.until("! a0: the agent said")
        text = shown.text
        assert "more rows below" in text
        for name in ("goes to ", "account ", "asked by ", "compared "):
            assert f"\n{name}" in text
        assert "SHORTENED ABOVE, IN FULL" in text


async def test_below_80_columns_list_and_question_are_two_screens(world: World) -> None:
    """Enter goes to the question, Escape back; nothing is decided that is not on the screen."""
    world.ask(reversible())
    async with world.console((60, 20)) as shown:
        await shown.until("Send mail: ")
        assert "goes to" not in shown.text
        await shown.settled()
        await shown.press("exclamation_mark", "A")
        await shown.until_told("not on screen: press Enter to show it")
        await shown.press("enter")
        await shown.until("goes to   mail.example:443")
        await shown.press("escape")
        await shown.until_not("goes to")
        await shown.press("enter")
        await shown.until("goes to")
        await shown.press("exclamation_mark")
        await shown.approve()
        await shown.until(lambda: world.sent())


def _paste(text: str) -> Any:
    from textual.events import Paste

    return Paste(text)


def _assert_no_links(shown: Shown) -> None:
    for row in shown.app.screen._compositor.render_strips():
        for segment in row:
            assert segment.style is None or segment.style.link is None, segment
