"""The rules by which a key decides, with one or two tests for each: cases that must not decide, and beside them cases that do.

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


async def test_an_approval_names_the_digest_of_what_the_screen_shows(world: World) -> None:
    """The console computes that digest itself."""
    asked = reversible()
    world.ask(asked)
    async with world.console(until="mira@example.com") as shown:
        await shown.approve(until=lambda: world.sent())

    assert world.sent() == [{"decision": "approve", "digest": asked["digest"]}]


async def test_a_question_that_changes_during_the_second_step_is_not_decided(world: World) -> None:
    """The arguments change under the same id: the `y` sends nothing. The new arguments can be approved once shown."""
    asked = reversible()
    other = plan({"to": "mallory@evil.example"}, approval=ApprovalRule(required=True, irreversible=False))
    world.ask(asked)
    async with world.console(until="mira@example.com") as shown:
        await shown.press_settled("exclamation_mark", "A", until="any other key")
        world.replace(asked, plan=other.to_json(), digest=other.digest)
        await shown.until(lambda: shown.app.guard.digest == other.digest)
        await shown.press_settled("y", until_told="the request changed")

        assert world.sent() == []

        await shown.until("mallory@evil.example")
        await shown.approve(until=lambda: world.sent())

    assert world.sent() == [{"decision": "approve", "digest": other.digest}]


async def test_a_plan_that_does_not_match_its_digest_is_not_shown(world: World) -> None:
    """The home has an approver: a plan that its digest does not cover is neither shown nor decided."""
    world.sign()
    asked = {**reversible(), "headline": "Send mail"}  # a row comes from the daemon and is not signed
    asked["plan"]["args"] = {"to": "mallory@evil.example"}
    world.ask(asked)
    async with world.console(until="! this plan") as shown:
        await shown.press_settled("exclamation_mark", "A", "y")
        await shown.settled()

        assert "mallory" not in shown.text
        assert world.sent() == []


async def test_a_question_from_before_enrollment_is_read_again_before_it_is_signed(world: World) -> None:
    """A false daemon first denies that there is an approver, so that any digest passes, and then admits it."""
    asked = reversible()
    forged = {**asked, "digest": "sha256:" + "e1" * 32}
    world.ask(forged)
    async with world.console(until="mira@example.com") as shown:
        await shown.settled()
        world.sign()
        world.happen("vault.unlocked")
        await shown.until("! this plan")
        await shown.press("exclamation_mark", "A", "y")
        await shown.settled()

        assert world.sent() == []
        assert world.asked_for == []


async def test_a_daemon_that_denies_that_an_approver_is_enrolled_is_not_believed(world: World) -> None:
    """The console counts the daemon as lost at once; decisions work again when it tells the truth."""
    world.sign()
    world.ask(reversible())
    async with world.console(until="mira@example.com") as shown:
        truth = world.fake.approver
        world.fake.approver = {"status": "none"}
        world.happen("vault.unlocked")
        await shown.until("NO DAEMON")
        await shown.press_settled("exclamation_mark", "A", "y")
        await shown.settled()
        assert world.sent() == []

        world.fake.approver = truth
        await shown.until("daemon ok")
        await shown.press_settled("exclamation_mark", "A", until="any other key")
        await shown.press_settled("y", until=lambda: world.sent())


# 2 nothing under the cursor moves


async def test_keystrokes_are_ignored_for_400_ms_after_a_new_request_appears(world: World) -> None:
    """A key that was pressed for the old screen must not open a second step; later the same key does."""
    world.ask(named("first", reversible=True))
    async with world.console(until="mira@example.com") as shown:
        await shown.settled()
        world.clock.now += guard.ARRIVALS_S
        world.ask(named("second"))
        await shown.until("Second")
        await shown.press("exclamation_mark", "A", until_told="this only just appeared")
        assert "any other key" not in shown.text

        await shown.press_settled("exclamation_mark", "A", until="any other key")

    assert world.sent() == []


@pytest.mark.parametrize(("passed_s", "is_dead"), [(0.0, True), (0.399, True), (0.401, False)])
def test_keystrokes_are_accepted_again_exactly_400_ms_after_the_last_change_of_the_screen(
    passed_s: float, is_dead: bool
) -> None:
    """The test checks the time to a millisecond."""
    shown = guard.Guard()
    shown.show("a", "sha256:1", now=100.0)
    shown.read_to_end()
    shown.disturb(now=200.0)

    assert (shown.refusal(now=200.0 + passed_s) is not None) == is_dead


async def test_an_agent_that_asks_continually_cannot_block_a_persons_keystrokes(world: World) -> None:
    """Requests arrive every 50 ms, more often than keys are ignored for; a person can still approve."""
    world.ask(named("first", reversible=True))
    async with world.console(until="mira@example.com") as shown:
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
        await shown.press_settled("y", until=lambda: world.sent())

    assert world.sent_to() == ["act-20261121T040000-first"]


ARRIVALS = [(0.0, True), (0.3, True), (0.41, False), (1.9, False), (2.0, True), (2.39, True), (2.41, False)]


@pytest.mark.parametrize(("at_s", "is_dead"), ARRIVALS)
def test_new_requests_block_keystrokes_at_most_once_in_two_seconds(at_s: float, is_dead: bool) -> None:
    """A request arrives every 10 ms. A change of the question that is shown always blocks keys."""
    shown = guard.Guard()
    shown.show("a", "sha256:1", now=0.0)
    shown.read_to_end()
    for hundredth in range(int(at_s * 100) + 1):
        shown.arrive(now=100.0 + hundredth / 100)

    assert (shown.refusal(now=100.0 + at_s) is not None) == is_dead
    shown.disturb(now=100.0 + at_s)
    assert shown.refusal(now=100.0 + at_s) is not None


def test_reloading_an_unchanged_question_does_not_block_keystrokes() -> None:
    """An agent can cause a reload; only another digest counts as a change."""
    shown = guard.Guard()
    for second in range(3):
        shown.show("a", "sha256:1", now=float(second))
        shown.read_to_end()
    assert shown.refusal(now=2.0) is None
    shown.show("a", "sha256:2", now=2.0)
    shown.read_to_end()
    assert shown.refusal(now=2.1) is not None


async def test_an_approvals_second_step_ignores_keystrokes_at_first(world: World) -> None:
    """The keys `A` and `y` pressed at once decide nothing; a `y` after a moment does."""
    world.ask(reversible())
    async with world.console(until="mira@example.com") as shown:
        await shown.press_settled("exclamation_mark", "A", "y", until="any other key")
        assert world.sent() == []

        await shown.press_settled("y", until=lambda: world.sent())


async def test_new_requests_are_listed_last_and_the_cursor_stays_on_its_question(world: World) -> None:
    """The cursor follows the question's id, whatever arrives and whatever is decided above it."""
    first, second = named("first"), named("second", args={"to": "only@in.second"})
    world.ask(first, second)
    async with world.console(until="Second") as shown:
        await shown.press("j", until="only@in.second")
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


