"""The console as a person has it, over a fake daemon: requests that come and go, keys, and the screen.

    async with world.console(until="send-mail") as shown:
        await shown.press("A", until="any other key")

A `World` is one home: what waits in it, what happens there, who signs. `Shown` is a console of it that runs without a terminal
(Textual's Pilot): keys, clicks and sizes go in, the text of the screen comes out. The clock of its keys stands still, until a
test moves it: no key is dead for longer or shorter than a test says.

Not here: golden screens (tests/support/screens.py), what the real daemon says (tests/cli/test_console_terminal.py).
"""

from __future__ import annotations

import contextlib
import functools
import math
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, TypedDict, Unpack

import pytest
from rich.segment import Segment
from textual import message
from textual.events import Key
from textual.pilot import Pilot

from aileron.model.manifest import ApprovalRule
from aileron.model.secret import Secret
from aileron.tui import guard
from aileron.tui.app import Console, Hooks
from aileron.tui.daemon_client import DaemonClient
from aileron.tui.input_guard import InputGuard
from aileron.tui.key_session import SecurityKeyHooks
from tests.cli.person import APPROVER
from tests.cli.questions import Approver, plan, question
from tests.support.fake_daemon import FakeDaemon, Reply, Seen, error
from tests.support.screens import text_of
from tests.support.waiting import Late, wait_until_async

__all__ = ["Clock", "Shown", "World", "named", "reversible"]

_LOADS_S: Final = 5.0
_ASKED_AT: Final = "2026-11-21T04:00:00Z"
_ROUTE: Final = "/v1/action-approvals"


class Effect(TypedDict, total=False):
    """Effect of a key that a person waits for, as the methods of `Shown` do that have these names."""

    until: str | Callable[[], object]
    until_told: str
    until_not: str


