r"""Signals to the terminal outside the screen: a title with the number of open questions, and notifications of new questions.

Pure: returns sequences for a terminal, chosen by its environment. The title is set by OSC 2, and the previous title is restored
at the end (XTWINOPS 22 and 23). A notification is OSC 777 or OSC 9, whichever the terminal is known to support; other terminals
get none.

Rules
- The title has only numbers and Aileron's own words. A notification has the names of the agent and the action, and no
  arguments.
- A name from another party is reduced to printable ASCII without `;`, so that it has nothing that a terminal could
  obey.
- A notification begins with a word of Aileron: ConEmu and Windows Terminal take `OSC 9 ; 4` and other numbers for commands.

Source: xterm's ctlseqs (OSC 2, XTWINOPS); iTerm2, "Proprietary Escape Codes" (OSC 9); foot-ctlseqs(7) (OSC 777). Not here: when
something is new, the bell (news.py).

>>> title(2)
'\x1b]2;(2) aileron console\x1b\\'
>>> notification("777", [("claude\x1b]2;gone", "send-mail")])
'\x1b]777;notify;aileron;claude[U+001B]]2,gone asks: send-mail\x1b\\'
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal

__all__ = ["MOST_NAME", "Way", "has_title", "notification", "notification_way", "restore_title", "save_title", "title"]

Way = Literal["9", "777"]

_ST: Final = "\x1b\\"
"""Terminator of a control string (ST).

BEL terminates a string too, but rings in a terminal that does not know the sequence.
"""
_DUMB: Final = ("", "dumb", "linux", "cons25", "vt52", "vt100", "vt102", "vt220", "emacs")
"""Values of TERM for terminals without a title. The kernel's console (`linux`) would read some title sequences as
palette changes.
"""
_BY_TERM: Final[tuple[tuple[str, Way], ...]] = (
    ("xterm-kitty", "9"),
    ("xterm-ghostty", "777"),
    ("foot", "777"),
    ("rxvt-unicode", "777"),
    ("wezterm", "777"),
)
"""Kinds of notification by the beginning of TERM, which ssh passes on."""
_BY_PROGRAM: Final[Mapping[str, Way]] = {"iTerm.app": "9", "WezTerm": "777", "ghostty": "777"}
"""Kinds of notification by TERM_PROGRAM, which ssh does not pass on."""
_MULTIPLEXED: Final = ("TMUX", "STY", "ZELLIJ")
"""Environment variables of multiplexers, which do not pass on unknown sequences but show the title in a row of their own."""
MOST_NAME: Final = 60
"""Maximum number of characters of an agent's or action's name, because a notification is one row."""
_HARMLESS: Final = re.compile(r"[^ -:<-~]")


def has_title(environment: Mapping[str, str]) -> bool:
    """Return whether the terminal of this environment has a title that a program can set."""
    return environment.get("TERM", "") not in _DUMB


def notification_way(environment: Mapping[str, str]) -> Way | None:
    """Return the kind of notification that the terminal shows; None if none is known."""
    if not has_title(environment) or any(environment.get(name) for name in _MULTIPLEXED):
        return None
    term = environment["TERM"]
    known = next((way for begin, way in _BY_TERM if term.startswith(begin)), None)
    return known or _BY_PROGRAM.get(environment.get("TERM_PROGRAM", ""))


def save_title() -> str:
    """Return the sequence that saves the terminal's current title."""
    return "\x1b[22;2t"


def restore_title() -> str:
    """Return the sequence that restores the saved title."""
    return "\x1b[23;2t"


def title(waiting: int) -> str:
    """Return the sequence for a title: the number of open questions first, because a narrow tab shows only the beginning."""
    words = f"({waiting}) aileron console" if waiting else "aileron console"
    return f"\x1b]2;{words}{_ST}"


def notification(way: Way, asked: Sequence[tuple[str, str]]) -> str:
    """Return the sequence for a notification of new questions, given as pairs of agent and action.

    It names the first question and counts the others.
    """
    agent, action = asked[0]
    more = f" (and {len(asked) - 1} more)" if len(asked) > 1 else ""
    words = f"{_harmless(agent)} asks: {_harmless(action)}{more}"
    return f"\x1b]777;notify;aileron;{words}{_ST}" if way == "777" else f"\x1b]9;aileron: {words}{_ST}"


def _harmless(name: str) -> str:
    """Return the name as printable ASCII without `;`.

    Any other character is replaced by its code point, so that nothing is lost and the terminal obeys nothing.
    """
    spelled = _HARMLESS.sub(_spelled, name[:MOST_NAME])
    return spelled if len(spelled) <= MOST_NAME else f"{spelled[: MOST_NAME - 3]}..."


def _spelled(found: re.Match[str]) -> str:
    return "," if found[0] == ";" else f"[U+{ord(found[0]):04X}]"
