"""The request of `aileron demo`, asked by an agent with a name and a folder: what decides it is on a phone's first screen."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.paging import PHONE, unlocked
from tests.support.browser import Browser, needs_browser
from tests.support.home import DaemonHome, daemon_home
from tests.support.paged import KeptApprover, PageClient, port_of
from tests.support.radicale import RadicaleServer

pytestmark = pytest.mark.jail

CALDAV = Path(__file__).parents[2] / "connectors" / "caldav"
CONNECTOR = "github://aileron/connector-caldav"
LUNCH = {"title": "Lunch with Mira", "start_time": "2026-12-01T12:00:00Z", "end_time": "2026-12-01T13:00:00Z"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonHome]:
    """The demo's: a calendar, its connector bound, both actions, and an approver."""
    with RadicaleServer(tmp_path_factory.mktemp("radicale")) as server, daemon_home() as made:
        server.make_calendar("work", "Work")
        made.configure(f'[egress]\nprivate_plain = ["localhost:{server.port}"]\n')
        made.ask("GET", "/healthz")
        made.install(CALDAV, f"localhost:{server.port}")
        made.unlock()
        made.must("PUT", "/v1/secrets/caldav", {"value_base64": base64.b64encode(server.password.encode()).decode()})
        body = {"connector": CONNECTOR, "name": "basic/calendar/ada", "username": server.user, "secret": "caldav"}
        made.must("POST", "/v1/bindings", body)
        text = (CALDAV / "actions" / "create-calendar-event" / "action.md").read_text(encoding="utf-8")
        made.must("POST", "/v1/actions", {"text": text, "file": "action.md"})
        KeptApprover(made).appoint(made)
        yield made


def asked_by_claude(home: DaemonHome, args: dict[str, str]) -> str:
    """An agent's own session asks; the approval's id."""
    token = home.must("POST", "/v1/sessions", {"agent": "claude", "folder": "/home/mira/work/invoices"})["token"]
    connection = http.client.HTTPConnection("localhost", port_of(home), timeout=60)
    try:
        connection.request(
            "POST",
            "/v1/actions/create-calendar-event/run?wait=0",
            json.dumps({"args": args}),
            {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
        answer: dict[str, Any] = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    return str(answer["approval_id"])


def test_the_demos_request_is_on_the_first_screen_of_a_phone(home: DaemonHome) -> None:
    """Effect, destination, account, undo, who asks, difference, what is there then; first of its kind, and the next one."""
    needs_browser()
    first = asked_by_claude(home, LUNCH)
    person = PageClient(home)
    page = person.unlock(to=first)
    confirm = person.submit(page.form("/approve"), read="all")
    person.submit(confirm.form("/decide"), word="create-calendar-event")
    assert home.result({"approval_id": first})["status"] == "completed"
    second = asked_by_claude(home, {**LUNCH, "title": "Sailing with Mira"})
    with Browser() as browser:
        browser.look(**PHONE)
        unlocked(browser, home, second)
        shown = browser.script("""
            const shown = [];
            for (const e of document.querySelectorAll("h1, .verdict, .essentials dl > div, .known h2, .known dl > div")) {
              const r = e.getBoundingClientRect();
              if (r.top >= 0 && r.bottom <= innerHeight) shown.push(e.innerText.replace(/\\s+/g, " "));
            }
            return shown;""")
    text = "\n".join(shown)

    assert shown[0] == "create-calendar-event 0.1.0"
    assert shown[1] == "! CANNOT BE UNDONE"
    for part in (
        "does create_event, by github://aileron/connector-caldav@0.1.0",
        "undo it cannot be undone",
        "reaches localhost:",
        "account ada, as basic/calendar/ada",
        "asked by claude in /home/mira/work/invoices",
        "Title",
        "what is there now, read",
        "At that time Lunch with Mira",
    ):
        assert part in text, (part, text)
    assert [line for line in shown if line.startswith("differs ≠ from the call approved last")], text
