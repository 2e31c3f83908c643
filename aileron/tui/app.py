"""The console: the queue, activity, grants, sessions and the system, live, and the person's decisions.

Runs in its own process, alone (approver/presence.py). What it shows is what the daemon says, made harmless; what it signs is what
it shows. Nothing here decides by itself: a key does, in two steps, where the guard has no reason against it.

    news (a thread) ──▶ what waits ──▶ the list        keys ──▶ guard ──▶ second step ──▶ holder ──▶ signature ──▶ daemon
                        the record ──▶ activity

Rules
- What is decided is the digest of what is on the screen, computed here (review/genuine.py), with that of the preview.
- The list grows at its end and never moves under the person. It is in the order in which the questions were asked.
- Without a daemon nothing looks as if it could be decided.
- Nothing moves by itself, and no colour is the only sign of anything.

Source: docs/reference/console.md. Not here: what a sheet says (review/sheet.py), how it looks (frame.py, view.py, queue.py), what
is sent (deciding.py), lines (plain.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import json
import math
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Literal, NamedTuple, TypeVar, cast

from rich.text import Text
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.css.query import NoMatches
from textual.events import Click
from textual.screen import Screen
from textual.widgets import ContentSwitcher, Input, OptionList, Static
from textual.widgets.option_list import Option

from aileron.model.visible import as_text, visible, visible_json
from aileron.tui import frame, paint
from aileron.tui.deciding import EXPIRED, Decision, Said, is_run, page_of, send, signed, unforeseen, why_closed
from aileron.tui.door import Door, GoneError, RefusedError
from aileron.tui.guard import Guard
from aileron.tui.holder import Holder, since_boot
from aileron.tui.queue import Queue, Rows
from aileron.tui.screens import Confirm, Granted, GrantForm, Line, Pages
from aileron.tui.view import MOST_TOP, View
from aileron.tui.waiting import Entry, Waiting, seconds_left

if TYPE_CHECKING:
    from aileron.model.preview import Preview
    from aileron.model.secret import Secret
    from aileron.review.sheet import Sheet

__all__ = ["Console", "Hooks"]

T = TypeVar("T")
_MOST_EVENTS: Final = 500
_FIRST_EVENTS: Final = 100
_RETRY_S: Final = 1.0
_REST_S: Final = 0.5
"""A question that rests under the cursor for so long is worth reading its preview."""
_SNOOZE_S: Final = 600.0
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_BY_SIGNAL: Final = 128
"""And its number: the exit code of what a signal has ended, as shells count."""


class _Answered(NamedTuple, Generic[T]):
    """What the daemon answered, which may be nothing."""

    value: T


class Hooks:
    """What the console needs of the terminal it runs on: a passphrase, an editor, and the terminal to itself."""

    def __init__(
        self,
        *,
        check: Callable[[], None],
        ask: Callable[[str], Secret],
        edit: Callable[[str], str],
        take: Callable[[], None],
        let_go: Callable[[], None],
    ) -> None:
        """`check` is called once, before the daemon is asked anything: what it raises ends the console. `edit` gives the text
        as it was left, or raises ValueError.
        """
        self.check: Final = check
        self.ask: Final = ask
        self.edit: Final = edit
        self.take: Final = take
        self.let_go: Final = let_go


class Console(App[None]):
    """The console of one home."""

    TITLE = "aileron console"
    CSS = frame.CSS
    BINDINGS: ClassVar[list[BindingType]] = frame.KEYS

    def __init__(
        self,
        door: Door,
        hooks: Hooks,
        *,
        who_else: Callable[[], str | None],
        theme: str | None = None,
        clock: Callable[[], float] = since_boot,
    ) -> None:
        super().__init__()
        self.animation_level = "none"
        self.register_theme(frame.CONTRAST)
        if theme is not None:
            self.theme = theme
        self._door: Final = door
        self._hooks: Final = hooks
        self._waiting: Final = Waiting()
        self._guard: Final = Guard()
        self._holder: Final = Holder(door.home / "approver.json", ask=self._ask_away, who_else=who_else, clock=clock)
        self._status: dict[str, Any] = {}
        self._approver: dict[str, Any] = {"status": "unknown"}
        self._events: list[dict[str, Any]] = []
        self.refused: Exception | None = None
        """Why there is no console here; for whoever ran it to raise."""
        self._is_checked = False
        self._lost: str | None = "asking it"
        self._quiet_until = 0.0
        self._has_looked = False
        # The question under the cursor.
        self._selected: str | None = None
        self._question: dict[str, Any] | None = None
        self._record: dict[str, Any] | None = None
        self._preview: Preview | None = None
        self._sheet: Sheet | None = None
        self._edit: str | None = None
        self._has_record_shown = False

    def _first_frame_is_drawn(self) -> None:
        gc.freeze()
        gc.enable()
        self._begin("news", self._follow)

    def _hung_up(self) -> None:
        """The terminal is gone. The key goes first; nothing is put right, since what reads there would wait for ever."""
        self._holder.close()
        os._exit(_BY_SIGNAL + signal.SIGHUP)

    def _fatal_error(self) -> None:
        """What nobody foresaw. Textual would print every local, with previews and passphrases among them."""
        self._holder.close()
        self._exit_renderables.append(
            Text(
                f"error: the console ended by a bug of its own ({type(self._exception).__name__}); nothing was decided by that"
            )
        )
        self._close_messages_no_wait()

    def compose(self) -> ComposeResult:
        yield Static(id="bar")
        yield Static(id="banner")
        yield Static(id="tabs")
        with ContentSwitcher(initial="queue", id="panes"):
            with Container(id="queue"):
                yield Queue(self._waiting, id="list")
                yield View(id="sheet")
            yield Rows(id="activity", classes="pane", markup=False)
            yield Rows(id="grants", classes="pane", markup=False)
            yield Rows(id="sessions", classes="pane", markup=False)
            with VerticalScroll(id="system", classes="pane"):
                yield Static(id="facts")
        yield Input(id="filter", placeholder="words, agent:x, action:x, kind:x", select_on_focus=False)
        yield Static(id="hints")

    def on_mount(self) -> None:
        self._hooks.take()
        loop = asyncio.get_running_loop()  # an exception amid the event loop may not end it
        loop.add_signal_handler(signal.SIGTERM, self.exit)
        loop.add_signal_handler(signal.SIGHUP, self._hung_up)
        loop.add_signal_handler(signal.SIGCONT, self._went_on)
        self._lay_out()
        self._show_frame()
        self._queue.focus()
        self.set_interval(1.0, self._tick)
        # Its imports, and its waits, come after the first frame: whoever waits for that sees that the daemon is asked.
        self.call_after_refresh(self._first_frame_is_drawn)

    def _went_on(self) -> None:
        """It was stopped, and goes on. Its terminal was put right for the shell (approver/presence.py), and held by nobody.

        Whoever stops a console and lets it go on could open the terminal, and draw on it.
        """
        self._lock_for("the console was stopped for a while")
        self._hooks.take()
        if self._driver is not None and self._driver.can_suspend:
            with self.suspend():  # and on again: as it has to be for keys, and drawn anew
                pass

    def _lock_for(self, why: str) -> None:
        if self._holder.is_open:
            self._holder.close()
            self._preview = None
            self._tell(f"the approver's key is locked: {why}")
            self._reload()

    def on_unmount(self) -> None:
        self._holder.close()
        self._hooks.let_go()

    def on_resize(self) -> None:
        self._lay_out()
        self._guard.disturb(now=time.monotonic())
        self.call_after_refresh(self._view.paint)

    def _lay_out(self) -> None:
        self.default_screen.set_class(self.size.width < frame.NARROW, "narrow")
        self.default_screen.set_class(self.size.width >= frame.WIDE, "wide")

    @property
    def _queue(self) -> Queue:
        return self.query_one("#list", Queue)

    @property
    def _view(self) -> View:
        return self.query_one("#sheet", View)

    @property
    def _pane(self) -> str:
        return self.query_one("#panes", ContentSwitcher).current or "queue"

    @property
    def _is_signed(self) -> bool:
        return self._approver.get("status") != "none"

    def _tick(self) -> None:
        """A second has passed."""
        try:
            self._go_on()
        except NoMatches:  # the screen is being taken down
            return
        except Exception as error:  # noqa: BLE001 - as in a worker: it would end the console
            self._tell(unforeseen(error), is_bad=True)

    def _go_on(self) -> None:
        if (why := self._holder.why_locked()) is not None:
            self._tell(f"the approver's key is locked: {why}")
            self._forget_preview()
        entry = self._entry()
        if entry is not None and entry.is_open and _is_over(entry):
            self._guard.show(entry.id, self._guard.digest, now=time.monotonic(), closed=EXPIRED)
        if self._sheet is not None and self._question is not None:
            left_s = seconds_left(str(self._question.get("expires_at")))
            self._view.go_on(closed=self._why_closed(), left_s=left_s)
        self._show_frame()
        self._show_list()

    # what the daemon tells

    async def _follow(self) -> None:
        """Read what there is, then wait for news and read again; for as long as the console is open."""
        is_started = False
        try:
            await _in_thread(self._hooks.check)
        except Exception as error:  # noqa: BLE001 - raised where the console was run
            self.refused = error
            self.exit()
            return
        self._is_checked = True
        while True:
            try:
                if not is_started:
                    await _in_thread(self._holder.look)
                    await _in_thread(self._door.start)
                    is_started = True
                last = await self._read_all()
                while True:
                    events = await _in_thread(self._door.news, last)
                    last = int(events[-1]["seq"]) if events else last
                    await self._took(events)
            except (GoneError, RefusedError) as error:
                self._lose(str(error))
                await asyncio.sleep(_RETRY_S)
            except Exception as error:  # noqa: BLE001 - whatever it answers, the console stays, and nothing can be decided
                self._lose(f"what it says cannot be shown: {type(error).__name__}")
                await asyncio.sleep(_RETRY_S)

    async def _read_all(self) -> int:
        events = await _in_thread(self._door.newest, _FIRST_EVENTS)
        self._events = []
        self._add_events(events)
        await self._refresh()
        self._regain()
        self._reload()
        return int(events[-1]["seq"]) if events else 0

    async def _took(self, events: list[dict[str, Any]]) -> None:
        self._regain()
        if not events:
            return
        self._add_events(events)
        await self._refresh()
        run = (self._question or {}).get("audit_id")
        about = {event.get(name) for event in events for name in ("run", "approval")} - {None}
        if {run, self._selected} & about:
            self._reload()

    async def _refresh(self) -> None:
        """The queue, who decides, and what stands on the other screens."""
        self._status = await _in_thread(self._door.status)
        self._take_approver(await _in_thread(self._door.approver))
        news = self._waiting.take(await _in_thread(self._door.waiting))
        for name in news.gone:
            with contextlib.suppress(RefusedError):
                became = await _in_thread(self._door.outcome, name)
                self._waiting.settle(name, str(became.get("status")))
        if news.new:
            self._guard.arrive(now=time.monotonic())
            if self._has_looked and time.monotonic() >= self._quiet_until:
                self.bell()
        self._has_looked = True
        self._show_list()
        self._show_frame()
        await self._fill_pane()

    def _take_approver(self, told: dict[str, Any]) -> None:
        """Who decides, as the daemon says now. Where somebody did, nobody is believed who says that nobody does any more."""
        was, now = self._approver.get("status"), told.get("status")
        if now == "none" and was not in ("none", "unknown"):
            raise GoneError("who answers says that nobody signs for this home any more: aileron approver status")
        self._approver = told
        self._holder.key_id = told.get("key_id")
        if was == "none" and now != "none":  # what is on the screen was not held against its digest
            self._select(self._selected)

    async def _refresh_now(self) -> None:
        try:
            await self._refresh()
        except (GoneError, RefusedError) as error:
            self._lose(str(error))

    def _add_events(self, events: list[dict[str, Any]]) -> None:
        self._events = [*self._events, *events][-_MOST_EVENTS:]
        shown = self.query_one("#activity", Rows)
        at = shown.highlighted
        is_at_end = at is None or at >= shown.option_count - 1
        shown.clear_options()
        shown.add_options([Option(paint.event_row(event), id=f"e{event.get('seq')}") for event in self._events])
        if self._events:
            shown.highlighted = len(self._events) - 1 if is_at_end else at

    def _lose(self, why: str) -> None:
        self._lost = why
        self._guard.lose_daemon()
        self._show_frame()

    def _regain(self) -> None:
        self._lost = None
        self._guard.regain_daemon(now=time.monotonic())
        self._show_frame()

    # what stands around a question

    def _show_frame(self) -> None:
        if not self.is_running:
            return
        waiting = self._waiting.open
        soon = sum(1 for entry in waiting if 0 < (seconds_left(entry.expires_at) or 3600) < 60)
        parts = [
            " aileron",
            f"{len(waiting)} waiting" if waiting else "nothing waits",
            f"! {soon} expiring" if soon else "",
            self._vault_word(),
            self._key_word(),
            "! NO DAEMON" if self._lost else "daemon ok",
        ]
        bar = Text(" · ".join(part for part in parts if part), no_wrap=True, overflow="ellipsis")
        self.query_one("#bar", Static).update(bar)
        self.default_screen.set_class(self._lost is not None, "lost")
        why = visible(self._lost or "")
        self.query_one("#banner", Static).update(
            Text(f" ! the daemon does not answer ({why}): nothing can be decided ")
        )
        self.query_one("#tabs", Static).update(
            Text(" ")
            .append_tokens((title, "bold" if name == self._pane else "") for name, title in self._tabs())
            .append(f"  ! only {visible(self._queue.wanted)} (Esc: all)" if self._queue.wanted else "", style="bold")
        )
        self._view.set_class(self._lost is not None, "lost")
        self.query_one("#hints", Static).update(Text(frame.HINTS[self._hints()], style="dim"))

    def _hints(self) -> str:
        """Which of the rows of keys is of use now."""
        if self._pane != "queue":
            return self._pane
        entry = self._entry()
        if self._lost is not None:
            return "lost"
        if entry is None:
            return "empty"
        if entry.status == "approved":
            return "held"
        if self._sheet is None or self._why_closed() is not None:
            return "closed"
        return "unread" if self._guard.digest is not None and not self._guard.is_read else "queue"

    def _tabs(self) -> Iterator[tuple[str, str]]:
        for number, name in enumerate(frame.PANES, start=1):
            yield name, f"[{number} {name}]" if name == self._pane else f" {number} {name} "

    def on_click(self, event: Click) -> None:
        """A click on the row of screens; a click anywhere decides nothing."""
        tabs = self.query_one("#tabs", Static).region
        if self.screen is not self.default_screen or not tabs.contains(event.screen_x, event.screen_y):
            return
        column = 1
        for name, title in self._tabs():
            if column <= event.screen_x < column + len(title):
                self.action_pane(name)
            column += len(title)

    def _vault_word(self) -> str:
        if not self._status:
            return ""
        vault = self._status.get("vault") or {}
        return "no vault" if not vault.get("exists") else "! vault locked" if vault.get("locked") else "vault open"

    def _key_word(self) -> str:
        if not self._is_signed:
            return "! NOT SIGNED"
        if self._holder.not_kept is not None:
            return "key: asked each time"
        return f"key open {paint.duration(self._holder.left_s)}" if self._holder.is_open else "key locked (L)"

    def _show_list(self) -> None:
        width = (39 if self.default_screen.has_class("wide") else self.size.width) - 2
        self._queue.show(width, self._selected)
        if not self._queue.names:
            if self._selected is not None:
                self._select(None)
            self._view.say(Text("nothing matches" if self._queue.wanted else "nothing waits for you"))

    async def _fill_pane(self) -> None:
        match self._pane:
            case "grants":
                rows = [(str(one.get("id")), paint.grant_row(one)) for one in await _in_thread(self._door.grants)]
                self._fill("grants", rows, "a person is asked about everything that is gated")
            case "sessions":
                rows = [(str(one.get("id")), paint.session_row(one)) for one in await _in_thread(self._door.sessions)]
                self._fill("sessions", rows, "no session yet: aileron launch AGENT begins one")
            case "system":
                key = self._holder.not_kept or self._key_word()
                self.query_one("#facts", Static).update(paint.system_text(self._status, self._approver, key))

    def _fill(self, name: str, rows: list[tuple[str, Text]], empty: str) -> None:
        shown = self.query_one(f"#{name}", Rows)
        kept = shown.chosen()
        shown.clear_options()
        shown.add_options([Option(row, id=key) for key, row in rows])
        if not rows:
            shown.add_option(Option(Text(empty, style="dim"), disabled=True))
        names = [key for key, _ in rows]
        if kept in names:
            shown.highlighted = names.index(kept)

    # one question

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Another question is under the cursor."""
        if event.option_list.id == "list" and event.option.id != self._selected:
            self._select(event.option.id)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Enter, or a click: read it. It decides nothing."""
        match event.option_list.id:
            case "list":
                self.default_screen.add_class("open")
                self._view.read()
                self.call_after_refresh(self._view.paint)
            case "activity":
                run = next((one.get("run") for one in self._events if f"e{one.get('seq')}" == event.option.id), None)
                if run is not None:
                    self._begin("run", self._show_run, str(run))

    def _select(self, name: str | None) -> None:
        self._selected = name
        self._question = self._preview = self._sheet = self._record = self._edit = None
        self._view.turn(is_whole=False)
        self._view.scroll_to_begin()
        self._guard.show(name, None, now=time.monotonic())
        if name is not None:
            self._view.say(Text("reading it …", style="dim"))
            self._reload()

    def _reload(self) -> None:
        if self._selected is not None:
            self._begin("question", self._load, self._selected)

    async def _load(self, name: str) -> None:
        """Read a question, see that it is what its digest covers, and put it on the screen."""
        from aileron.model.decision import MismatchError

        try:
            question = await _in_thread(self._door.question, name)
            question = self._genuine(question)
            record = await _in_thread(self._door.record, str(question["audit_id"])) if _has_run(question) else None
        except MismatchError as error:
            self._refuse(name, f"{error.failure.message}; {error.why}")
            return
        except RefusedError as error:
            self._refuse(name, error.message)
            return
        except GoneError:
            return  # the news say so too
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it, it is not such that it could be decided
            self._refuse(name, unforeseen(error))
            return
        if name == self._selected:
            self._take_question(name, question, record)
        if self._wants_preview():
            await asyncio.sleep(_REST_S)
        if self._wants_preview():  # still: its key may be locked by now, and nobody is asked for it unasked
            await self._read_preview()

    def _take_question(self, name: str, question: dict[str, Any], record: dict[str, Any] | None) -> None:
        """Put it on the screen, or why it cannot be shown."""
        if self._question is None or self._question.get("digest") != question.get("digest"):
            self._preview = None
        self._question, self._record = question, record
        try:
            self._put_up()
        except Exception as error:  # noqa: BLE001 - as above: its parts are not what they are called
            self._refuse(name, unforeseen(error))

    def _genuine(self, question: dict[str, Any]) -> dict[str, Any]:
        """What it is about, or the person's own edit of it, as its digest covers it. MismatchError."""
        from aileron.review.genuine import edited, genuine

        if self._edit is not None and why_closed(question) is None:
            question = edited(question, self._edit)
        return genuine(question) if self._is_signed else question

    def _put_up(self) -> None:
        from aileron.review.sheet import sheet_of

        question = self._question or {}
        before, self._sheet = self._sheet, sheet_of(question, self._preview, paint.local_time)
        seen = None if self._preview is None else self._preview.digest
        digest = seen or str(question.get("digest"))
        has_ended = self._record is not None and not self._has_record_shown
        self._has_record_shown = self._record is not None
        if digest != self._guard.digest or has_ended:
            self._view.scroll_to_begin()
        self._guard.show(self._selected, digest, now=time.monotonic(), closed=self._why_closed())
        if has_ended or self._sheet != before:
            self._guard.disturb(now=time.monotonic())
        self._view.put(
            self._sheet,
            digest,
            closed=self._why_closed(),
            left_s=seconds_left(str(question.get("expires_at"))),
            record=self._record,
        )

    def _why_closed(self) -> str | None:
        """Why the question on the screen cannot be decided any more; None: it can, or there is none."""
        if self._question is None:
            return None
        entry = self._entry()
        over = EXPIRED if entry is not None and entry.is_open and _is_over(entry) else None
        return why_closed(self._question) or over

    def _refuse(self, name: str, why: str) -> None:
        """It is not such that it could be decided."""
        if name == self._selected:
            self._question = self._sheet = None
            self._guard.cannot_show(name, why, now=time.monotonic())
            self._view.say(Text(f"! {visible(why)}", style="bold red"))

    def on_view_all_seen(self, event: View.AllSeen) -> None:
        """All of a question has been on the screen: of the one that is there now, or of what it has replaced."""
        if event.digest == self._guard.digest:
            self._guard.read_to_end()
            self._show_frame()

    def _entry(self) -> Entry | None:
        return self._waiting[self._selected] if self._selected is not None and self._selected in self._waiting else None

    # what is there now

    def _has_preview(self) -> bool:
        return ((self._question or {}).get("plan") or {}).get("preview") is not None

    def _wants_preview(self) -> bool:
        is_open = why_closed(self._question or {}) is None
        return self._has_preview() and self._preview is None and self._holder.is_open and is_open

    def _forget_preview(self) -> None:
        self._preview = None
        if self._question is not None:
            self._put_up()

    async def _read_preview(self) -> None:
        from aileron.approver.signing import PREVIEW_S, PreviewAsked
        from aileron.model.failure import AileronError

        question, name = self._question, self._selected
        if question is None or name is None:
            return
        try:
            with self._holder.key("to read what is there now") as key:
                asked = PreviewAsked(key, name, str(question["digest"]))
            answer = await _in_thread(self._door.preview, name, asked.body, PREVIEW_S)
            preview = asked.opened(answer)
        except (AileronError, RefusedError, GoneError, KeyboardInterrupt) as error:
            self._tell(str(error) or "it was not read", is_bad=True)
            return
        except (KeyError, TypeError, ValueError):
            self._tell("the daemon answered a preview that is none", is_bad=True)
            return
        if self._selected == name and self._question is question:
            self._preview = preview
            self._put_up()

    # decisions

    def action_approve(self) -> None:
        """The first step of a yes."""
        refusal = self._refusal("approve")
        if refusal is None and self._has_preview() and self._preview is None and self._is_signed:
            refusal = "what is there now was not read yet: p reads it"
        if refusal is None and self._queue.marked_open:
            refusal = "several are marked: they can be denied together, and approved one by one (v takes a mark away)"
        if refusal is not None or self._sheet is None:
            self._warn(refusal or "nothing is selected")
            return
        shown = (self._selected, self._guard.digest)
        facts = paint.joined(self._view.rows(self._sheet, min(int(self.size.width * 0.9), 100) - 5, MOST_TOP))

        def said(is_yes: bool | None) -> None:
            if is_yes:
                self._second_step(shown, "approve", None)

        self.push_screen(Confirm(facts, self._sheet.word), said)

    def action_deny(self) -> None:
        """A no, with a reason; of all that are marked."""
        self._begin_no(ends_session=False)

    def action_deny_and_stop(self) -> None:
        """A no, and the end of the session that asked."""
        self._begin_no(ends_session=True)

    def _begin_no(self, *, ends_session: bool) -> None:
        refusal = self._refusal("deny")
        if refusal is not None or self._sheet is None or self._selected is None:
            self._warn(refusal or "nothing is selected")
            return
        shown = (self._selected, self._guard.digest)
        marked = self._queue.marked_open
        what = f"{len(marked)} questions" if len(marked) > 1 else self._waiting[(marked or [self._selected])[0]].title

        def said(reason: str | None) -> None:
            if reason is None:
                return
            if marked not in ([], [shown[0]]):
                self._begin("decide", self._deny_all, marked, reason or None, ends_session=ends_session)
            else:
                self._second_step(shown, "deny", reason or None, ends_session=ends_session)

        title = Text(f"deny {what}{', and end the session that asked' if ends_session else ''}", style="bold")
        hint = "Reason (the agent reads it; Enter for none) · Esc back"
        self.push_screen(Line(title, hint=hint, may_be_empty=True), said)

    def _refusal(self, decision: Decision) -> str | None:
        if self._pane != "queue":
            return "decisions are made on the first screen: 1"
        if self.default_screen.has_class("narrow") and not self.default_screen.has_class("open"):
            return "it is not on the screen: Enter shows it"
        return self._guard.refusal(now=time.monotonic(), is_approval=decision == "approve")

    def _second_step(
        self,
        shown: tuple[str | None, str | None],
        decision: Decision,
        reason: str | None,
        *,
        ends_session: bool = False,
    ) -> None:
        """It counts for exactly what was on the screen in the first, if that still is, and can still be decided."""
        # The second step has a wait of its own: what has moved on the screen below it does not count.
        refusal = self._guard.refusal(now=math.inf, is_approval=decision == "approve") or self._why_closed()
        if shown != (self._guard.shown, self._guard.digest) or self._question is None:
            self._tell("it is another one now: nothing is decided, look at it again", is_bad=True)
        elif refusal is not None:
            self._tell(f"{refusal}: nothing is decided", is_bad=True)
        else:
            digest = str(shown[1])
            self._begin("decide", self._decide, self._question, digest, decision, reason, ends_session=ends_session)

    async def _decide(
        self, question: dict[str, Any], digest: str, decision: Decision, reason: str | None, *, ends_session: bool
    ) -> None:
        if question is not self._question or digest != self._guard.digest:
            self._tell("it is another one now: nothing is decided, look at it again", is_bad=True)
            return
        if not await self._sent(question, digest, decision, reason):
            return
        await self._end_session_of(question, wanted=ends_session)
        await self._refresh_now()

    async def _deny_all(self, names: list[str], reason: str | None, *, ends_session: bool) -> None:
        for name in names:
            found = await self._tried(self._door.question, name)
            if found is not None and await self._sent(found.value, str(found.value.get("digest")), "deny", reason):
                self._queue.marked.discard(name)
                await self._end_session_of(found.value, wanted=ends_session)
        await self._refresh_now()

    async def _end_session_of(self, question: dict[str, Any], *, wanted: bool) -> None:
        session = question.get("session")
        if wanted and session not in (None, "local"):
            await self._tried(self._door.end_session, str(session))

    async def _sent(self, question: dict[str, Any], digest: str, decision: Decision, reason: str | None) -> bool:
        name = str(question["approval_id"])
        if self._is_signed and not self._is_as_shown(question, digest):
            self._tell("what is shown is not what would be decided: nothing is signed, look at it again", is_bad=True)
            return False
        made = signed(self._holder, name, digest, decision, reason, question.get("head"), is_signed=self._is_signed)
        if not isinstance(made, Said):
            try:
                body = made
                made = await _in_thread(lambda: send(self._door, name, body, is_a_run=is_run(question)))
            except GoneError as error:
                made = Said(f"nobody answered: look whether it was decided ({error})", is_done=False)
        self._tell(made.words, is_bad=not made.is_done)
        return made.is_done

    def _is_as_shown(self, question: dict[str, Any], digest: str) -> bool:
        """Whether this digest is computed from what the question says, or from that and the preview on the screen."""
        from aileron.model.decision import MismatchError
        from aileron.review.genuine import genuine

        try:
            computed = genuine(question)["digest"]
        except MismatchError:
            return False
        return digest in (computed, None if self._preview is None else self._preview.digest)

    # other keys

    def get_system_commands(self, screen: Screen[Any]) -> Iterator[SystemCommand]:
        """All keys by name, for Ctrl-P; nothing that puts what is on the screen into a file."""
        for binding in self.BINDINGS:
            if isinstance(binding, Binding):
                run = functools.partial(self.run_action, binding.action)
                yield SystemCommand(f"{binding.description}  ({frame.NAMES.get(binding.key, binding.key)})", "", run)
        yield SystemCommand("colours", "", self.action_change_theme)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys about a question are keys only where one is on the screen."""
        return self._pane == "queue" if action in frame.ABOUT_A_QUESTION and self.is_running else True

    def action_edit(self) -> None:
        """Change the arguments in an editor; what comes of it is another question, to be read and decided."""
        question, name, refusal = self._question, self._selected, self._refusal("deny")
        if refusal or question is None or name is None or not is_run(question):
            self._warn(refusal or "only a run has arguments to edit")
            return
        before = (question.get("plan") or {}).get("args") or {}
        try:
            with self._away():
                text = self._hooks.edit(json.dumps(before, indent=2, ensure_ascii=True) + "\n")
            wanted = json.loads(text)
            if not isinstance(wanted, dict):
                raise ValueError("the arguments are an object")
        except (ValueError, KeyboardInterrupt) as error:
            self._warn(f"nothing is changed: {error}")
            return
        if wanted == before:
            self._tell("nothing was changed")
            return
        self._begin("question", self._edited, name, wanted)

    async def _edited(self, name: str, args: dict[str, Any]) -> None:
        made = await self._tried(self._door.edit, name, args)
        if made is not None and name == self._selected:
            self._edit = made.value
            await self._load(name)

    def action_grant(self) -> None:
        """Not to be asked about the same for a time: a question of its own."""
        question = self._question
        if question is None or self._sheet is None or not is_run(question):
            return
        if self._sheet.word is not None:
            self._warn("not offered: it cannot be undone, so each run is decided by itself")
            return
        plan = question.get("plan") or {}
        action = str(plan.get("action"))
        constraints = [
            {"argument": name, "operator": "equals", "value": value} for name, value in (plan.get("args") or {}).items()
        ]

        def chosen(wanted: Granted | None) -> None:
            if wanted is not None:
                self._begin("grant", self._granted, action, constraints, wanted)

        title = Text(f"{visible(action)}, with exactly these arguments, without asking", style="bold")
        self.push_screen(GrantForm(title), chosen)

    async def _granted(self, action: str, constraints: list[dict[str, Any]], wanted: Granted) -> None:
        if await self._tried(self._door.grant, action, constraints, wanted.uses, wanted.for_s) is not None:
            self._tell("it waits at the end of the list: read it, and approve it")
            await self._refresh_now()

    def action_ask_back(self) -> None:
        """A question to the agent."""
        name, refusal = self._selected, self._refusal("deny")
        if refusal or name is None or not is_run(self._question or {}):
            self._warn(refusal or "nobody asks this but you")
            return

        def asked(question: str | None) -> None:
            if question:
                self._begin("ask", self._asked, name, question)

        hint = "it reads it with its next look · Esc back"
        self.push_screen(Line(Text("ask the agent", style="bold"), hint=hint), asked)

    async def _asked(self, name: str, question: str) -> None:
        await self._tried(self._door.ask_back, name, question)
        self._reload()

    def action_preview(self) -> None:
        """Read what is there now, again."""
        if not self._has_preview():
            self._warn("it has none")
        elif not self._is_signed:
            self._warn("it is for whoever signs: aileron approver init")
        else:
            self._begin("preview", self._read_preview)

    def action_undo(self) -> None:
        """Take back what is held, at once; or a question that waits, in two steps: it was somebody's, and is gone then."""
        entry = self._entry()
        if entry is None:
            self._warn("nothing is selected")
        elif not entry.is_open:
            self._begin("decide", self._taken_back, entry.id)
        elif (refusal := self._refusal("deny")) is not None:
            self._warn(refusal)
        else:
            name = entry.id

            def said(is_yes: bool | None) -> None:
                if is_yes:
                    self._begin("decide", self._taken_back, name)

            what = Text(f"take back the question about {entry.title}\nasked by {entry.asker}: nothing runs for it")
            self.push_screen(Confirm(what, None, verb="take it back"), said)

    async def _taken_back(self, name: str) -> None:
        if await self._tried(self._door.cancel, name) is not None:
            await self._refresh_now()
            self._reload()

    def action_whole(self) -> None:
        """All of it, or as much as is usual."""
        self._view.turn()

    def action_unread(self) -> None:
        """The person decides without having read all."""
        self._guard.read_to_end()
        self._show_frame()
        self._warn("you decide without having read all of it")

    def action_raw(self) -> None:
        """The question as it came."""
        if self._question is not None:
            self.push_screen(Pages(Text(visible_json(json.dumps(self._question, indent=2, ensure_ascii=False)))))

    def action_difference(self) -> None:
        """What is other than in the call approved last."""
        if self._question is None:
            return
        from aileron.review.question import difference_lines

        found = difference_lines(self._question, None, paint.local_time)
        lines = found if isinstance(found, list) else [found or "there is nothing to compare a consent with"]
        width = int(self.size.width * 0.9) - 6
        rows = [Text(row) for line in lines for row in paint.folded(as_text(line), width)]
        self.push_screen(Pages(paint.joined(rows)))

    async def _show_run(self, run: str) -> None:
        from aileron.review.record import record_of

        found = await self._tried(self._door.record, run)
        if found is not None:
            width = int(self.size.width * 0.96) - 5
            self.push_screen(Pages(paint.joined(paint.record_rows(record_of(found.value), width))))

    def action_open_page(self) -> None:
        """The same question in the browser."""
        address = page_of(self._status, self._selected) if self._selected is not None else None
        self._tell(address or "it has no page")
        if address is not None and any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")):
            import webbrowser

            self.run_worker(lambda: webbrowser.open(address), thread=True)

    def action_copy(self) -> None:
        """The id into the clipboard, where the terminal does that."""
        if self._selected is not None:
            self.copy_to_clipboard(self._selected)
            self._tell(f"copied {self._selected}")

    def action_mark(self) -> None:
        """One of several that are denied together."""
        if self._selected is not None and self._pane == "queue":
            self._queue.mark(self._selected)
            self._show_list()

    def action_group(self) -> None:
        """Questions for the same as one line."""
        self._queue.group()
        self._show_list()

    def action_next(self, step: int) -> None:
        """The next that waits."""
        self._queue.step(step)

    def action_filter(self) -> None:
        """Only what has these words."""
        self.default_screen.add_class("filtering")
        self.query_one("#filter", Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """The filter is set."""
        if event.input.id == "filter":
            self._set_filter(event.value.strip())
            self._leave_filter()

    def _set_filter(self, wanted: str) -> None:
        self.query_one("#filter", Input).value = wanted
        self._queue.filter(wanted)
        self._show_list()
        self._show_frame()

    def _leave_filter(self) -> None:
        self.default_screen.remove_class("filtering")
        self._queue.focus()

    def action_snooze(self) -> None:
        """No bell for a while."""
        self._quiet_until = time.monotonic() + _SNOOZE_S
        self._tell("no bell for ten minutes")

    async def action_back(self) -> None:
        """From a question to the list, or out of the filter."""
        is_typing = self.default_screen.has_class("filtering")
        if self._queue.wanted and not is_typing and not self.default_screen.has_class("open"):
            self._set_filter("")
        self.default_screen.remove_class("open")
        self._leave_filter()

    def action_pane(self, name: str) -> None:
        """One of the five screens."""
        self.query_one("#panes", ContentSwitcher).current = name
        self._guard.disturb(now=time.monotonic())
        self.query_one("#list" if name == "queue" else f"#{name}").focus()
        self._show_frame()
        self._begin("pane", self._look_at_pane)

    async def _look_at_pane(self) -> None:
        with contextlib.suppress(GoneError, RefusedError):
            await self._fill_pane()

    def action_help(self) -> None:
        """The keys."""
        self.push_screen(Pages(Text(frame.HELP)))

    def action_key(self) -> None:
        """Open the approver's key for a while, or lock it."""
        from aileron.model.failure import AileronError

        self._holder.look()
        if not self._is_checked:
            self._warn("the daemon is still asked whose terminal this is")
        elif not self._is_signed:
            self._warn("nobody signs for this home: aileron approver init")
        elif self._holder.not_kept is not None:
            self._warn(f"it is asked for each time: {self._holder.not_kept}")
        elif self._holder.is_open:
            self._holder.close()
            self._forget_preview()
        else:
            try:
                self._holder.open("to decide for 15 minutes")
            except (AileronError, KeyboardInterrupt) as error:
                self._tell(str(error) or "it stays locked", is_bad=True)
            self._reload()
        self._show_frame()

    def action_command_palette(self) -> None:
        """All keys by name; but over nothing that is answered first."""
        if self.screen is self.default_screen:
            super().action_command_palette()

    def action_vault(self) -> None:
        """Open the vault, or lock it."""
        self._begin("vault", self._turn_vault)

    async def _turn_vault(self) -> None:
        from aileron.model.failure import AileronError

        if (self._status.get("vault") or {}).get("locked"):
            try:
                text = self._ask_away("Vault passphrase").reveal().decode()
            except (AileronError, UnicodeDecodeError, KeyboardInterrupt) as error:
                self._tell(str(error) or "it stays locked", is_bad=True)
                return
            await self._tried(self._door.unlock_vault, text)
        else:
            await self._tried(self._door.lock_vault)
        await self._refresh_now()

    def action_end(self) -> None:
        """End a grant, or a session."""
        if self._pane not in ("grants", "sessions"):
            return
        name = self.query_one(f"#{self._pane}", Rows).chosen()
        if name is None:
            return
        work, what = (
            (self._door.revoke, "this grant: the next run is asked about")
            if self._pane == "grants"
            else (self._door.end_session, "this session: its token opens nothing then")
        )

        def said(is_yes: bool | None) -> None:
            if is_yes:
                self._begin("end", self._ended, work, name)

        self.push_screen(Confirm(Text(f"end {what}\n{visible(name)}"), None, verb="end it"), said)

    async def _ended(self, work: Callable[[str], None], name: str) -> None:
        await self._tried(work, name)
        await self._refresh_now()

    # what it takes

    def _begin(self, group: str, work: Callable[..., Awaitable[None]], *given: Any, **named: Any) -> None:
        """Go on with `work`; of a question, and of a run, the newest takes the place of the one before.

        Not as a coroutine: one that is never begun, because the console ends, would be complained about.
        """
        whole = functools.partial(work, *given, **named)
        begun: Callable[[], Awaitable[None]] = functools.partial(self._done, whole)
        self.run_worker(begun, group=group, exclusive=group in ("question", "run"))

    async def _done(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do it; what nobody foresaw is said. A worker that raised would end the console."""
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - where a task ends
            self._tell(unforeseen(error), is_bad=True)

    async def run_action(self, *given: Any, **named: Any) -> bool:
        """A key's action; what nobody foresaw is said, and the console stays."""
        try:
            return await super().run_action(*given, **named)
        except Exception as error:  # noqa: BLE001 - where a key press ends
            self._tell(unforeseen(error), is_bad=True)
            return True

    def _tell(self, words: str, *, is_bad: bool = False) -> None:
        severity: Literal["error", "information"] = "error" if is_bad else "information"
        self.notify(("! " if is_bad else "") + visible(words), severity=severity, markup=False)

    def _warn(self, words: str) -> None:
        self.notify(visible(words), severity="warning", markup=False)

    async def _tried(self, work: Callable[..., T], *given: Any) -> _Answered[T] | None:
        """What the daemon answers; None where it refused or is gone, and the person knows."""
        try:
            return _Answered(await _in_thread(work, *given))
        except (RefusedError, GoneError) as error:
            self._tell(str(error), is_bad=True)
            return None

    def _ask_away(self, question: str) -> Secret:
        with self._away():
            return self._hooks.ask(question)

    def _interrupted(self, number: int, _: object) -> None:
        """A signal while the terminal is somebody else's: that ends, and unless it was Ctrl-C the console too."""
        if number != signal.SIGINT:
            self.exit()
        raise KeyboardInterrupt

    @contextlib.contextmanager
    def _away(self) -> Iterator[None]:
        """The terminal as a command has it: for a passphrase, or an editor. Whoever opens it meanwhile finds no key open."""
        self._lock_for("the terminal was somebody else's for a while")
        self._hooks.let_go()
        # The event loop's own handler would end the console, and have the passphrase asked for again.
        before = {number: signal.signal(number, self._interrupted) for number in _ENDING}
        can_suspend = self._driver is not None and self._driver.can_suspend
        failed: BaseException | None = None
        with self.suspend() if can_suspend else contextlib.nullcontext():
            try:
                yield
            except BaseException as error:  # noqa: BLE001 - an exception that passed through suspend() would leave it so
                failed = error
        for number, handler in before.items():
            signal.signal(number, handler)
        self._hooks.take()
        self._guard.disturb(now=time.monotonic())
        if failed is not None:
            raise failed


def _is_over(entry: Entry) -> bool:
    left = seconds_left(entry.expires_at)
    return left is not None and left <= 0


def _has_run(question: dict[str, Any]) -> bool:
    """There is something on record of what it did."""
    return bool(question.get("audit_id")) and question.get("status") not in ("pending_approval", "approved")


async def _in_thread(work: Callable[..., T], *given: Any) -> T:
    """What `work` returns, from a thread that nobody waits for at the end: one waits for news, 20 s at a time."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: Exception | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(cast("T", result))

    def run() -> None:
        result, failed = None, None
        try:
            result = work(*given)
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            failed = error
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, result, failed)

    threading.Thread(target=run, daemon=True).start()
    return await done
