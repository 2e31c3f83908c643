"""A list of twenty-two requests on every surface: exactly the three dangerous ones have an alarm, in words.

The rows are made in one place (cards/listed.py, cards/row.py); here each surface is asked whether it shows all of them.
Looked at with these: 80x24, 120x40, without colours, as a command, and the page.
"""

from __future__ import annotations

import re
from functools import partial

import msgspec
import pytest

from aileron.api.approvals import ApprovalEntry
from aileron.cards.row import Row, rows_for
from tests.cli.command import Command
from tests.support.listed import in_a_list
from tests.support.twenty_two import DANGEROUS, twenty_two
from tests.tui.consoles import World
from tests.web.daemon_port import ToldDesk, browser_of

pytestmark = pytest.mark.anyio


def rows() -> list[Row]:
    """Return the rows of all requests, as every surface has them."""
    known = ApprovalEntry.__struct_fields__
    listed = [{name: entry[name] for name in entry if name in known} for entry in in_a_list(twenty_two())]
    return list(rows_for(msgspec.convert(listed, list[ApprovalEntry])).values())


def test_of_the_22_example_requests_exactly_the_three_dangerous_have_an_alarm() -> None:
    """Each row has the verdict of its card, and the request that expires first is at the top."""
    told = rows()

    assert {row.id: (row.verdict, row.alarm) for row in told if row.alarm} == DANGEROUS
    assert [row.verdict for row in told if row.weight == "heavy"].count("! PAYS") == 3
    assert [row.id[-2:] for row in told] == [f"{number:02}" for number in range(21, -1, -1)]
    titles = " ".join(row.title for row in told)
    assert "10,000,000 “JPY”" in titles
    assert "N<U+043E>rthwind Ltd" in titles
    assert {row.differs for row in told if row.alike} == {("text",), ("to",)}
    assert not any(row.alike for row in told if row.verdict == "! PAYS" or row.alarm)


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=str)
@pytest.mark.parametrize("no_color", ["", "1"], ids=["colours", "NO_COLOR"])
async def test_the_console_shows_the_mark_of_every_request(
    world: World, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int], no_color: str
) -> None:
    """Every row has its whole title at both sizes; facts that all requests share are in no row."""
    if no_color:
        monkeypatch.setenv("NO_COLOR", no_color)
    world.ask(*twenty_two())
    async with world.console(size) as shown:
        await shown.until("22 waiting · ! 3 alarms", "goes to")
        prompts = [str(shown.app.queue.get_option_at_index(number).prompt) for number in range(22)]

    told = rows()
    assert [row.verdict in prompt for row, prompt in zip(told, prompts, strict=True)] == [True] * 22
    found = {row.id: row.alarm in prompt for row, prompt in zip(told, prompts, strict=True) if row.alarm}
    assert found == dict.fromkeys(DANGEROUS, True)
    assert not any("claude" in prompt for prompt in prompts)
    for row, prompt in zip(told, prompts, strict=True):
        assert row.title in re.sub(r" +\d\d:\d\d(\n +↳|$)", "", prompt, flags=re.MULTILINE), prompt


async def test_list_rows_of_several_lines_can_be_clicked_and_selected_like_single_line_rows(world: World) -> None:
    """A click on any line selects the row; the selected row stays on the screen, even after a resize."""
    world.ask(*twenty_two())
    ids = [row.id for row in rows()]
    async with world.console((120, 40), until="goes to") as shown:
        titles = [number for number, line in enumerate(shown.rows) if "“github://acme/mail”" in line]
        for line in (titles[0] - 1, titles[0], titles[0] + 1):  # two lines of its title, one of its alarm
            await shown.pilot.click(offset=(5, 2))
            assert shown.app.queue.chosen() == ids[0]
            await shown.pilot.click(offset=(15, line))
            assert shown.app.queue.chosen() == ids[3]

        await shown.press("v")
        assert shown.app.queue.marked_open == [ids[3]]
        assert "● ! LASTING Update the connector " in shown.text
        await shown.press("escape", *["j"] * 30)
        assert shown.app.queue.chosen() == ids[-1]

        def begins(row: int, text: str) -> bool:
            return shown.rows[row].startswith(text)

        for size, last in (
            ((120, 40), "          ↳ 2026, 12:00 UTC"),
            ((104, 24), "          ↳ Tue 8 Dec 2026, 12:00 UTC"),
            ((80, 24), "  + creates Add “Lunch with Mira”, Tue 8 Dec 2026, 12:00 UTC"),
            ((110, 24), "          ↳ 8 Dec 2026, 12:00 UTC"),
        ):
            await shown.pilot.resize_terminal(*size)
            end = 6 if size[0] < 104 else -2
            await shown.until(partial(begins, end, last))

        await shown.press("g", until="↳ text differs")
        assert shown.app.queue.chosen() == ids[-1]


def test_the_command_approval_list_shows_the_mark_of_every_request(world: World) -> None:
    """The command is `approval list`, at a terminal and in a pipe."""
    world.ask(*twenty_two())
    aileron = Command(world.home)
    table, piped = aileron.at_terminal("approval", "list", COLUMNS="120").out, aileron("approval", "list").out

    for shown in (table, piped):
        flat = " ".join(shown.split())
        for verdict, alarm in DANGEROUS.values():
            assert flat.count(f"{verdict} {alarm}") == 1


async def test_the_web_page_shows_the_mark_of_every_request() -> None:
    """Each mark stands in its row as words."""
    desk = ToldDesk(*twenty_two())
    async with browser_of(desk) as browser:
        page = await browser.get("/approvals")

    listed = re.findall(r'<li data-id="([^"]+)".*?</li>', page.text, re.DOTALL)
    assert listed == [row.id for row in rows()]
    for row in rows():
        (item,) = re.findall(rf'<li data-id="{row.id}".*?</li>', page.text, re.DOTALL)
        assert row.verdict in item
        assert ("mark" in re.findall(r'class="(\w+)"', item)) == (row.id in DANGEROUS)
        assert row.alarm in item
    assert "All asked by claude" in page.text