async def test_an_irreversible_run_with_undeclared_effect_needs_a_typed_word(world: World) -> None:
    """Neither `y` nor any other word decides, even with Enter."""
    world.ask(question())
    async with world.console(until="CANNOT BE UNDONE") as shown:
        await shown.press_settled("exclamation_mark", "A", until="and press Enter")
        for word in ("y", "ye", "YES", "yes!", "send-mail", "allow", "delete"):
            await shown.settled()
            await shown.enter(word, until="not decided")
            await shown.press(*["backspace"] * len(word))
        assert world.sent() == []

        await shown.enter("yes", until=lambda: world.sent())


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
async def test_a_run_that_deletes_or_pays_needs_the_typed_word_of_its_effect(world: World, effect: str) -> None:
    """Neither `y` nor the word of another effect decides; its own word and Enter do."""
    world.ask(question(plan(action_text=_DECLARED % ("cd" * 32, effect))))
    async with world.console(until=f"! {effect.upper()}S") as shown:
        await shown.press_settled("exclamation_mark", "A", until=f"type  {effect}  and press Enter")
        for word in ("y", "yes", "delete" if effect == "pay" else "pay"):
            await shown.settled()
            await shown.enter(word, until="not decided")
            await shown.press(*["backspace"] * len(word))
        assert world.sent() == []

        await shown.enter(effect, until=lambda: world.sent())


@pytest.mark.parametrize(("effect", "sign"), [("create", "+"), ("change", "~"), ("send", "»")])
async def test_a_run_that_creates_changes_or_sends_is_approved_with_only_two_keystrokes(
    world: World, effect: str, sign: str
) -> None:
    """A capital `A` and then `y` decide, even if the run cannot be undone."""
    world.ask(question(plan(action_text=_DECLARED % ("cd" * 32, effect))))
    async with world.console(until=f"{sign} {effect}s") as shown:
        await shown.press_settled("a", "y")
        assert world.sent() == []

        await shown.approve(until=lambda: world.sent())


ALLOWS_LITTLE = msgspec.structs.replace(SUBJECTS["connector_update"], changes=())


@pytest.mark.parametrize(
    ("subject", "verdict"),
    [
        *((subject, VERDICTS.get(kind, LASTING)) for kind, subject in SUBJECTS.items()),
        (ALLOWS_LITTLE, "~ lasting permission"),
    ],
    ids=[*SUBJECTS, "allows little"],
)
async def test_approving_a_consent_needs_the_typed_word_allow(world: World, subject: Subject, verdict: str) -> None:
    """This holds for each kind of consent, however little it allows: `y` decides nothing."""
    world.ask(subject_question(subject))
    async with world.console(until=verdict) as shown:
        await shown.press_settled("exclamation_mark", "A", until="and press Enter")
        await shown.press_settled("y", "enter", until="not decided")
        assert world.sent() == []

        await shown.press("backspace")
        await shown.enter("allow", until=lambda: world.sent())


