"""The console: the queue, activity, grants, sessions and the system, live, and the person's decisions.

Runs in its own process, alone (approver/presence.py). What it shows is what the daemon says, made harmless; what it signs is what
it shows. Nothing here decides by itself: a key does, in two steps, where the guard has no reason against it.

    news (a thread) ──▶ what waits ──▶ the list        keys ──▶ guard ──▶ second step ──▶ holder ──▶ signature ──▶ daemon
                        the record ──▶ activity

Rules
- What is decided is the digest of what is on the screen, computed here (review/genuine.py), with that of the preview.
- The list grows at its end and never moves under the person.
- Without a daemon nothing looks as if it could be decided.
- Nothing moves by itself, and no colour is the only sign of anything.

Source: docs/reference/console.md. Not here: what a sheet says (review/sheet.py), how it is folded (paint.py), lines (plain.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import webbrowser
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Literal, NamedTuple, TypeVar

import anyio
import anyio.to_thread
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.events import Resize
from textual.message import Message
from textual.theme import Theme
from textual.widgets import ContentSwitcher, Input, OptionList, Static
from textual.widgets.option_list import Option

from aileron.model.visible import as_text, visible, visible_json
from aileron.tui import paint
from aileron.tui.door import Door, GoneError, RefusedError
from aileron.tui.guard import Guard
from aileron.tui.holder import Holder
from aileron.tui.screens import Confirm, Granted, GrantForm, Line, Pages
from aileron.tui.waiting import Entry, Waiting, matches, seconds_left

if TYPE_CHECKING:
    from aileron.model.preview import Preview
    from aileron.model.secret import Secret
    from aileron.review.sheet import Sheet

__all__ = ["Console", "Hooks"]

T = TypeVar("T")
NARROW: Final = 80
"""Below so many columns the list and a question are two screens."""
WIDE: Final = 104
"""From so many columns on they stand side by side."""
_MOST_EVENTS: Final = 500
_RETRY_S: Final = 1.0
_REST_S: Final = 0.5
"""A question that rests under the cursor for so long is worth reading its preview."""
_SNOOZE_S: Final = 600.0
_PANES: Final = ("queue", "activity", "grants", "sessions", "system")
_CONTRAST: Final = Theme(
    name="high-contrast",
    primary="#ffffff",
    secondary="#ffff00",
    warning="#ffff00",
    error="#ff8080",
    success="#80ff80",
    accent="#00ffff",
    foreground="#ffffff",
    background="#000000",
    surface="#000000",
    panel="#000000",
    dark=True,
)
_HELP: Final = """\
MOVE      j k ↓ ↑ in the list · Enter or Tab to the question · Esc back · n N next, last that waits
          / filter (words; agent:x action:x kind:x) · g the same kind as one (×n) · 1 to 5 screens
READ      f all of it · r as it came (JSON) · = what differs · p read again what is there now · o the web page
DECIDE    A approve, and then y, or the word it asks for · d deny, with a reason the agent reads
          D deny, and end the agent's session · e edit the arguments · t not to be asked about the same for a time
          m ask the agent · v mark several, d denies them all · u take back, while it is held
          ! I have not read all of it
KEY       L open or lock the approver's key · 5 then V open or lock the vault
OTHER     z no bell for ten minutes · y copy the id · Ctrl-P all commands · q quit

What a question says was written by agents and strangers. What stands in a box the agent says, and nobody has verified it.
! marks what to look at, ≠ what is not as it was in the call approved last, │ somebody else's text.
Nothing is approved with Enter, Space or a click. A key decides nothing in the first 0.4 s of what comes up.
"""


class _Answered(NamedTuple, Generic[T]):
    """What the daemon answered, which may be nothing."""

    value: T


class Hooks:
    """What the console needs of the terminal it runs on: a passphrase, an editor, and the terminal to itself."""

    def __init__(
        self,
        *,
        ask: Callable[[str], Secret],
        edit: Callable[[str], str],
        take: Callable[[], None],
        let_go: Callable[[], None],
    ) -> None:
        """`edit` gives the text as it was left, or raises ValueError."""
        self.ask: Final = ask
        self.edit: Final = edit
        self.take: Final = take
        self.let_go: Final = let_go


class _Body(VerticalScroll):
    """The part of a question that scrolls; says when its end has been on the screen."""

    class ReadToEnd(Message):
        """There is nothing below what is shown."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "scroll_down", show=False),
        Binding("k", "scroll_up", show=False),
        Binding("space", "page_down", show=False),
    ]

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.check_end()

    def check_end(self) -> None:
        """Tell, if the end is on the screen."""
        if self.is_attached and self.size.height and self.scroll_y >= self.max_scroll_y:
            self.post_message(self.ReadToEnd())


