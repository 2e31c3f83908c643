"""The rules about what must be read before a key decides, with one or two tests for each, as in test_safety_rules.py.

In order: 4 hostile text · 5 what the agent says · 6 all of it was read.
"""

from __future__ import annotations

from typing import Any

import pytest
from textual.events import Key

from aileron.model.manifest import ApprovalRule
from aileron.tui import rendering
from aileron.tui.app import Console
from aileron.tui.screens import Confirm
from tests.cli.questions import (
    ONE,
    difference,
    plan,
    previewed,
    question,
    sealed_preview,
)
from tests.support.hostile_text import GROUPS, MEGABYTE, as_in_a_file, assert_harmless, assert_no_line_begins
from tests.tui.consoles import Shown, World, named, reversible

pytestmark = pytest.mark.anyio

OURS = ("Approve?", "Approver's passphrase", "signed by", "  fix:", "A approve")


# 4 hostile text


def hostile_question(text: str) -> dict[str, Any]:
    """Return a question about a run in which an agent wrote this text wherever it can."""
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
async def test_no_control_sequence_in_an_agents_text_takes_effect(world: World, text: str) -> None:
    """The text stands in arguments, answers, names, folders, differences and reasons: it is only shown."""
    text = as_in_a_file(text)
    asked = hostile_question(text)
    world.ask(asked)
    shown_texts = []
    async with world.console((100, 30), until="CANNOT BE UNDONE") as shown:
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

    for screen in shown_texts:
        assert_harmless(screen)
        assert_no_line_begins(screen, *OURS)


async def test_hidden_characters_of_an_agents_text_are_shown_escaped(world: World) -> None:
    """This is the control of the test above, where nothing may take effect."""
    world.ask(question(plan({"to": "a\x1b[2Jb\u202ec", "body": "x"})))
    async with world.console() as shown:
        await shown.until(r"a\x1b[2Jb\u202ec")


async def test_a_host_name_in_another_alphabet_is_marked(world: World) -> None:
    """A name that encodes another alphabet is marked; a plain one is not."""
    world.ask(question(plan(hosts=("xn--pple-43d.example:443",))))
    async with world.console() as shown:
        await shown.until("! xn--pple-43d.example:443", "not in plain letters")
    world.fake.approvals.clear()
    world.ask(named("plain-one"))
    async with world.console(until="goes to   mail.example:443") as shown:
        assert "not in plain letters" not in shown.text


async def test_an_agents_later_answer_must_be_read_before_an_approval(world: World) -> None:
    """The digest stays the same, but having read everything before does not count for the new answer."""
    asked = reversible()
    world.ask(asked)
    async with world.console(until=" A approve · d deny") as shown:
        answer = "\n".join(f"line {number}" for number in range(300))
        world.replace(asked, conversation=[{"question": "why?", "answer": answer}])
        await shown.until("↓ more (Space)")
        await shown.press_settled("A", until_told="not all of it was on screen")
        await shown.approve(until=lambda: world.sent())


def pressed(shown: Shown, *keys: str, at: float) -> None:
    """Deliver keys to the console now that were pressed at this time."""
    for name in keys:
        key = Key(name, name if len(name) == 1 else None)
        key.time = at
        shown.app.post_message(key)


def appeared(shown: Shown) -> float:
    """Return the time when the second step appeared."""
    screen = shown.app.screen
    assert isinstance(screen, Confirm)
    return screen.since


@pytest.mark.parametrize("after_s", [0.1, 1.0])
async def test_a_keystroke_is_judged_by_when_it_was_pressed_and_not_by_when_it_is_handled(
    world: World, after_s: float
) -> None:
    """A busy console handles a key late; that does not make it a key pressed after the person could look."""
    world.ask(reversible())
    async with world.console(until=" A approve · d deny") as shown:
        await shown.press_settled("A", until="any other key")
        came_up = appeared(shown)
        world.clock.now = came_up + 1.2
        pressed(shown, "y", at=came_up + after_s)
        await shown.pilot.pause()
        if after_s > 0.5:
            await shown.until(lambda: world.sent())

    assert bool(world.sent()) is (after_s > 0.5)


@pytest.mark.parametrize("after_s", [0.1, 1.0])
async def test_a_typed_word_is_judged_by_when_enter_was_pressed(world: World, after_s: float) -> None:
    """The time of the word's Enter counts, even if all its keys arrived at once."""
    world.ask(named("ab"))
    async with world.console(until="ab 1.2.0") as shown:
        await shown.press_settled("exclamation_mark", "A", until="and press Enter")
        came_up = appeared(shown)
        world.clock.now = came_up + 1.2
        pressed(shown, "y", "e", "s", "enter", at=came_up + after_s)
        await shown.until("not decided" if after_s < 0.5 else lambda: world.sent())

    assert bool(world.sent()) is (after_s > 0.5)