async def test_a_run_that_can_be_undone_is_approved_with_the_keys_capital_a_and_y(world: World) -> None:
    """A small `a`, and any other second key, do nothing."""
    world.ask(reversible())
    async with world.console(until="mira@example.com") as shown:
        await shown.press_settled("a", "y")
        assert "any other key" not in shown.text
        for key in ("n", "enter", "space", "A", "Y", "escape"):
            await shown.press_settled("exclamation_mark", "A", until="any other key")
            await shown.press_settled(key, until_not="any other key")
        assert world.sent() == []

        await shown.approve(until=lambda: world.sent())


async def test_the_keys_enter_and_space_a_click_and_a_paste_approve_nothing(world: World) -> None:
    """The test tries them in the list, on the question and in the second step; a pasted word is not a typed one."""
    world.ask(question())
    async with world.console(until="CANNOT BE UNDONE") as shown:
        await shown.settled()
        for key in ("enter", "space", "tab", "enter", "space"):
            await shown.press(key)
        for row in range(24):
            await shown.pilot.click(offset=(5, row))
        await shown.press("escape")
        shown.app.post_message(_paste("A"))
        await shown.pilot.pause()
        assert "and press Enter" not in shown.text

        await shown.press_settled("exclamation_mark", "A", until="and press Enter")
        await shown.settled()
        for row in range(24):
            await shown.pilot.click(offset=(20, row))
        shown.app.screen.query_one("#word").post_message(_paste("yes\n"))
        await shown.pilot.pause()
        await shown.press("enter", until="not decided")
        assert world.sent() == []

        await shown.enter("yes", until=lambda: world.sent())


async def test_keystrokes_in_a_dialog_trigger_no_console_commands(world: World) -> None:
    """Every key is text while a word, a reason or a question is typed, capitals too."""
    world.ask(question())
    async with world.console(until="CANNOT BE UNDONE") as shown:
        for key, title in (("A", "and press Enter"), ("d", "deny Send mail"), ("m", "ask the agent")):
            await shown.press_settled("exclamation_mark", key, until=title)
            await shown.press("A", "d", "D", "u", "L", "V", "q", "5", until="AdDuLVq5")
            await shown.press("escape", until_not=title)
        assert (world.sent(), world.sent("cancel"), world.asked_for) == ([], [], [])

        await shown.press_settled("d", until="deny Send mail")
        await shown.enter("no", until=lambda: world.sent())

    assert world.sent()[0]["decision"] == "deny"


async def test_the_command_palette_does_not_open_over_an_approvals_second_step(world: World) -> None:
    """The key Ctrl-P does nothing there; on the main screen it opens the palette."""
    world.ask(reversible(), named("other", reversible=True))
    async with world.console(until="mira@example.com") as shown:
        await shown.press_settled("exclamation_mark", "A", until="any other key")
        await shown.press("ctrl+p")
        await shown.pilot.pause()
        assert "Deny and end the session" not in shown.text
        await shown.press("escape", until_not="any other key")
        await shown.press("ctrl+p")
        await shown.type("deny")
        await shown.until("Deny and end the session (stop the agent)  (D)")


@pytest.mark.parametrize("is_final", [True, False], ids=["a word", "a key"])
async def test_the_whole_card_can_be_scrolled_in_an_approvals_second_step(world: World, is_final: bool) -> None:
    """Arrows and page keys scroll through the card on the smallest screen, while the word is being typed."""
    body = "\n".join(f"line {number}" for number in range(30))
    world.ask(named("one", reversible=not is_final, args={"to": "mira@example.com", "body": body}))
    async with world.console((60, 20), until="One") as shown:
        await shown.press("enter", until="goes to")
        await shown.press_settled("exclamation_mark", "A", until="↓ ↑ PgDn PgUp")
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
        await shown.press_settled(*(["s", "enter"] if is_final else ["y"]), until=lambda: world.sent())


@pytest.mark.parametrize("width", [60, 80, 140])
async def test_a_long_action_name_pushes_no_deciding_fact_off_the_screen(world: World, width: int) -> None:
    """Other parts get fewer rows if name and verdict need more."""
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


async def test_a_late_report_that_an_earlier_question_was_read_does_not_mark_the_current_question_as_read(
    world: World,
) -> None:
    """The message is about an earlier card or digest."""
    long = "\n".join(f"line {number}" for number in range(60))
    world.ask(named("one", args={"body": long}))
    async with world.console(until="line 1") as shown:
        await shown.settled()
        card, digest = shown.app.card, str(shown.app.guard.digest)
        assert card is not None
        shown.app.post_message(View.AllSeen(card, "sha256:" + "00" * 32))
        shown.app.post_message(View.AllSeen(msgspec.structs.replace(card, sections=()), digest))
        await shown.pilot.pause()
        await shown.press("A", until_told="not all of it was on screen")
        await shown.press("enter", "end", until=lambda: shown.app.guard.is_read)
        await shown.press("A", until="and press Enter")


def _paste(text: str) -> Any:
    from textual.events import Paste

    return Paste(text)
