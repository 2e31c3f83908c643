"""Finds the complete id for a typed end: a person reads and types only the end of an id, and the daemon gets the complete id.

Runs in commands. Ids of runs, sessions, approvals and grants end in 80 random bits (audit/moves.py); a terminal shows 32 of
them (output.py). Among ten thousand ids, the probability that any two have the same 32 bits is about one percent. If an end is
ambiguous, the error names the ids.

Rules
- A whole id is used without a request to the daemon, even if it is too old to be found by its end.
- An ambiguous end is never guessed.

Source: docs/reference/cli.md. Not here: approvals that wait (decision_dialogue.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from aileron.cli.output import WHOLE_ID
from aileron.cli.problem import Problem
from aileron.cli.supervisor import Supervisor

__all__ = ["LEAST_PART", "meant", "recorded", "run_meant", "session_meant"]

LEAST_PART: Final = 4
"""Minimum number of characters of an id's end; a shorter end is a typing mistake."""
_END: Final = re.compile(r"[0-9a-f]{4,20}")
"""Pattern of the end of an id, which follows the id's time. Any other text is a complete id or a mistake."""
_PAGE: Final = 1000
_PAGES: Final = 20
"""Maximum number of pages of events that are searched, newest first: 20,000 events in all.

Each page takes about ten milliseconds.
"""


def run_meant(supervisor: Supervisor, wanted: str) -> str:
    """Return the run whose id is `wanted` or ends with it; `wanted` itself if there is none.

    Raises Problem if several end with it.
    """
    return meant(wanted, recorded(supervisor, wanted, "run"), fix="aileron audit list") or wanted


def session_meant(supervisor: Supervisor, wanted: str) -> str:
    """Return the session whose id is `wanted` or ends with it; `wanted` itself if none is listed.

    Raises Problem if several end with it.
    """
    from aileron.api.sessions import SessionList

    if WHOLE_ID.fullmatch(wanted):
        return wanted
    names = (entry.id for entry in supervisor.fetch(SessionList, "GET", "/v1/sessions").sessions)
    return meant(wanted, names, fix="aileron sessions list") or wanted


def meant(wanted: str, names: Iterable[str], *, fix: str) -> str | None:
    """Return the name in `names` that is `wanted` or ends with it; None if there is none.

    Raises Problem if several end with it.
    """
    known = dict.fromkeys(names)
    if wanted in known:
        return wanted
    found = [name for name in known if len(wanted) >= LEAST_PART and name.endswith(wanted)]
    if len(found) > 1:
        raise Problem.usage(f"{wanted!r} is ambiguous: {' or '.join(found)}", fix=fix)
    return found[0] if found else None


def recorded(supervisor: Supervisor, wanted: str, field: str) -> list[str]:
    """Return all ids that end with `wanted` in this field of the newest events.

    The search stops at the first page with such an id.
    """
    if _END.fullmatch(wanted) is None:
        return []
    before = ""
    for _ in range(_PAGES):
        events = supervisor.ask("GET", f"/v1/audit?limit={_PAGE}{before}")["events"]
        if found := [name for event in events if str(name := event.get(field, "")).endswith(wanted)]:
            return found
        if len(events) < _PAGE:
            break
        before = f"&before={events[-1]['seq']}"
    return []
