"""Finds the privileges beyond reading that a MySQL or MariaDB account has, from the output of SHOW GRANTS.

Runs in the process of one login. The service itself answers, so this protects against an account that was bound by mistake,
not against a service that lies.

Rules
- A privilege that is not on this module's list of reading privileges counts as more than reading. That covers privileges that
  newer versions add.
- A role counts as more than reading: SET ROLE would activate the role's privileges, which are not in the response.
- A line that cannot be parsed counts as more than reading. A line is never quoted, because MariaDB's line has the hash of the
  password.

EXECUTE is not on the list, because a routine runs with the rights of its definer. A view that calls such a function is not
detected here.

Source: MySQL's and MariaDB's pages "SHOW GRANTS" and "GRANT". Not here: the query (mysql.py).

>>> more_than_reading("GRANT SELECT, SHOW VIEW ON `shop`.* TO `me`@`%`") is None
True
>>> more_than_reading("GRANT SELECT, INSERT (`name`), DELETE ON `shop`.`order` TO `me`@`%`")
'INSERT, DELETE ON `shop`.`order`'
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["more_than_reading"]

_READING: Final = frozenset(
    {
        "BINLOG MONITOR",
        "PROCESS",
        "REPLICA MONITOR",
        "REPLICATION CLIENT",
        "SELECT",
        "SHOW DATABASES",
        "SHOW VIEW",
        "SLAVE MONITOR",
        "USAGE",
    }
)
_NAME: Final = r"(?:`(?:[^`]|``)*`|\*)"
_GRANT: Final = re.compile(
    rf"GRANT (?P<rights>[^`'\"]+?(?: \((?:{_NAME}(?:, )?)+\)[^`'\"]*?)*) ON (?P<where>{_NAME}(?:\.{_NAME})?) TO .*"
)
_COLUMNS: Final = re.compile(rf" \((?:{_NAME}(?:, )?)+\)")


def more_than_reading(grant: str) -> str | None:
    """Return the privileges beyond reading in a line of SHOW GRANTS, as text for a message; None if it has only reading."""
    found = _GRANT.fullmatch(grant)
    if found is None:
        return "a role or something else that SHOW GRANTS has as a line of its own"
    rights = [right.strip() for right in _COLUMNS.sub("", found["rights"]).split(",")]
    others = [right for right in rights if right not in _READING]
    if "GRANT OPTION" in grant:
        others.append("GRANT OPTION")
    return f"{', '.join(others)} ON {found['where']}" if others else None
