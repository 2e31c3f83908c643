"""Screens above the console: the second step of an approval, fields for a reason or a question to the agent, a complete
question, help.

Runs in the console. While one of these screens is open, no key reaches the screen below it, and text that is typed into a field
decides nothing.

Rules
- For an approval that cannot be undone, the person must type a word and press Enter; for any other, press `y`. Both are
  ignored in the first SETTLED_S, so that an earlier key press decides nothing.
- Escape, any other key, and a paste decide nothing. Arrow and page keys scroll.
- Each screen accepts one answer: later keys are ignored until the screen has closed.

Not here: the effects of the answers (decisions.py, app.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, Final, NamedTuple

from rich.text import Text
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import BindingType
from textual.command import CommandPalette
from textual.containers import Vertical, VerticalScroll
from textual.events import Key, Paste, Resize
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from aileron.tui.guard import SETTLED_S

__all__ = ["Confirm", "GrantForm", "GrantLimits", "LineInput", "Pages", "Palette", "ReadConfirm"]

_BESIDE_FACTS: Final = 9
"""Number of rows of a Confirm screen besides the facts to confirm: two about what to type, the field, how to get back,
and the frame.
"""
_MOST_COLUMNS: Final = 100
"""Maximum number of columns of the box in which a screen shows its text, as in the style sheet."""
_BESIDE_ROW: Final = 5
"""Number of cells by which the box of a screen is wider than the rows in it: two borders, two blanks, a scroll bar."""
_BACK: Final = "Esc  back"
_MORE: Final = "↓ ↑ PgDn PgUp  scroll"
_CSS: Final = """
Confirm, LineInput, GrantForm, Pages { align: center middle; }
Confirm, LineInput, GrantForm, Pages, Palette { background: transparent; }
#box { width: 90%; max-width: 100; height: auto; max-height: 100%; border: round $primary; padding: 0 1; background: $surface; }
#box Static { width: 100%; }
#facts { height: auto; scrollbar-size-vertical: 1; }
#word { height: 1; border: none; padding: 0; }
#pages { width: 100%; height: 100%; border: round $primary; background: $surface; padding: 0 1; }
Input { margin: 1 0 0 0; }
"""


def _width_in_box(columns: int) -> int:
    """Return the width in cells of a row in the box (`#box`) of a screen on a terminal of `columns` columns. The box
    also has room for a scroll bar.
    """
    return max(min(int(columns * 0.9), _MOST_COLUMNS) - _BESIDE_ROW, 1)


class _Typed(Input):
    """A field for typed text that accepts no paste.

    `entered_at` is the monotonic time when Enter was pressed, not when the key event arrived.
    """

    entered_at = -math.inf

    def _on_key(self, event: Key) -> None:  # type: ignore[override] # Textual calls that of Input as well
        if event.key == "enter":
            self.entered_at = event.time

    def _on_paste(self, event: Paste) -> None:
        event.stop()
        event.prevent_default()


class _Once:
    """Mixin for a screen that accepts only one answer.

    Two keys pressed together both reach the screen, and a second answer would make Textual end the console.
    """

    _is_answered = False

    def dismiss(self, result: Any = None) -> AwaitComplete:
        """Remove the screen and return `result` as its answer; do nothing if it has been answered."""
        if self._is_answered:
            return AwaitComplete()
        self._is_answered = True
        gone: AwaitComplete = super().dismiss(result)  # type: ignore[misc] # of the screen that this is part of
        return gone


class Palette(_Once, CommandPalette):
    """The list of all keys by name."""


class Confirm(_Once, ModalScreen[bool]):
    """A screen to confirm a decision or another step: the person types `word`, or `y` if None. The answer is True for yes.

    `facts` are laid out for a width in cells, and again after each resize.
    """

    CSS = _CSS
    BINDINGS: ClassVar[list[BindingType]] = [("escape", "dismiss_no", "back")]

    def __init__(
        self, facts: Callable[[int], Text], word: str | None, verb: str = "approve", *, now: Callable[[], float]
    ) -> None:
        super().__init__()
        self._facts: Final = facts
        self._word: Final = word
        self._verb: Final = verb
        self._width = 0
        """Width in cells of the rows into which the facts to confirm are folded."""
        self._now: Final = now
        self.since = math.inf
        """Time when the screen appeared. A key that was pressed earlier decides nothing."""

    def compose(self) -> ComposeResult:
        self._width = _width_in_box(self.app.size.width)
        with Vertical(id="box"):
            with VerticalScroll(id="facts", can_focus=False):
                yield Static(self._facts(self._width), id="told")
            if self._word is None:
                yield Static(Text(f"\ny  {self._verb}     any other key  back", style="bold"))
                yield Static(id="hint")
            else:
                yield Static(Text(f"\nTo {self._verb}, type  {self._word}  and press Enter.", style="bold"))
                yield _Typed(id="word", placeholder="type it here")
                yield Static(Text(_BACK, style="dim"), id="hint")

    def on_mount(self) -> None:
        self.since = self._now()

    def on_resize(self, event: Resize) -> None:
        """Keep the words to type and the field visible, however small the screen is."""
        if (width := _width_in_box(event.size.width)) != self._width:
            self._width = width
            self.query_one("#told", Static).update(self._facts(width))
        self.query_one("#facts").styles.max_height = max(event.size.height - _BESIDE_FACTS, 1)
        self.call_after_refresh(self._say_more)

    def _say_more(self) -> None:
        """Show how to scroll if the screen has no room for all facts to confirm."""
        more = _MORE if self.query_one("#facts", VerticalScroll).max_scroll_y > 0 else ""
        words = [word for word in (_BACK if self._word is not None else "", more) if word]
        self.query_one("#hint", Static).update(Text("     ".join(words), style="dim"))

    def on_key(self, event: Key) -> None:
        if (rows := self._rows_of(event.key)) is not None:
            event.stop()
            self.query_one("#facts", VerticalScroll).scroll_relative(y=rows, animate=False)
            return
        if self._word is not None:
            return
        event.stop()
        if event.key == "y" and not self._is_settled(event.time):
            return  # pressed before the person could have read this screen
        self.dismiss(event.key == "y")

    def _rows_of(self, key: str) -> int | None:
        """Return the number of rows by which the key named `key` scrolls the facts to confirm; None for a key that does
        not scroll.

        Space, Home and End scroll as on the card, if not all facts fit; while a word is typed, these keys belong to the field.
        """
        facts = self.query_one("#facts", VerticalScroll)
        page, most = facts.size.height, facts.max_scroll_y
        rows = {"up": -1, "down": 1, "pageup": -page, "pagedown": page}
        if most > 0:
            rows |= {"space": page, "home": -most, "end": most}
        return rows.get(key)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.value.strip() == self._word and self._is_settled(self.query_one(_Typed).entered_at):
            self.dismiss(True)
        else:
            self.query_one("#hint", Static).update(
                Text(f"! not  {self._word}: not decided.  Esc  back", style="bold red")
            )

    def action_dismiss_no(self) -> None:
        self.dismiss(False)

    def _is_settled(self, at: float) -> bool:
        return at - self.since >= SETTLED_S


class ReadConfirm(Confirm):
    """A Confirm screen for facts that no other screen has shown, such as those of several questions.

    It accepts no answer before the end of the facts was on the screen.
    """

    _is_read = False

    def on_mount(self) -> None:
        super().on_mount()
        self.watch(self.query_one("#facts"), "scroll_y", self._look, init=False)
        self.call_after_refresh(self._look)

    def on_resize(self, event: Resize) -> None:
        super().on_resize(event)
        self.call_after_refresh(self._look)

    def _look(self) -> None:
        """Record that the person has read the facts to confirm, if the end of the facts is on the screen.

        From then on, answers are accepted after SETTLED_S, as on a screen that has just appeared.
        """
        facts = self.query_one("#facts", VerticalScroll)
        if not self._is_read and facts.size.height and facts.scroll_y >= facts.max_scroll_y:
            self._is_read, self.since = True, self._now()

    def _is_settled(self, at: float) -> bool:
        if not self._is_read:
            self.query_one("#hint", Static).update(Text("! not all of it was on screen: press PgDn", style="bold red"))
            return False
        return super()._is_settled(at)


class LineInput(_Once, ModalScreen[str | None]):
    """A screen for one line of text. The answer is None if the person cancels."""

    CSS = _CSS
    BINDINGS: ClassVar[list[BindingType]] = [("escape", "dismiss_none", "back")]

    def __init__(self, title: Text, *, hint: str, value: str = "", may_be_empty: bool = False) -> None:
        super().__init__()
        self._title: Final = title
        self._hint: Final = hint
        self._value: Final = value
        self._may_be_empty: Final = may_be_empty

    def compose(self) -> ComposeResult:
        with Vertical(id="box"):
            yield Static(self._title)
            yield Input(value=self._value)
            yield Static(Text(self._hint, style="dim"))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        typed = event.value.strip()
        if typed or self._may_be_empty:
            self.dismiss(typed)

    def action_dismiss_none(self) -> None:
        self.dismiss(None)


class GrantLimits(NamedTuple):
    """The limits of a standing grant: number of uses, and duration in seconds."""

    uses: int
    for_s: int


class GrantForm(_Once, ModalScreen[GrantLimits | None]):
    """A screen to choose for how many runs and for how long the same call needs no approval."""

    CSS = _CSS
    BINDINGS: ClassVar[list[BindingType]] = [("escape", "dismiss_none", "back")]
    _CHOICES: ClassVar[dict[str, GrantLimits]] = {
        "1": GrantLimits(3, 900),
        "2": GrantLimits(10, 3600),
        "3": GrantLimits(50, 8 * 3600),
    }

    def __init__(self, title: Text) -> None:
        super().__init__()
        self._title: Final = title

    def compose(self) -> ComposeResult:
        with Vertical(id="box"):
            yield Static(self._title)
            yield Static(
                Text(
                    "\n1  3 times, within 15 minutes\n2  10 times, within an hour\n3  50 times, within 8 hours\n\n"
                    "This creates a request of its own, for exactly these arguments.     Esc  back"
                )
            )

    def on_key(self, event: Key) -> None:
        if event.key in self._CHOICES:
            event.stop()
            self.dismiss(self._CHOICES[event.key])

    def action_dismiss_none(self) -> None:
        self.dismiss(None)


class Pages(_Once, ModalScreen[None]):
    """A screen of text: a question as the daemon sent it, the record of a run, or help."""

    CSS = _CSS
    BINDINGS: ClassVar[list[BindingType]] = [("escape,q,r,question_mark", "dismiss_it", "back")]

    def __init__(self, text: Text) -> None:
        super().__init__()
        self._text: Final = text

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="pages") as pages:
            pages.border_subtitle = f"{_BACK} · ↓ ↑ PgDn PgUp"
            yield Static(self._text)

    def on_mount(self) -> None:
        self.query_one("#pages", VerticalScroll).focus()

    def action_dismiss_it(self) -> None:
        self.dismiss(None)