class Clock:
    """A clock for key presses and screens that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class World:
    """A home, its daemon, and the person's passphrase, editor and terminal."""

    def __init__(self, home: Path, fake: FakeDaemon) -> None:
        self.home = home
        self.fake = fake
        self.approver: Approver | None = None
        self.asked_for: list[str] = []
        """Questions of the passphrase prompts."""
        self.said_above: list[str] = []
        """Texts printed above each passphrase prompt."""
        self.passphrase = APPROVER
        self.check: Callable[[], None] = lambda: None
        self.ask_passphrase: Callable[[str], Secret] = self._type_passphrase
        self.edit: Callable[[str], str] = lambda text: text
        self.who_else: str | None = None
        """Reason why another program could press keys, if any."""
        self.security_keys: SecurityKeyHooks | None = None
        """The security keys that are plugged in, and the person's hands."""
        self.clock = Clock()
        self.is_held = False
        """True while the console has the terminal to itself."""
        self.rows: list[dict[str, Any]] = []
        self.records: dict[str, dict[str, Any]] = {}
        self._asked = 0
        self._signed: dict[str, str] = {}
        self._changed = threading.Condition()
        self._is_gone = False
        fake.script("GET", "/v1/audit", self._audit)
        fake.script("GET", "/v1/sessions", (200, {"sessions": []}))

    # events

    def sign(self) -> Approver:
        """Enroll an approver. Decisions are signed from now on."""
        self.approver = Approver(self.home, self.fake)
        return self.approver

    def ask(self, *asked: dict[str, Any]) -> None:
        """Add these pending questions."""
        for approval in asked:
            if approval.get("created_at") == _ASKED_AT:  # give each a time of its own
                self._asked += 1
                approval["created_at"] = f"{_ASKED_AT[:-1]}.{self._asked:03}Z"
            self._serve(approval)
        self.fake.approvals = [*self.fake.approvals, *asked]
        self.happen("approval.requested")

    def _serve(self, approval: dict[str, Any]) -> None:
        path = f"{_ROUTE}/{approval['approval_id']}"
        self.fake.script("GET", path, lambda _: (200, self._told(approval)))
        self.fake.script("GET", f"{path}/result", lambda _: (200, dict(approval)))
        self.fake.script("POST", f"{path}/decide", lambda seen: self._decided(approval, seen))
        self.fake.script("POST", f"{path}/cancel", lambda _: self._settled(approval, "cancelled"))

    def replace(self, asked: dict[str, Any], **other: Any) -> None:
        """Change a question under the same id."""
        asked.update(other)
        self.happen("approval.edited", approval=asked["approval_id"])

    def settle(self, asked: dict[str, Any], status: str, **more: Any) -> None:
        """Settle a question elsewhere with this status."""
        self._settled(asked, status, **more)

    def happen(self, kind: str, /, **facts: Any) -> None:
        """Add an event to the audit trail, and wake those who wait for news."""
        with self._changed:
            at = "2026-11-21T04:00:00.000Z"
            self.rows.append({"seq": len(self.rows) + 1, "at": at, "type": kind, **facts})
            self._changed.notify_all()

    def lose_daemon(self) -> None:
        """Stop the daemon from answering."""
        with self._changed:
            self._is_gone = True
            self._changed.notify_all()
        self.fake.__exit__()

    def get_daemon_back(self) -> None:
        """Make the daemon answer again."""
        self._is_gone = False
        self.fake.__enter__()

    # requests

    def sent(self, end: str = "decide") -> list[dict[str, Any]]:
        """Return the bodies of what was posted to routes with this end, in order."""
        return [seen.body for seen in self.fake.asked("POST") if seen.path.endswith(f"/{end}")]

    def has_sent(self, count: int) -> bool:
        """Return whether exactly this many decisions were sent."""
        return len(self.sent()) == count

    def sent_to(self, end: str = "decide") -> list[str]:
        """Return the ids of the approvals or sessions in such requests."""
        return [seen.path.split("/")[3] for seen in self.fake.asked("POST") if seen.path.endswith(f"/{end}")]

    # the console

    def hooks(self) -> Hooks:
        """Return what the console needs of a terminal."""

        def hold(is_held: bool) -> None:
            self.is_held = is_held

        return Hooks(
            check=lambda: self.check(),
            ask=lambda question: self.ask_passphrase(question),
            edit=lambda text: self.edit(text),
            take=lambda: hold(True),
            let_go=lambda: hold(False),
            say=self.said_above.append,
            security_keys=self.security_keys,
        )

    def _type_passphrase(self, question: str) -> Secret:
        self.asked_for.append(question)
        return Secret(self.passphrase.encode())

    @contextlib.asynccontextmanager
    async def console(
        self, size: tuple[int, int] = (80, 24), *, until: str = "", not_kept: str | None = None, **options: Any
    ) -> AsyncIterator[Shown]:
        """Run a console, once it has read the daemon's state and shows the text `until`."""
        self.who_else = not_kept
        options = {"now": self.clock, **options}
        app = Console(DaemonClient(self.home), self.hooks(), who_else=lambda: self.who_else, **options)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(message, "_time", SimpleNamespace(get_time=self.clock))  # the time of a key press
            async with app.run_test(size=size, notifications=True) as pilot:
                shown = Shown(app, pilot, self.clock)
                await shown.until("daemon ok", until)
                yield shown
                with self._changed:  # end the requests that wait for news
                    self._is_gone = True
                    self._changed.notify_all()

    # the daemon's answers

    def _told(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Return the question; once it is decided, its digest is the signed one, with the preview."""
        return {**asked, "digest": self._signed.get(asked["approval_id"], asked["digest"])}

    def _audit(self, seen: Seen) -> Reply:
        with self._changed:
            if "wait" not in seen.query:
                return 200, {"events": self.rows[::-1][: int(seen.query.get("limit", 50))]}
            after = int(seen.query["after"])
            self._changed.wait_for(lambda: self._is_gone or len(self.rows) > after, 20)
            if self._is_gone:
                raise ConnectionResetError  # as when a daemon ends
            return 200, {"events": self.rows[after:]}

    def _decided(self, asked: dict[str, Any], seen: Seen) -> Reply:
        if asked["status"] != "pending_approval":
            return error("already_decided", 409, "it is decided", details={"status": asked["status"]})
        self._signed[asked["approval_id"]] = seen.body["digest"]
        if seen.body["decision"] == "approve":
            return self._settled(asked, "completed", reply="approved")
        return self._settled(asked, "denied", reason=seen.body.get("reason"))

    def _settled(self, asked: dict[str, Any], status: str, *, reply: str | None = None, **more: Any) -> Reply:
        asked.update(status=status, **{name: value for name, value in more.items() if value is not None})
        self.fake.approvals = [approval for approval in self.fake.approvals if approval is not asked]
        run = asked.get("audit_id")
        if run is not None:
            found = self.records.get(run, {"audit_id": run, "status": status, "events": []})
            self.fake.script("GET", f"/v1/audit/{run}", (200, found))
        self.happen("approval.decided", approval=asked["approval_id"])
        return 200, {"status": reply or status, "approval_id": asked["approval_id"], "audit_id": run}


class Shown:
    """A running console: its screen, and the person's hands."""

    def __init__(self, app: Console, pilot: Pilot[None], clock: Clock | None = None) -> None:
        """Take a console; `clock` is the console's own, or None in a test that moves none."""
        self.app = app
        self.clock = clock or Clock()
        self.pilot = pilot
        self.told: list[str] = []
        """Notifications, in order."""
        say = app.notify

        def notify(message: str, **how: Any) -> None:
            self.told.append(message)
            say(message, **how)

        app.notify = notify  # type: ignore[method-assign]

    @property
    def text(self) -> str:
        """Text of the whole screen."""
        return text_of(self.app)

    @property
    def rows(self) -> list[str]:
        """Rows of the screen."""
        return self.text.split("\n")

    @property
    def drawn(self) -> list[list[Segment]]:
        """Rows as the terminal gets them, after the console's colour filters."""
        rows = [list(strip) for strip in self.app.screen._compositor.render_strips()]
        for each in self.app.get_line_filters():
            rows = [each.apply(row, self.app.screen.background_colors[1]) for row in rows]
        return rows

    async def press(self, *keys: str, **effect: Unpack[Effect]) -> None:
        """Press keys one after the other, each handled before the next, and wait for their effect."""
        await self.pilot.press(*keys)
        await self._until_seen(effect)

    async def press_settled(self, *keys: str, **effect: Unpack[Effect]) -> None:
        """Press keys once what is on screen has been there long enough, and wait for their effect."""
        await self.settled()
        await self.press(*keys, **effect)

    async def press_at_once(self, *keys: str) -> None:
        """Press keys together: the second arrives before the first takes effect."""
        for key in keys:
            self.app.post_message(Key(key, key if len(key) == 1 else None))
        await self.pilot.pause()

    async def type(self, text: str) -> None:
        """Type a text as keys."""
        names = {
            "-": "minus",
            " ": "space",
            "/": "slash",
            ":": "colon",
            "@": "at",
            ".": "full_stop",
            "!": "exclamation_mark",
        }
        await self.pilot.press(*(names.get(character, character) for character in text))

    async def enter(self, text: str, **effect: Unpack[Effect]) -> None:
        """Type a text and press Enter, and wait for the effect."""
        await self.type(text)
        await self.press("enter", **effect)

    async def until(self, *wanted: str | Callable[[], object]) -> None:
        """Wait until each text has been on the screen, or each condition has held, one after the other."""
        for each in wanted:
            is_so = each if callable(each) else functools.partial(self._has, each)
            await wait_until_async(is_so, f"{each} is shown", seen=self._seen)
            await self.pilot.pause()

    def _seen(self) -> str:
        return "\n".join([*(row.rstrip() for row in self.rows if row.strip(" │")), f"notifications: {self.told}"])

    def _has(self, wanted: str) -> bool:
        return wanted in self.text

    async def _until_seen(self, effect: Effect) -> None:
        if "until" in effect:
            await self.until(effect["until"])
        if "until_told" in effect:
            await self.until_told(effect["until_told"])
        if "until_not" in effect:
            await self.until_not(effect["until_not"])

    async def until_told(self, wanted: str) -> None:
        """Wait until a notification has this text; forget the earlier ones then."""
        await self.until(lambda: any(wanted in notice for notice in self.told))
        self.told.clear()

    async def until_not(self, unwanted: str) -> None:
        """Wait until this text is gone from the screen."""
        await self.until(lambda: unwanted not in self.text)

    async def settled(self) -> None:
        """Move the clock until the newest item has been on screen long enough; let pending items come up first."""
        with contextlib.suppress(Late):  # a test may hold an answer back
            await wait_until_async(lambda: self._why_dead() != "still loading", "it is loaded", within_s=_LOADS_S)
        for _refresh in range(2):  # items that appear with the next refresh
            await self.pilot.pause()
        self.clock.now += guard.SETTLED_S * 1.1

    def _why_dead(self) -> str | None:
        """Return why a no is refused, however long everything has been on screen."""
        return self.app.guard.refusal(now=math.inf, is_approval=False)

    def rested(self) -> None:
        """Reset the input guard, as if the person had rested since a prompt was broken off."""
        self.app.input_guard = InputGuard()  # type: ignore[misc]

    async def unlock(self, **effect: Unpack[Effect]) -> None:
        """Open the approver's key, and wait for the effect."""
        await self.press("L", until="key open")
        await self._until_seen(effect)

    async def approve(self, word: str | None = None, *, unread: bool = True, **effect: Unpack[Effect]) -> None:
        """Take both steps of a yes, `y` or this word, and wait for the effect.

        With `unread`, first confirm that not all was read.
        """
        await self.settled()
        if unread:
            await self.press("exclamation_mark")
        await self.press("A", until="type" if word else "any other key")
        await self.settled()
        if word is None:
            await self.press("y", **effect)
        else:
            await self.enter(word, **effect)


def named(
    name: str, *, reversible: bool = False, args: dict[str, Any] | None = None, text: str = "", **more: Any
) -> dict[str, Any]:
    """Return a question about a run of the action `name`, which is part of its id; `text` is the action's file."""
    rule = ApprovalRule(required=True, irreversible=not reversible)
    of = plan(args, action=name, approval=rule, action_text=text)
    return question(of, **{"approval_id": f"act-20261121T040000-{name}", "audit_id": f"run-{name}", **more})


def reversible(**more: Any) -> dict[str, Any]:
    """Return a question about a run that can be undone."""
    return question(plan(approval=ApprovalRule(required=True, irreversible=False)), **more)