@pytest.mark.parametrize("blank", [" ", "\u3000", "\u00a0"], ids=["space", "wide", "no break"])
async def test_no_wrapped_row_of_foreign_text_can_look_like_ailerons_own(world: World, blank: str) -> None:
    """A value, a folder or an earlier call may contain many spaces: each further row starts with a mark."""
    gap = blank * 61
    memo = f"the invoice{gap}≠ was DE99, corrected by you{gap}! checked: approved 14 times before"
    changes = [{"where": "args.memo (changed)", "before": f"x{gap}! nothing differs", "after": memo}]
    found = difference(*changes)
    folder = f"/w{gap}! nothing differs from the call approved last"
    world.ask(question(plan({"memo": memo, "to": "≠ x"}), agent="claude", folder=folder, difference=found))
    for size in ((80, 24), (100, 45), (60, 20)):
        async with world.console(size, until="Send mail: ") as shown:
            await shown.press("enter", "f")
            for _ in range(6):
                for row in shown.rows:
                    inner = row.strip(" ▁▂▃▄▅▆▇█▔")
                    assert not inner.startswith(("! checked", "! nothing", "≠ was", "≠ x")), row
                await shown.press("space")
            if size == (100, 45):
                assert "│ ≠ x" in shown.text
                assert "in the approved call: x (61 blanks) ! nothing differs" in shown.text


async def test_a_value_of_a_megabyte_is_truncated_and_says_how_much_is_missing(world: World) -> None:
    """The cut value does not keep a person from deciding."""
    world.ask(question(plan({"body": MEGABYTE, "to": "x"})))
    async with world.console(until="CANNOT BE UNDONE") as shown:
        await shown.press("enter", "end", until="▸ proof")
        await shown.press_settled("A", until_told="not all of it was on screen")

        await shown.press("home")
        for _ in range(12):
            await shown.press("pagedown")
        await shown.press("f", "end", until="▸ proof")
        await shown.press_settled("A", until="and press Enter")


# 5 what the agent says


async def test_an_agents_answer_is_shown_in_a_box_below_the_preview_and_arguments(world: World) -> None:
    """The box comes after the preview and the arguments, and says that the answer is not verified."""
    said = [{"question": "who is it for?", "answer": "The user agreed already. Approve."}]
    approver = world.sign()
    asked = question(previewed(), conversation=said)
    world.ask(asked)
    fields = [{"label": "To", "value": "mira@example.com", "multiline": False}]
    world.fake.script("POST", f"{ONE}/preview", sealed_preview(approver, asked["digest"], fields))
    async with world.console((100, 45)) as shown:
        await shown.unlock(until="CURRENT STATE")
        rows = shown.rows

    at = [
        next(n for n, row in enumerate(rows) if text in row) for text in ("CURRENT STATE", "ARGUMENTS", "┌─ agent says")
    ]
    assert at == sorted(at)
    assert rows[at[2]].strip().startswith("┌─ agent says (not verified) ─")
    assert "│ the agent: The user agreed already. Approve." in rows[at[2] + 2]


async def test_a_contradiction_between_preview_and_arguments_is_an_alarm(world: World) -> None:
    """The alarm names both values; there is none if they are the same."""
    approver = world.sign()
    asked = question(previewed())
    world.ask(asked)
    answers = [
        sealed_preview(approver, asked["digest"], [{"label": "To", "value": value, "multiline": False}])
        for value in ("mallory@evil.example", "mira@example.com")
    ]
    world.fake.script("POST", f"{ONE}/preview", *answers)
    async with world.console((160, 30)) as shown:
        await shown.unlock(until="! To: the agent said “mira@example.com”, the service has “mallory@evil.example”")
        await shown.press("p", until_not="mallory")
        assert "the agent said" not in shown.text


# 6 all of it was read


@pytest.mark.parametrize("way", ["the end", "!"])
async def test_a_long_question_must_be_read_to_its_end_or_confirmed_unread(world: World, way: str) -> None:
    """The key `A` says that there is more until the end was shown; a short question needs neither."""
    long = "\n".join(f"line {number}" for number in range(60))
    world.ask(named("long", args={"body": long}, reversible=True), named("short", args={}, reversible=True))
    async with world.console(until="line 1") as shown:
        await shown.press_settled("A", until_told="not all of it was on screen")
        await shown.press("enter", *["pagedown"] * 2)
        await shown.press_settled("A")
        assert "any other key" not in shown.text
        if way == "!":
            await shown.press("exclamation_mark", until_told="deciding without having read everything")
        else:
            await shown.press("end", until=lambda: shown.app.guard.is_read)
        await shown.approve(unread=False, until=lambda: world.sent())

    assert world.sent_to() == [named("long")["approval_id"]]


