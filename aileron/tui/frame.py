"""How the console looks and which keys it has: its style sheet, its colours, its help. No behaviour.

Source: docs/reference/console.md. Not here: what the keys do (app.py).
"""

from __future__ import annotations

from typing import Final

from textual.binding import Binding, BindingType
from textual.theme import Theme

__all__ = ["ABOUT_A_QUESTION", "CONTRAST", "CSS", "HELP", "HINTS", "KEYS", "NAMES", "NARROW", "PANES", "WIDE"]

NARROW: Final = 80
"""Below so many columns the list and a question are two screens."""
WIDE: Final = 104
"""From so many columns on they stand side by side."""
PANES: Final = ("queue", "activity", "grants", "sessions", "system")

CSS: Final = """
Screen { layout: vertical; }
#bar { height: 1; text-style: reverse; }
#banner { height: auto; max-height: 3; display: none; text-style: bold reverse; }
.lost #banner { display: block; }
#tabs { height: 1; }
#panes { height: 1fr; }
#queue { layout: vertical; height: 100%; }
Rows { text-wrap: nowrap; text-overflow: ellipsis; }
#list { height: auto; min-height: 2; max-height: 5; border: none; padding: 0; }
#sheet { height: 1fr; border-top: solid $primary; }
#essentials { height: auto; max-height: 12; }
#essentials, #text { width: 100%; text-wrap: nowrap; text-overflow: ellipsis; }
#body { height: 1fr; border: none; padding: 0; scrollbar-size-vertical: 1; }
#filter { display: none; height: 1; border: none; padding: 0 1; }
.filtering #filter { display: block; }
.wide #queue { layout: horizontal; }
.wide #list { width: 40%; height: 100%; max-height: 100%; }
.wide #sheet { width: 1fr; border-top: none; border-left: solid $primary; padding: 0 0 0 1; }
.narrow #list { height: 100%; max-height: 100%; }
.narrow #sheet { display: none; border: none; }
.narrow.open #list { display: none; }
.narrow.open #sheet { display: block; }
.stale #essentials, .stale #body, .lost #essentials, .lost #body { text-style: dim; }
#hints { height: 1; }
.narrow #hints { height: 2; }
OptionList > .option-list--option-highlighted { text-style: bold; }
.pane { height: 100%; border: none; padding: 0; }
Toast { width: auto; max-width: 96%; }
"""

CONTRAST: Final = Theme(
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

KEYS: Final[list[BindingType]] = [
    Binding(key, action, words, show=False)
    for key, action, words in (
        ("1", "pane('queue')", "queue"),
        ("2", "pane('activity')", "activity"),
        ("3", "pane('grants')", "grants"),
        ("4", "pane('sessions')", "sessions"),
        ("5", "pane('system')", "system"),
        ("question_mark", "help", "help"),
        ("q", "quit", "quit"),
        ("A", "approve", "approve"),
        ("d", "deny", "deny"),
        ("D", "deny_and_stop", "deny, end its session"),
        ("e", "edit", "edit"),
        ("t", "grant", "for a time"),
        ("m", "ask_back", "ask the agent"),
        ("p", "preview", "read what is there now"),
        ("u", "undo", "take back"),
        ("space", "read_on", "read on"),
        ("f", "whole", "all of it"),
        ("r", "raw", "as it came"),
        ("equals_sign", "difference", "what differs"),
        ("exclamation_mark", "unread", "not read"),
        ("o", "open_page", "web page"),
        ("y", "copy", "copy the id"),
        ("v", "mark", "mark"),
        ("g", "group", "group"),
        ("n", "next(1)", "next that waits"),
        ("N", "next(-1)", "the one before"),
        ("slash", "filter", "filter"),
        ("z", "snooze", "no bell"),
        ("L", "key", "open or lock the key"),
        ("V", "vault", "open or lock the vault"),
        ("x", "end", "end it"),
        ("escape", "back", "back"),
    )
]

HINTS: Final = {
    "queue": " A approve · d deny · e edit · m ask · p look · = diff · f all · L key · ? help",
    "lost": " nothing can be decided until the daemon answers · ? help · q quit",
    "empty": " 1 to 5 screens · L key · / filter · ? help · q quit",
    "closed": " r raw · = diff · n next that waits · Enter read · / filter · ? help · q quit",
    "unread": " ↓ more below (Space) · A approve · d deny · e edit · = diff · ? help",
    "held": " u take back · r raw · = diff · Enter read · / filter · ? help · q quit",
    "activity": " Enter the run, with every request that left · ? help · q quit",
    "grants": " x end it · ? help · q quit",
    "sessions": " x end it · ? help · q quit",
    "system": " L the approver's key · V the vault · ? help · q quit",
}

NAMES: Final = {
    "question_mark": "?",
    "exclamation_mark": "!",
    "equals_sign": "=",
    "slash": "/",
    "escape": "Esc",
    "space": "Space",
}
"""What a key is called on a keyboard, where that is not Textual's name."""
ABOUT_A_QUESTION: Final = frozenset(
    (
        *("approve", "deny", "deny_and_stop", "edit", "grant", "ask_back", "preview", "undo", "mark"),
        *("read_on", "unread", "whole", "raw", "difference", "copy", "open_page", "next", "group", "filter"),
    )
)
"""Actions that are none on the other screens."""

HELP: Final = """\
!   look here          ≠   not as in the call approved last
│   somebody else's text; what is in a box the agent says: not verified
Enter, Space and clicks approve nothing; nor does a key that comes in
the first 0.4 s of what comes up.

DECIDE  A  approve, and then y, or the word it asks for
        d  deny, with a reason that the agent reads
        D  deny, and end the agent's session
        e  edit the arguments        m  ask the agent
        t  not to be asked about the same for a time
        v  mark several: d denies them all
        u  take it back: a question, or what is held
        !  I have not read all of it
READ    Space  the next page of it   f  all of it, however long
        p  what is there now         =  what differs
        r  as it came (JSON)         o  the web page
        y  copy the id
MOVE    j k ↓ ↑  in the list         Enter, Tab  to the question
        n  the next that waits       N  the one before
        /  filter: words, agent:x action:x kind:x status:x
        g  the same as one (×n)      1 to 5  screens    Esc  back
KEYS    L  open, lock the key        V  open, lock the vault
OTHER   z  no bell for ten minutes   Ctrl-P  all keys   q  quit
"""
"""Fits a terminal of 80 columns; what matters most stands first, since one of 24 rows shows 20."""
