"""The runs that show a person how a service works: their arguments, and what is told of their results.

Runs in commands. The catalogue says which runs these are; the person gives the arguments that only they know. A service's answer
is hostile text.

Source: docs/adr/0079-services-come-with-aileron.md. Not here: when a trial is offered (add.py, guided_setup.py).
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from typing import Final

from aileron.catalogue.service import Check, Trial
from aileron.cli.prompts import ask_now
from aileron.model.json_value import JSON, JSONObject

__all__ = ["asked_arguments", "told"]

_PLACE: Final = re.compile(r"\{([a-z_]+)(?:\.count:([a-z ]+)\|([a-z ]+))?\}")


def asked_arguments(trial: Trial) -> JSONObject | None:
    """Ask the person for the trial's arguments. Return all arguments, or None if the person skips one with Enter."""
    typed: dict[str, str] = {}
    for name, words in trial.asks.items():
        if not (answer := ask_now(f"{words}, to try it (Enter to skip): ")):
            return None
        typed[name] = answer
    known = {**typed, "tomorrow": str(datetime.date.today() + datetime.timedelta(days=1))}
    return {**{name: _filled(value, known) for name, value in trial.args.items()}, **typed}


def _filled(value: str | int | bool | dict[str, str], known: Mapping[str, str]) -> JSON:
    """Return an argument with the known texts in its places.

    >>> _filled("{tomorrow}T09:00:00Z", {"tomorrow": "2026-03-01"})
    '2026-03-01T09:00:00Z'
    """
    if isinstance(value, str):
        return _PLACE.sub(lambda place: known.get(place[1], place[0]), value)
    return {**value} if isinstance(value, dict) else value


def told(check: Check, result: JSON) -> str:
    """Return the check's sentence, filled with the result.

    >>> told(Check(action="x", says="as {login}; {repos.count:repository|repositories}"), {"login": "ann", "repos": [1, 2]})
    'as ann; 2 repositories'
    """
    members: JSONObject = result if isinstance(result, dict) else {}

    def filled(place: re.Match[str]) -> str:
        value = members.get(place[1])
        if place[2]:
            count = len(value) if isinstance(value, list | dict) else None
            return f"{'some' if count is None else count} {place[2] if count == 1 else place[3]}"
        return "?" if value is None else str(value)

    return _PLACE.sub(filled, check.says)
