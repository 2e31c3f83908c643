"""The rules about what is read before a key decides, one test or two for each, as in test_safety_rules.py.

In order: 4 hostile text · 5 what the agent says · 6 all of it was read.
"""

from __future__ import annotations

from typing import Any

import pytest
from textual.events import Key

from aileron.model.manifest import ApprovalRule
from aileron.tui import rendering
from aileron.tui.app import Console
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
    """The time of a word is that of its Enter, also where its keys came all at once."""
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
    """The card shows a difference between what is there now and what the agent says it is, and none where both are the same."""
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
    """Rows count as read where they stand on the screen, not where they were meant to stand."""
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


def _assert_no_links(shown: Shown) -> None:
    for row in shown.app.screen._compositor.render_strips():
        for segment in row:
            assert segment.style is None or segment.style.link is None, segment
