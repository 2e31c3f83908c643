"""The console: the queue, activity, grants, sessions and the system, live, and the person's decisions.

Runs in its own process, alone (approver_key/isolation.py). It sanitizes and shows the daemon's data, and signs only
what it shows. Only key presses decide, in two steps, and only if the guard (guard.py) allows it.

    news (a thread) ──▶ questions ──▶ the list         keys ──▶ guard ──▶ second step ──▶ key session ──▶ signature ──▶ daemon
                        the record ──▶ activity

Rules
- A decision covers the digest of what is on the screen, preview included; the digest is computed here
  (cards/signed_view.py).
- New questions are added at the end of the list, so that no row moves while the person looks at it (waiting.py).
- While the daemon is unreachable, no question looks as if it could be decided.
- Nothing on the screen is animated, and no information is shown by colour alone.

Source: docs/reference/console.md. Not here: the content of a card (cards/card.py), the look (frame.py, view.py,
queue.py), sending (sending.py). `Console` is the last in a chain of subclasses (console_base.py, reading.py,
telling.py, news.py, decisions.py, together.py), and adds the actions of keys.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar, Final

from rich.text import Text
from textual.app import ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.css.query import NoMatches
from textual.events import Click
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import ContentSwitcher, Input, Static

from aileron.approver_key.isolation import end_in_time
from aileron.cards.question import EXPIRED, difference_lines
from aileron.model.json_value import JSONObject
from aileron.model.timestamp import local_time
from aileron.model.visible import visible
from aileron.tui import frame, rendering
from aileron.tui.activity import Activity
from aileron.tui.console_base import Hooks, in_thread, is_over
from aileron.tui.daemon_client import GoneError, RequestRefused
from aileron.tui.queue import Queue, Rows
from aileron.tui.screens import Confirm, GrantForm, GrantLimits, LineInput, Pages, Palette
from aileron.tui.sending import page_of, unforeseen
from aileron.tui.together import TogetherConsole
from aileron.tui.view import View
from aileron.tui.waiting import seconds_left

if TYPE_CHECKING:
    from aileron.model.plan import Plan

__all__ = ["Console", "Hooks"]

_SNOOZE_S: Final = 600.0


class Console(TogetherConsole):
    """The complete `aileron console` of one home: its widgets, and an action for each key."""

    TITLE = "aileron console"
    CSS = frame.CSS
    BINDINGS: ClassVar[list[BindingType]] = frame.KEYS

    def _first_frame_is_drawn(self) -> None:
        gc.freeze()
        gc.enable()
        self._begin("news", self._follow)

    def _has_to_end(self, _number: int, _frame: FrameType | None) -> None:
        """Handle SIGTERM or SIGHUP outside the event loop: schedule the end of the process, and close the approver's key.

        The event loop's own handler does not run while a terminal that takes no output blocks the loop.
        """
        end_in_time()
        threading.Thread(target=self.key_session.close, daemon=True).start()  # a signature in progress is completed

    def _hung_up(self) -> None:
        """Handle the loss of the terminal. Close the approver's key first. Do not restore terminal settings, because
        reads would block for ever.

        The console is killed by the signal itself, so that its parent process restores the terminal, if the terminal
        still exists (approver_key/isolation.py).
        """
        self.key_session.close()
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGHUP)

    def _fatal_error(self) -> None:
        """End the console after an unforeseen error with a one-line message.

        Textual's own handler would print all local variables, including previews and passphrases.
        """
        self.key_session.close()
        self._exit_renderables.append(
            Text(
                f"error: the console stopped on an internal error ({type(self._exception).__name__}); "
                "check whether a decision was made: aileron approval list"
            )
        )
        self._close_messages_no_wait()

    def compose(self) -> ComposeResult:
        yield Static(id="bar")
        yield Static(id="banner")
        yield Static(id="tabs")
        with ContentSwitcher(initial="queue", id="panes"):
            with Container(id="queue"):
                yield Queue(self.waiting, id="list")
                yield View(id="card")
            yield Activity(id="activity")
            yield Rows(id="grants", classes="pane", markup=False)
            yield Rows(id="sessions", classes="pane", markup=False)
            with VerticalScroll(id="system", classes="pane"):
                yield Static(id="facts")
        yield Input(id="filter", placeholder="words, agent:x, action:x, kind:x, status:x", select_on_focus=False)
        yield Static(id="hints")

    def on_mount(self) -> None:
        self._hooks.take()
        loop = asyncio.get_running_loop()  # an exception raised amid the event loop might not end it
        loop.add_signal_handler(signal.SIGTERM, self.exit)
        loop.add_signal_handler(signal.SIGHUP, self._hung_up)
        loop.add_signal_handler(signal.SIGCONT, self._went_on)
        for number in (signal.SIGTERM, signal.SIGHUP):  # also if the loop is blocked, and its own handler waits
            signal.signal(number, self._has_to_end)
        self._lay_out()
        self._show_frame()
        self.queue.focus()
        self.set_interval(1.0, self._tick)
        # Imports and waits come after the first frame, so that the person soon sees that the console asks the daemon.
        self.call_after_refresh(self._first_frame_is_drawn)

    def _went_on(self) -> None:
        """Handle SIGCONT, after the console was stopped: lock the approver's key and draw the screen again.

        While the console was stopped, the shell used the terminal, and the process that stopped the console may have
        opened the terminal and drawn on it (approver_key/isolation.py).
        """
        self._lock_for("the console was suspended")
        self._hooks.take()
        if self._driver is not None and self._driver.can_suspend:
            with self.suspend():  # and resume: set the terminal up for keys again, and redraw
                pass

    def push_screen(self, *given: Any, **named: Any) -> Any:
        """Show a screen. Remove notifications first, because they would hide the text of the screen."""
        self.clear_notifications()
        return super().push_screen(*given, **named)

    def on_unmount(self) -> None:
        self.key_session.close()
        self._restore_title()
        self._hooks.let_go()

    def on_resize(self) -> None:
        """Schedule a layout for the new size, because Textual sets `size` only after this event."""
        self.guard.disturb(now=self.now())
        self.call_later(self._take_size)

    def _take_size(self) -> None:
        self._lay_out()
        self._show_list()
        if self._has_looked:  # rows of lists have a fixed width
            self._activity.lay_out(self.size.width - 2)
            self._begin("pane", self._look_at_pane)
        self.call_after_refresh(self._view.paint)

    def _tick(self) -> None:
        """Update everything that changes with time. The console calls this each second."""
        try:
            self._go_on()
        except NoMatches:  # the screen is being taken down
            return
        except Exception as error:  # noqa: BLE001 - as in a worker: it would end the console
            self._tell(unforeseen(error), is_bad=True)

    def _go_on(self) -> None:
        if (why := self.key_session.why_locked()) is not None:
            self._tell(f"the approver's key is locked: {why}")
            if not self.key_session.may_read:
                self._forget_preview()
        entry = self._entry()
        if entry is not None and entry.is_open and is_over(entry):
            self.guard.show(entry.id, self.guard.digest, now=self.now(), closed=EXPIRED)
        if self.card is not None and self._review is not None:
            left_s = seconds_left(self._review.question.expires_at)
            self._view.go_on(closed=self._why_closed(), left_s=left_s)
        self._show_frame()
        self._show_list()
        self._go_on_telling()

    def on_click(self, event: Click) -> None:
        """Switch to the screen whose title is clicked. No click decides a question."""
        tabs = self.query_one("#tabs", Static).region
        if self.screen is not self.default_screen or not tabs.contains(event.screen_x, event.screen_y):
            return
        column = 1
        for name, title in self._tabs():
            if column <= event.screen_x < column + len(title):
                self.action_pane(name)
            column += len(title)

    def get_system_commands(self, screen: Screen[Any]) -> Iterator[SystemCommand]:
        """Yield the commands of the palette (Ctrl-P): one for each key, and the theme.

        Textual's command that saves the screen to a file is left out.
        """
        for binding in self.BINDINGS:
            if isinstance(binding, Binding):
                run = functools.partial(self.run_action, binding.action)
                yield SystemCommand(f"{binding.description}  ({frame.NAMES.get(binding.key, binding.key)})", "", run)
        yield SystemCommand("Change theme (colours, colors, contrast)", "", self.action_change_theme)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether the action of a key is available now: keys about a question work only on the queue screen."""
        return self._pane == "queue" if action in frame.ABOUT_A_QUESTION and self.is_running else True

    def action_edit(self) -> None:
        """Let the person change the arguments in an editor. The person must then read and decide the edited version of
        the question.
        """
        plan, name, refusal = None if self._review is None else self._review.plan, self.selected, self._refusal("deny")
        if refusal or plan is None or name is None:
            self._warn(refusal or "only runs have arguments to edit")
            return
        try:
            with self._away():
                text = self._hooks.edit(json.dumps(plan.args, indent=2, ensure_ascii=True) + "\n")
            wanted = json.loads(text)
            if not isinstance(wanted, dict):
                raise ValueError("the arguments must be a JSON object")
        except (ValueError, KeyboardInterrupt) as error:
            self._warn(f"not changed: {error}")
            return
        if wanted == plan.args:
            self._tell("no changes")
            return
        self._take_away(name)
        self._begin("edit", self._edited, name, wanted)

    async def _edited(self, name: str, args: JSONObject) -> None:
        """Send the edited arguments of the question `name` to the daemon.

        This worker must not be in the group `question`: the daemon announces the edit before it responds, and the
        reload that follows would cancel a worker of that group.
        """
        made = None
        try:
            made = await self._tried(self._daemon.edit, name, args)
        finally:
            self._editing.discard(name)
            if name == self.selected:
                self._edit = None if made is None else made.value
                self._reload()
        if made is None:
            self._tell("your edit was not applied; the original request is unchanged", is_bad=True)
        elif name != self.selected:
            self._tell(f"you moved on, so your edit of {name} was discarded", is_bad=True)

    def action_grant(self) -> None:
        """Request a standing grant: the same call then needs no approval for a time. The grant itself is a new question."""
        plan = None if self._review is None else self._review.plan
        if plan is None or self.card is None:
            return
        if self.card.word is not None:
            self._warn("not available: this cannot be undone, so each run is approved separately")
            return
        if plan.changes_only_seen:
            from aileron.cards.decision_flow import ONLY_WITH_PREVIEW

            self._warn(ONLY_WITH_PREVIEW)
            return

        def chosen(wanted: GrantLimits | None) -> None:
            if wanted is not None:
                self._begin("grant", self._granted, plan, wanted)

        title = Text(f"{visible(plan.action)}, with exactly these arguments, without approval", style="bold")
        self.push_screen(GrantForm(title), chosen)

    async def _granted(self, plan: Plan, wanted: GrantLimits) -> None:
        if await self._tried(self._daemon.grant, plan, wanted.uses, wanted.for_s) is not None:
            self._tell("added at the end of the list: read and approve it there")
            await self._refresh_now()

    def action_ask_back(self) -> None:
        """Ask the agent a question."""
        name, refusal = self.selected, self._refusal("deny")
        if refusal or name is None or self._review is None or not self._review.is_run:
            self._warn(refusal or "no agent asked for this")
            return

        def asked(question: str | None) -> None:
            if question:
                self._begin("ask", self._asked, name, question)

        hint = "Delivered at the agent's next check · Esc back"
        self.push_screen(LineInput(Text("ask the agent", style="bold"), hint=hint), asked)

    async def _asked(self, name: str, question: str) -> None:
        await self._tried(self._daemon.ask_back, name, question)
        self._reload()

    def action_preview(self) -> None:
        """Read the preview of the question on the screen again: the current state that the action would change."""
        if self._review is None or not self._review.has_preview:
            self._warn("no preview: this action does not load any current state")
        elif not self._is_signed:
            self._warn("only the approver can load it: aileron approver init")
        else:
            self._begin("preview", self._read_preview)

    def action_undo(self) -> None:
        """Withdraw a held approval at once, or an open question after a confirmation, since its agent would lose the request."""
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

            facts = Text(f"withdraw: {entry.row}\nasked by {entry.asker}; it will not run")
            self.push_screen(Confirm(lambda _: facts, None, verb="withdraw", now=self.now), said)

    async def _taken_back(self, name: str) -> None:
        if await self._tried(self._daemon.cancel, name) is not None:
            await self._refresh_now()
            self._reload()

    def action_whole(self) -> None:
        """Switch between full and shortened values on the card."""
        self._view.turn()

    def action_unread(self) -> None:
        """Allow a decision without reading the card to its end."""
        was_read = self.guard.is_read
        self.guard.read_to_end()
        self._show_frame()
        self._warn("everything was on screen" if was_read else "deciding without having read everything")

    def action_read_on(self) -> None:
        """Scroll the question on the screen by a page, even if the cursor is in the list."""
        if self._view.display:
            self._view.read_on()

    def action_raw(self) -> None:
        """Show the question as JSON, as the daemon sent it."""
        if self._review is not None:
            self.push_screen(Pages(Text(self._review.as_json)))

    def action_proof(self) -> None:
        """Show or hide the proof below the card: how the action runs, and what is signed."""
        self._view.unfold()

    def action_difference(self) -> None:
        """Show the differences from the most similar approved call."""
        if self._review is None:
            return
        found = difference_lines(self._review.question, self._review.edited, None, local_time)
        lines = found if isinstance(found, list) else [found or "no earlier approval to compare with"]
        width = int(self.size.width * 0.9) - 6
        self.push_screen(Pages(rendering.joined(rendering.difference_rows(lines, width))))

    def action_open_page(self) -> None:
        """Open the question's page in the browser; without a browser, copy the page's address to the clipboard."""
        address = page_of(self._status.web, self.selected) if self._status and self.selected is not None else None
        if address is None:
            self._tell("no web page for this request")
        elif any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")):  # for a graphical browser
            self._tell(f"opening {address}")
            self._begin("page", self._opened, address)
        else:
            self.copy_to_clipboard(address)
            self._tell(f"no browser here; copied {address}")

    async def _opened(self, address: str) -> None:
        import webbrowser

        if not await in_thread(webbrowser.open, address):
            self._tell(f"could not open a browser for {address}", is_bad=True)

    def action_copy(self) -> None:
        """Copy the question's id to the clipboard, if the terminal supports that."""
        if self.selected is not None:
            self.copy_to_clipboard(self.selected)
            self._tell(f"copied {self.selected}")

    def action_mark(self) -> None:
        """Mark the question as one of several that are decided together, or unmark it."""
        if self.selected is not None and self._pane == "queue":
            self.queue.mark(self.selected)
            self._show_list()

    def action_group(self) -> None:
        """Switch between one row for all questions that are alike and one row for each question."""
        self.queue.group()
        self._show_list()

    def action_next(self, step: int) -> None:
        """Move to the next open question, or to the previous open question."""
        self.queue.step(step)

    def action_filter(self) -> None:
        """Open the input field of the filter; the list then shows only questions that contain its words."""
        self.default_screen.add_class("filtering")
        self.query_one("#filter", Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Set the filter to the text of the input field."""
        if event.input.id == "filter":
            self._set_filter(event.value.strip())
            self._leave_filter()

    def _set_filter(self, wanted: str) -> None:
        self.query_one("#filter", Input).value = wanted
        self.queue.filter(wanted)
        self._show_list()
        self._show_frame()

    def _leave_filter(self) -> None:
        self.default_screen.remove_class("filtering")
        self.queue.focus()

    def action_snooze(self) -> None:
        """Mute the bell and notifications for a while."""
        self._quiet_until = self.now() + _SNOOZE_S
        self._tell("bell and notifications muted for 10 minutes")

    async def action_back(self) -> None:
        """Go back from a question to the list, or clear the filter."""
        is_typing = self.default_screen.has_class("filtering")
        if self.queue.wanted and not is_typing and not self.default_screen.has_class("open"):
            self._set_filter("")
        self.default_screen.remove_class("open")
        self._leave_filter()

    def action_pane(self, name: str) -> None:
        """Show one of the five screens."""
        self.query_one("#panes", ContentSwitcher).current = name
        self.guard.disturb(now=self.now())
        self._rows_of(name).focus()
        self._show_frame()
        self._begin("pane", self._look_at_pane)

    def _rows_of(self, name: str) -> Widget:
        """Return the widget that gets the focus when the screen `name` is shown."""
        if name == "activity":
            return self._activity.rows
        return self.query_one("#list" if name == "queue" else f"#{name}")

    def action_ledger(self) -> None:
        """Switch the activity screen between stories and the events of the ledger."""
        if self._pane == "activity":
            self._activity.turn()
            self._show_frame()

    async def _look_at_pane(self) -> None:
        with contextlib.suppress(GoneError, RequestRefused):
            await self._fill_pane()

    def action_help(self) -> None:
        """Show the help screen, which lists the keys."""
        self.push_screen(Pages(Text(frame.HELP)))

    def action_key(self) -> None:
        """Open the approver's key for 15 minutes, or lock an open key."""
        from aileron.model.failure import AileronError

        self.key_session.look()
        if not self._is_checked:
            self._warn("still checking who else can use this terminal")
        elif not self._is_signed:
            self._warn("no approver yet: aileron approver init")
        elif self.key_session.may_read:
            self.key_session.close()
            self._forget_preview()
        elif self.key_session.not_kept is not None:
            self._warn(f"the passphrase is asked for each time: {self.key_session.not_kept}")
        else:
            try:
                self.key_session.open("to decide for 15 minutes")
            except (AileronError, KeyboardInterrupt) as error:
                self._tell(str(error) or "still locked", is_bad=True)
            self._reload()
        self._show_frame()

    def action_command_palette(self) -> None:
        """Show the palette, a list of all keys by name, unless a dialog or another pushed screen is open."""
        if self.screen is self.default_screen:
            self.push_screen(Palette())

    def action_vault(self) -> None:
        """Unlock the vault, or lock it after a confirmation. A person in a hurry can lock it with two key presses."""
        vault = None if self._status is None else self._status.vault
        if vault is None or vault.locked or not vault.exists:
            self._begin("vault", self._turn_vault)
            return

        def said(is_yes: bool | None) -> None:
            if is_yes:
                self._begin("vault", self._turn_vault)

        words = "lock the vault: runs that need a credential fail, and nothing can be decided, until it is unlocked"
        self.push_screen(Confirm(lambda _: Text(words), None, verb="lock", now=self.now), said)

    async def _turn_vault(self) -> None:
        from aileron.model.failure import AileronError

        if self._status is not None and self._status.vault.locked:
            try:
                with self.key_session.asking("vault"):
                    text = self.ask_away("Vault passphrase").reveal().decode()
            except (AileronError, UnicodeDecodeError, KeyboardInterrupt) as error:
                self._tell(str(error) or "still locked", is_bad=True)
                return
            await self._tried(self._daemon.unlock_vault, text)
        else:
            await self._tried(self._daemon.lock_vault)
        await self._refresh_now()

    def action_end(self) -> None:
        """End the grant or the session under the cursor."""
        if self._pane not in ("grants", "sessions"):
            return
        name = self.query_one(f"#{self._pane}", Rows).chosen()
        if name is None:
            return
        work: Callable[[str], None]
        facts: Callable[[int], Text]
        if self._pane == "grants":
            work, effect = self._daemon.revoke, "this grant: the next run needs approval"
            facts = functools.partial(rendering.grant_facts, self._grants[name])
        else:
            work, effect = self._daemon.end_session, "this session: its token stops working"
            facts = functools.partial(rendering.session_facts, self._sessions[name])

        def said(is_yes: bool | None) -> None:
            if is_yes:
                self._begin("end", self._ended, work, name)

        told = Confirm(lambda width: Text(f"end {effect}\n\n").append(facts(width)), None, verb="end", now=self.now)
        self.push_screen(told, said)

    async def _ended(self, work: Callable[[str], None], name: str) -> None:
        await self._tried(work, name)
        await self._refresh_now()

    async def run_action(self, *given: Any, **named: Any) -> bool:
        """Run the action of a key. Report an unforeseen error instead of ending the console."""
        try:
            return await super().run_action(*given, **named)
        except Exception as error:  # noqa: BLE001 - where a key press ends
            self._tell(unforeseen(error), is_bad=True)
            return True
