"""The rules by which a key decides, one test or two for each: what must not decide does not, and beside it what does.

In order: 1 the hash that was shown · 2 nothing under the cursor moves · 3 two steps. Others: test_safety_reading.py (4 to 6),
test_safety_surroundings.py (7 to 10).
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aileron.model.consent import Subject
from aileron.model.manifest import ApprovalRule
from aileron.tui import guard
from aileron.tui.view import View
from tests.cli.questions import (
    LASTING,
    ONE,
    SUBJECTS,
    VERDICTS,
    plan,
    previewed,
    question,
    sealed_preview,
    subject_question,
)
from tests.tui.consoles import World, named, reversible

pytestmark = pytest.mark.anyio


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


def _paste(text: str) -> Any:
    from textual.events import Paste

    return Paste(text)
