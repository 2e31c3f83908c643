"""Find what the end of an id stands for: a person reads and types that, and the daemon is asked with the whole id.

Runs in commands. Ids of runs, sessions, approvals and grants end in 80 random bits (audit/moves.py); a terminal shows 32 of them
(output.py), which tell two of ten thousand apart but for one time in a hundred. Where an end is not enough, the ids are named.

Rules
- A whole id is taken as it is and nothing is asked: also for what is too old to be found by its end.
- What fits several is never guessed.

Source: docs/reference/cli.md. Not here: approvals that wait (decision_dialogue.py), grants (commands/grant.py).
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
"""Characters of an end: fewer are typed by mistake."""
_END: Final = re.compile(r"[0-9a-f]{4,20}")
"""End of an id, without its time; anything else is a whole id or a mistake."""
_PAGE: Final = 1000
_PAGES: Final = 20
"""Events that are looked through, newest first: 20,000 in all, of which each page takes some ten milliseconds."""


def run_meant(supervisor: Supervisor, wanted: str) -> str:
    """The run whose id is `wanted` or ends with it; `wanted` itself where none does. Problem for several."""
    return meant(wanted, recorded(supervisor, wanted, "run"), fix="aileron audit list") or wanted


def session_meant(supervisor: Supervisor, wanted: str) -> str:
    """The session whose id is `wanted` or ends with it; `wanted` itself where none is listed. Problem for several."""
    from aileron.api.sessions import SessionList

    if WHOLE_ID.fullmatch(wanted):
        return wanted
    names = (entry.id for entry in supervisor.fetch(SessionList, "GET", "/v1/sessions").sessions)
    return meant(wanted, names, fix="aileron sessions list") or wanted


def meant(wanted: str, names: Iterable[str], *, fix: str) -> str | None:
    """The one of `names` that is `wanted` or ends with it, or None. Problem for several."""
    known = dict.fromkeys(names)
    if wanted in known:
        return wanted
    found = [name for name in known if len(wanted) >= LEAST_PART and name.endswith(wanted)]
    if len(found) > 1:
        raise Problem.usage(f"{wanted!r} is ambiguous: {' or '.join(found)}", fix=fix)
    return found[0] if found else None


def recorded(supervisor: Supervisor, wanted: str, field: str) -> list[str]:
    """The ids in this field of the newest events that end with `wanted`, up to the page that has one."""
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