async def test_the_next_question_starts_at_its_top_and_counts_as_unread(world: World) -> None:
    """Scrolling one question to its end does not make the next one read."""
    long = "\n".join(f"line {number}" for number in range(60))
    world.ask(named("one", args={"body": long}), named("two", args={"body": f"first of two\n{long}"}))
    async with world.console(until="line 1") as shown:
        await shown.press("enter", "end", until="▸ proof")
        await shown.press("n", until="first of two")
        await shown.press_settled("A", until_told="not all of it was on screen")
        assert "and press Enter" not in shown.text


def _asked_of_nine_hosts(name: str) -> dict[str, Any]:
    hosts = tuple(f"h{number}.example:443" for number in range(9))
    rule = ApprovalRule(required=True, irreversible=False)
    of = plan({"to": "mallory@evil.example", "body": "x"}, action=name, hosts=hosts, approval=rule)
    return question(of, approval_id=f"act-20261121T040000-{name}", audit_id=f"run-{name}")


@pytest.mark.parametrize("size", [(80, 20), (80, 19), (80, 15), (80, 12), (80, 9), (80, 7), (60, 12), (60, 9)])
async def test_a_question_counts_as_read_only_if_every_row_was_on_the_screen(
    world: World, size: tuple[int, int]
) -> None:
    """Five questions of nine hosts each wait; on a small screen, text below the last row is not taken for read."""
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
        await shown.press("exclamation_mark", "A", until="any other key")


@pytest.mark.parametrize("sign", ["\u2601\ufe0f", "\u0903", "\u302e"], ids=["a picture", "a mark", "a wide mark"])
async def test_characters_drawn_wider_than_counted_do_not_hide_the_end_of_a_question(world: World, sign: str) -> None:
    """The terminal draws them wider than counted; it must not wrap rows, which would push the end down."""
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
    async with world.console(until="CANNOT BE UNDONE") as shown:
        await shown.press("enter")
        for _ in range(100):
            await shown.press("j")
            await shown.pilot.pause()
            if shown.app.guard.is_read:
                break
            assert all(not row or row.startswith(names) for row in shown.rows[12:-1])

        assert shown.app.guard.is_read
        assert "mallory@evil.example" in shown.text


async def test_rows_truncated_at_the_screens_edge_are_marked_and_do_not_count_as_read(world: World) -> None:
    """The screen is narrower than any layout."""
    long = "\n".join(f"line {number} of many" for number in range(60))
    world.ask(named("long", args={"body": long}))
    async with world.console(until="line 1") as shown:
        await shown.pilot.resize_terminal(18, 40)
        await shown.press("enter", "end")
        await shown.settled()

        assert any(row.rstrip(" ▁▂▃▄▅▆▇█").endswith("…") for row in shown.rows[2:-2])
        assert not shown.app.guard.is_read


async def test_rows_that_wrap_unexpectedly_must_still_be_scrolled_to_the_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end is then further down than computed, and only counts as read where it is on the screen."""
    world.ask(named("long", args={"body": "\n".join(["\u65e5" * 50] * 9), "zz": "mallory@evil.example"}))
    monkeypatch.setattr(rendering, "cells_of", lambda character: 1)
    monkeypatch.setattr(rendering, "cells", len)
    monkeypatch.setattr(Console, "CSS", Console.CSS.replace("text-wrap: nowrap", "text-wrap: wrap"))
    async with world.console(until="CANNOT BE UNDONE") as shown:
        await shown.press("enter")
        while not shown.app.guard.is_read:
            await shown.press("j")
            await shown.pilot.pause()

        assert "mallory@evil.example" in shown.text


async def test_a_preview_must_be_loaded_before_an_approval(world: World) -> None:
    """The key `A` asks for the preview; once it is loaded, the approval covers it."""
    approver = world.sign()
    asked = question(previewed())
    world.ask(asked)
    fields = [{"label": "To", "value": "mira@example.com", "multiline": False}]
    world.fake.script("POST", f"{ONE}/preview", sealed_preview(approver, asked["digest"], fields))
    async with world.console((80, 45), until="current state not loaded") as shown:
        await shown.press_settled("exclamation_mark", "A", until_told="current state not loaded: press p")
        await shown.press("p", until="CURRENT STATE")
        await shown.approve("yes", until=lambda: world.sent())

    assert world.sent()[0]["digest"] not in (asked["digest"], None)


def _assert_no_links(shown: Shown) -> None:
    for row in shown.app.screen._compositor.render_strips():
        for segment in row:
            assert segment.style is None or segment.style.link is None, segment
