"""The home of `aileron demo`: a calendar on a real CalDAV server, its connector bound, its actions, an approver, and an agent.

    with demo_home(folder) as demo:
        asked = demo.asks("caldav-create-event", LUNCH)
        demo.takes_the_gate_away()

Not here: the demo itself (tests/e2e/test_demo_from_the_wheel.py).
"""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.support.home import DaemonHome, daemon_home
from tests.support.paged import KeptApprover, PageClient, port_of
from tests.support.radicale import RadicaleServer

__all__ = ["DENTIST", "FOLDER", "LUNCH", "SAILING", "WRONG", "DemoHome", "demo_home"]

_CALDAV: Final = Path(__file__).parents[2] / "connectors" / "caldav"
_CONNECTOR: Final = "github://aileron/connector-caldav"
FOLDER: Final = "/home/mira/work/invoices"
LUNCH: Final = {"title": "Lunch with Mira", "start_time": "2026-12-01T12:00:00Z", "end_time": "2026-12-01T13:00:00Z"}
SAILING: Final = {**LUNCH, "title": "Sailing with Mira"}
DENTIST: Final = "Dentist, and nothing else that day"
WRONG: Final = {"uid": "dentist@demo", "title": SAILING["title"]}
"""Arguments of an agent that asks to delete one event and names another."""
_EVENT: Final = f"""BEGIN:VCALENDAR
VERSION:2.0
PRODID:-//aileron//tests//EN
BEGIN:VEVENT
UID:{WRONG["uid"]}
DTSTAMP:20261101T000000Z
DTSTART:20261208T090000Z
DTEND:20261208T093000Z
SUMMARY:{DENTIST.replace(",", chr(92) + ",")}
END:VEVENT
END:VCALENDAR
"""


class DemoHome:
    """A home in which an agent requests actions in a session."""

    def __init__(self, home: DaemonHome) -> None:
        self.home = home
        body = {"agent": "claude", "folder": FOLDER}
        self._token = str(home.must("POST", "/v1/sessions", body)["token"])

    def asks(self, action: str, args: dict[str, str]) -> str:
        """Request a gated action as the agent. Return the approval's id."""
        return str(self._answer(action, args)["approval_id"])

    def takes_the_gate_away(self) -> str:
        """Remove an action's gate as the agent, and run the action. Return the id of the approval that this asks for."""
        file = self.home.path / "actions" / "caldav-create-event.md"
        before, _, gate = file.read_text(encoding="utf-8").partition("[approval]")
        file.write_text(f"{before}+++\n{gate.partition('+++')[2]}", encoding="utf-8")
        answer = self._answer("caldav-create-event", SAILING)
        assert answer["error"]["class"] == "consent_required", answer
        waits = self.home.must("GET", "/v1/action-approvals")["approvals"]
        (approval,) = [entry["approval_id"] for entry in waits if entry["kind"] == "action_file"]
        return str(approval)

    def approves(self, approval_id: str, word: str) -> None:
        """Approve on the person's page, with everything marked as read."""
        person = PageClient(self.home)
        page = person.unlock(to=approval_id)
        person.submit(person.submit(page.form("/approve"), read="all").form("/decide"), word=word)
        assert self.home.result({"approval_id": approval_id})["status"] == "completed"

    def denies(self, approval_id: str) -> None:
        """Deny on the person's page."""
        person = PageClient(self.home)
        page = person.unlock(to=approval_id)
        assert "Denied: nothing ran" in person.submit(page.form("/decide", decision="deny")).text

    def _answer(self, action: str, args: dict[str, str]) -> dict[str, Any]:
        connection = http.client.HTTPConnection("localhost", port_of(self.home), timeout=60)
        try:
            connection.request(
                "POST",
                f"/v1/actions/{action}/run?wait=0",
                json.dumps({"args": args}),
                {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"},
            )
            answer: dict[str, Any] = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        return answer


@contextlib.contextmanager
def demo_home(folder: Path) -> Iterator[DemoHome]:
    """Yield a home with the dentist in the calendar, and the vault open."""
    with RadicaleServer(folder) as server, daemon_home() as made:
        server.make_calendar("work", "Work")
        server.put("work/dentist.ics", _EVENT)
        made.configure(f'[egress]\nprivate_plain = ["localhost:{server.port}"]\n')
        made.install(_CALDAV, f"localhost:{server.port}")
        made.unlock()
        made.store("caldav", server.password.encode())
        made.bind(_CONNECTOR, "basic/calendar/ada", "caldav", username=server.user)
        made.add_actions(*(_CALDAV / "actions" / f"caldav-{verb}-event" / "action.md" for verb in ("create", "delete")))
        KeptApprover(made).appoint(made)
        yield DemoHome(made)
