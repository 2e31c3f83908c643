"""Look and keys of the console: its style sheet, its colours, its help. No behaviour.

Source: docs/reference/console.md. Not here: what the keys do (app.py).
"""

from __future__ import annotations

from typing import Final

from textual.binding import Binding, BindingType
from textual.theme import Theme

__all__ = [
    "ABOUT_A_QUESTION",
    "CONTRAST",
    "CSS",
    "HELP",
    "HINTS",
    "KEYS",
    "MOST_BESIDE",
    "NAMES",
    "NARROW",
    "PANES",
    "WIDE",
]

NARROW: Final = 80
"""Terminal columns below which the list and a question are two separate screens."""
WIDE: Final = 104
"""Terminal columns from which the list and a question stand side by side."""
MOST_BESIDE: Final = 79
"""Maximum width in columns of a list beside a question, as in the style sheet. A list above a question is always wider."""
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
#card { height: 1fr; border-top: solid $primary; }
#essentials { height: auto; max-height: 12; }
#essentials, #text { width: 100%; text-wrap: nowrap; text-overflow: ellipsis; }
#body { height: 1fr; border: none; padding: 0; scrollbar-size-vertical: 1; }
#filter { display: none; height: 1; border: none; padding: 0 1; }
.filtering #filter { display: block; }
.wide #queue { layout: horizontal; }
.wide #list { width: 45%; max-width: 79; height: 100%; max-height: 100%; }
.wide #card { width: 1fr; border-top: none; border-left: solid $primary; padding: 0 0 0 1; }
.narrow #list { height: 100%; max-height: 100%; }
.narrow #card { display: none; border: none; }
.narrow.open #list { display: none; }
.narrow.open #card { display: block; }
.stale #essentials, .stale #body, .lost #essentials, .lost #body { text-style: dim; }
#hints { height: 1; }
.narrow #hints { height: 2; }
OptionList > .option-list--option-highlighted { text-style: bold; }
.pane { height: 100%; border: none; padding: 0; }
#activity { layout: vertical; height: 100%; }
#hour { height: auto; max-height: 6; text-wrap: nowrap; text-overflow: ellipsis; }
#stories, #ledger { height: 1fr; border: none; padding: 0; }
#ledger, .ledger #hour, .ledger #stories { display: none; }
.ledger #ledger { display: block; }
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
        ("1", "pane('queue')", "Show the queue: what waits for you"),
        ("2", "pane('activity')", "Show activity: history of runs"),
        ("3", "pane('grants')", "Show grants: what runs without approval"),
        ("4", "pane('sessions')", "Show sessions: agents at work"),
        ("5", "pane('system')", "Show system: daemon, vault and approver status"),
        ("question_mark", "help", "Help: list of keys"),
        ("q", "quit", "Quit (exit)"),
        ("A", "approve", "Approve (accept, allow) this request"),
        ("d", "deny", "Deny (reject, refuse) this request"),
        ("D", "deny_and_stop", "Deny and end the session (stop the agent)"),
        ("e", "edit", "Edit (change) the arguments"),
        ("t", "grant", "Allow the same for a while (grant)"),
        ("m", "ask_back", "Ask the agent a question (message)"),
        ("p", "preview", "Load the current state (preview)"),
        ("u", "undo", "Withdraw (cancel) this request"),
        ("space", "read_on", "Next page (scroll down)"),
        ("f", "whole", "Show full values"),
        ("r", "raw", "Show JSON (raw)"),
        ("equals_sign", "difference", "Compare with an approved call (diff)"),
        ("P", "proof", "Show proof: digests, pins, session"),
        ("exclamation_mark", "unread", "Decide without reading everything"),
        ("o", "open_page", "Open the web page (browser)"),
        ("y", "copy", "Copy the id (clipboard)"),
        ("v", "mark", "Select (mark) this request"),
        ("a", "select_alike", "Select all alike"),
        ("g", "group", "Group requests that are alike"),
        ("n", "next(1)", "Next waiting request"),
        ("N", "next(-1)", "Previous waiting request"),
        ("slash", "filter", "Filter (search, find) requests"),
        ("z", "snooze", "Mute bell and notifications for 10 minutes"),
        ("L", "key", "Unlock or lock the approver's key"),
        ("V", "vault", "Unlock or lock the vault"),
        ("l", "ledger", "Show every event (ledger, log) or runs"),
        ("x", "end", "End (revoke, stop) a grant or session"),
        ("escape", "back", "Back (close)"),
    )
]

HINTS: Final = {
    "queue": " A approve · d deny · e edit · m ask · p load · P proof · L key · ? help",
    "lost": " waiting for the daemon: nothing can be decided · ? help · q quit",
    "empty": " 1–5 screens · L key · / filter · ? help · q quit",
    "closed": " r JSON · = compare · n next waiting · Enter read · / filter · ? help · q quit",
    "unread": " ↓ more (Space) · A approve · d deny · e edit · ? help",
    "held": " u withdraw · r JSON · = compare · Enter read · / filter · ? help · q quit",
    "activity": " Enter show run · l ledger (every event) · ? help · q quit",
    "ledger": " Enter show run · l runs as stories · ? help · q quit",
    "grants": " x revoke · ? help · q quit",
    "sessions": " x end session · ? help · q quit",
    "system": " L key · V vault · ? help · q quit",
}

NAMES: Final = {
    "question_mark": "?",
    "exclamation_mark": "!",
    "equals_sign": "=",
    "slash": "/",
    "escape": "Esc",
    "space": "Space",
}
"""Names of keys as on a keyboard, where Textual's differ."""
ABOUT_A_QUESTION: Final = frozenset(
    (
        *("approve", "deny", "deny_and_stop", "edit", "grant", "ask_back", "preview", "undo", "mark", "select_alike"),
        *("read_on", "unread", "whole", "proof", "raw", "difference", "copy", "open_page", "next", "group", "filter"),
    )
)
"""Actions about a question, which do nothing on screens other than the queue."""

HELP: Final = """\
!   needs attention             ≠   differs from an approved call
“…” a value from the request   │   text that somebody else wrote
Enter, Space and clicks never approve. Keys are ignored for 0.4 s
after something new appears.

DECIDE  A  approve, then y or the word shown
        d  deny, with a reason          D  deny and end the session
        e  edit the arguments           m  ask the agent a question
        t  allow the same for a while   u  withdraw
        v  select, a  all alike         !  decide without reading all
READ    Space  next page                f  full values
        p  load the current state       P  proof
        =  compare with approved        r  JSON
        o  open the web page            y  copy the id
MOVE    j k ↓ ↑  in the list            Enter, Tab  to the card
        n  next waiting                 N  previous waiting
        /  filter: words, agent:x action:x kind:x status:x
        g  group identical (×n)         1–5  screens    Esc  back
OTHER   l  in activity: every event     x  end a grant or session
        L  unlock or lock the key       V  unlock or lock the vault
        z  mute for 10 minutes          Ctrl-P  all commands   q  quit
"""
"""Help text that fits a terminal of 24 rows and 80 columns, including its box; the most important facts come first."""
