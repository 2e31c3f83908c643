"""The activity screen: runs as stories by session, the last hour above them, and every event one key away."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from aileron.tui.queue import Rows
from tests.support.fake_daemon import Seen
from tests.tui.consoles import Shown, World

pytestmark = pytest.mark.anyio

SESSION = {
    "id": "ses-1",
    "agent": "claude",
    "folder": "/home/you/invoices",
    "status": "open",
    "started_at": "2026-11-21T03:00:00Z",
    "expires_at": "2026-11-21T13:00:00Z",
    "ended_at": None,
    "reason": None,
    "exit_code": None,
    "runs": 1,
    "pid": None,
}


def now() -> str:
    """Return the current time as the daemon writes it."""
    return datetime.datetime.now(datetime.UTC).isoformat()


def request(world: World, number: int, *, to: str = "mira@example.com") -> str:
    """Let an agent request a run that waits for approval. Return the run's id."""
    run = f"run-{number}"
    steps = [{"id": "one", "op": "send_mail"}]
    of = {"run": run, "session": "ses-1", "action": "send-mail", "at": now()}
    world.happen("run.requested", args={"to": to}, steps=steps, **of)
    world.happen("approval.requested", run=run, approval=f"act-{number}", kind="action", name="send-mail", at=now())
    return run


def finish(world: World, number: int, result: Any) -> None:
    """Let the person approve the run, and the run complete."""
    run = f"run-{number}"
    state = {"status": "completed", "audit_id": run, "action": "send-mail", "result": result}
    world.fake.script("GET", f"/v1/runs/{run}", (200, state))
    world.happen("approval.decided", run=run, approval=f"act-{number}", decision="approve", at=now())
    for each in (1, 2, 3):
        world.happen("egress.sending", run=run, step="one", request=each, method="POST", at=now())
    world.happen("run.finished", run=run, session="ses-1", action="send-mail", status="completed", at=now())


def fill(world: World) -> None:
    """Add one session with one completed run."""
    world.fake.script("GET", "/v1/sessions", (200, {"sessions": [SESSION]}))
    request(world, 1)
    finish(world, 1, {"id": "m-1"})


async def look(shown: Shown) -> None:
    """Open the activity screen."""
    await shown.press("2", until="LAST HOUR")


async def test_the_activity_screen_shows_the_story_of_a_run_with_its_result(world: World) -> None:
    """The story stands under the session that asked, the newest first, below the chart of the hour."""
    fill(world)
    async with world.console() as shown:
        await look(shown)
        await shown.until("✓ done: id “m-1”")

        assert shown.rows[2].startswith("LAST HOUR")
        assert shown.rows[3].split()[:2] == ["claude", "runs"]
        assert "█" in shown.rows[3]
        assert shown.rows[4] == "claude in /home/you/invoices · 1 run"
        assert shown.rows[5].startswith("✓ Send mail: to “mira@example.com”")
        assert shown.rows[6].strip() == "asked · shown · approved · 3 requests · ✓ done: id “m-1”"


async def test_stories_of_new_runs_appear_at_once_and_the_cursor_stays(world: World) -> None:
    """New stories come first; a person who reads another story keeps it under the cursor."""
    fill(world)
    async with world.console() as shown:
        await look(shown)
        request(world, 2, to="first@example.com")
        await shown.until("! Send mail: to “first@example.com”", "asked · waiting for you")
        await shown.press("down")
        stories = shown.app.query_one("#stories", Rows)
        assert stories.chosen() == "run-1"
        request(world, 3, to="second@example.com")
        await shown.until("second@example.com")
        assert stories.chosen() == "run-1"
        finish(world, 2, None)
        await shown.until("✓ Send mail: to “first@example.com”")
        assert stories.chosen() == "run-1"

        await shown.press("home")
        request(world, 4, to="third@example.com")
        await shown.until("third@example.com")
        assert stories.chosen() == "run-4"


async def test_the_key_l_switches_between_stories_of_runs_and_all_events(world: World) -> None:
    """The key is `l`; Enter shows the same run from both lists."""
    fill(world)
    world.fake.script("GET", "/v1/audit/run-1", (200, {"audit_id": "run-1", "status": "completed", "events": []}))
    async with world.console() as shown:
        await look(shown)
        await shown.press("l", until="egress.sending")
        assert "LAST HOUR" not in shown.text
        assert "l runs as stories" in shown.rows[-1]
        await shown.press("enter", until="run run-1: completed")
        await shown.press("escape", "l", until="LAST HOUR")
        assert "egress.sending" not in shown.text
        await shown.press("enter", until="run run-1: completed")


async def test_the_last_hours_events_are_loaded_only_when_the_screen_is_first_opened(world: World) -> None:
    """They come in pages; after the daemon was lost, the missed events are loaded too."""
    fill(world)
    rows = [{"seq": 5000 + number, "at": now(), "type": "vault.locked"} for number in range(1000)]
    pages: list[str] = []
    tail = world._audit

    def audit(seen: Seen) -> Any:
        if "wait" in seen.query or seen.query.get("limit") == "100":
            return tail(seen)
        pages.append(seen.query.get("before", "newest"))
        return 200, {"events": world.rows[::-1] if "before" in seen.query else rows[::-1]}

    world.fake.script("GET", "/v1/audit", audit)
    async with world.console() as shown:
        assert pages == []
        await look(shown)
        await shown.until("✓ done: id “m-1”")
        assert pages == ["newest", "5000"]
        world.lose_daemon()
        await shown.until("! NO DAEMON")
        request(world, 2, to="meanwhile@example.com")
        world.get_daemon_back()
        await shown.until("meanwhile@example.com")


async def test_a_small_activity_screen_shows_numbers_and_stories_of_runs_but_no_chart_bars(world: World) -> None:
    """The chart has no room for bars at 60 by 20; a larger screen brings them back."""
    fill(world)
    async with world.console() as shown:
        await shown.pilot.resize_terminal(60, 20)
        await look(shown)
        await shown.until("✓ done: id “m-1”")
        assert "█" not in shown.rows[3]
        assert shown.rows[3].split() == ["claude", "runs", "1", "waits", "1", "denied", "0"]
        await shown.pilot.resize_terminal(100, 30)
        await shown.until("█")


@pytest.mark.parametrize("theme", ["NO_COLOR", "ansi-dark", "ansi-light"])
async def test_the_activity_screen_has_the_same_content_without_colours(
    world: World, monkeypatch: pytest.MonkeyPatch, theme: str
) -> None:
    """Marks and bars are characters, not colours."""
    fill(world)
    if theme == "NO_COLOR":
        monkeypatch.setenv("NO_COLOR", "1")
    async with world.console(theme=None if theme == "NO_COLOR" else theme) as shown:
        await look(shown)
        await shown.until("✓ done: id “m-1”")

        assert shown.rows[3].split("runs")[0].strip() == "claude"
        assert "█" in shown.rows[3]
        assert shown.rows[5].startswith("✓ Send mail: to “mira@example.com”")
