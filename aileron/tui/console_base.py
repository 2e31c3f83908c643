"""Base class of the console's parts: the state, the screen around a question, and the start of workers.

The class handles no keys. Each part derives from the previous one: reading.py, telling.py, news.py, decisions.py, together.py,
app.py.

Not here: the content of a question, news from the daemon, the actions of keys.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NamedTuple, TypeVar, cast

from rich.text import Text
from textual.app import App
from textual.events import Event, Key, Paste
from textual.filter import LineFilter
from textual.widgets import ContentSwitcher, Static
from textual.widgets.option_list import Option

from aileron.approver_key.isolation import end_in_time
from aileron.cards.question import EXPIRED
from aileron.model.clock import since_boot
from aileron.model.visible import visible, without_gaps
from aileron.tui import frame, rendering
from aileron.tui.daemon_client import DaemonClient, GoneError, RequestRefused
from aileron.tui.guard import Guard
from aileron.tui.input_guard import InputGuard
from aileron.tui.key_session import REST_S, KeySession, SecurityKeyHooks
from aileron.tui.queue import Queue, Rows
from aileron.tui.readable import Readable
from aileron.tui.sending import unforeseen
from aileron.tui.view import MOST_TOP, View
from aileron.tui.waiting import PendingEntry, PendingList, seconds_left

if TYPE_CHECKING:
    from aileron.api.approver import ApproverFacts
    from aileron.api.daemon import Status
    from aileron.api.grants import GrantEntry
    from aileron.api.sessions import Session
    from aileron.approver_key.security_key import Person
    from aileron.cards.card import Card
    from aileron.cards.decision_flow import Review
    from aileron.cards.record import Record
    from aileron.model.secret import Secret

__all__ = ["Answer", "ConsoleBase", "Hooks", "in_thread", "is_over"]

T = TypeVar("T")
_MOST_SAID: Final = 160
"""Maximum number of cells of a temporary notification. The limit is low because a notification covers text to be read,
and its own text may come from a service.
"""
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Answer(NamedTuple, Generic[T]):
    """A successful response of the daemon. Its `value` may be None; `_tried` returns None in place of an Answer if a
    request failed.
    """

    value: T


class Hooks:
    """Functions with which the console uses its terminal: a passphrase prompt, an editor, exclusive use of the
    terminal.
    """

    def __init__(
        self,
        *,
        check: Callable[[], None],
        ask: Callable[[str], Secret],
        edit: Callable[[str], str],
        take: Callable[[], None],
        let_go: Callable[[], None],
        say: Callable[[str], None] = print,
        security_keys: SecurityKeyHooks | None = None,
    ) -> None:
        """Set the functions. `check` is called once before the first request to the daemon; if it raises, the console ends.

        `ask` prompts for a passphrase. `edit` returns the edited text, or raises ValueError. `take` and `let_go` begin
        and end the exclusive use of the terminal. `say` prints text above a prompt. `security_keys` has the functions
        for security keys, which are called while the console has left the screen.
        """
        self.check: Final = check
        self.ask: Final = ask
        self.edit: Final = edit
        self.take: Final = take
        self.let_go: Final = let_go
        self.say: Final = say
        self.security_keys: Final = security_keys


class ConsoleBase(App[None]):
    """Base of the console of one home: state, header and lists. Subclasses add reading, deciding and the actions of keys."""

    def __init__(
        self,
        daemon: DaemonClient,
        hooks: Hooks,
        *,
        who_else: Callable[[], str | None],
        theme: str | None = None,
        clock: Callable[[], float] = since_boot,
        now: Callable[[], float] = time.monotonic,
        is_terminal: bool | None = None,
    ) -> None:
        """Create the console. `now` is the clock by which key presses are timed, in seconds.

        `who_else` returns why a key press may come from another process, or None. `is_terminal` says whether escape sequences
        outside the screen, such as titles, can be sent; if None, they are sent unless Textual runs headless.
        """
        # With NO_COLOR, Textual turns RGB colours into greys, alarms into the darkest; the terminal's own it removes.
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        self.animation_level = "none"
        self.register_theme(frame.CONTRAST)
        if theme is not None:
            self.theme = theme
        self._daemon: Final = daemon
        self._hooks: Final = hooks
        self.now: Final = now
        self.waiting: Final = PendingList()
        self.guard: Final = Guard()
        self.key_session: Final = KeySession(
            daemon.home / "approver.json",
            ask=self.ask_away,
            who_else=who_else,
            no_echo=self._no_echo,
            security_keys=self._security_keys_away(),
            clock=clock,
        )
        self._status: Status | None = None
        self._approver: ApproverFacts | None = None
        self._grants: dict[str, GrantEntry] = {}
        self._sessions: dict[str, Session] = {}
        self.refused: Exception | None = None
        """Exception that says why the console cannot run here. The code that ran the console raises it after the end."""
        self._is_checked = False
        self.lost: str | None = None
        self._is_asking = True
        """True until the daemon has answered its first request or is known to be unreachable."""
        self._quiet_until = 0.0
        self._is_terminal: Final = is_terminal
        self._titled: int | None = None
        """Number of open questions that the terminal's title shows; None if the console has not set the title."""
        self._has_looked = False
        # State of the question under the cursor.
        self.selected: str | None = None
        self._review: Review | None = None
        self._record: Record | None = None
        self.card: Card | None = None
        self._edit: str | None = None
        self._above = ""
        """Text that is printed above a passphrase prompt."""
        self.input_guard: Final = InputGuard()
        self._is_interrupted = False
        """True once a signal has ended the prompt or editor that has the terminal. Further signals are then not raised
        as KeyboardInterrupt until the console has the terminal again.
        """
        self._pressed_at: float | None = None
        """Time of the key press whose action runs now."""
        self._untold: set[str] = set()
        """Ids of settled questions whose outcome the daemon has not reported."""
        self._editing: set[str] = set()
        """Ids of questions whose edit is being sent."""
        self._has_record_shown = False

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Return Textual's filters and, unless NO_COLOR is set, a filter that makes all text readable (readable.py)."""
        filters = super().get_line_filters()
        if self.no_color:
            return filters
        readable = _readable(is_native=self.native_ansi_color, is_dark=self.current_theme.dark)
        return [*filters, readable]

    @property
    def queue(self) -> Queue:
        return self.query_one("#list", Queue)

    @property
    def _view(self) -> View:
        return self.query_one("#card", View)

    @property
    def _pane(self) -> str:
        return self.query_one("#panes", ContentSwitcher).current or "queue"

    @property
    def _is_signed(self) -> bool:
        return self._approver is None or self._approver.status != "none"

    def _lay_out(self) -> None:
        self.default_screen.set_class(self.size.width < frame.NARROW, "narrow")
        self.default_screen.set_class(self.size.width >= frame.WIDE, "wide")

    def _entry(self) -> PendingEntry | None:
        return self.waiting[self.selected] if self.selected is not None and self.selected in self.waiting else None

    def _why_closed(self) -> str | None:
        """Return why the question on the screen can no longer be decided; None if it can be, or if none is shown."""
        if self._review is None:
            return None
        entry = self._entry()
        if entry is None:
            return self._review.closed
        over = entry.state if not entry.is_open else EXPIRED if is_over(entry) else None
        return self._review.closed or over

    def _show_frame(self) -> None:
        if not self.is_running:
            return
        waiting = self.waiting.open
        alarms = sum(1 for entry in waiting if entry.listed.alarm)
        soon = sum(1 for entry in waiting if 0 < (seconds_left(entry.expires_at) or 3600) < 60)
        under_way = sum(1 for entry in self.waiting.entries if entry.is_under_way)
        parts = [
            " aileron",
            "" if not self._has_looked else f"{len(waiting)} waiting" if waiting else "nothing waiting",
            f"! {alarms} alarm{'s' if alarms > 1 else ''}" if alarms else "",
            f"! {soon} expiring" if soon else "",
            f"{under_way} in progress" if under_way else "",
            self._vault_word(),
            self._key_word(),
            self._daemon_word(),
        ]
        bar = Text(" · ".join(part for part in parts if part), no_wrap=True, overflow="ellipsis")
        self.query_one("#bar", Static).update(bar)
        self._show_title(len(waiting))
        self.default_screen.set_class(self.lost is not None, "lost")
        why = visible(self.lost or "")
        self.query_one("#banner", Static).update(
            Text(f" ! the daemon does not answer ({why}): nothing can be decided ")
        )
        self.query_one("#tabs", Static).update(
            Text(" ", no_wrap=True, overflow="ellipsis")
            .append_tokens((title, "bold" if name == self._pane else "") for name, title in self._tabs())
            .append(f"  ! only {visible(self.queue.wanted)} (Esc: all)" if self.queue.wanted else "", style="bold")
        )
        self._view.set_class(self.lost is not None or self._is_asking, "lost")
        self.query_one("#hints", Static).update(Text(frame.HINTS[self._hints()], style="dim"))

    def _show_title(self, waiting: int) -> None:
        """Show the number of open questions in the terminal's title once the daemon has reported the questions."""
        if not self._has_looked or waiting == self._titled:
            return
        from aileron.tui.terminal_signals import has_title, save_title, title  # after the first frame

        if not has_title(os.environ):
            return
        if self._titled is None:
            self._tell_terminal(save_title())
        self._titled = waiting
        self._tell_terminal(title(waiting))

    def _restore_title(self) -> None:
        if self._titled is not None:
            from aileron.tui.terminal_signals import restore_title

            self._titled = None
            self._tell_terminal(restore_title())

    def _tell_terminal(self, told: str) -> None:
        """Send the terminal an escape sequence that is not part of the screen. Do nothing without a terminal, as in a test."""
        is_terminal = not self.is_headless if self._is_terminal is None else self._is_terminal
        if is_terminal and self._driver is not None:
            self._driver.write(told)

    def _hints(self) -> str:
        """Return the name of the key hints in frame.HINTS for the current screen and question."""
        if self._pane == "activity":
            return "ledger" if self.query_one("#activity").has_class("ledger") else "activity"
        if self._pane != "queue":
            return self._pane
        entry = self._entry()
        if self.lost is not None or self._is_asking:
            return "lost"
        if entry is None:
            return "empty"
        if entry.status == "approved":
            return "held"
        if self.card is None or self._why_closed() is not None:
            return "closed"
        return "unread" if self.guard.digest is not None and not self.guard.is_read else "queue"

    def _tabs(self) -> Iterator[tuple[str, str]]:
        """Yield the name and title of each screen.

        With a filter, yield only the current screen, because the rest of the row shows the filter.
        """
        for number, name in enumerate(frame.PANES, start=1):
            if name == self._pane:
                yield name, f"[{number} {name}]"
            elif not self.queue.wanted:
                yield name, f" {number} {name} "

    def _daemon_word(self) -> str:
        return "connecting …" if self._is_asking else "daemon ok" if self.lost is None else "! NO DAEMON"

    def _vault_word(self) -> str:
        if self._status is None:
            return ""
        vault = self._status.vault
        return "no vault" if not vault.exists else "! vault locked" if vault.locked else "vault open"

    def _key_word(self) -> str:
        if not self._is_signed:
            return "! NOT SIGNED"
        left = rendering.duration(self.key_session.left_s)
        if self.key_session.is_open:
            return f"key open {left}"
        if self.key_session.may_read:
            return f"previews open {left}"
        return "key locked (L)" if self.key_session.not_kept is None else "asks for your passphrase each time"

    def _show_list(self) -> None:
        columns = self.size.width
        if self.default_screen.has_class("wide"):
            columns = min(columns * 9 // 20, frame.MOST_BESIDE)
        self.queue.show(columns - 2, self.selected)
        if not self.queue.names:
            if self.selected is not None:
                self._select(None)
            nothing = "nothing matches" if self.queue.wanted else "nothing waits for you"
            self._view.say(Text(nothing if self._has_looked else ""))

    async def _fill_pane(self) -> None:
        width = self.size.width - 2
        match self._pane:
            case "activity":
                await self._tell_stories()
            case "grants":
                self._grants = {grant.id: grant for grant in await in_thread(self._daemon.grants)}
                rows = [(name, rendering.grant_row(grant, width)) for name, grant in self._grants.items()]
                self._fill("grants", rows, "no grants: every gated action needs approval")
            case "sessions":
                self._sessions = {session.id: session for session in await in_thread(self._daemon.sessions)}
                rows = [(name, rendering.session_row(session, width)) for name, session in self._sessions.items()]
                self._fill("sessions", rows, "no sessions yet: aileron launch AGENT starts one")
            case "system" if self._status is not None and self._approver is not None:
                key = self.key_session.not_kept or self._key_word()
                self.query_one("#facts", Static).update(rendering.system_text(self._status, self._approver, key, width))

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
        elif kept is None and names:  # nothing is chosen yet; no other row is chosen when the chosen row has gone
            shown.highlighted = 0

    def _begin(self, group: str, work: Callable[..., Awaitable[None]], *given: Any, **named: Any) -> None:
        """Start `work` as a worker. In the groups `question` and `run`, a new worker replaces the previous one.

        `work` is a function and not a coroutine, because Python would warn about a coroutine that is never awaited if
        the console ends first.
        """
        whole = functools.partial(work, *given, **named)
        begun: Callable[[], Awaitable[None]] = functools.partial(self._done, whole)
        self.run_worker(begun, group=group, exclusive=group in ("question", "run"))

    async def _done(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run a worker's function, and show an unforeseen error as a notification; raising it would end the console."""
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - where a task ends
            self._tell(unforeseen(error), is_bad=True)

    def _tell(self, words: str, *, is_bad: bool = False) -> None:
        severity: Literal["error", "information"] = "error" if is_bad else "information"
        self.notify(
            ("! " if is_bad else "") + rendering.shown(without_gaps(words), _MOST_SAID), severity=severity, markup=False
        )

    def _warn(self, words: str) -> None:
        self.notify(rendering.shown(without_gaps(words), _MOST_SAID), severity="warning", markup=False)

    async def _tried(self, work: Callable[..., T], *given: Any) -> Answer[T] | None:
        """Run `work`, which sends a request to the daemon, in a thread, and return the daemon's answer.

        If the daemon refuses or is gone, notify the person and return None.
        """
        try:
            return Answer(await in_thread(work, *given))
        except (RequestRefused, GoneError) as error:
            self._tell(str(error), is_bad=True)
            return None

    def _drop_preview(self) -> None:
        """Remove the preview from the question on the screen, since previews may be shown only while the approver's key
        is open.
        """
        if self._review is not None and self._review.preview is not None:
            self._review = self._review.with_preview(None)

    def _lock_for(self, why: str) -> None:
        """Lock the approver's key, if it is open, before other processes can open the terminal, and tell the person `why`.

        A key that can only read previews stays open: it is used only where other processes can press keys in the terminal anyway.
        """
        if self.key_session.is_open:
            self.key_session.close()
            self._drop_preview()
            self._tell(f"the approver's key is locked: {why}")
            self._reload()

    @property
    def _is_ending(self) -> bool:
        """True once the console has begun to end because of a signal, a key press or a bug."""
        return self._exit or self._exception is not None

    def ask_away(self, question: str) -> Secret:
        with self._away_about():
            return self._hooks.ask(question)

    def _security_keys_away(self) -> SecurityKeyHooks | None:
        """Return the security key hooks, changed so that the console leaves the screen for each prompt and prints what
        is decided. Return None if the console has no such hooks.
        """
        hooks = self._hooks.security_keys
        if hooks is None:
            return None

        def offer(question: str) -> Secret:
            from aileron.approver_key.security_key import OFFER

            with self._away_about():
                self._hooks.say(OFFER)
                return hooks.offer(question)

        @contextlib.contextmanager
        def person() -> Iterator[Person]:
            with self._away_about(), hooks.person() as there:
                yield there

        return dataclasses.replace(hooks, offer=offer, person=person)

    @contextlib.contextmanager
    def _away_about(self) -> Iterator[None]:
        """Leave the screen for the length of the block, in which a prompt is shown, and print what the prompt's
        decision is about.

        Raises KeyboardInterrupt if the console is ending.
        """
        if self._is_ending:  # the person would see neither the purpose of the prompt nor the result
            raise KeyboardInterrupt("the console ends: nothing is decided")
        with self._away():
            if self._above:
                self._hooks.say(self._above)
            yield

    @contextlib.contextmanager
    def _asking_about(self, card: Card) -> Iterator[None]:
        """Print the essential rows of the card above each passphrase prompt until the block ends, because a prompt hides
        the screen.
        """
        rows = [Text(), *rendering.essential_rows(card, self.size.width - 1, MOST_TOP), Text()]
        self._above = "\n".join(row.plain.rstrip() for row in rows)
        try:
            yield
        finally:
            self._above = ""

    @contextlib.contextmanager
    def _no_echo(self) -> Iterator[None]:
        """Wrap a block that prompts for a passphrase: if the block fails, ignore keys afterwards, because the person
        may still be typing the passphrase.

        Keys work again after a pause in typing.
        """
        well = False
        try:
            yield
            well = True
        finally:
            self.input_guard.ended(now=self.now(), well=well)

    async def on_event(self, event: Event) -> None:
        """Handle an event, but drop a key press or paste while the person may still be typing into a prompt that has ended.

        The time of the key press is what counts, not the later time at which a busy console handles the event.
        """
        if isinstance(event, (Key, Paste)) and not event.is_forwarded and not self.input_guard.is_key(event.time):
            if self.input_guard.is_to_be_said():
                self._warn(f"the prompt was interrupted: keys work again after {REST_S:.0f} s without a key press")
            return
        self._pressed_at = event.time if isinstance(event, Key) else None
        try:
            await super().on_event(event)
        finally:
            self._pressed_at = None

    def _interrupted(self, number: int, _: object) -> None:
        """Handle a signal while a prompt or an editor has the terminal: end the prompt or editor.

        Unless the signal was Ctrl-C (SIGINT), end the console too.
        """
        if number != signal.SIGINT:
            end_in_time()
            self.exit()
        if not self._is_interrupted:
            self._is_interrupted = True
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def _away(self) -> Iterator[None]:
        """Leave the terminal to a passphrase prompt or an editor for the length of the block.

        The key is locked first, because another process could open the terminal meanwhile.
        """
        self._lock_for("another program had the terminal")
        self._hooks.let_go()
        # The event loop's own handler would end the console, and the passphrase would be asked for again.
        self._is_interrupted = False
        before = {number: signal.signal(number, self._interrupted) for number in _ENDING}
        can_suspend = self._driver is not None and self._driver.can_suspend
        failed: BaseException | None = None
        with self.suspend() if can_suspend else contextlib.nullcontext():
            try:
                with self._no_echo():
                    yield
                self._is_interrupted = True  # from here on, no signal may raise: the terminal is being restored
            except BaseException as error:  # noqa: BLE001 - an exception through suspend() would leave it suspended
                self._is_interrupted, failed = True, error
        for number, handler in before.items():
            signal.signal(number, handler)
        self._hooks.take()
        self.guard.disturb(now=self.now())
        if failed is not None:
            raise failed

    async def _tell_stories(self) -> None:
        """Update the activity screen. Implemented in telling.py."""
        raise NotImplementedError

    def _select(self, name: str | None) -> None:
        """Select the question with the id `name`, or no question if None. Implemented in reading.py."""
        raise NotImplementedError

    def _reload(self) -> None:
        """Load the selected question again. Implemented in reading.py."""
        raise NotImplementedError


@functools.lru_cache
def _readable(*, is_native: bool, is_dark: bool) -> Readable:
    return Readable(is_native=is_native, is_dark=is_dark)


def is_over(entry: PendingEntry) -> bool:
    """Return whether the question has expired; False if it never expires."""
    left = seconds_left(entry.expires_at)
    return left is not None and left <= 0


async def in_thread(work: Callable[..., T], *given: Any) -> T:
    """Run `work` in a thread and return its result.

    The console can end without waiting for the thread, which may wait for news for up to 20 s.
    """
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