class _List(OptionList):
    """A list that is moved in with j and k too."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", show=False),
        Binding("k", "cursor_up", show=False),
    ]


class Console(App[None]):
    """The console of one home."""

    TITLE = "aileron console"
    ENABLE_COMMAND_PALETTE = True
    CSS = """
    Screen { layout: vertical; }
    #bar { height: 1; text-style: reverse; }
    #banner { height: auto; max-height: 3; display: none; text-style: bold reverse; }
    .lost #banner { display: block; }
    #tabs { height: 1; }
    #panes { height: 1fr; }
    #queue { layout: vertical; height: 100%; }
    #list { height: auto; min-height: 2; max-height: 5; border: none; padding: 0; }
    #sheet { height: 1fr; border-top: solid $primary; }
    #essentials { height: auto; max-height: 12; }
    #body { height: 1fr; border: none; padding: 0; scrollbar-size-vertical: 1; }
    #filter { display: none; height: 1; border: none; padding: 0 1; }
    .filtering #filter { display: block; }
    .wide #queue { layout: horizontal; }
    .wide #list { width: 40; height: 100%; max-height: 100%; }
    .wide #sheet { width: 1fr; border-top: none; border-left: solid $primary; padding: 0 0 0 1; }
    .narrow #list { height: 100%; max-height: 100%; }
    .narrow #sheet { display: none; border: none; }
    .narrow.open #list { display: none; }
    .narrow.open #sheet { display: block; }
    .stale #essentials, .stale #body { text-style: dim; }
    #hints { height: 1; }
    .narrow #hints { height: 2; }
    OptionList > .option-list--option-highlighted { text-style: bold reverse; }
    .pane { height: 100%; border: none; padding: 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1", "pane('queue')", "queue", show=False),
        Binding("2", "pane('activity')", "activity", show=False),
        Binding("3", "pane('grants')", "grants", show=False),
        Binding("4", "pane('sessions')", "sessions", show=False),
        Binding("5", "pane('system')", "system", show=False),
        Binding("question_mark", "help", "help", show=False),
        Binding("q", "quit", "quit", show=False),
        Binding("A", "approve", "approve", show=False),
        Binding("d", "deny", "deny", show=False),
        Binding("D", "deny_and_stop", "deny, end its session", show=False),
        Binding("e", "edit", "edit", show=False),
        Binding("t", "grant", "for a time", show=False),
        Binding("m", "ask_back", "ask the agent", show=False),
        Binding("p", "preview", "read what is there now", show=False),
        Binding("u", "undo", "take back", show=False),
        Binding("f", "whole", "all of it", show=False),
        Binding("r", "raw", "as it came", show=False),
        Binding("equals_sign", "difference", "what differs", show=False),
        Binding("exclamation_mark", "unread", "not read", show=False),
        Binding("o", "open_page", "web page", show=False),
        Binding("y", "copy", "copy the id", show=False),
        Binding("v", "mark", "mark", show=False),
        Binding("g", "group", "group", show=False),
        Binding("n", "next(1)", "next", show=False),
        Binding("N", "next(-1)", "last", show=False),
        Binding("slash", "filter", "filter", show=False),
        Binding("z", "snooze", "no bell", show=False),
        Binding("L", "key", "open or lock the key", show=False),
        Binding("V", "vault", "open or lock the vault", show=False),
        Binding("x", "end", "end it", show=False),
        Binding("escape", "back", "back", show=False),
    ]

    def __init__(self, door: Door, hooks: Hooks, *, not_kept: str | None, theme: str | None = None) -> None:
        super().__init__()
        self.animation_level = "none"
        self.register_theme(_CONTRAST)
        if theme is not None:
            self.theme = theme
        self._door: Final = door
        self._hooks: Final = hooks
        self._waiting: Final = Waiting()
        self._guard: Final = Guard()
        self._holder: Final = Holder(
            door.home / "approver.json", ask=self._ask_away, tell=print, not_kept=not_kept, clock=time.monotonic
        )
        self._status: dict[str, Any] = {}
        self._approver: dict[str, Any] = {"status": "unknown"}
        self._events: list[dict[str, Any]] = []
        self._selected: str | None = None
        self._question: dict[str, Any] | None = None
        self._edit: str | None = None
        self._preview: Preview | None = None
        self._sheet: Sheet | None = None
        self._record: dict[str, Any] | None = None
        self._listed: list[str] = []
        self._marked: set[str] = set()
        self._filter = ""
        self._is_grouped = False
        self._is_whole = False
        self._is_cut = False
        self._lost: str | None = "asking the daemon …"
        self._quiet_until = 0.0

    # the screen

    def compose(self) -> ComposeResult:
        yield Static(id="bar")
        yield Static(id="banner")
        yield Static(id="tabs")
        with ContentSwitcher(initial="queue", id="panes"):
            with Container(id="queue"):
                yield _List(id="list", markup=False)
                with Container(id="sheet"):
                    yield Static(id="essentials")
                    with _Body(id="body"):
                        yield Static(id="text")
            yield _List(id="activity", classes="pane", markup=False)
            yield _List(id="grants", classes="pane", markup=False)
            yield _List(id="sessions", classes="pane", markup=False)
            with VerticalScroll(id="system", classes="pane"):
                yield Static(id="facts")
        yield Input(id="filter", placeholder="words, agent:x, action:x, kind:x", select_on_focus=False)
        yield Static(id="hints")

    def on_mount(self) -> None:
        self._hooks.take()
        self._lay_out()
        self._show_frame()
        self.query_one("#list", _List).focus()
        self.set_interval(1.0, self._tick)
        self.run_worker(self._follow(), name="news")

    def on_unmount(self) -> None:
        self._holder.close()
        self._hooks.let_go()

    def on_resize(self, _: Resize) -> None:
        self._lay_out()
        self._guard.disturb(now=time.monotonic())
        self.call_after_refresh(self._paint_question)

    def _lay_out(self) -> None:
        self.screen.set_class(self.size.width < NARROW, "narrow")
        self.screen.set_class(self.size.width >= WIDE, "wide")

    def _tick(self) -> None:
        if self._holder.close_on_time():
            self.notify("the approver's key is locked: its time was over", markup=False)
            self._preview = None
            self._reload()
        entry = self._entry()
        if entry is not None and entry.is_open and (seconds_left(entry.expires_at) or 1) <= 0:
            self._guard.show(entry.id, self._guard.digest, now=time.monotonic(), closed=_EXPIRED)
            self._paint_question()
        self._show_frame()
        self._show_list()

    # what the daemon tells

    async def _follow(self) -> None:
        """Read what there is, then wait for news and read again; for as long as the console is open."""
        is_started = False
        while True:
            try:
                if not is_started:
                    await self._in_thread(self._door.start)
                    is_started = True
                last = await self._read_all()
                while True:
                    events = await self._in_thread(self._door.news, last)
                    last = int(events[-1]["seq"]) if events else last
                    await self._took(events)
            except (GoneError, RefusedError) as error:
                self._lose(str(error))
                await anyio.sleep(_RETRY_S)

    async def _read_all(self) -> int:
        events = await self._in_thread(self._door.newest, 100)
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
        shown = self._question or {}
        about = {str(event.get(name)) for event in events for name in ("run", "approval")}
        if {str(shown.get("audit_id")), str(self._selected)} & about:
            self._reload()

    async def _refresh(self) -> None:
        """The queue, who decides, and what stands on the other screens."""
        self._status = await self._in_thread(self._door.status)
        self._approver = await self._in_thread(self._door.approver)
        self._holder.key_id = self._approver.get("key_id")
        news = self._waiting.take(await self._in_thread(self._door.waiting))
        for name in news.gone:
            with contextlib.suppress(RefusedError):
                became = await self._in_thread(self._door.outcome, name)
                self._waiting.settle(name, str(became.get("status")))
        if news.new:
            self._guard.disturb(now=time.monotonic())
            if time.monotonic() >= self._quiet_until and self._listed:
                self.bell()
        self._show_list()
        self._show_frame()
        await self._fill_panes()

    def _add_events(self, events: list[dict[str, Any]]) -> None:
        self._events = [*self._events, *events][-_MOST_EVENTS:]
        shown = self.query_one("#activity", _List)
        at_end = shown.highlighted is None or shown.highlighted >= shown.option_count - 1
        shown.clear_options()
        shown.add_options([Option(paint.event_row(event), id=f"e{event.get('seq')}") for event in self._events])
        if at_end and self._events:
            shown.highlighted = len(self._events) - 1

    def _lose(self, why: str) -> None:
        self._lost = why
        self._guard.lose_daemon()
        self._show_frame()

    def _regain(self) -> None:
        self._lost = None
        self._guard.regain_daemon(now=time.monotonic())
        self._show_frame()

    async def _fill_panes(self) -> None:
        pane = self.query_one("#panes", ContentSwitcher).current
        if pane == "grants":
            rows = [(str(one.get("id")), paint.grant_row(one)) for one in await self._in_thread(self._door.grants)]
            self._fill("grants", rows, "a person is asked about everything that is gated")
        elif pane == "sessions":
            rows = [(str(one.get("id")), paint.session_row(one)) for one in await self._in_thread(self._door.sessions)]
            self._fill("sessions", rows, "no session yet: aileron launch AGENT begins one")
        elif pane == "system":
            key = self._holder.not_kept or self._key_word()
            key = self._holder.not_kept or self._key_word()
            self.query_one("#facts", Static).update(paint.system_text(self._status, self._approver, key))

    def _fill(self, name: str, rows: list[tuple[str, Text]], empty: str) -> None:
        shown = self.query_one(f"#{name}", _List)
        kept = shown.highlighted
        shown.clear_options()
        shown.add_options([Option(row, id=f"i{number}-{key}") for number, (key, row) in enumerate(rows)])
        if not rows:
            shown.add_option(Option(Text(empty, style="dim"), disabled=True))
        elif kept is not None:
            shown.highlighted = min(kept, len(rows) - 1)

    # what stands on the screen

    def _show_frame(self) -> None:
        if not self.is_running:
            return
        waiting = self._waiting.open
        soon = sum(1 for entry in waiting if (seconds_left(entry.expires_at) or 3600) < 60)
        parts = [" aileron", f"{len(waiting)} waiting" if waiting else "nothing waits"]
        if soon:
            parts.append(f"! {soon} expiring")
        parts += [self._vault_word(), self._key_word()]
        parts.append("! NO DAEMON" if self._lost else "daemon ok")
        bar = Text(" · ".join(part for part in parts if part), no_wrap=True, overflow="ellipsis")
        self.query_one("#bar", Static).update(bar)
        self.screen.set_class(self._lost is not None, "lost")
        if self._lost is not None:
            self.query_one("#banner", Static).update(
                Text(f" ! the daemon does not answer ({visible(self._lost)}): nothing can be decided ")
            )
        self._show_tabs()
        self.query_one("#hints", Static).update(Text(self._hints(), style="dim"))

    def _show_tabs(self) -> None:
        current = self.query_one("#panes", ContentSwitcher).current
        tabs = Text(" ")
        for number, name in enumerate(_PANES, start=1):
            title = f"[{number} {name}]" if name == current else f" {number} {name} "
            tabs.append(Text(title, style="bold" if name == current else ""))
        self.query_one("#tabs", Static).update(tabs)

    def on_click(self, event: Any) -> None:
        """A click on the row of tabs; a click anywhere decides nothing."""
        if getattr(event.widget, "id", None) != "tabs":
            return
        column = 1
        for number, name in enumerate(_PANES, start=1):
            width = len(f" {number} {name} ")
            if column <= event.x < column + width:
                self.run_worker(self.action_pane(name), group="pane")
            column += width

    def _vault_word(self) -> str:
        vault = self._status.get("vault") or {}
        if not self._status:
            return ""
        return "no vault" if not vault.get("exists") else "! vault locked" if vault.get("locked") else "vault open"

    def _key_word(self) -> str:
        status = self._approver.get("status")
        if status == "none":
            return "! NOT SIGNED"
        if self._holder.not_kept is not None:
            return "key: asked each time"
        return f"key open {paint.duration(self._holder.left_s)}" if self._holder.is_open else "key locked (L)"

    def _hints(self) -> str:
        entry = self._entry()
        match self.query_one("#panes", ContentSwitcher).current:
            case "queue" if entry is not None and entry.status == "approved":
                return " u take back · r raw · = diff · Enter read · / filter · ? help · q quit"
            case "queue":
                return " A approve · d deny · e edit · m ask · p look · = diff · f all · L key · ? help"
            case "activity":
                return " Enter the run, with every request that left · ? help · q quit"
            case "grants" | "sessions":
                return " x end it · ? help · q quit"
            case _:
                return " L the approver's key · V the vault · ? help · q quit"

    def _show_list(self) -> None:
        """The entries that are listed, in place where they are the same as before."""
        shown = self.query_one("#list", _List)
        entries = self._filtered()
        width = (39 if self.screen.has_class("wide") else self.size.width) - 2
        counts = self._counts(entries)
        listed = [entry for entry in entries if counts.get(entry.id, 1)]
        rows = [
            paint.entry_row(entry, width, is_marked=entry.id in self._marked, count=counts.get(entry.id, 1))
            for entry in listed
        ]
        names = [entry.id for entry in listed]
        if names[: len(self._listed)] == self._listed and shown.option_count == max(len(self._listed), 0):
            for name, row in zip(self._listed, rows, strict=False):
                shown.replace_option_prompt(name, row)
            shown.add_options(
                [Option(row, id=name) for name, row in list(zip(names, rows, strict=True))[len(self._listed) :]]
            )
        else:
            shown.clear_options()
            shown.add_options([Option(row, id=name) for name, row in zip(names, rows, strict=True)])
            if self._selected in names:
                shown.highlighted = names.index(self._selected)
        self._listed = names
        if shown.highlighted is None and names:
            shown.highlighted = 0
        if not names:
            self._clear_question()

    def _filtered(self) -> list[Entry]:
        return [entry for entry in self._waiting.entries if not self._filter or matches(entry, self._filter)]

    def _counts(self, entries: list[Entry]) -> dict[str, int]:
        """With groups: how many there are of what is listed once; 0 for those that are not listed."""
        if not self._is_grouped:
            return {}
        first: dict[str, str] = {}
        counts: dict[str, int] = {}
        for entry in entries:
            if not entry.is_open:
                continue
            head = first.setdefault(f"{entry.same} {entry.asker}", entry.id)
            counts[head] = counts.get(head, 0) + 1
            if head != entry.id:
                counts[entry.id] = 0
        return counts

    # one question

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Another question is under the cursor."""
        if event.option_list.id == "list" and event.option.id != self._selected:
            self._select(event.option.id)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Enter, or a click: read it. It decides nothing."""
        match event.option_list.id:
            case "list":
                self.screen.add_class("open")
                self.query_one("#body", _Body).focus()
                self.call_after_refresh(self._paint_question)
            case "activity" if event.option.id is not None:
                seq = event.option.id.removeprefix("e")
                run = next((one.get("run") for one in self._events if str(one.get("seq")) == seq), None)
                if run is not None:
                    self.run_worker(self._show_run(str(run)), group="run", exclusive=True)

    def _select(self, name: str | None) -> None:
        self._selected = name
        self._question = self._preview = self._sheet = self._record = self._edit = None
        self._is_whole = False
        self._guard.show(name, None, now=time.monotonic())
        self._paint_question()
        self._reload()

    def _clear_question(self) -> None:
        if self._selected is not None:
            self._select(None)
        self.query_one("#essentials", Static).update(
            Text("nothing waits for you" if not self._filter else "nothing matches")
        )
        self.query_one("#text", Static).update(Text())

    def _reload(self) -> None:
        if self._selected is not None:
            self.run_worker(self._load(self._selected), group="question", exclusive=True)

    async def _load(self, name: str) -> None:
        """Read a question, see that it is what its digest covers, and put it on the screen."""
        from aileron.model.decision import MismatchError
        from aileron.review.genuine import edited, genuine

        try:
            question = await self._in_thread(self._door.question, name)
            if self._edit is not None and question.get("status") == "pending_approval":
                question = edited(question, self._edit)
            if self._approver.get("status") != "none":
                question = genuine(question)
            record = await self._in_thread(self._door.record, str(question["audit_id"])) if _has_run(question) else None
        except MismatchError as error:
            self._refuse_to_show(name, f"{error.failure.message}; {error.why}")
            return
        except RefusedError as error:
            self._refuse_to_show(name, error.message)
            return
        except GoneError:
            return
        if name != self._selected:
            return
        is_same = self._question is not None and self._question.get("digest") == question.get("digest")
        self._question, self._record = question, record
        if not is_same:
            self._preview = None
        self._put_up()
        if self._wants_preview():
            await anyio.sleep(_REST_S)
            await self._read_preview()

    def _put_up(self) -> None:
        from aileron.review.sheet import sheet_of

        question = self._question or {}
        self._sheet = sheet_of(question, self._preview, paint.local_time)
        digest = (
            str(question.get("digest"))
            if self._preview is None
            else self._preview.digest or str(question.get("digest"))
        )
        self._guard.show(self._selected, digest, now=time.monotonic(), closed=_closed(question))
        self._paint_question()

    def _refuse_to_show(self, name: str, why: str) -> None:
        if name == self._selected:
            self._question = self._sheet = None
            self._guard.cannot_show(name, why, now=time.monotonic())
            self.query_one("#essentials", Static).update(Text(f"! {visible(why)}", style="bold red"))
            self.query_one("#text", Static).update(Text())

    def _paint_question(self) -> None:
        if self._sheet is None or self._question is None:
            if self._selected is not None and self._guard.digest is None and self._guard.refusal(now=0) == _READING:
                self.query_one("#essentials", Static).update(Text("reading it …", style="dim"))
                self.query_one("#text", Static).update(Text())
            return
        width = max(self.query_one("#sheet").size.width - 2, 30)
        closed = _closed(self._question) or (_EXPIRED if self._is_expired() else None)
        self.screen.set_class(closed is not None, "stale")
        top = paint.essential_rows(self._sheet, width)
        if closed is not None:
            top.insert(1, Text(f"! {visible(closed)}", style="bold"))
        else:
            left = seconds_left(str(self._question.get("expires_at")))
            top[0] = Text.assemble(top[0], f"  expires in {paint.duration(left)}" if left is not None else "")
        rows, self._is_cut = paint.body_rows(self._sheet.sections, width, is_whole=self._is_whole)
        self.query_one("#essentials", Static).update(paint.joined(top))
        self.query_one("#text", Static).update(paint.joined([*self._outcome_rows(width), *rows]))
        self.call_after_refresh(self.query_one("#body", _Body).check_end)

    def _outcome_rows(self, width: int) -> list[Text]:
        """What became of a run, and every request that left for it."""
        if self._record is None:
            return []
        from aileron.review.record import record_of

        return [*paint.record_rows(record_of(self._record), width), Text()]

    def on__body_read_to_end(self, _: _Body.ReadToEnd) -> None:
        """Its end is on the screen."""
        if not self._is_cut:
            self._guard.read_to_end()

    def _is_expired(self) -> bool:
        entry = self._entry()
        return entry is not None and entry.is_open and (seconds_left(entry.expires_at) or 1) <= 0

    def _entry(self) -> Entry | None:
        return self._waiting[self._selected] if self._selected is not None and self._selected in self._waiting else None

    # what is there now

    def _wants_preview(self) -> bool:
        plan = (self._question or {}).get("plan") or {}
        return (
            plan.get("preview") is not None
            and self._preview is None
            and self._holder.is_open
            and _closed(self._question or {}) is None
        )

    async def _read_preview(self) -> None:
        from aileron.approver.signing import PREVIEW_S, PreviewAsked
        from aileron.model.failure import AileronError

        question, name = self._question, self._selected
        if question is None or name is None:
            return
        try:
            with self._holder.key("to read what is there now") as key:
                asked = PreviewAsked(key, name, str(question["digest"]))
            answer = await self._in_thread(self._door.preview, name, asked.body, PREVIEW_S)
            preview = asked.opened(answer)
        except (AileronError, RefusedError, GoneError) as error:
            self.notify(visible(str(error)), severity="error", markup=False)
            return
        except (KeyError, TypeError, ValueError):
            self.notify("the daemon answered a preview that is none", severity="error", markup=False)
            return
        if self._selected == name and self._question is question:
            self._preview = preview
            self._put_up()

    # decisions

    def action_approve(self) -> None:
        """The first step of a yes."""
        self._begin("approve")

    def action_deny(self) -> None:
        """A no, with a reason; of all that are marked."""
        self._begin("deny")

    def action_deny_and_stop(self) -> None:
        """A no, and the end of the session that asked."""
        self._begin("deny", stop=True)

    def _begin(self, decision: Literal["approve", "deny"], *, stop: bool = False) -> None:
        if not self._is_on_queue():
            return
        refusal = self._guard.refusal(now=time.monotonic(), is_approval=decision == "approve")
        plan = (self._question or {}).get("plan") or {}
        if self.screen.has_class("narrow") and not self.screen.has_class("open"):
            refusal = "it is not on the screen: Enter shows it"
        if refusal is None and decision == "approve":
            if plan.get("preview") is not None and self._preview is None and self._approver.get("status") != "none":
                refusal = "what is there now was not read yet: p reads it"
            elif self._marked:
                refusal = (
                    "several are marked: they can be denied together, and approved one by one (v takes a mark away)"
                )
        if refusal is not None or self._sheet is None or self._selected is None:
            self.notify(refusal or "nothing is selected", severity="warning", markup=False)
            return
        name, digest = self._selected, self._guard.digest
        if decision == "approve":
            facts = paint.joined(paint.essential_rows(self._sheet, min(self.size.width - 10, 90)))
            self.push_screen(
                Confirm(facts, self._sheet.word), lambda yes: self._said(name, digest, "approve", None) if yes else None
            )
            return
        marked = [one for one in self._listed if one in self._marked] or [name]
        count = f"{len(marked)} questions" if len(marked) > 1 else self._sheet.title
        title = Text(f"deny {count}{', and end the session that asked' if stop else ''}", style="bold")
        self.push_screen(
            Line(title, hint="Reason (the agent reads it; Enter for none) · Esc back", may_be_empty=True),
            lambda reason: self._denied(marked, digest, reason, stop=stop) if reason is not None else None,
        )

    def _denied(self, names: list[str], digest: str | None, reason: str, *, stop: bool) -> None:
        if len(names) == 1:
            self._said(names[0], digest, "deny", reason or None, stop=stop)
        else:
            self.run_worker(self._deny_all(names, reason or None), group="decide")

    def _said(
        self,
        name: str,
        digest: str | None,
        decision: Literal["approve", "deny"],
        reason: str | None,
        *,
        stop: bool = False,
    ) -> None:
        """The second step was taken: it counts for exactly what was on the screen in the first."""
        if (name, digest) != (self._guard.shown, self._guard.digest):
            self.notify("it is another one now: nothing is decided, look at it again", severity="error", markup=False)
            return
        self.run_worker(self._decide(name, decision, reason, stop=stop), group="decide")

    async def _decide(
        self, name: str, decision: Literal["approve", "deny"], reason: str | None, *, stop: bool = False
    ) -> None:
        question, digest = self._question, self._guard.digest
        if question is None or digest is None or (closed := _closed(question)):
            self.notify(closed or "it is not there any more", severity="error", markup=False)
            return
        body = self._signed(name, digest, decision, reason, question.get("head"))
        if body is None or not await self._sent(name, body, is_run=_is_run(question)):
            return
        session = question.get("session")
        if stop and session not in (None, "local"):
            await self._tried(self._door.end_session, str(session))
        await self._refresh_now()

    async def _deny_all(self, names: list[str], reason: str | None) -> None:
        for name in names:
            try:
                question = await self._in_thread(self._door.question, name)
            except (RefusedError, GoneError) as error:
                self.notify(visible(str(error)), severity="error", markup=False)
                continue
            body = self._signed(name, str(question.get("digest")), "deny", reason, question.get("head"))
            if body is None:
                break
            await self._sent(name, body, is_run=_is_run(question))
        self._marked.clear()
        await self._refresh_now()

    def _signed(
        self, name: str, digest: str, decision: Literal["approve", "deny"], reason: str | None, head: Any
    ) -> dict[str, Any] | None:
        """The body of the decision; None where the person did not open the key, and knows why."""
        if self._approver.get("status") == "none":
            body = {"decision": decision, "digest": digest}
            return body if reason is None else {**body, "reason": reason}
        from aileron.approver.signing import signed_decision
        from aileron.model.failure import AileronError

        try:
            with self._holder.key(f"to {decision} {name}") as key:
                return signed_decision(key, name, digest, decision, reason, head)
        except (AileronError, KeyboardInterrupt) as error:
            self.notify(visible(str(error) or "nothing is decided"), severity="error", markup=False)
            return None

    async def _sent(self, name: str, body: dict[str, Any], *, is_run: bool) -> bool:
        try:
            settled = await self._in_thread(lambda: self._door.decide(name, body, is_run=is_run))
        except RefusedError as error:
            words = (
                f"somebody else has decided it: {error.status}" if error.name == "already_decided" else error.message
            )
            self.notify(visible(words), severity="error", markup=False)
            return False
        except GoneError as error:
            self._lose(str(error))
            return False
        failed = settled.get("error") if isinstance(settled.get("error"), dict) else None
        words = f"{settled.get('status')}: {name}"
        if failed is not None:
            words = f"approved, and it could not be done: {failed.get('message')}"
        elif settled.get("held_until"):
            words += f", held until {paint.local_time(settled['held_until'])} (u takes it back)"
        self.notify(visible(words), severity="error" if failed else "information", markup=False)
        return True

    # other keys

    def action_edit(self) -> None:
        """Change the arguments in an editor; what comes of it is another question, to be read and decided."""
        question = self._question
        refusal = self._guard.refusal(now=time.monotonic(), is_approval=False)
        if refusal or question is None or not _is_run(question) or self._selected is None:
            self.notify(refusal or "only a run has arguments to edit", severity="warning", markup=False)
            return
        before = (question.get("plan") or {}).get("args") or {}
        try:
            with self._away():
                text = self._hooks.edit(json.dumps(before, indent=2, ensure_ascii=True) + "\n")
            wanted = json.loads(text)
            if not isinstance(wanted, dict):
                raise ValueError("the arguments are an object")
        except ValueError as error:
            self.notify(visible(f"nothing is changed: {error}"), severity="warning", markup=False)
            return
        if wanted == before:
            self.notify("nothing was changed", markup=False)
            return
        self.run_worker(self._edited(self._selected, wanted), group="question", exclusive=True)

    async def _edited(self, name: str, args: dict[str, Any]) -> None:
        made = await self._tried(self._door.edit, name, args)
        if made is not None and name == self._selected:
            self._edit, self._preview = made.value, None
            await self._load(name)

    def action_grant(self) -> None:
        """Not to be asked about the same for a time: a question of its own."""
        question = self._question
        if question is None or not _is_run(question) or self._sheet is None:
            return
        if self._sheet.word is not None:
            self.notify(
                "not offered: it cannot be undone, so each run is decided by itself", severity="warning", markup=False
            )
            return
        plan = question.get("plan") or {}
        constraints = [
            {"argument": name, "operator": "equals", "value": value} for name, value in (plan.get("args") or {}).items()
        ]
        action = str(plan.get("action"))
        title = Text(f"{visible(action)}, with exactly these arguments, without asking", style="bold")

        def chosen(wanted: Granted | None) -> None:
            if wanted is not None:
                self.run_worker(self._granted(action, constraints, wanted), group="grant")

        self.push_screen(GrantForm(title), chosen)

    async def _granted(self, action: str, constraints: list[dict[str, Any]], wanted: Granted) -> None:
        if await self._tried(self._door.grant, action, constraints, wanted.uses, wanted.for_s) is not None:
            self.notify("it waits at the end of the list: read it, and approve it", markup=False)
            await self._refresh_now()

    def action_ask_back(self) -> None:
        """A question to the agent."""
        name, refusal = self._selected, self._guard.refusal(now=time.monotonic(), is_approval=False)
        if refusal or name is None or not _is_run(self._question or {}):
            self.notify(refusal or "nobody asks this but you", severity="warning", markup=False)
            return

        def asked(question: str | None) -> None:
            if question:
                self.run_worker(self._asked(name, question), group="ask")

        self.push_screen(
            Line(Text("ask the agent", style="bold"), hint="it reads it with its next look · Esc back"), asked
        )

    async def _asked(self, name: str, question: str) -> None:
        await self._tried(self._door.ask_back, name, question)
        self._reload()

    async def action_preview(self) -> None:
        """Read what is there now, again."""
        plan = (self._question or {}).get("plan") or {}
        if plan.get("preview") is None or self._approver.get("status") == "none":
            words = "it has none" if plan.get("preview") is None else "it is for whoever signs: aileron approver init"
            self.notify(words, severity="warning", markup=False)
            return
        await self._read_preview()

    async def action_undo(self) -> None:
        """Take back what is held, or a question that waits."""
        if self._selected is not None and await self._tried(self._door.cancel, self._selected) is not None:
            await self._refresh_now()
            self._reload()

    def action_whole(self) -> None:
        """All of it, or as much as is usual."""
        self._is_whole = not self._is_whole
        self._paint_question()

    def action_unread(self) -> None:
        """The person decides without having read all."""
        self._guard.read_to_end()
        self.notify("you decide without having read all of it", severity="warning", markup=False)

    def action_raw(self) -> None:
        """The question as it came."""
        if self._question is not None:
            text = visible_json(json.dumps(self._question, indent=2, ensure_ascii=False))
            self.push_screen(Pages(Text(text)))

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

    def action_open_page(self) -> None:
        """The same question in the browser."""
        web = self._status.get("web")
        if web and self._selected is not None:
            address = f"{web}/approvals/{self._selected}"
            self.notify(address, markup=False)
            if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or os.environ.get("BROWSER"):
                self.run_worker(lambda: webbrowser.open(address), thread=True)

    def action_copy(self) -> None:
        """The id into the clipboard, where the terminal does that."""
        if self._selected is not None:
            self.copy_to_clipboard(self._selected)
            self.notify(f"copied {self._selected}", markup=False)

    def action_mark(self) -> None:
        """One of several that are denied together."""
        if self._selected is not None and self._is_on_queue():
            self._marked ^= {self._selected}
            self._show_list()

    def action_group(self) -> None:
        """Questions for the same as one line."""
        self._is_grouped = not self._is_grouped
        self._listed = []
        self._show_list()

    def action_next(self, step: int) -> None:
        """The next that waits."""
        waiting = [number for number, name in enumerate(self._listed) if self._waiting[name].is_open]
        shown = self.query_one("#list", _List)
        at = shown.highlighted if shown.highlighted is not None else -1
        found = [number for number in waiting if (number > at if step > 0 else number < at)]
        if found:
            shown.highlighted = found[0] if step > 0 else found[-1]

    def action_filter(self) -> None:
        """Only what has these words."""
        self.screen.add_class("filtering")
        self.query_one("#filter", Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """The filter is set."""
        if event.input.id == "filter":
            self._filter = event.value.strip()
            self.screen.remove_class("filtering")
            self._listed = []
            self._show_list()
            self.query_one("#list", _List).focus()

    def action_snooze(self) -> None:
        """No bell for a while."""
        self._quiet_until = time.monotonic() + _SNOOZE_S
        self.notify("no bell for ten minutes", markup=False)

    async def action_back(self) -> None:
        """From a question to the list, or out of the filter."""
        if self.screen.has_class("filtering"):
            self.screen.remove_class("filtering")
        self.screen.remove_class("open")
        self.query_one("#list", _List).focus()

    async def action_pane(self, name: str) -> None:
        """One of the five screens."""
        self.query_one("#panes", ContentSwitcher).current = name
        self._guard.disturb(now=time.monotonic())
        target = {"queue": "#list"}.get(name, f"#{name}")
        self.query_one(target).focus()
        self._show_frame()
        with contextlib.suppress(GoneError, RefusedError):
            await self._fill_panes()

    def action_help(self) -> None:
        """The keys."""
        self.push_screen(Pages(Text(_HELP)))

    def action_key(self) -> None:
        """Open the approver's key for a while, or lock it."""
        if self._approver.get("status") == "none":
            self.notify("nobody signs for this home: aileron approver init", severity="warning", markup=False)
        elif self._holder.not_kept is not None:
            self.notify(f"it is asked for each time: {self._holder.not_kept}", severity="warning", markup=False)
        elif self._holder.is_open:
            self._holder.close()
            self._preview = None
            self._reload()
        else:
            from aileron.model.failure import AileronError

            try:
                self._holder.open("to decide for 15 minutes")
            except (AileronError, KeyboardInterrupt) as error:
                self.notify(visible(str(error) or "it stays locked"), severity="error", markup=False)
            self._reload()
        self._show_frame()

    async def action_vault(self) -> None:
        """Open the vault, or lock it."""
        if (self._status.get("vault") or {}).get("locked"):
            from aileron.model.failure import AileronError

            try:
                typed = self._ask_away("Vault passphrase")
                text = typed.reveal().decode()
            except (AileronError, UnicodeDecodeError, KeyboardInterrupt) as error:
                self.notify(visible(str(error) or "it stays locked"), severity="error", markup=False)
                return
            await self._tried(self._door.unlock_vault, text)
        else:
            await self._tried(self._door.lock_vault)
        await self._refresh_now()

    def action_end(self) -> None:
        """End a grant, or a session."""
        pane = self.query_one("#panes", ContentSwitcher).current
        if pane not in ("grants", "sessions"):
            return
        shown = self.query_one(f"#{pane}", _List)
        option = None if shown.highlighted is None else shown.get_option_at_index(shown.highlighted)
        if option is None or option.id is None:
            return
        name = option.id.partition("-")[2]
        work = self._door.revoke if pane == "grants" else self._door.end_session

        def said(yes: bool | None) -> None:
            if yes:
                self.run_worker(self._ended(work, name), group="end")

        what = (
            "this grant: the next run is asked about"
            if pane == "grants"
            else "this session: its token opens nothing then"
        )
        self.push_screen(Confirm(Text(f"end {what}\n{visible(name)}"), None, verb="end it"), said)

    async def _ended(self, work: Callable[[str], None], name: str) -> None:
        await self._tried(work, name)
        await self._refresh_now()

    async def _show_run(self, run: str) -> None:
        from aileron.review.record import record_of

        found = await self._tried(self._door.record, run)
        if found is not None:
            width = int(self.size.width * 0.96) - 5
            self.push_screen(Pages(paint.joined(paint.record_rows(record_of(found.value), width))))

    # what it takes

    def _is_on_queue(self) -> bool:
        return self.query_one("#panes", ContentSwitcher).current == "queue"

    async def _refresh_now(self) -> None:
        try:
            await self._refresh()
        except (GoneError, RefusedError) as error:
            self._lose(str(error))

    async def _tried(self, work: Callable[..., T], *given: Any) -> _Answered[T] | None:
        """What the daemon answers; None where it refused or is gone, and the person knows."""
        try:
            return _Answered(await self._in_thread(work, *given))
        except (RefusedError, GoneError) as error:
            self.notify(visible(str(error)), severity="error", markup=False)
            return None

    async def _in_thread(self, work: Callable[..., T], *given: Any) -> T:
        return await anyio.to_thread.run_sync(work, *given, abandon_on_cancel=True)

    def _ask_away(self, question: str) -> Secret:
        with self._away():
            return self._hooks.ask(question)

    @contextlib.contextmanager
    def _away(self) -> Iterator[None]:
        """The terminal as a command has it: for a passphrase, or an editor."""
        self._hooks.let_go()
        try:
            if self._driver is not None and self._driver.can_suspend:
                with self.suspend():
                    yield
            else:
                yield
        finally:
            self._hooks.take()
            self._guard.disturb(now=time.monotonic())


_EXPIRED: Final = "its time is over: nothing ran, and nothing can be decided"
_READING: Final = "it is still being read"


def _closed(question: dict[str, Any]) -> str | None:
    """Why it cannot be decided any more; None: it can."""
    status = question.get("status")
    if status == "pending_approval":
        return None
    if status == "expired":
        return _EXPIRED
    reason = f" ({question['reason']})" if question.get("reason") else ""
    return f"it is {status}{reason}"


def _is_run(question: dict[str, Any]) -> bool:
    return (question.get("kind") or "action") == "action"


def _has_run(question: dict[str, Any]) -> bool:
    """There is something on record of what it did."""
    return bool(question.get("audit_id")) and question.get("status") not in ("pending_approval", "approved")
