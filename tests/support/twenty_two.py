"""Twenty-two requests of a busy day, three of them dangerous: a queue whose list must show which.

The dangerous three pay to a name with look-alike letters, remove a gate, and update a connector that then reaches a
look-alike host. The others are lunches, messages, mails, and a payment of the kind that is made each month.
"""

from __future__ import annotations

import time
from typing import Any, Final

from aileron.model.timestamp import utc
from tests.support.ten_requests import TEN, calendar, mail, note, payment, run_by_claude

__all__ = ["DANGEROUS", "twenty_two"]

DANGEROUS: Final = {
    "act-20261121T050000-00000000000000000007": ("! PAYS", "! look-alike letters"),
    "act-20261121T050000-00000000000000000012": ("! LASTING", "! runs without approval +1"),
    "act-20261121T050000-00000000000000000018": ("! LASTING", "! look-alike host +1"),
}
"""Verdict and alarm that every surface shows for each dangerous request, by id."""
_NAMES: Final = ("Mira", "Ben", "Cleo", "Dan", "Eve", "Fay", "Gus")


def twenty_two(*, lasts_s: float = 840.0) -> list[dict[str, Any]]:
    """Return the requests as the daemon shows them. The first asked expires last; the first expires after `lasts_s` seconds."""
    lunches = [calendar(f"Lunch with {name}", day) for day, name in enumerate(_NAMES, start=8)]
    notes = [note("#engineering", f"Build {number} is green.") for number in range(411, 416)]
    mails = [mail(f"{name.lower()}@northwind.example", "Minutes of Monday") for name in _NAMES[:5]]
    plans = [*lunches, *notes, *mails, payment("Northwind Ltd", 1840.5, "EUR"), payment("Contoso", 10_000_000.0, "JPY")]
    asked = [run_by_claude(plan) for plan in plans]
    by_name = {request.name: request for request in TEN}
    asked.insert(7, run_by_claude(payment("N\u043erthwind Ltd", 1249.5, "EUR")))
    asked.insert(12, lambda id: by_name["gate gone"].asked(id))
    asked.insert(18, lambda id: {**by_name["update"].asked(id), "agent": "claude", "folder": "/home/you/invoices"})
    now = time.time()
    return [
        {
            **ask(f"act-20261121T050000-{number:020}"),
            "created_at": utc(now - 60 + number),
            "expires_at": utc(now + lasts_s + 10 * (len(asked) - number)),
        }
        for number, ask in enumerate(asked)
    ]
